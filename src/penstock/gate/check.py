"""The gate: may a proposed schema follow the versions of its subject, and which readers it breaks.

The compatibility result is the registry's: the same rules over the same versions. In the same pass
come what the rules do not say: proofs by example, lints, broken readers, and a remedy for each
breaking change. Pure: today's date and the seed are arguments.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from penstock.gate.advice import remedy_for
from penstock.gate.contracts import (
    CompatibilitySettings,
    ContractHistory,
    ContractVersion,
    GivenContracts,
)
from penstock.gate.lint import lint
from penstock.gate.proof import locate, prove
from penstock.gate.reader_breaks import find_reader_breaks
from penstock.gate.results import (
    BreakingChange,
    CheckResult,
    CheckStatus,
    Proof,
    ReaderResult,
    UpgradeOrder,
)
from penstock.schemas import compatibility
from penstock.schemas.compatibility import Break, CompatibilityResult, EarlierVersion, Level
from penstock.schemas.model import Difference, ParsedSchema, Policy, SchemaText, SchemaType
from penstock.schemas.readers import Reader

PROPOSED: Final = "the proposed schema"
_ORDERS: Final = {  # by whether new readers can read old events, and old readers new events
    (True, True): UpgradeOrder.ANY,
    (True, False): UpgradeOrder.CONSUMERS_FIRST,
    (False, True): UpgradeOrder.PRODUCERS_FIRST,
    (False, False): UpgradeOrder.NONE,
}


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """How to check."""

    today: date  # readers that expired before it are ignored
    seed: int = 0  # of the events in proofs
    proves: bool = True
    asserts_formats: bool = False  # events of JSON Schema must match each `format`


def check(
    history: ContractHistory, subject: str, proposed: ParsedSchema, options: CheckOptions
) -> CheckResult:
    """Compare a proposed schema with the versions and readers of a subject."""
    return _Check(history, subject, proposed, options).result()


def check_pair(
    earlier: ParsedSchema, proposed: ParsedSchema, policy: Policy = Policy.STRICT
) -> CheckResult:
    """Compare two schemas in both directions, without proofs."""
    text = SchemaText(earlier.type, earlier.canonical, earlier.references)
    settings = CompatibilitySettings(Level.FULL, policy)
    history = GivenContracts([ContractVersion(1, text, earlier)], settings)
    return check(history, "", proposed, CheckOptions(date.max, proves=False))


class _Check:
    """One check. Compares each pair of schemas once."""

    def __init__(
        self,
        history: ContractHistory,
        subject: str,
        proposed: ParsedSchema,
        options: CheckOptions,
    ) -> None:
        self._subject = subject
        self._proposed = proposed
        self._options = options
        self._readers = history.readers(subject)
        self._versions = history.versions(subject)
        self._settings = history.settings(subject)
        self._earlier = [
            EarlierVersion(version.number, version.schema)
            for version in _comparable(self._versions, self._settings.group)
        ]
        self._latest = self._earlier[-1].schema if self._earlier else None
        self._compared: dict[tuple[int, int], tuple[Difference, ...]] = {}  # by object ids

    def result(self) -> CheckResult:
        """Everything about the change."""
        is_known = any(_is_same(version.schema, self._proposed) for version in self._versions)
        # Registering a known schema again changes nothing, whatever the rules say.
        outcome = CompatibilityResult() if is_known else self._compatibility(self._settings.level)
        readers = tuple(map(self._check_reader, self._readers))
        is_broken = not outcome.is_compatible or any(
            reader.status is CheckStatus.BREAKING for reader in readers
        )
        against = outcome.against or (self._earlier[-1] if self._earlier else None)
        level = self._settings.level
        return CheckResult(
            self._subject,
            CheckStatus.BREAKING if is_broken else CheckStatus.COMPATIBLE,
            level,
            is_known=is_known,
            against=None if against is None else against.version,
            breaking_changes=tuple(
                self._breaking_change(reason, against) for reason in outcome.breaks
            ),
            passes=tuple(level for level in Level if self._compatibility(level).is_compatible),
            forced_order=_ORDERS[level.is_backward, level.is_forward],
            safe_order=self._safe_order(),
            proofs=() if is_known else self._proofs(against),
            lints=() if is_known else lint(self._proposed, self._latest),
            readers=readers,
        )

    def _compatibility(self, level: Level) -> CompatibilityResult:
        return compatibility.check(
            level, self._proposed, self._earlier, self._settings.policy, self._incompatibilities
        )

    def _incompatibilities(
        self, reader: ParsedSchema, writer: ParsedSchema, policy: Policy
    ) -> tuple[Difference, ...]:
        key = (id(reader), id(writer))
        known = self._compared.get(key)
        if known is None:
            known = self._compared[key] = reader.incompatibilities(writer, policy)
        return known

    def _breaking_change(self, reason: Break, against: EarlierVersion | None) -> BreakingChange:
        assert against is not None, "a break is with a version"
        old, new, difference = against.schema, self._proposed, reason.difference
        if reason.new_is_reader:
            location = locate(old, new, difference)
            before, after = location.writer, location.reader
        else:
            location = locate(new, old, difference)
            before, after = location.reader, location.writer
        return BreakingChange(
            difference.kind,
            difference.path,
            reason.sentence,
            before,
            after,
            reason.new_is_reader,
            remedy_for(difference.kind, new_is_reader=reason.new_is_reader),
        )

    def _safe_order(self) -> UpgradeOrder:
        if self._latest is None:
            return UpgradeOrder.ANY
        if self._latest.type is not self._proposed.type:
            return UpgradeOrder.NONE
        policy = self._settings.policy
        is_backward = not self._incompatibilities(self._proposed, self._latest, policy)
        is_forward = not self._incompatibilities(self._latest, self._proposed, policy)
        return _ORDERS[is_backward, is_forward]

    def _proofs(self, against: EarlierVersion | None) -> tuple[Proof, ...]:
        """One for each direction that the level requires."""
        if not self._options.proves:
            return ()
        if against is None:
            return (self._proof(self._proposed, self._proposed, PROPOSED, "itself"),)
        old, title, level = against.schema, f"version {against.version}", self._settings.level
        proofs = []
        if level.is_forward:
            proofs.append(self._proof(self._proposed, old, PROPOSED, title))
        if level.is_backward:
            proofs.append(self._proof(old, self._proposed, title, PROPOSED))
        return tuple(proofs)

    def _proof(self, writes: ParsedSchema, reads: ParsedSchema, writer: str, reader: str) -> Proof:
        is_same_type = reads.type is writes.type
        differences = (
            self._incompatibilities(reads, writes, self._settings.policy) if is_same_type else ()
        )
        if self._options.asserts_formats:
            writes, reads = _asserting_formats(writes), _asserting_formats(reads)
        evidence = prove(writes, reads, differences, seed=self._options.seed)
        return Proof(writer, reader, evidence, bool(differences) or not is_same_type)

    def _check_reader(self, reader: Reader) -> ReaderResult:
        if reader.is_expired(self._options.today):
            return ReaderResult(reader, CheckStatus.COMPATIBLE, is_expired=True)
        breaks = find_reader_breaks(
            reader, self._proposed, self._latest, self._settings.policy, self._incompatibilities
        )
        changes = tuple(
            BreakingChange(
                break_.kind,
                break_.path,
                break_.sentence,
                break_.before,
                break_.after,
                new_is_reader=False,
                remedy=remedy_for(break_.kind, new_is_reader=False),
            )
            for break_ in breaks
        )
        if not changes:
            return ReaderResult(reader, CheckStatus.COMPATIBLE)
        proof = None
        schema = reader.schema or self._latest
        if self._options.proves and schema is not None and schema.type is self._proposed.type:
            proof = self._proof(self._proposed, schema, PROPOSED, reader.title)
        return ReaderResult(reader, CheckStatus.BREAKING, breaking_changes=changes, proof=proof)


def _asserting_formats(schema: ParsedSchema) -> ParsedSchema:
    if schema.type is not SchemaType.JSON:
        return schema
    from penstock.serde.json import event  # a language is imported on first use

    return event.json_schema(schema, True)


def _comparable(
    versions: Sequence[ContractVersion], group: str | None
) -> Sequence[ContractVersion]:
    """All versions, or those with the value of the latest if a group is set."""
    if group is None or not versions:
        return versions
    value = versions[-1].properties.get(group)
    return [version for version in versions if version.properties.get(group) == value]


def _is_same(schema: ParsedSchema, other: ParsedSchema) -> bool:
    if schema.type is not other.type:
        return False
    return schema.references == other.references and schema.equivalent(other)
