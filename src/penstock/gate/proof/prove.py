"""Runs the trials of a language, and finds the place of a difference, by the schemas' type.

What an attempt to read one schema's events with another schema shows.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol, cast

from penstock.schemas.model import Difference, ParsedSchema, SchemaType

SHOWN_CHARACTERS_MAX: Final = 300


class DifferenceLocation(NamedTuple):
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


class UnprovableError(Exception):
    """No event can be made of the schema; the message says why."""


def shortened(text: str) -> str:
    """The text, if it is not too long for a person."""
    if len(text) <= SHOWN_CHARACTERS_MAX:
        return text
    return f"{text[:SHOWN_CHARACTERS_MAX]}…"


TRIALS_MAX: Final = 400  # of two schemas that differ: until one event fails
SAMPLES_MAX: Final = 60  # of two that are compatible: all should be read
TRIALS_BYTES_MAX: Final = 100_000  # of either; where events are large, few are enough
_ROOMS: Final[Mapping[SchemaType, str]] = {
    SchemaType.AVRO: "penstock.gate.proof.avro",
    SchemaType.PROTOBUF: "penstock.gate.proof.protobuf",
    SchemaType.JSON: "penstock.gate.proof.json",
}


class _Language(Protocol):
    def trials(
        self,
        writer: ParsedSchema,
        reader: ParsedSchema,
        differences: Sequence[Difference],
        seed: int,
    ) -> Iterator[Attempt]: ...

    def shown(self, event: Any) -> str: ...

    def locate(
        self, writer: ParsedSchema, reader: ParsedSchema, difference: Difference
    ) -> DifferenceLocation: ...

    def loses(self, before: ParsedSchema, after: ParsedSchema, steps: Sequence[str]) -> bool: ...


def prove(
    writer: ParsedSchema,
    reader: ParsedSchema,
    differences: Sequence[Difference] = (),
    *,
    seed: int = 0,
) -> Evidence:
    """Write events with the one schema and read them with the other, until one fails.

    `differences` is where to aim. Equal arguments give equal events.
    """
    if writer.type is not reader.type:
        return Evidence(missing=f"{reader.type} does not read what {writer.type} wrote")
    language = _language(writer)
    most = TRIALS_MAX if differences else SAMPLES_MAX
    reads: Trial | None = None
    count = size_bytes = 0
    try:
        for attempt in islice(language.trials(writer, reader, differences, seed), most):
            count += 1
            size_bytes += len(attempt.payload)
            if attempt.failure is not None:
                return Evidence(count, reads, _trial(language, attempt))
            reads = reads or _trial(language, attempt)
            if size_bytes > TRIALS_BYTES_MAX:
                break
    except UnprovableError as reason:
        return Evidence(count, reads, None, "" if reads else str(reason))
    missing = "" if reads else "no event could be made that the writer's schema allows"
    return Evidence(count, reads, None, missing)


def _trial(language: _Language, attempt: Attempt) -> Trial:
    seen = None if attempt.seen is None else language.shown(attempt.seen)
    return Trial(language.shown(attempt.event), attempt.payload, seen, attempt.failure)


def locate(
    writer: ParsedSchema, reader: ParsedSchema, difference: Difference
) -> DifferenceLocation:
    """What both sides say at the place of a difference."""
    if writer.type is not reader.type:
        return DifferenceLocation(str(writer.type), str(reader.type), ())
    return _language(writer).locate(writer, reader, difference)


def missing_fields(
    before: ParsedSchema, after: ParsedSchema, wanted: Iterable[str]
) -> tuple[str, ...]:
    """Of the wanted fields, those that `before` has and `after` has not; dots lead inside.

    Whatever defaults say: who uses a field gets nothing in it. Protobuf knows fields by their
    numbers, so a new name is no loss there (see `renamed_fields`).
    """
    if before.type is not after.type:
        return ()
    language = _language(before)
    return tuple(name for name in wanted if language.loses(before, after, name.split(".")))


def renamed_fields(
    before: ParsedSchema, after: ParsedSchema, wanted: Iterable[str]
) -> dict[str, str]:
    """Of the wanted fields, those that have another name now, by their old names.

    Only Protobuf knows such: elsewhere a field is its name, and one with another name is missing.
    """
    if before.type is not after.type or before.type is not SchemaType.PROTOBUF:
        return {}
    from penstock.gate.proof import protobuf  # heavy: a language is imported when it is met
    from penstock.schemas.protobuf import ProtobufSchema

    assert isinstance(before, ProtobufSchema), "its type says so"
    assert isinstance(after, ProtobufSchema), "its type says so"
    found = {name: protobuf.renamed(before, after, name.split(".")) for name in wanted}
    return {name: now for name, now in found.items() if now is not None}


def _language(schema: ParsedSchema) -> _Language:
    return cast(_Language, import_module(_ROOMS[schema.type]))
