"""A change that breaks a declared reader, and its form in the registry's API. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from penstock.schemas.compatibility import limit_messages


class ReaderBreak(NamedTuple):
    """One change that breaks a reader."""

    reader: str  # name and version
    kind: str
    path: str
    sentence: str
    before: str | None  # None: absent
    after: str | None  # None: absent


def reader_break_messages(breaks: Iterable[ReaderBreak]) -> list[str]:
    """Reader breaks in the form that the registry's API has for differences."""
    return limit_messages(
        [
            f"{{errorType:'{break_.kind}', description:'{break_.sentence}', "
            f"additionalInfo:'{break_.path}', reader:'{break_.reader}'}}"
            for break_ in breaks
        ]
    )
