"""What a contract consists of, wherever it is kept.

Readers and what people say of versions, as the registry's API writes them.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from penstock.schemas import readers
from penstock.schemas.compatibility import Level
from penstock.schemas.model import (
    InvalidSchemaError,
    ParsedSchema,
    Policy,
    Reference,
    SchemaText,
    SchemaType,
)
from penstock.schemas.parse_cache import parse
from penstock.schemas.readers import Reader
from penstock.serde.errors import ClientError

REFERENCES_MAX: Final = 1000
SUFFIXES: Final[Mapping[str, SchemaType]] = {
    ".avsc": SchemaType.AVRO,
    ".proto": SchemaType.PROTOBUF,
    ".json": SchemaType.JSON,
}


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


def imports_of(source: SchemaText, documents: Documents) -> dict[str, str]:
    """Everything a schema reaches, what imports nothing first."""
    texts: dict[str, str] = {}
    _collect(source.references, texts, (), documents)
    return texts


def _collect(
    references: tuple[Reference, ...],
    texts: dict[str, str],
    path: tuple[str, ...],
    documents: Documents,
) -> None:
    for reference in references:
        if reference.name in texts:
            continue
        if reference.name in path or len(texts) + len(path) > REFERENCES_MAX:
            raise CannotCheckError(f"the references go in circles: {' -> '.join(path)}")
        found = documents(reference.subject, reference.version)
        if found is None:
            raise CannotCheckError(
                f'the reference "{reference.name}" is to version {reference.version} of '
                f"{reference.subject}, which is not there"
            )
        _collect(found.references, texts, (*path, reference.name), documents)
        texts[reference.name] = found.text


def parse_schema(
    source: SchemaText, documents: Documents, about: str, *, strict: bool = True
) -> ParsedSchema:
    """The schema, or CannotCheckError with what is wrong with it."""
    imports = imports_of(source, documents)
    try:
        return parse(source, imports, strict=strict)
    except InvalidSchemaError as wrong:
        raise CannotCheckError(f"{about} is not a valid {source.type} schema: {wrong}") from None


def properties_of(document: Mapping[str, Any]) -> dict[str, str]:
    """What people say about a version."""
    properties = (document.get("metadata") or {}).get("properties") or {}
    return {str(key): str(value) for key, value in properties.items()}


def reader_subject(subject: str, name: str) -> str:
    """Where a reader of a subject is kept."""
    try:
        return readers.reader_subject(subject, name)
    except readers.InvalidReaderError as wrong:
        raise CannotCheckError(str(wrong)) from None


def read_reader(kept: str, schema: ParsedSchema, properties: Mapping[str, str]) -> Reader:
    """The reader that is kept there."""
    try:
        return readers.read_reader(readers.reader_name(kept), schema, properties)
    except readers.InvalidReaderError as wrong:
        raise CannotCheckError(str(wrong)) from None


def reader_source(schema: ParsedSchema) -> SchemaText:
    """A reader's schema as it is kept: readers live in a context of their own, so references say
    that they lead out of it; Avro's are written out.
    """
    if schema.type is SchemaType.AVRO:
        return SchemaText(schema.type, schema.formatted("resolved"))
    references = tuple(
        one if one.subject.startswith(":.") else one._replace(subject=f":.:{one.subject}")
        for one in schema.references
    )
    return SchemaText(schema.type, schema.canonical, references)
