"""Consumers that declared what they read, and how a registry stores them.

A reader of a subject is a subject of its own in the context `.readers`: its schema is the latest
version's, the rest are that version's metadata properties, so any registry that keeps metadata
keeps readers. The gate and the registry ask `harms` alike, so they cannot disagree. Pure: today
comes as an argument.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final
from urllib.parse import quote, unquote

from penstock.schemas.model import ParsedSchema

READERS_CONTEXT: Final = ".readers"
READERS: Final = f":{READERS_CONTEXT}:"  # what the names of all kept readers begin with
PROPERTIES: Final = "penstock.reader."
OWNER: Final = f"{PROPERTIES}owner"
VERSION: Final = f"{PROPERTIES}version"
EXPIRES: Final = f"{PROPERTIES}expires"
FIELDS: Final = f"{PROPERTIES}fields"
ONLY_FIELDS: Final = f"{PROPERTIES}only.fields"


class InvalidReaderError(Exception):
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


def reader_subject(subject: str, name: str) -> str:
    """Where a reader of a subject is kept."""
    if not name or "/" in name:
        raise InvalidReaderError(
            f"{name!r} is no name for a reader: it is not empty and has no slash"
        )
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
        raise InvalidReaderError(
            f"the reader {name} expires on {text!r}, which is no date"
        ) from None
