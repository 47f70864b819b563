"""What the registry knows, and how it is asked.

Invariants: an id means one thing in its context while any version has it; ids are never given out
twice, for `last_id` only grows; every index is told by `versions` alone.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Final

from penstock.registry.errors import subject_not_found, version_not_found
from penstock.registry.store.events import Config, Mode, Version
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
REFERENCES_MAX: Final = 1000  # that one schema may reach
DEFAULTS: Final = Config(compatibility=str(Level.BACKWARD))
_CONFIG_MEMBERS: Final = tuple(member.name for member in fields(Config))
_NOT_INHERITED: Final = frozenset(("alias", "alias_for_deks"))

VersionKey = tuple[Subject, int]


@dataclass(slots=True)
class Context:
    """The ids of one context. Insertion order is kept: the first user of an id speaks for it."""

    ids: dict[int, dict[VersionKey, None]] = field(default_factory=dict)
    by_fingerprint: dict[bytes, int] = field(default_factory=dict)
    last_id: int = 0


@dataclass(slots=True)
class Store:
    """Everything, in memory."""

    versions: dict[Subject, dict[int, Version]] = field(default_factory=dict)  # in number order
    contexts: dict[str, Context] = field(default_factory=lambda: {DEFAULT_CONTEXT: Context()})
    guids: dict[bytes, dict[str, int]] = field(default_factory=dict)  # context -> id
    referrers: dict[VersionKey, dict[VersionKey, None]] = field(default_factory=dict)
    configs: dict[str | None, Config] = field(default_factory=dict)
    modes: dict[str | None, Mode] = field(default_factory=dict)

    # Versions

    def stored(self, subject: Subject) -> list[Version]:
        """All that is stored of a subject, the softly deleted included, oldest first."""
        return list(self.versions.get(subject, {}).values())

    def live(self, subject: Subject) -> list[Version]:
        """Its versions that are not deleted, oldest first."""
        return [one for one in self.versions.get(subject, {}).values() if not one.deleted]

    def latest(self, subject: Subject, *, deleted: bool = False) -> Version | None:
        """The newest one."""
        for one in reversed(self.versions.get(subject, {}).values()):
            if deleted or not one.deleted:
                return one
        return None

    def version(self, subject: Subject, number: int, *, deleted: bool = False) -> Version:
        """One version; -1 is the latest. Declines what is not there."""
        if number == -1:
            found = self.latest(subject, deleted=deleted)
        else:
            found = self.versions.get(subject, {}).get(number)
        if found is not None and (deleted or not found.deleted):
            return found
        if not self.has_subject(subject, deleted=deleted):
            raise subject_not_found(subject)
        raise version_not_found("latest" if number == -1 else number)

    def has_subject(self, subject: Subject, *, deleted: bool = False) -> bool:
        """Whether anything is registered there."""
        return self.latest(subject, deleted=deleted) is not None

    def somewhere(self, subject: Subject) -> Subject:
        """The subject itself, or the one of that name in another context if only that exists."""
        if subject in self.versions or context_of(subject) != DEFAULT_CONTEXT:
            return subject
        for context in sorted(self.contexts):
            elsewhere = join(context, subject)
            if elsewhere in self.versions:
                return elsewhere
        return subject

    def aliased(self, subject: Subject) -> Subject:
        """Where an alias leads; the subject itself if it has none."""
        config = self.configs.get(subject)
        if config is None or not config.alias:
            return subject
        return normal(config.alias, context_of(subject))

    # Ids

    def by_id(self, id: int, context: str = DEFAULT_CONTEXT) -> Version | None:
        """A version that has the id, a live one if there is one."""
        found = None
        for one in self.users_of(id, context):
            if not one.deleted:
                return one
            found = found or one
        return found

    def users_of(self, id: int, context: str) -> Iterator[Version]:
        """All versions that have the id."""
        inside = self.contexts.get(context)
        for subject, number in () if inside is None else inside.ids.get(id, ()):
            yield self.versions[subject][number]

    def id_of(self, fingerprint: bytes, context: str) -> int | None:
        """The id these contents have in a context."""
        inside = self.contexts.get(context)
        return None if inside is None else inside.by_fingerprint.get(fingerprint)

    def with_fingerprint(
        self, subject: Subject, fingerprint: bytes, *, deleted: bool = False
    ) -> Version | None:
        """The newest version of a subject with exactly these contents."""
        id = self.id_of(fingerprint, context_of(subject))
        if id is None:
            return None
        for one in reversed(self.versions.get(subject, {}).values()):
            if one.fingerprint == fingerprint and (deleted or not one.deleted):
                return one
        return None

    # References

    def referrers_of(self, key: VersionKey, *, deleted: bool) -> list[Version]:
        """The versions that build on one; with `deleted`, the softly deleted too."""
        found = (self.versions[subject][number] for subject, number in self.referrers.get(key, ()))
        return [one for one in found if deleted or not one.deleted]

    def pinned(self, references: Iterable[Reference], context: str) -> tuple[Reference, ...]:
        """The references with `latest` made a number."""
        return tuple(
            one if one.version != -1 else one._replace(version=self.referred(one, context).number)
            for one in references
        )

    def referred(self, reference: Reference, context: str) -> Version:
        """The version a reference means, said in a context."""
        subject = normal(reference.subject, context)
        if reference.version == -1:
            found = self.latest(subject)
        else:
            found = self.versions.get(subject, {}).get(reference.version)
        if found is None:
            raise InvalidSchemaError(
                f'No schema reference found for subject "{reference.subject}" '
                f"and version {reference.version}"
            )
        return found

    def imports(self, references: Iterable[Reference], context: str) -> Imports:
        """All that references reach, by name, those without imports of their own first."""
        found: dict[str, str] = {}
        _gather(self, references, context, found, [])
        return found

    def imports_of(self, version: Version) -> Imports:
        """What a stored version builds on; what is gone since is left out."""
        try:
            references = version.contents.source.references
            return self.imports(references, context_of(version.subject))
        except InvalidSchemaError:
            return {}

    # Settings

    def config(self, name: str | None) -> Config:
        """The settings in force for a name, each from the nearest scope that has it."""
        layers = [found for key in scopes(name) if (found := self.configs.get(key))]
        return _layered([*layers, DEFAULTS], own=self.configs.get(name) if name else None)

    def mode(self, name: str | None) -> Mode:
        """The mode in force for a name."""
        if self.modes.get(None) is Mode.READONLY_OVERRIDE:
            return Mode.READONLY_OVERRIDE
        found = (self.modes[key] for key in scopes(name) if key in self.modes)
        return next(found, Mode.READWRITE)

    def in_scope(self, scope: str | None) -> Iterator[Subject]:
        """The subjects that a scope's settings reach."""
        if scope is None or scope == f":{GLOBAL_CONTEXT}:":
            yield from self.versions
            return
        context, local = split(scope)
        for subject in self.versions:
            if subject == scope or (not local and context_of(subject) == context):
                yield subject


def _gather(
    store: Store,
    references: Iterable[Reference],
    context: str,
    found: dict[str, str],
    path: list[VersionKey],
) -> None:
    for reference in references:
        if not reference.name or not reference.subject:
            raise InvalidSchemaError("a reference needs a name and a subject")
        if reference.name in found:
            continue
        version = store.referred(reference, context)
        if version.key in path:
            raise InvalidSchemaError(f'the reference "{reference.name}" leads back to itself')
        if len(found) >= REFERENCES_MAX or len(path) >= REFERENCES_MAX // 10:
            raise InvalidSchemaError("the schema reaches too many references")
        source = version.contents.source
        inner = context_of(version.subject)
        _gather(store, source.references, inner, found, [*path, version.key])
        found[reference.name] = source.text


def _layered(layers: list[Config], own: Config | None) -> Config:
    members = {}
    for name in _CONFIG_MEMBERS:
        if name in _NOT_INHERITED:
            members[name] = None if own is None else getattr(own, name)
            continue
        values = (getattr(layer, name) for layer in layers)
        members[name] = next((value for value in values if value is not None), None)
    return Config(**members)
