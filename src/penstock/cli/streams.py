"""Standard input, output and error as a shell hands them over: closed, broken or full."""

import os
import sys


def open_missing() -> None:
    """A stream that was closed is an empty one.

    A file or socket would get its number otherwise, and be taken for it.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115 - open to the end of the process
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - as above
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - as above


def drop_output() -> None:
    """Nobody takes what is written: forget what is left of it, so that no more is tried."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
