"""The `penstock` command, one module per command family."""
