"""What must change in a registry so that it holds what a folder says, in an order that works.

Levels come first, then readers that changed what they read with (a field that nobody uses any more
can go), then versions (what others refer to before those that do), then all other readers. Nothing
is ever taken away: subjects, versions and readers that only the registry has are left alone. A plan
that was applied leaves nothing to plan.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from enum import StrEnum
from typing import Any

from penstock.client.reader_lease import declare_reader, is_due, reader_subject
from penstock.client.registry_api import RegistryApi
from penstock.client.registry_documents import schema_body
from penstock.gate.check import CheckResult, CheckStatus, Gate, ProposedSchema, rewritten
from penstock.gate.contracts import (
    CannotCheckError,
    CompatibilitySettings,
    ContractVersion,
)
from penstock.gate.folder import ContractFolder
from penstock.gate.registry_contracts import RegistryContracts, read_compatibility_settings
from penstock.schemas.model import Policy, SchemaText
from penstock.schemas.readers import Reader


class PlanAction(StrEnum):
    """What is done to a registry."""

    SET_TERMS = "set compatibility"
    REGISTER = "register version"
    DECLARE_READER = "declare reader"
    UPDATE_READER = "update the declaration of reader"


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One change."""

    kind: PlanAction
    subject: str
    before: str | None
    after: str
    terms: CompatibilitySettings | None = None
    version: ContractVersion | None = None  # with the number it has in the folder
    reader: Reader | None = None
    result: CheckResult | None = None  # what the gate says to a version

    @property
    def is_refused(self) -> bool:
        """Whether the registry would decline, or a reader break."""
        return self.result is not None and self.result.status is not CheckStatus.COMPATIBLE


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """All changes, in order; and the subjects that only the registry has."""

    actions: tuple[PlannedChange, ...]
    unmanaged: tuple[str, ...]

    @property
    def is_refused(self) -> bool:
        """Whether applying it would stop half way."""
        return any(action.is_refused for action in self.actions)


