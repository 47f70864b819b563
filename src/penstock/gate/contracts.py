"""What a contract consists of, wherever it is kept.

Readers and what people say of versions, as the registry's API writes them.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from penstock.client.registry_documents import collect_imports
from penstock.schemas import readers
from penstock.schemas.compatibility import Level
from penstock.schemas.model import (
    InvalidSchemaError,
    ParsedSchema,
    Policy,
    SchemaText,
)
from penstock.schemas.parse_cache import parse
from penstock.schemas.readers import Reader
from penstock.serde.errors import ClientError
from penstock.serde.schema_source import UnusableSchemaError


class CannotCheckError(ClientError):
    """The question cannot be answered; the message says what is missing or wrong."""


class CompatibilitySettings(NamedTuple):
    """What a subject promises."""

    level: Level = Level.BACKWARD
    policy: Policy = Policy.STRICT
    group: str | None = None  # a metadata property: only versions of an equal value are compared


@dataclass(frozen=True, slots=True)
class ContractVersion:
    """A schema with a number."""

    number: int
    source: SchemaText
    schema: ParsedSchema
    properties: Mapping[str, str] = field(default_factory=dict)
    path: str = ""  # of its file, if it is in one


@dataclass(slots=True)
class WriterResult:
    """What came of the events that one schema wrote."""

    writer: str  # "version 3 (id 17)", or the id alone
    events: int = 0
    failed: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    first: str = ""  # partition, offset and what is wrong there


@dataclass(slots=True)
class RecordedResult:
    """What came of all events."""

    topic: str
    events: int = 0
    failed: int = 0
    empty: int = 0  # without a value: nothing to read
    by_writer: dict[str, WriterResult] = field(default_factory=dict)


class ContractStore(Protocol):
    """Where contracts are kept."""

    @property
    def title(self) -> str:
        """For people."""

    def subjects(self) -> list[str]:
        """All subjects, sorted."""

    def versions(self, subject: str) -> list[ContractVersion]:
        """Oldest first; empty for a subject nobody has."""

    def terms(self, subject: str) -> CompatibilitySettings:
        """What the subject promises, by its own settings or by default."""

    def readers(self, subject: str) -> list[Reader]:
        """Who depends on it."""

    def document(self, subject: str, number: int) -> SchemaText | None:
        """The text of one version; None if there is none."""


Documents = Callable[[str, int], SchemaText | None]


def parse_schema(
    source: SchemaText, documents: Documents, about: str, *, strict: bool = True
) -> ParsedSchema:
    """The schema, or CannotCheckError with what is wrong with it."""

    def document(subject: str, number: int) -> SchemaText:
        found = documents(subject, number)
        if found is None:
            raise CannotCheckError(f"{about} refers to version {number} of {subject}: not found")
        return found

    try:
        return parse(source, collect_imports(source, document), strict=strict)
    except UnusableSchemaError as unusable:
        raise CannotCheckError(f"{about}: {unusable.message}") from None
    except InvalidSchemaError as wrong:
        raise CannotCheckError(f"{about} is not a valid {source.type} schema: {wrong}") from None


def read_reader(kept: str, schema: ParsedSchema, properties: Mapping[str, str]) -> Reader:
    """The reader that is kept there."""
    try:
        return readers.read_reader(readers.reader_name(kept), schema, properties)
    except readers.InvalidReaderError as wrong:
        raise CannotCheckError(str(wrong)) from None
