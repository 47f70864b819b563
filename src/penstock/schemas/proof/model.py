"""What an attempt to read one schema's events with another schema shows."""

from typing import Any, Final, NamedTuple

SHOWN_CHARACTERS_MAX: Final = 300


class Place(NamedTuple):
    """Where two schemas differ, and what each says there."""

    writer: str | None  # None: it says nothing there
    reader: str | None
    fields: tuple[str, ...]  # the names of the fields on the way, as the reader calls them


class Attempt(NamedTuple):
    """One event as it is made and read, before anybody looks at it."""

    event: Any
    payload: bytes
    seen: Any  # None: nothing
    failure: str | None


class Trial(NamedTuple):
    """One event that was written with one schema and read with another."""

    event: str  # as JSON
    payload: bytes
    seen: str | None  # what the reader sees, as JSON; None: nothing
    failure: str | None  # why it cannot be read; None: it was read


class Evidence(NamedTuple):
    """What came of all trials: an event that is read, and one that is not, if there are such."""

    trials: int = 0
    reads: Trial | None = None
    fails: Trial | None = None
    missing: str = ""  # why there was no trial at all


class Unprovable(Exception):
    """No event can be made of the schema; the message says why."""


def shortened(text: str) -> str:
    """The text, if it is not too long for a person."""
    if len(text) <= SHOWN_CHARACTERS_MAX:
        return text
    return f"{text[:SHOWN_CHARACTERS_MAX]}…"
