"""Things to run, from the root of the repository: `python -m examples.<name>`."""
