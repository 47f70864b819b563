"""Consumers that said what they read: how a registry keeps them, and what harms them.

A reader of a subject is a subject of its own in the context `.readers`: its schema is the latest
version's, the rest are that version's metadata properties, so any registry that keeps metadata
keeps readers. The gate and the registry ask `harms` alike, so they cannot disagree. Pure: today
comes as an argument.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from penstock.schemas.compatibility import (
    DIFFERENT_TYPE,
    Unreadable,
    compare_directly,
    limited,
)
from penstock.schemas.model import ParsedSchema, Policy
from penstock.schemas.proof import locate, missing_fields, renamed_fields

READERS_CONTEXT: Final = ".readers"
READERS: Final = f":{READERS_CONTEXT}:"  # what the names of all kept readers begin with
IN_USE: Final = "FIELD_IN_USE_REMOVED"
RENAMED: Final = "FIELD_IN_USE_RENAMED"
PROPERTIES: Final = "penstock.reader."
OWNER: Final = f"{PROPERTIES}owner"
VERSION: Final = f"{PROPERTIES}version"
EXPIRES: Final = f"{PROPERTIES}expires"
FIELDS: Final = f"{PROPERTIES}fields"
ONLY_FIELDS: Final = f"{PROPERTIES}only.fields"


class InvalidReader(Exception):
    """What is kept, or to be kept, is no reader; the message says why."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A consumer that depends on the contract."""

    name: str
    version: str = ""  # the consumer's own, such as "7"
    owner: str = ""
    schema: ParsedSchema | None = None  # what it reads with; None: the latest version there is
    fields: tuple[str, ...] = ()  # what it uses; dots lead inside
    only_fields: bool = False  # nothing but these matters to it
    last_day: date | None = None  # after it the reader counts no more; None: for ever

    @property
    def title(self) -> str:
        """Name and version."""
        return f"{self.name} {self.version}".strip()

    def is_expired(self, today: date) -> bool:
        """Whether it was not renewed in time."""
        return self.last_day is not None and today > self.last_day


class Harm(NamedTuple):
    """One thing that a proposed schema takes from a reader."""

    reader: str  # name and version
    kind: str
    path: str
    sentence: str
    before: str | None  # None: there was nothing
    after: str | None  # None: there is nothing


def harms(
    reader: Reader,
    proposed: ParsedSchema,
    latest: ParsedSchema | None,
    policy: Policy = Policy.STRICT,
    unreadable: Unreadable = compare_directly,
) -> tuple[Harm, ...]:
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
        return (Harm(reader.title, DIFFERENT_TYPE, "/", sentence, *kinds),)
    return (
        *_lost(reader, schema, proposed),
        *_renamed(reader, schema, proposed),
        *_unread(reader, schema, proposed, policy, unreadable),
    )


def _lost(reader: Reader, schema: ParsedSchema, proposed: ParsedSchema) -> Iterable[Harm]:
    for name in missing_fields(schema, proposed, reader.fields):
        sentence = f"removing `{name}` breaks {reader.title}, which uses it"
        yield Harm(reader.title, IN_USE, name, sentence, name, None)


def _renamed(reader: Reader, schema: ParsedSchema, proposed: ParsedSchema) -> Iterable[Harm]:
    """A reader with a schema of its own sees the names in there; others see the writer's."""
    if reader.schema is not None and not reader.only_fields:
        return
    for name, now in renamed_fields(schema, proposed, reader.fields).items():
        sentence = f"renaming `{name}` to `{now}` breaks {reader.title}, which uses it by name"
        yield Harm(reader.title, RENAMED, name, sentence, name, now)


def _unread(
    reader: Reader,
    schema: ParsedSchema,
    proposed: ParsedSchema,
    policy: Policy,
    unreadable: Unreadable,
) -> Iterable[Harm]:
    for difference in unreadable(schema, proposed, policy):
        place = locate(proposed, schema, difference)
        if reader.only_fields and not _touches(place.fields, reader.fields):
            continue
        sentence = difference.said(reader=f"{reader.name}'s", writer="proposed")
        yield Harm(
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


def messages_of_harms(found: Iterable[Harm]) -> list[str]:
    """Harms as the registry's API words differences."""
    return limited(
        [
            f"{{errorType:'{one.kind}', description:'{one.sentence}', "
            f"additionalInfo:'{one.path}', reader:'{one.reader}'}}"
            for one in found
        ]
    )


def reader_subject(subject: str, name: str) -> str:
    """Where a reader of a subject is kept."""
    if not name or "/" in name:
        raise InvalidReader(f"{name!r} is no name for a reader: it is not empty and has no slash")
    return f"{readers_prefix(subject)}{quote(name, safe='')}"


def readers_prefix(subject: str) -> str:
    """What the names of all readers of a subject begin with."""
    return f"{READERS}{quote(subject, safe='')}/"


def reader_name(kept: str) -> str:
    """The reader that is kept there."""
    return unquote(kept.rpartition("/")[2])


def reader_properties(reader: Reader) -> dict[str, str]:
    """What is kept beside a reader's schema."""
    told = {
        OWNER: reader.owner,
        VERSION: reader.version,
        EXPIRES: reader.last_day.isoformat() if reader.last_day else "",
        FIELDS: ",".join(reader.fields),
        ONLY_FIELDS: "true" if reader.only_fields else "",
    }
    return {key: value for key, value in told.items() if value}


def read_reader(name: str, schema: ParsedSchema, properties: Mapping[str, str]) -> Reader:
    """The reader of a schema and what is kept beside it."""
    return Reader(
        name,
        properties.get(VERSION, ""),
        properties.get(OWNER, ""),
        schema,
        tuple(one for one in properties.get(FIELDS, "").split(",") if one),
        only_fields=properties.get(ONLY_FIELDS) == "true",
        last_day=_read_day(name, properties.get(EXPIRES)),
    )


def _read_day(name: str, text: str | None) -> date | None:
    try:
        return date.fromisoformat(text[:10]) if text else None
    except ValueError:
        raise InvalidReader(f"the reader {name} expires on {text!r}, which is no date") from None
