"""Where serializers get schemas from: `client.registry.Registry`, or anything that has the same."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from uuid import UUID

from penstock.schemas.identity import RuleSet
from penstock.schemas.model import ParsedSchema, Reference, SchemaText
from penstock.serde.errors import RegistryRefusedError
from penstock.serde.frame import SchemaId, SchemaKey


class Registration(NamedTuple):
    """The names a schema goes by in frames, and the rules that come with it."""

    id: SchemaId
    guid: UUID
    rule_set: RuleSet | None = None


@dataclass(frozen=True, slots=True)
class KnownSchema:
    """A schema of the registry, parsed."""

    id: SchemaId | None  # None where only its GUID is known
    guid: UUID
    source: SchemaText
    imports: Mapping[str, str]  # all that it refers to, directly or not: name -> text
    parsed: ParsedSchema
    subject: str | None = None  # where this was learned by asking for a subject's version
    version: int | None = None
    rule_set: RuleSet | None = None


class UnusableSchemaError(RegistryRefusedError):
    """The registry has it, and it cannot be parsed here."""


class SchemaSource(Protocol):
    """What serializers need of a registry."""

    def schema(self, key: SchemaKey) -> KnownSchema:
        """The schema that a frame names, by id or GUID."""

    def latest(self, subject: str, *, fresh: bool = False) -> KnownSchema:
        """The latest version of a subject."""

    def version(self, subject: str, version: int) -> KnownSchema:
        """One version of a subject."""

    def register(
        self, subject: str, source: SchemaText, *, normalize: bool = False
    ) -> Registration:
        """The id of a schema under a subject; registers it if it is new there."""

    def look_up(self, subject: str, source: SchemaText, *, normalize: bool = False) -> Registration:
        """The id of a schema registered under a subject; raises UnknownSchemaError if it is not."""

    def parse(self, source: SchemaText) -> ParsedSchema:
        """Parse a schema of the program's own, with its references from here."""

    def register_reference(self, name: str, source: SchemaText) -> Reference:
        """Register what another schema imports, under the name it is imported by."""
