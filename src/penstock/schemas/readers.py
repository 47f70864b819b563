"""Consumers that declared what they read, and how a registry stores them.

A reader is stored as a subject in the context `.readers`: its schema is the latest version, the
rest is in that version's metadata properties. So any registry that stores metadata can store
readers. Today's date is an argument.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final
from urllib.parse import quote, unquote

from penstock.schemas.model import ParsedSchema

READERS_CONTEXT: Final = ".readers"
READERS: Final = f":{READERS_CONTEXT}:"  # prefix of the subjects of all readers
PROPERTIES: Final = "penstock.reader."
OWNER: Final = f"{PROPERTIES}owner"
VERSION: Final = f"{PROPERTIES}version"
EXPIRES: Final = f"{PROPERTIES}expires"
FIELDS: Final = f"{PROPERTIES}fields"
ONLY_FIELDS: Final = f"{PROPERTIES}only.fields"


class InvalidReaderError(Exception):
    """Not a valid reader; the message says why."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A consumer that depends on the contract."""

    name: str
    version: str = ""  # the consumer's own, such as "7"
    owner: str = ""
    schema: ParsedSchema | None = None  # its reader schema; None: the latest version
    fields: tuple[str, ...] = ()  # the fields it uses, such as "customer.name"
    only_fields: bool = False  # it depends on these fields only
    last_day: date | None = None  # the reader is ignored after it; None: never

    @property
    def title(self) -> str:
        """Name and version."""
        return f"{self.name} {self.version}".strip()

    def is_expired(self, today: date) -> bool:
        """Whether its last day is over."""
        return self.last_day is not None and today > self.last_day


def reader_subject(subject: str, name: str) -> str:
    """The subject under which a reader is stored."""
    if not name or "/" in name:
        raise InvalidReaderError(
            f"invalid reader name {name!r}: it must not be empty nor contain a slash"
        )
    return f"{readers_prefix(subject)}{quote(name, safe='')}"


def readers_prefix(subject: str) -> str:
    """The prefix of the subjects of all readers of a subject."""
    return f"{READERS}{quote(subject, safe='')}/"


def reader_name(stored_subject: str) -> str:
    """The name of the reader that is stored under a subject."""
    return unquote(stored_subject.rpartition("/")[2])


def reader_properties(reader: Reader) -> dict[str, str]:
    """The metadata properties of a reader; empty ones are left out."""
    properties = {
        OWNER: reader.owner,
        VERSION: reader.version,
        EXPIRES: reader.last_day.isoformat() if reader.last_day else "",
        FIELDS: ",".join(reader.fields),
        ONLY_FIELDS: "true" if reader.only_fields else "",
    }
    return {key: value for key, value in properties.items() if value}


def read_reader(name: str, schema: ParsedSchema, properties: Mapping[str, str]) -> Reader:
    """The reader with this schema and these metadata properties."""
    return Reader(
        name,
        properties.get(VERSION, ""),
        properties.get(OWNER, ""),
        schema,
        tuple(field for field in properties.get(FIELDS, "").split(",") if field),
        only_fields=properties.get(ONLY_FIELDS) == "true",
        last_day=_read_day(name, properties.get(EXPIRES)),
    )


def _read_day(name: str, text: str | None) -> date | None:
    try:
        return date.fromisoformat(text[:10]) if text else None
    except ValueError:
        raise InvalidReaderError(
            f"reader {name}: invalid expiry date {text!r}; use YYYY-MM-DD"
        ) from None
