"""Schemas without regard to their language: texts, references, differences and tags.

`ParsedSchema` is the interface that all languages implement. Values are immutable.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, Self

TAGS: Final = "confluent:tags"  # the member of a JSON object that holds its tags


class SchemaType(StrEnum):
    """The languages, by their names in the registry's API."""

    AVRO = "AVRO"
    PROTOBUF = "PROTOBUF"
    JSON = "JSON"


class Reference(NamedTuple):
    """A schema that this one imports: the name it is imported by, and where it is registered."""

    name: str
    subject: str
    version: int


class SchemaText(NamedTuple):
    """A schema as written, before it is parsed."""

    type: SchemaType
    text: str
    references: tuple[Reference, ...] = ()


# Reference name -> text of everything that a schema reaches, references of references included;
# texts without imports of their own come first.
Imports = Mapping[str, str]
NO_IMPORTS: Final[Imports] = MappingProxyType({})


class InvalidSchemaError(Exception):
    """The text is not a schema; the message says where and why."""


def check_encoding(text: str) -> None:
    """Refuse a text that cannot be encoded as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidSchemaError("the text contains half of a surrogate pair") from None


@contextmanager
def parsing_reference(name: str) -> Iterator[None]:
    """Name the reference in the error if its text is invalid."""
    try:
        yield
    except InvalidSchemaError as error:
        raise InvalidSchemaError(f'in the reference "{name}": {error}') from None


def normalized_references(references: Iterable[Reference]) -> tuple[Reference, ...]:
    """Each reference once, in order."""
    return tuple(sorted(set(references)))


class Policy(StrEnum):
    """How strictly changes of a JSON Schema are checked."""

    STRICT = "STRICT"
    LENIENT = "LENIENT"


class Difference(NamedTuple):
    """One reason why a reader's schema cannot read what a writer's schema wrote."""

    kind: str  # Confluent's name for it, such as READER_FIELD_MISSING_DEFAULT_VALUE
    path: str
    description: str  # a sentence with %(reader)s and %(writer)s in place of "new" and "old"
    additional: str = ""

    def describe(self, *, reader: str, writer: str) -> str:
        """The sentence with names for both schemas."""
        return self.description.replace("%(reader)s", reader).replace("%(writer)s", writer)


class Entity(NamedTuple):
    """A record or a field that can have tags. The meaning of the path depends on the language."""

    is_record: bool
    path: str  # names with dots between them

    @property
    def steps(self) -> list[str]:
        """The names in the path; a leading dot is ignored."""
        return self.path.removeprefix(".").split(".")

    def not_found(self) -> InvalidSchemaError:
        """The error if the schema has no such record or field, in Confluent's words."""
        return InvalidSchemaError(f"No matching path '{self.path}' found in the schema")


class Tagging(NamedTuple):
    """Tags to add and to remove."""

    added: Mapping[Entity, tuple[str, ...]]
    removed: Mapping[Entity, tuple[str, ...]]

    @property
    def entities(self) -> list[Entity]:
        """Everything that is tagged or untagged, in order."""
        return list(dict.fromkeys([*self.added, *self.removed]))

    def new_tags(self, entity: Entity, tags: Iterable[str]) -> list[str]:
        """The tags of an entity after the change."""
        removed = self.removed.get(entity, ())
        all_tags = dict.fromkeys([*tags, *self.added.get(entity, ())])
        return [tag for tag in all_tags if tag not in removed]

    def update_member(self, entity: Entity, members: dict[str, object]) -> None:
        """Change the tags in a JSON object."""
        known = members.get(TAGS)
        tags = self.new_tags(entity, map(str, known) if isinstance(known, list) else ())
        if tags:
            members[TAGS] = tags
        else:
            members.pop(TAGS, None)


class ParsedSchema(Protocol):
    """A valid schema. Immutable."""

    @property
    def type(self) -> SchemaType: ...

    @property
    def canonical(self) -> str:
        """The text as the registry stores it."""

    @property
    def references(self) -> tuple[Reference, ...]: ...

    @property
    def name(self) -> str | None:
        """The full name of the record or message, in JSON Schema the title; None without one."""

    def normalized(self) -> Self:
        """The same schema with everything that has no meaning in one fixed order."""

    def tagged(self, tagging: Tagging) -> Self:
        """The same schema with tags added to its text, or removed from it."""

    def formatted(self, form: str, /) -> str:
        """The text in another form (`resolved`, `serialized` …); canonical for an unknown form."""

    def equivalent(self, other: Self) -> bool:
        """Whether the registry treats both as one version."""

    def incompatibilities(
        self, writer: Self, policy: Policy = Policy.STRICT, /
    ) -> tuple[Difference, ...]:
        """Why this schema cannot read what `writer` wrote; empty if it can."""
