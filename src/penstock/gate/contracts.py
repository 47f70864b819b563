"""What a contract consists of, and the interface of the stores that have contracts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from penstock.client.registry_documents import collect_imports
from penstock.schemas import readers
from penstock.schemas.compatibility import Level
from penstock.schemas.model import InvalidSchemaError, ParsedSchema, Policy, SchemaText
from penstock.schemas.parse_cache import parse
from penstock.schemas.readers import Reader
from penstock.serde.errors import ClientError
from penstock.serde.schema_source import UnusableSchemaError


class CannotCheckError(ClientError):
    """The check has no result; the message says what is missing or invalid."""


class CompatibilitySettings(NamedTuple):
    """What a subject guarantees to its producers and consumers."""

    level: Level = Level.BACKWARD
    policy: Policy = Policy.STRICT
    group: str | None = None  # a metadata property: only versions with the same value are compared


@dataclass(frozen=True, slots=True)
class ContractVersion:
    """A schema with a version number."""

    number: int
    source: SchemaText
    schema: ParsedSchema
    properties: Mapping[str, str] = field(default_factory=dict)
    path: str = ""  # of its file, if it has one


class ContractHistory(Protocol):
    """What a proposed schema is compared with."""

    def versions(self, subject: str) -> Sequence[ContractVersion]:
        """Oldest first; empty for an unknown subject."""

    def settings(self, subject: str) -> CompatibilitySettings:
        """The settings of the subject, or the default."""

    def readers(self, subject: str) -> Sequence[Reader]:
        """The consumers that declared that they depend on the subject."""


class ContractStore(ContractHistory, Protocol):
    """A folder or a registry with contracts."""

    @property
    def title(self) -> str:
        """Its path or address, for messages."""

    def subjects(self) -> list[str]:
        """All subjects, sorted."""

    def text(self, subject: str, number: int) -> SchemaText | None:
        """The text of one version; None if it does not exist."""


@dataclass(frozen=True, slots=True)
class GivenContracts:
    """A history in memory, the same for every subject."""

    given_versions: Sequence[ContractVersion]
    given_settings: CompatibilitySettings
    given_readers: Sequence[Reader] = ()

    def versions(self, _subject: str, /) -> Sequence[ContractVersion]:
        """The given versions."""
        return self.given_versions

    def settings(self, _subject: str, /) -> CompatibilitySettings:
        """The given settings."""
        return self.given_settings

    def readers(self, _subject: str, /) -> Sequence[Reader]:
        """The given readers."""
        return self.given_readers


Texts = Callable[[str, int], SchemaText | None]  # the text of (subject, version)


def parse_schema(
    source: SchemaText, texts: Texts, about: str, *, strict: bool = True
) -> ParsedSchema:
    """Parse a schema; CannotCheckError if it or one of its references is invalid."""

    def referenced(subject: str, number: int) -> SchemaText:
        text = texts(subject, number)
        if text is None:
            raise CannotCheckError(f"{about} refers to version {number} of {subject}: not found")
        return text

    try:
        return parse(source, collect_imports(source, referenced), strict=strict)
    except UnusableSchemaError as error:
        raise CannotCheckError(f"{about}: {error.message}") from None
    except InvalidSchemaError as error:
        raise CannotCheckError(f"{about} is not a valid {source.type} schema: {error}") from None


def read_reader(stored_subject: str, schema: ParsedSchema, properties: Mapping[str, str]) -> Reader:
    """The reader that is stored under a subject."""
    try:
        return readers.read_reader(readers.reader_name(stored_subject), schema, properties)
    except readers.InvalidReaderError as error:
        raise CannotCheckError(str(error)) from None
