"""What a proposed schema takes from a registered reader.

The gate and the registry ask `harms` alike, so they cannot disagree. Pure.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.gate.proof import locate, missing_fields, renamed_fields
from penstock.schemas.compatibility import (
    DIFFERENT_TYPE,
    Incompatibilities,
    compare_directly,
    limit_messages,
)
from penstock.schemas.model import ParsedSchema, Policy
from penstock.schemas.readers import Reader

IN_USE: Final = "FIELD_IN_USE_REMOVED"
RENAMED: Final = "FIELD_IN_USE_RENAMED"


class ReaderBreak(NamedTuple):
    """One thing that a proposed schema takes from a reader."""

    reader: str  # name and version
    kind: str
    path: str
    sentence: str
    before: str | None  # None: there was nothing
    after: str | None  # None: there is nothing


def find_reader_breaks(
    reader: Reader,
    proposed: ParsedSchema,
    latest: ParsedSchema | None,
    policy: Policy = Policy.STRICT,
    incompatibilities: Incompatibilities = compare_directly,
) -> tuple[ReaderBreak, ...]:
    """What events of the proposed schema do to a reader, whatever the subject's level allows.

    A reader without a schema reads with `latest`; where there is no version yet, nothing was
    promised.
    """
    schema = reader.schema or latest
    if schema is None:
        return ()
    if schema.type is not proposed.type:
        sentence = f"{reader.title} reads {schema.type}, and the proposed schema is {proposed.type}"
        kinds = (str(schema.type), str(proposed.type))
        return (ReaderBreak(reader.title, DIFFERENT_TYPE, "/", sentence, *kinds),)
    return (
        *_lost(reader, schema, proposed),
        *_renamed(reader, schema, proposed),
        *_unread(reader, schema, proposed, policy, incompatibilities),
    )


def _lost(reader: Reader, schema: ParsedSchema, proposed: ParsedSchema) -> Iterable[ReaderBreak]:
    for name in missing_fields(schema, proposed, reader.fields):
        sentence = f"removing `{name}` breaks {reader.title}, which uses it"
        yield ReaderBreak(reader.title, IN_USE, name, sentence, name, None)


def _renamed(reader: Reader, schema: ParsedSchema, proposed: ParsedSchema) -> Iterable[ReaderBreak]:
    """A reader with a schema of its own sees the names in there; others see the writer's."""
    if reader.schema is not None and not reader.only_fields:
        return
    for name, now in renamed_fields(schema, proposed, reader.fields).items():
        sentence = f"renaming `{name}` to `{now}` breaks {reader.title}, which uses it by name"
        yield ReaderBreak(reader.title, RENAMED, name, sentence, name, now)


def _unread(
    reader: Reader,
    schema: ParsedSchema,
    proposed: ParsedSchema,
    policy: Policy,
    incompatibilities: Incompatibilities,
) -> Iterable[ReaderBreak]:
    for difference in incompatibilities(schema, proposed, policy):
        place = locate(proposed, schema, difference)
        if reader.only_fields and not _touches(place.fields, reader.fields):
            continue
        sentence = difference.describe(reader=f"{reader.name}'s", writer="proposed")
        yield ReaderBreak(
            reader.title, difference.kind, difference.path, sentence, place.reader, place.writer
        )


def _touches(place: tuple[str, ...], used: Iterable[str]) -> bool:
    """Whether a place is in a field that is used, around it, or around everything."""
    if not place:
        return True
    here = ".".join(place)
    return any(
        name == here or name.startswith(f"{here}.") or here.startswith(f"{name}.") for name in used
    )


def reader_break_messages(found: Iterable[ReaderBreak]) -> list[str]:
    """Harms as the registry's API words differences."""
    return limit_messages(
        [
            f"{{errorType:'{one.kind}', description:'{one.sentence}', "
            f"additionalInfo:'{one.path}', reader:'{one.reader}'}}"
            for one in found
        ]
    )