class Planner:
    """Compares a folder with a registry. Keeps which version of the one is which of the other."""

    def __init__(self, folder: ContractFolder, api: RegistryApi, gate: Gate, today: date) -> None:
        self._folder = folder
        self._api = api
        self._shelf = RegistryContracts(api)
        self._gate = gate
        self._today = today
        self._numbers: dict[tuple[str, int], int] = {}  # in the folder -> in the registry

    def plan(self) -> ChangePlan:
        """What is to be done. Asks the registry and changes nothing."""
        subjects = in_order(self._folder)
        actions = [*self._plan_terms(subjects)]
        for subject in subjects:
            actions += self._plan_readers(subject, changed=True)
        for subject in subjects:
            actions += self._plan_versions(subject)
        for subject in subjects:
            actions += self._plan_readers(subject, changed=False)
        unmanaged = tuple(one for one in self._shelf.subjects() if one not in subjects)
        return ChangePlan(tuple(actions), unmanaged)

    def apply(self, action: PlannedChange) -> None:
        """Do one thing of the plan; in the plan's order."""
        subject = action.subject
        match action.kind:
            case PlanAction.SET_TERMS:
                assert action.terms is not None
                self._api.set_config(subject, self._config(subject, action.terms))
            case PlanAction.REGISTER:
                assert action.version is not None
                source = self._mapped(action.version.source)
                told = self._api.register(subject, schema_body(source))
                self._learn(subject, action.version.number, source, told)
            case PlanAction.DECLARE_READER | PlanAction.UPDATE_READER:
                assert action.reader is not None
                declare_reader(self._api, subject, action.reader, self._today)

    def _config(self, subject: str, terms: CompatibilitySettings) -> dict[str, str]:
        """Registries without policies may not know the member; strict is what they are."""
        known = self._api.own_config(subject) or {}
        config = {"compatibility": str(terms.level)}
        if terms.policy is not Policy.STRICT or "compatibilityPolicy" in known:
            config["compatibilityPolicy"] = str(terms.policy)
        return config

    def _learn(self, subject: str, number: int, source: SchemaText, told: dict[str, Any]) -> None:
        if told.get("version") is None:  # older registries answer with an id only
            told = self._api.find_schema(subject, schema_body(source)) or {}
        self._numbers[subject, number] = int(told.get("version") or number)

    def _plan_terms(self, subjects: Iterable[str]) -> Iterable[PlannedChange]:
        for subject in subjects:
            wanted = self._folder.own_terms(subject)
            if wanted is None:
                continue
            config = self._api.own_config(subject)
            known = (
                None if config is None else read_compatibility_settings(config)._replace(group=None)
            )
            has_level = config is not None and "compatibilityLevel" in config
            if known != wanted or not has_level:
                before = None if known is None else _shown(known)
                yield PlannedChange(
                    PlanAction.SET_TERMS, subject, before, _shown(wanted), terms=wanted
                )

    def _plan_versions(self, subject: str) -> Iterable[PlannedChange]:
        history = self._shelf.versions(subject)
        terms = self._folder.own_terms(subject) or self._shelf.terms(subject)
        own_readers = self._folder.readers(subject)
        readers = {one.name: one for one in self._shelf.readers(subject)}
        readers |= {one.name: one for one in own_readers if self._is_changed(subject, one)}
        own = self._folder.versions(subject)
        for version in own:
            found = self._api.find_schema(subject, schema_body(self._mapped(version.source)))
            if found is not None:
                self._numbers[subject, version.number] = int(found["version"])
        unclaimed = {one.number: one for one in history}
        for version in own:
            unclaimed.pop(self._numbers.get((subject, version.number), 0), None)
        latest = history[-1].number if history else 0
        for version in own:
            if (subject, version.number) in self._numbers:
                continue
            latest += 1
            self._numbers[subject, version.number] = latest
            title = f"v{version.number} as version {latest} ({version.schema.type})"
            published = unclaimed.get(version.number)
            if published is not None:
                finding = rewritten(version, published, max(own[-1].number, history[-1].number) + 1)
                result = CheckResult(
                    subject, CheckStatus.BREAKING, file=version.path, findings=(finding,),
                    against=version.number,
                )  # fmt: skip
            else:
                proposal = ProposedSchema(subject, version.source, version.schema, version.path)
                # The registry asks the readers that it has by then, about each version. What the
                # folder adds reads what is written from then on: only the newest matters to it.
                newer = {one.name: one for one in own_readers} if version is own[-1] else {}
                affected = [*(newer | readers).values()]
                result = self._gate.check(proposal, history, terms, affected)
                history = [*history, ContractVersion(latest, version.source, version.schema)]
            yield PlannedChange(
                PlanAction.REGISTER, subject, None, title, version=version, result=result
            )

    def _is_changed(self, subject: str, reader: Reader) -> bool:
        """Whether the registry has the reader, and the folder says what it reads with."""
        kept = reader_subject(subject, reader.name)
        return reader.schema is not None and bool(self._api.versions(kept))

    def _plan_readers(self, subject: str, *, changed: bool) -> Iterable[PlannedChange]:
        versions = self._folder.versions(subject)
        for reader in self._folder.readers(subject):
            is_expired = reader.is_expired(self._today)
            if is_expired or self._is_changed(subject, reader) is not changed:
                continue
            if reader.schema is None and versions:
                reader = replace(reader, schema=versions[-1].schema)
            kept = reader_subject(subject, reader.name)
            known = self._api.versions(kept)
            if not known:
                yield _declaration(PlanAction.DECLARE_READER, subject, reader)
            elif is_due(self._api, kept, known[-1], reader, self._today):
                yield _declaration(PlanAction.UPDATE_READER, subject, reader)

    def _mapped(self, source: SchemaText) -> SchemaText:
        """References by the registry's numbers."""
        references = tuple(
            one._replace(version=self._numbers.get((one.subject, one.version), one.version))
            for one in source.references
        )
        return source._replace(references=references)


def _declaration(kind: PlanAction, subject: str, reader: Reader) -> PlannedChange:
    fields = f" using {', '.join(reader.fields)}" if reader.fields else ""
    return PlannedChange(kind, subject, None, f"{reader.title}{fields}", reader=reader)


def in_order(folder: ContractFolder) -> list[str]:
    """Subjects, those that others refer to first."""
    ordered: list[str] = []

    def visit(subject: str, path: tuple[str, ...]) -> None:
        if subject in path:
            raise CannotCheckError(f"the references go in circles: {' -> '.join((*path, subject))}")
        if subject in ordered:
            return
        for needed in _needed(folder, subject):
            visit(needed, (*path, subject))
        ordered.append(subject)

    for subject in folder.subjects():
        visit(subject, ())
    return ordered


def _needed(folder: ContractFolder, subject: str) -> Sequence[str]:
    known = set(folder.subjects())
    return sorted(
        {
            one.subject
            for version in folder.versions(subject)
            for one in version.source.references
            if one.subject in known and one.subject != subject
        }
    )


def _shown(terms: CompatibilitySettings) -> str:
    policy = "" if terms.policy is Policy.STRICT else f", {terms.policy}"
    return f"{terms.level}{policy}"
