"""What must change in a registry so that it has the contracts of a folder, in an order that works.

Levels come first, then readers that changed (a field without a reader can be removed), then
versions (referenced subjects before those that refer to them), then all other readers. Nothing is
ever deleted: subjects, versions and readers that only the registry has are not changed. After a
plan was applied, the next plan is empty.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from penstock.client.reader_lease import declare_reader, is_due, reader_subject
from penstock.client.registry_api import RegistryApi
from penstock.client.registry_documents import schema_body
from penstock.gate.check import CheckOptions, check
from penstock.gate.contracts import (
    CannotCheckError,
    CompatibilitySettings,
    ContractVersion,
    GivenContracts,
)
from penstock.gate.folder import ContractFolder
from penstock.gate.proposals import rewritten
from penstock.gate.registry_contracts import RegistryContracts, read_compatibility_settings
from penstock.gate.results import CheckResult, CheckStatus
from penstock.schemas.model import Policy, SchemaText
from penstock.schemas.readers import Reader


class PlanAction(StrEnum):
    """What a planned change does."""

    SET_COMPATIBILITY = "set compatibility"
    REGISTER = "register version"
    DECLARE_READER = "declare reader"
    UPDATE_READER = "update the declaration of reader"


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One change of the registry."""

    action: PlanAction
    subject: str
    before: str | None
    after: str
    settings: CompatibilitySettings | None = None
    version: ContractVersion | None = None  # with its number in the folder
    reader: Reader | None = None
    result: CheckResult | None = None  # of a version

    @property
    def is_refused(self) -> bool:
        """Whether the registry would refuse it, or a reader would break."""
        return self.result is not None and self.result.status is not CheckStatus.COMPATIBLE


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """All changes, in order; and the subjects that only the registry has."""

    changes: tuple[PlannedChange, ...]
    unmanaged: tuple[str, ...]

    @property
    def is_refused(self) -> bool:
        """Whether the registry would refuse one of the changes."""
        return any(change.is_refused for change in self.changes)


