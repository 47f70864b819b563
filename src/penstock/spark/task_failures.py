"""Failures of Spark tasks on their way to the driver, where only their text arrives.

A task raises TaskError: its text starts with an error code in brackets, `[penstock:NAME]`. The
driver reads the code from there (`failure_from`); no decision depends on the rest of the text.
"""

import re
from collections.abc import Iterator
from typing import Final, TypeVar

from penstock.errors import ErrorCode, Refused

_CODE: Final = re.compile(r"\[penstock:(\w+)\] (.*)")
_TRACEBACK: Final = "Traceback (most recent call last):"
_TEXT_CHARACTERS_MAX: Final = 2_000
Item = TypeVar("Item")


class TaskError(Exception):
    """A failure in a task, with its code as the first word."""

    def __init__(self, failure: Exception) -> None:
        if isinstance(failure, Refused):
            code, text = failure.code, failure.message
        else:
            code, text = ErrorCode.unknown_server_error, f"{type(failure).__name__}: {failure}"
        super().__init__(f"[penstock:{code.name}] {' '.join(text.split())}")


class WriteError(Refused):
    """Spark could not run a job that writes; `code` is what its task failed with."""


def with_codes(items: Iterator[Item]) -> Iterator[Item]:
    """The items of a task's work; what it raises carries a code."""
    try:
        yield from items
    except Exception as failure:
        raise TaskError(failure) from failure


def failure_from(text: str) -> WriteError:
    """The failure that Spark reports with this text: the code, and the cause without the traces.

    Spark matches what `foreachBatch` raises with a pattern that runs out of stack when the text is
    as long as a Java trace, so the text is short.
    """
    coded = _CODE.search(text)
    if coded is not None and coded[1] in ErrorCode.__members__:
        return WriteError(ErrorCode[coded[1]], coded[2][:_TEXT_CHARACTERS_MAX])
    return WriteError(ErrorCode.unknown_server_error, _last_line(text)[:_TEXT_CHARACTERS_MAX])


def _last_line(text: str) -> str:
    """The line that ends the last Python traceback; without one, the first line."""
    _, _, trace = text.rpartition(_TRACEBACK)
    lines = (line for line in trace.splitlines() if line and not line[0].isspace())
    return next(lines, text)
