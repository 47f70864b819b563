"""What a proposed schema breaks for a declared reader.

The gate and the registry both call `find_reader_breaks`, so their results agree. Pure.
"""

from collections.abc import Iterable
from typing import Final

from penstock.gate.proof import locate, missing_fields, renamed_fields
from penstock.schemas.compatibility import (
    DIFFERENT_TYPE,
    Incompatibilities,
    compare_directly,
)
from penstock.schemas.model import ParsedSchema, Policy
from penstock.schemas.reader_break import ReaderBreak
from penstock.schemas.readers import Reader

FIELD_REMOVED: Final = "FIELD_IN_USE_REMOVED"
FIELD_RENAMED: Final = "FIELD_IN_USE_RENAMED"


def find_reader_breaks(
    reader: Reader,
    proposed: ParsedSchema,
    latest: ParsedSchema | None,
    policy: Policy = Policy.STRICT,
    incompatibilities: Incompatibilities = compare_directly,
) -> tuple[ReaderBreak, ...]:
    """What events of the proposed schema break, whatever the level of the subject allows.

    A reader without a schema reads with `latest`; without a version there is nothing to break.
    """
    schema = reader.schema or latest
    if schema is None:
        return ()
    if schema.type is not proposed.type:
        sentence = f"{reader.title} reads {schema.type}, and the proposed schema is {proposed.type}"
        types = (str(schema.type), str(proposed.type))
        return (ReaderBreak(reader.title, DIFFERENT_TYPE, "/", sentence, *types),)
    return (
        *_removed_fields(reader, schema, proposed),
        *_renamed_fields(reader, schema, proposed),
        *_unreadable(reader, schema, proposed, policy, incompatibilities),
    )


def _removed_fields(
    reader: Reader, schema: ParsedSchema, proposed: ParsedSchema
) -> Iterable[ReaderBreak]:
    for name in missing_fields(schema, proposed, reader.fields):
        sentence = f"removing `{name}` breaks {reader.title}, which uses it"
        yield ReaderBreak(reader.title, FIELD_REMOVED, name, sentence, name, None)


def _renamed_fields(
    reader: Reader, schema: ParsedSchema, proposed: ParsedSchema
) -> Iterable[ReaderBreak]:
    """A reader with its own schema sees the names of that schema; others see the writer's."""
    if reader.schema is not None and not reader.only_fields:
        return
    for name, new_name in renamed_fields(schema, proposed, reader.fields).items():
        sentence = f"renaming `{name}` to `{new_name}` breaks {reader.title}, which uses it by name"
        yield ReaderBreak(reader.title, FIELD_RENAMED, name, sentence, name, new_name)


def _unreadable(
    reader: Reader,
    schema: ParsedSchema,
    proposed: ParsedSchema,
    policy: Policy,
    incompatibilities: Incompatibilities,
) -> Iterable[ReaderBreak]:
    for difference in incompatibilities(schema, proposed, policy):
        location = locate(proposed, schema, difference)
        if reader.only_fields and not _is_used(location.fields, reader.fields):
            continue
        sentence = difference.describe(reader=f"{reader.name}'s", writer="proposed")
        yield ReaderBreak(
            reader.title,
            difference.kind,
            difference.path,
            sentence,
            location.reader,
            location.writer,
        )


def _is_used(path: tuple[str, ...], used: Iterable[str]) -> bool:
    """Whether a path is in a used field, contains one, or contains everything."""
    if not path:
        return True
    field = ".".join(path)
    return any(
        name == field or name.startswith(f"{field}.") or field.startswith(f"{name}.")
        for name in used
    )