class Planner:
    """Compares a folder with a registry. Remembers the version numbers of both."""

    def __init__(self, folder: ContractFolder, api: RegistryApi, options: CheckOptions) -> None:
        self._folder = folder
        self._api = api
        self._registry = RegistryContracts(api)
        self._options = options
        self._numbers: dict[tuple[str, int], int] = {}  # in the folder -> in the registry

    def plan(self) -> ChangePlan:
        """What must be changed. Only reads from the registry."""
        subjects = dependency_order(self._folder)
        changes = [*self._plan_settings(subjects)]
        for subject in subjects:
            changes += self._plan_readers(subject, changed=True)
        for subject in subjects:
            changes += self._plan_versions(subject)
        for subject in subjects:
            changes += self._plan_readers(subject, changed=False)
        unmanaged = [subject for subject in self._registry.subjects() if subject not in subjects]
        return ChangePlan(tuple(changes), tuple(unmanaged))

    def apply(self, change: PlannedChange) -> None:
        """Make one change of the plan; call it in the plan's order."""
        subject = change.subject
        match change.action:
            case PlanAction.SET_COMPATIBILITY:
                assert change.settings is not None
                self._api.set_config(subject, self._config(subject, change.settings))
            case PlanAction.REGISTER:
                assert change.version is not None
                source = self._mapped(change.version.source)
                registered = self._api.register(subject, schema_body(source))
                self._remember_number(subject, change.version.number, source, registered)
            case PlanAction.DECLARE_READER | PlanAction.UPDATE_READER:
                assert change.reader is not None
                declare_reader(self._api, subject, change.reader, self._options.today)

    def _config(self, subject: str, settings: CompatibilitySettings) -> dict[str, str]:
        """Without the strict policy, which a registry without policies might refuse."""
        known = self._api.own_config(subject) or {}
        config = {"compatibility": str(settings.level)}
        if settings.policy is not Policy.STRICT or "compatibilityPolicy" in known:
            config["compatibilityPolicy"] = str(settings.policy)
        return config

    def _remember_number(
        self, subject: str, number: int, source: SchemaText, registered: dict[str, Any]
    ) -> None:
        if registered.get("version") is None:  # older registries return an id only
            registered = self._api.find_schema(subject, schema_body(source)) or {}
        self._numbers[subject, number] = int(registered.get("version") or number)

    def _plan_settings(self, subjects: Iterable[str]) -> Iterable[PlannedChange]:
        for subject in subjects:
            requested = self._folder.own_settings(subject)
            if requested is None:
                continue
            config = self._api.own_config(subject)
            known = None
            if config is not None:
                known = read_compatibility_settings(config)._replace(group=None)
            has_level = config is not None and "compatibilityLevel" in config
            if known != requested or not has_level:
                before = None if known is None else _title(known)
                action = PlanAction.SET_COMPATIBILITY
                yield PlannedChange(action, subject, before, _title(requested), settings=requested)

    def _plan_versions(self, subject: str) -> Iterable[PlannedChange]:
        history = self._registry.versions(subject)
        settings = self._folder.own_settings(subject) or self._registry.settings(subject)
        readers = self._readers_at_registration(subject)
        own = self._folder.versions(subject)
        self._find_registered(subject, own)
        registered = {self._numbers.get((subject, version.number)) for version in own}
        unmatched = {
            version.number: version for version in history if version.number not in registered
        }
        next_number = 1 + max([version.number for version in (*history, *own)], default=0)
        latest = history[-1].number if history else 0
        for version in own:
            if (subject, version.number) in self._numbers:
                continue
            latest += 1
            self._numbers[subject, version.number] = latest
            published = unmatched.get(version.number)
            if published is not None:
                result = rewritten(subject, version, published, next_number)
            else:
                # Readers that the folder adds will read what is written from then on: only the
                # newest version matters to them.
                added = self._folder.readers(subject) if version is own[-1] else ()
                affected = {reader.name: reader for reader in added} | readers
                known = GivenContracts(history, settings, [*affected.values()])
                result = check(known, subject, version.schema, self._options)
                result = replace(result, file=version.path)
                history = [*history, ContractVersion(latest, version.source, version.schema)]
            title = f"v{version.number} as version {latest} ({version.schema.type})"
            yield PlannedChange(
                PlanAction.REGISTER, subject, None, title, version=version, result=result
            )

    def _find_registered(self, subject: str, own: Iterable[ContractVersion]) -> None:
        """Remember the numbers of the versions that the registry has."""
        for version in own:
            body = schema_body(self._mapped(version.source))
            registered = self._api.find_schema(subject, body)
            if registered is not None:
                self._numbers[subject, version.number] = int(registered["version"])

    def _readers_at_registration(self, subject: str) -> dict[str, Reader]:
        """The readers that the registry will have when it checks the versions."""
        readers = {reader.name: reader for reader in self._registry.readers(subject)}
        for reader in self._folder.readers(subject):
            if self._is_changed(subject, reader):
                readers[reader.name] = reader
        return readers

    def _is_changed(self, subject: str, reader: Reader) -> bool:
        """Whether the registry has the reader, and the folder has a schema for it."""
        declaration = reader_subject(subject, reader.name)
        return reader.schema is not None and bool(self._api.versions(declaration))

    def _plan_readers(self, subject: str, *, changed: bool) -> Iterable[PlannedChange]:
        versions = self._folder.versions(subject)
        today = self._options.today
        for reader in self._folder.readers(subject):
            if reader.is_expired(today) or self._is_changed(subject, reader) is not changed:
                continue
            if reader.schema is None and versions:
                reader = replace(reader, schema=versions[-1].schema)
            declaration = reader_subject(subject, reader.name)
            known = self._api.versions(declaration)
            if not known:
                yield _declaration(PlanAction.DECLARE_READER, subject, reader)
            elif is_due(self._api, declaration, known[-1], reader, today):
                yield _declaration(PlanAction.UPDATE_READER, subject, reader)

    def _mapped(self, source: SchemaText) -> SchemaText:
        """The text with the registry's version numbers in its references."""
        references = []
        for reference in source.references:
            known = self._numbers.get((reference.subject, reference.version))
            references.append(reference if known is None else reference._replace(version=known))
        return source._replace(references=tuple(references))


def _declaration(action: PlanAction, subject: str, reader: Reader) -> PlannedChange:
    fields = f" using {', '.join(reader.fields)}" if reader.fields else ""
    return PlannedChange(action, subject, None, f"{reader.title}{fields}", reader=reader)


def dependency_order(folder: ContractFolder) -> list[str]:
    """All subjects, referenced ones before those that refer to them."""
    ordered: list[str] = []

    def visit(subject: str, path: tuple[str, ...]) -> None:
        if subject in path:
            cycle = " -> ".join((*path, subject))
            raise CannotCheckError(f"the references form a cycle: {cycle}")
        if subject in ordered:
            return
        for referenced in _referenced(folder, subject):
            visit(referenced, (*path, subject))
        ordered.append(subject)

    for subject in folder.subjects():
        visit(subject, ())
    return ordered


def _referenced(folder: ContractFolder, subject: str) -> Sequence[str]:
    known = set(folder.subjects())
    return sorted(
        {
            reference.subject
            for version in folder.versions(subject)
            for reference in version.source.references
            if reference.subject in known and reference.subject != subject
        }
    )


def _title(settings: CompatibilitySettings) -> str:
    policy = "" if settings.policy is Policy.STRICT else f", {settings.policy}"
    return f"{settings.level}{policy}"
