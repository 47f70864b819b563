"""`python -m penstock` is the `penstock` command, also where no script directory is on the path."""

from penstock.cli.main import main

if __name__ == "__main__":
    main()
