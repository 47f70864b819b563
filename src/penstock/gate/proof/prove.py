"""Runs the trials of two schemas and collects the evidence; locates differences and used fields.

Each language has a module with the functions of `_Language`, imported on first use.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol, cast

from penstock.schemas.model import Difference, ParsedSchema, SchemaType

SHOWN_CHARACTERS_MAX: Final = 300
TRIALS_MAX: Final = 400  # of incompatible schemas, until one event fails
SAMPLES_MAX: Final = 60  # of compatible schemas: all should be read
TRIALS_BYTES_MAX: Final = 100_000  # of all events; a few large ones are enough
_MODULES: Final[Mapping[SchemaType, str]] = {
    SchemaType.AVRO: "penstock.gate.proof.avro",
    SchemaType.PROTOBUF: "penstock.gate.proof.protobuf",
    SchemaType.JSON: "penstock.gate.proof.json",
}


class DifferenceLocation(NamedTuple):
    """The elements of two schemas at the path of a difference."""

    writer: str | None  # None: absent
    reader: str | None
    fields: tuple[str, ...]  # the names of the fields in the path, as the reader has them


class Attempt(NamedTuple):
    """One event as written and as read, before it is formatted."""

    event: Any
    payload: bytes
    seen: Any  # what the reader sees; None if it cannot read the event
    failure: str | None


class Trial(NamedTuple):
    """One event that was written with one schema and read with another."""

    event: str  # as JSON
    payload: bytes
    seen: str | None  # what the reader sees, as JSON; None if it cannot read the event
    failure: str | None  # why it cannot be read; None if it was read


class Evidence(NamedTuple):
    """The result of all trials: an event that is read, and one that fails, if there are any."""

    trials: int = 0
    reads: Trial | None = None
    fails: Trial | None = None
    missing: str = ""  # why there was no trial


class UnprovableError(Exception):
    """No event can be generated; the message says why."""


def shortened(text: str) -> str:
    """The text, cut if it is too long for a report."""
    if len(text) <= SHOWN_CHARACTERS_MAX:
        return text
    return f"{text[:SHOWN_CHARACTERS_MAX]}…"


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
    """Write events with one schema and read them with the other, until one fails.

    Events that concern `differences` come first. Equal arguments give equal events.
    """
    if writer.type is not reader.type:
        return Evidence(missing=f"{reader.type} cannot read {writer.type}")
    language = _language(writer)
    trials_max = TRIALS_MAX if differences else SAMPLES_MAX
    reads: Trial | None = None
    count = size_bytes = 0
    try:
        for attempt in islice(language.trials(writer, reader, differences, seed), trials_max):
            count += 1
            size_bytes += len(attempt.payload)
            if attempt.failure is not None:
                return Evidence(count, reads, _trial(language, attempt))
            reads = reads or _trial(language, attempt)
            if size_bytes > TRIALS_BYTES_MAX:
                break
    except UnprovableError as reason:
        return Evidence(count, reads, None, "" if reads else str(reason))
    missing = "" if reads else "no event could be generated that the writer's schema allows"
    return Evidence(count, reads, None, missing)


def _trial(language: _Language, attempt: Attempt) -> Trial:
    seen = None if attempt.seen is None else language.shown(attempt.seen)
    return Trial(language.shown(attempt.event), attempt.payload, seen, attempt.failure)


def locate(
    writer: ParsedSchema, reader: ParsedSchema, difference: Difference
) -> DifferenceLocation:
    """The elements of both schemas at the path of a difference."""
    if writer.type is not reader.type:
        return DifferenceLocation(str(writer.type), str(reader.type), ())
    return _language(writer).locate(writer, reader, difference)


def missing_fields(
    before: ParsedSchema, after: ParsedSchema, used: Iterable[str]
) -> tuple[str, ...]:
    """The used fields, such as "customer.name", that `before` has and `after` has not.

    A default does not matter: the field has no value. Protobuf identifies fields by number, so a
    renamed field is not missing (see `renamed_fields`).
    """
    if before.type is not after.type:
        return ()
    language = _language(before)
    return tuple(name for name in used if language.loses(before, after, name.split(".")))


def renamed_fields(
    before: ParsedSchema, after: ParsedSchema, used: Iterable[str]
) -> dict[str, str]:
    """The new names of the used fields that were renamed, by their old names.

    Only in Protobuf: other languages identify a field by its name.
    """
    if before.type is not after.type or before.type is not SchemaType.PROTOBUF:
        return {}
    from penstock.gate.proof import protobuf  # a language is imported on first use
    from penstock.schemas.protobuf import ProtobufSchema

    assert isinstance(before, ProtobufSchema)
    assert isinstance(after, ProtobufSchema)
    names = {name: protobuf.renamed(before, after, name.split(".")) for name in used}
    return {name: new_name for name, new_name in names.items() if new_name is not None}


def _language(schema: ParsedSchema) -> _Language:
    return cast("_Language", import_module(_MODULES[schema.type]))
