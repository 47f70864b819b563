"""What the registry knows. Changed by `apply` only.

Invariants: an id has one meaning in its context while any version has it; ids are never given out
twice, because `last_id` only grows; every index follows from `versions` alone.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Final

from penstock.registry.errors import subject_not_found, version_not_found
from penstock.registry.store.events import Mode, SubjectConfig, Version
from penstock.registry.subject_names import (
    DEFAULT_CONTEXT,
    GLOBAL_CONTEXT,
    Subject,
    context_of,
    join,
    normal,
    scopes,
    split,
)
from penstock.schemas.compatibility import Level
from penstock.schemas.model import Imports, InvalidSchemaError, Reference

VERSION_LAST: Final = 2**31 - 1
REFERENCES_MAX: Final = 1000  # reachable from one schema
DEFAULTS: Final = SubjectConfig(compatibility=str(Level.BACKWARD))
_CONFIG_MEMBERS: Final = tuple(member.name for member in fields(SubjectConfig))
_NOT_INHERITED: Final = frozenset(("alias", "alias_for_deks"))

VersionKey = tuple[Subject, int]


@dataclass(slots=True)
class SubjectContext:
    """The ids of one context. In order of insertion: the first user of an id represents it."""

    ids: dict[int, dict[VersionKey, None]] = field(default_factory=dict)
    by_fingerprint: dict[bytes, int] = field(default_factory=dict)
    last_id: int = 0


def _default_contexts() -> dict[str, SubjectContext]:
    return {DEFAULT_CONTEXT: SubjectContext()}


@dataclass(slots=True)
class RegistryState:
    """Everything, in memory."""

    versions: dict[Subject, dict[int, Version]] = field(default_factory=dict)  # in number order
    contexts: dict[str, SubjectContext] = field(default_factory=_default_contexts)
    guids: dict[bytes, dict[str, int]] = field(default_factory=dict)  # context -> id
    referrers: dict[VersionKey, dict[VersionKey, None]] = field(default_factory=dict)
    configs: dict[str | None, SubjectConfig] = field(default_factory=dict)
    modes: dict[str | None, Mode] = field(default_factory=dict)
    changes: int = 0  # events applied so far: what was computed from the state may be outdated

    # Versions.

    def stored(self, subject: Subject) -> list[Version]:
        """All versions of a subject, the soft deleted included, oldest first."""
        return list(self.versions.get(subject, {}).values())

    def live(self, subject: Subject) -> list[Version]:
        """Its versions that are not deleted, oldest first."""
        return [each for each in self.versions.get(subject, {}).values() if not each.deleted]

    def latest(self, subject: Subject, *, deleted: bool = False) -> Version | None:
        """The newest version."""
        for version in reversed(self.versions.get(subject, {}).values()):
            if deleted or not version.deleted:
                return version
        return None

    def version(self, subject: Subject, number: int, *, deleted: bool = False) -> Version:
        """One version; -1 is the latest. Declines what does not exist."""
        if number == -1:
            version = self.latest(subject, deleted=deleted)
        else:
            version = self.versions.get(subject, {}).get(number)
        if version is not None and (deleted or not version.deleted):
            return version
        if not self.has_subject(subject, deleted=deleted):
            raise subject_not_found(subject)
        raise version_not_found("latest" if number == -1 else number)

    def has_subject(self, subject: Subject, *, deleted: bool = False) -> bool:
        """Whether the subject has a version."""
        return self.latest(subject, deleted=deleted) is not None

    def in_any_context(self, subject: Subject) -> Subject:
        """The subject itself, or the one of that name in another context if only that exists."""
        if subject in self.versions or context_of(subject) != DEFAULT_CONTEXT:
            return subject
        for context in sorted(self.contexts):
            qualified = join(context, subject)
            if qualified in self.versions:
                return qualified
        return subject

    def resolve_alias(self, subject: Subject) -> Subject:
        """The subject of an alias; the subject itself if it has none."""
        config = self.configs.get(subject)
        if config is None or not config.alias:
            return subject
        return normal(config.alias, context_of(subject))

    # Ids.

    def by_id(self, schema_id: int, context: str = DEFAULT_CONTEXT) -> Version | None:
        """A version that has the id, a live one if there is one."""
        deleted = None
        for version in self.users_of(schema_id, context):
            if not version.deleted:
                return version
            deleted = deleted or version
        return deleted

    def users_of(self, schema_id: int, context: str) -> Iterator[Version]:
        """All versions that have the id."""
        known = self.contexts.get(context)
        for subject, number in () if known is None else known.ids.get(schema_id, ()):
            yield self.versions[subject][number]

    def id_of(self, fingerprint: bytes, context: str) -> int | None:
        """The id these contents have in a context."""
        known = self.contexts.get(context)
        return None if known is None else known.by_fingerprint.get(fingerprint)

    def with_fingerprint(
        self, subject: Subject, fingerprint: bytes, *, deleted: bool = False
    ) -> Version | None:
        """The newest version of a subject with exactly these contents."""
        if self.id_of(fingerprint, context_of(subject)) is None:
            return None
        for version in reversed(self.versions.get(subject, {}).values()):
            if version.fingerprint == fingerprint and (deleted or not version.deleted):
                return version
        return None

    # References.

    def referrers_of(self, key: VersionKey, *, deleted: bool) -> list[Version]:
        """The versions that refer to this one; with `deleted`, the soft deleted too."""
        keys = self.referrers.get(key, ())
        versions = (self.versions[subject][number] for subject, number in keys)
        return [version for version in versions if deleted or not version.deleted]

    def pinned(self, references: Iterable[Reference], context: str) -> tuple[Reference, ...]:
        """The references with a number in place of `latest`."""
        return tuple(
            reference
            if reference.version != -1
            else reference._replace(version=self.referred(reference, context).number)
            for reference in references
        )

    def referred(self, reference: Reference, context: str) -> Version:
        """The version that a reference of this context names."""
        subject = normal(reference.subject, context)
        if reference.version == -1:
            version = self.latest(subject)
        else:
            version = self.versions.get(subject, {}).get(reference.version)
        if version is None:
            raise InvalidSchemaError(
                f'No schema reference found for subject "{reference.subject}" '
                f"and version {reference.version}"
            )
        return version

    def imports(self, references: Iterable[Reference], context: str) -> Imports:
        """All reachable schemas by name, those without imports of their own first."""
        imports: dict[str, str] = {}
        _gather(self, references, context, imports, [])
        return imports

    def imports_of(self, version: Version) -> Imports:
        """The imports of a stored version; none if one of them was deleted since."""
        try:
            references = version.contents.source.references
            return self.imports(references, context_of(version.subject))
        except InvalidSchemaError:
            return {}

    # Settings.

    def config(self, name: str | None) -> SubjectConfig:
        """The settings in force for a name, each from the nearest scope that has it."""
        layers = [config for key in scopes(name) if (config := self.configs.get(key))]
        return _layered([*layers, DEFAULTS], own=self.configs.get(name) if name else None)

    def mode(self, name: str | None) -> Mode:
        """The mode in force for a name."""
        if self.modes.get(None) is Mode.READONLY_OVERRIDE:
            return Mode.READONLY_OVERRIDE
        modes = (self.modes[key] for key in scopes(name) if key in self.modes)
        return next(modes, Mode.READWRITE)

    def in_scope(self, scope: str | None) -> Iterator[Subject]:
        """The subjects that a scope's settings apply to."""
        if scope is None or scope == f":{GLOBAL_CONTEXT}:":
            yield from self.versions
            return
        context, local = split(scope)
        for subject in self.versions:
            if subject == scope or (not local and context_of(subject) == context):
                yield subject


def _gather(
    state: RegistryState,
    references: Iterable[Reference],
    context: str,
    imports: dict[str, str],
    path: list[VersionKey],
) -> None:
    for reference in references:
        if not reference.name or not reference.subject:
            raise InvalidSchemaError("a reference needs a name and a subject")
        if reference.name in imports:
            continue
        version = state.referred(reference, context)
        if version.key in path:
            raise InvalidSchemaError(f'the reference "{reference.name}" leads back to itself')
        if len(imports) >= REFERENCES_MAX or len(path) >= REFERENCES_MAX // 10:
            raise InvalidSchemaError("the schema reaches too many references")
        source = version.contents.source
        inner = context_of(version.subject)
        _gather(state, source.references, inner, imports, [*path, version.key])
        imports[reference.name] = source.text


def _layered(layers: list[SubjectConfig], own: SubjectConfig | None) -> SubjectConfig:
    members = {}
    for name in _CONFIG_MEMBERS:
        if name in _NOT_INHERITED:
            members[name] = None if own is None else getattr(own, name)
            continue
        values = (getattr(layer, name) for layer in layers)
        members[name] = next((value for value in values if value is not None), None)
    return SubjectConfig(**members)
