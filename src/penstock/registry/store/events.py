"""What happens in the registry: versions of schemas, settings, modes and deletions, as logged."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from penstock.model import Millis
from penstock.registry.subject_names import Subject
from penstock.schemas.identity import Metadata, RuleSet, fingerprint
from penstock.schemas.model import SchemaText


class Contents(NamedTuple):
    """What an id stands for: it never changes while the id is in use."""

    source: SchemaText
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None

    def fingerprint(self) -> bytes:
        """Sixteen bytes that identify the contents."""
        return fingerprint(self.source.text, self.source.references, self.metadata, self.rule_set)


@dataclass(frozen=True, slots=True)
class Version:
    """One version of one subject."""

    subject: Subject
    number: int
    id: int
    contents: Contents
    fingerprint: bytes
    deleted: bool = False  # soft: hidden from lists, readable by id
    timestamp: Millis = Millis(0)

    @property
    def key(self) -> tuple[Subject, int]:
        """Unique in the whole registry."""
        return self.subject, self.number


class Mode(StrEnum):
    """What may be done to a subject."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"  # global only: overrides the modes of subjects
    IMPORT = "IMPORT"
    FORWARD = "FORWARD"  # global only


@dataclass(frozen=True, slots=True)
class SubjectConfig:
    """Settings of a scope; None: those of the scope above apply."""

    compatibility: str | None = None
    policy: str | None = None  # of JSON Schema: STRICT or LENIENT
    group: str | None = None  # a metadata property: only versions with an equal value are compared
    alias: str | None = None
    alias_for_deks: str | None = None
    normalize: bool | None = None
    validate_fields: bool | None = None
    validate_new_schemas: bool | None = None
    validate_rules: bool | None = None
    default_metadata: Metadata | None = None
    override_metadata: Metadata | None = None
    default_rule_set: RuleSet | None = None
    override_rule_set: RuleSet | None = None


class VersionStored(NamedTuple):
    """A version was written, or written again as deleted."""

    version: Version


class VersionRemoved(NamedTuple):
    """A version was deleted permanently."""

    subject: Subject
    number: int


class SubjectDeleted(NamedTuple):
    """Versions up to this one are soft deleted."""

    subject: Subject
    last_version: int


class SubjectCleared(NamedTuple):
    """Soft deleted versions are removed."""

    subject: Subject


class SubjectConfigSet(NamedTuple):
    """Settings of a scope; None removes them."""

    scope: str | None
    config: SubjectConfig | None


class ModeSet(NamedTuple):
    """The mode of a scope; None removes it."""

    scope: str | None
    mode: Mode | None


class ContextCreated(NamedTuple):
    """The first subject of a context is about to be registered."""

    context: str


class LogMarked(NamedTuple):
    """A record that a new primary writes first.

    Confluent writes it without a value and reads none. Ours carries the last id of each context
    whose newest schema was deleted permanently: after compaction no other record has it, and the id
    would be given out a second time.
    """

    last_ids: Mapping[str, int]


Event: TypeAlias = (
    VersionStored
    | VersionRemoved
    | SubjectDeleted
    | SubjectCleared
    | SubjectConfigSet
    | ModeSet
    | ContextCreated
    | LogMarked
)
