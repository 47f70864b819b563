"""What must be known of a proposed schema before it is decided on, and what it depends on.

An examination is made outside of the machine, in a thread, from a snapshot: everything of the state
that its results depend on. A decision takes it only if the snapshot is still what the state gives.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import NamedTuple

from penstock.model import Millis
from penstock.registry.store.events import Contents, Mode, SubjectConfig, Version
from penstock.registry.store.rule_sets import governed
from penstock.registry.store.state import RegistryState
from penstock.registry.subject_names import Subject, context_of
from penstock.schemas.compatibility import CompatibilityResult, Level
from penstock.schemas.identity import Metadata, RuleSet
from penstock.schemas.model import Imports, Policy, SchemaText, Tagging
from penstock.schemas.reader_break import ReaderBreak
from penstock.schemas.readers import READERS_CONTEXT, reader_name, readers_prefix


class SchemaProposal(NamedTuple):
    """A schema as a request brings it."""

    subject: Subject
    source: SchemaText
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None
    id: int | None = None  # of an import
    version: int = 0  # 0: whichever is next; -1: only if it is the latest already
    normalize: bool = False
    force: bool = False  # register without a compatibility check
    tagging: Tagging | None = None  # to apply to the text before it is stored


class FullSchema(NamedTuple):
    """A schema with everything it imports."""

    source: SchemaText
    imports: Imports


class NumberedSchema(NamedTuple):
    """A schema that is a version already."""

    number: int
    schema: FullSchema


class DeclaredReader(NamedTuple):
    """A reader as it was declared, before its schema is parsed."""

    name: str
    schema: FullSchema
    properties: Mapping[str, str]


class Snapshot(NamedTuple):
    """Everything that an examination depends on. Immutable, so that a thread may read it."""

    given: FullSchema  # references with numbers
    tagging: Tagging | None
    normalize: bool
    strict: bool
    candidates: tuple[NumberedSchema, ...] = ()  # may be the same schema in another form
    level: Level | None = None  # None: compatibility is not checked
    policy: Policy = Policy.STRICT
    compared: tuple[NumberedSchema, ...] = ()  # must be compatible, by the level
    readers: tuple[DeclaredReader, ...] = ()  # must not break
    today: date = date.min  # leases of readers end with a day


class Examination(NamedTuple):
    """The results, made in one thread hop."""

    snapshot: Snapshot
    as_of: int  # `changes` of the state that the snapshot was taken of
    canonical: SchemaText
    # Versions that are the same schema in another form. None: not computed, because a version has
    # this very text.
    equivalent_versions: frozenset[int] | None = None
    # None: not checked, because that was not requested or a version may be the same schema.
    compatibility: CompatibilityResult | None = None
    reader_breaks: tuple[ReaderBreak, ...] = ()


class Outdated(NamedTuple):
    """Reply instead of a decision: the proposal must be examined again, thoroughly."""


def contents_of(proposal: SchemaProposal, examination: Examination) -> Contents:
    """What would be stored, before the settings of the subject are applied."""
    return Contents(examination.canonical, proposal.metadata, proposal.rule_set)


def snapshot_to_find(
    state: RegistryState, proposal: SchemaProposal, *, deleted: bool = False
) -> Snapshot:
    """To find the schema among the versions of its subject. Raises InvalidSchemaError."""
    subject = proposal.subject
    versions = state.stored(subject) if deleted else state.live(subject)
    return _snapshot(state, proposal)._replace(candidates=_numbered(state, versions))


def snapshot_to_register(state: RegistryState, proposal: SchemaProposal, today: date) -> Snapshot:
    """To find the schema, or to register it as a new version. Raises InvalidSchemaError."""
    if proposal.id is not None:
        return _snapshot(state, proposal)
    snapshot = snapshot_to_find(state, proposal)
    if proposal.force:
        return snapshot
    return with_checks(state, proposal, snapshot, state.live(proposal.subject), today)


def snapshot_to_check(
    state: RegistryState,
    proposal: SchemaProposal,
    compared: Sequence[Version],
    today: date,
    *,
    with_readers: bool,
) -> Snapshot:
    """To check the schema against some versions only. Raises InvalidSchemaError."""
    snapshot = with_checks(state, proposal, _snapshot(state, proposal), compared, today)
    return snapshot if with_readers else snapshot._replace(readers=())


def _snapshot(state: RegistryState, proposal: SchemaProposal) -> Snapshot:
    subject, context = proposal.subject, context_of(proposal.subject)
    references = state.pinned(proposal.source.references, context)
    imports = state.imports(references, context)
    is_import = proposal.id is not None or state.mode(subject) in (Mode.IMPORT, Mode.FORWARD)
    normalize = bool(proposal.normalize or state.config(subject).normalize)
    return Snapshot(
        FullSchema(proposal.source._replace(references=references), imports),
        proposal.tagging,
        normalize=normalize and not is_import,
        strict=not is_import,
    )


def with_checks(
    state: RegistryState,
    proposal: SchemaProposal,
    snapshot: Snapshot,
    versions: Sequence[Version],
    today: date,
) -> Snapshot:
    """The snapshot with the versions and readers that the schema must be compatible with."""
    config = state.config(proposal.subject)
    level = level_of(config)
    compared = _grouped(state, proposal, config, versions)
    if not level.is_transitive:
        compared = () if level is Level.NONE else compared[-1:]
    return snapshot._replace(
        level=level,
        policy=Policy.LENIENT if config.policy == Policy.LENIENT else Policy.STRICT,
        compared=_numbered(state, compared),
        readers=declared_readers(state, proposal.subject),
        today=today,
    )


def level_of(config: SubjectConfig) -> Level:
    """The compatibility level in force."""
    return Level(config.compatibility or Level.BACKWARD)


def _numbered(state: RegistryState, versions: Sequence[Version]) -> tuple[NumberedSchema, ...]:
    return tuple([NumberedSchema(each.number, full_schema(state, each)) for each in versions])


def full_schema(state: RegistryState, version: Version) -> FullSchema:
    """A stored version with everything it imports."""
    return FullSchema(version.contents.source, state.imports_of(version))


def _grouped(
    state: RegistryState,
    proposal: SchemaProposal,
    config: SubjectConfig,
    versions: Sequence[Version],
) -> Sequence[Version]:
    """The versions that are compared: of a subject with a group, those of the same group."""
    if not config.group:
        return versions
    latest = state.latest(proposal.subject)
    contents = Contents(proposal.source, proposal.metadata, proposal.rule_set)
    completed = governed(contents, latest.contents if latest else None, config)
    group = _property(completed.metadata, config.group)
    return [each for each in versions if _property(each.contents.metadata, config.group) == group]


def _property(metadata: Metadata | None, name: str) -> str | None:
    return None if metadata is None else metadata.properties.get(name)


def declared_readers(state: RegistryState, subject: Subject) -> tuple[DeclaredReader, ...]:
    """All readers of a subject, the expired included, by name.

    Each is the latest version of a subject in the context `.readers`; see `schemas.readers`.
    """
    context = state.contexts.get(READERS_CONTEXT)
    if context is None:
        return ()
    prefix = readers_prefix(subject)
    names = {name for users in context.ids.values() for name, _ in users if name.startswith(prefix)}
    readers = []
    for name in sorted(names):
        version = state.latest(name)
        if version is not None:
            metadata = version.contents.metadata
            properties = {} if metadata is None else metadata.properties
            readers.append(
                DeclaredReader(reader_name(name), full_schema(state, version), properties)
            )
    return tuple(readers)


def day_of(now: Millis) -> date:
    """Leases end with a day by UTC, because registries and clients may be in any time zone."""
    return datetime.fromtimestamp(now / 1000, UTC).date()
