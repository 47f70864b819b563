"""The gate: may a proposed schema follow those that are there, and what does it do to whom.

The verdict is the registry's: the same rules over the same versions. Beside it stand what the rules
do not say: events that prove it, warnings, and every registered reader. Pure: today and the seed
come as arguments.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from enum import StrEnum
from typing import Final, NamedTuple

from penstock.gate.contracts import CompatibilitySettings, ContractVersion, RecordedResult
from penstock.gate.lint import Lint, lint
from penstock.gate.proof import Evidence, locate, prove
from penstock.gate.reader_breaks import find_reader_breaks
from penstock.schemas.compatibility import Break, CompatibilityResult, EarlierVersion, Level, check
from penstock.schemas.model import Difference, ParsedSchema, Policy, SchemaText, SchemaType
from penstock.schemas.readers import Reader


class CheckStatus(StrEnum):
    """What came of one check."""

    COMPATIBLE = "compatible"
    BREAKING = "breaking"
    UNCHECKED = "unchecked"  # could not be checked


class UpgradeOrder(StrEnum):
    """Who is upgraded first."""

    ANY = "any order"
    CONSUMERS_FIRST = "consumers first"
    PRODUCERS_FIRST = "producers first"
    NONE = "no order is safe"


class ProposedSchema(NamedTuple):
    """A schema that somebody wants to register."""

    subject: str
    source: SchemaText
    schema: ParsedSchema
    path: str = ""  # of its file


@dataclass(frozen=True, slots=True)
class BreakingChange:
    """One thing that broke."""

    kind: str
    path: str
    sentence: str
    before: str | None  # None: there was nothing
    after: str | None  # None: there is nothing
    new_is_reader: bool


@dataclass(frozen=True, slots=True)
class Proof:
    """Events of one side, read by the other."""

    writer: str  # "version 3", "the proposed schema"
    reader: str
    evidence: Evidence
    is_refused: bool = False  # by the rules, in this direction

    @property
    def is_stricter(self) -> bool:
        """Whether the rules refuse what no event was found to break."""
        return self.is_refused and self.evidence.fails is None


@dataclass(frozen=True, slots=True)
class ReaderResult:
    """What the change does to one registered reader."""

    reader: Reader
    status: CheckStatus
    is_expired: bool = False
    findings: tuple[BreakingChange, ...] = ()
    showing: Proof | None = None


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The answer about one subject."""

    subject: str
    status: CheckStatus
    level: Level | None = None
    file: str = ""
    error: str = ""  # why it could not be checked
    is_known: bool = False  # the schema is one of the versions already
    against: int | None = None  # the version that broke, or the latest
    findings: tuple[BreakingChange, ...] = ()
    passes: tuple[Level, ...] = ()  # the levels under which the rules allow the change
    forced_order: UpgradeOrder = UpgradeOrder.ANY  # by the level
    safe_order: UpgradeOrder = UpgradeOrder.ANY  # by what the change does
    showings: tuple[Proof, ...] = ()
    lints: tuple[Lint, ...] = ()
    readers: tuple[ReaderResult, ...] = ()
    recorded: RecordedResult | None = None  # what came of a topic's events, if they were tried

    def with_recorded(self, tally: RecordedResult) -> "CheckResult":
        """The answer once the events of a topic were tried: one that fails breaks it."""
        status = CheckStatus.BREAKING if tally.failed else self.status
        return replace(self, recorded=tally, status=status)


_FORCED: Final = {
    (True, True): UpgradeOrder.ANY,
    (True, False): UpgradeOrder.CONSUMERS_FIRST,
    (False, True): UpgradeOrder.PRODUCERS_FIRST,
    (False, False): UpgradeOrder.NONE,
}
PROPOSED: Final = "the proposed schema"


class Gate:
    """Judges proposals, with events to show it or without.

    Remembers which pairs of schemas were compared.
    """

    def __init__(
        self,
        today: date,
        seed: int = 0,
        *,
        shows_events: bool = True,
        asserts_formats: bool = False,
    ) -> None:
        self._shows_events = shows_events
        self._asserts_formats = asserts_formats  # in events of JSON Schema
        self._today = today
        self._seed = seed
        self._known: dict[tuple[int, int, Policy], tuple[Difference, ...]] = {}
        self._compared: list[ParsedSchema] = []  # kept, so that their ids stay theirs

    def check(
        self,
        proposal: ProposedSchema,
        versions: Sequence[ContractVersion],
        terms: CompatibilitySettings,
        readers: Iterable[Reader] = (),
    ) -> CheckResult:
        """The answer about one subject; `versions` are oldest first."""
        compared = [
            EarlierVersion(one.number, one.schema) for one in comparable_versions(versions, terms)
        ]
        verdict = check(
            terms.level, proposal.schema, compared, terms.policy, self._incompatibilities
        )
        is_known = any(_is_same(one.schema, proposal.schema) for one in versions)
        if is_known:  # registering it again changes nothing, whatever the rules say
            verdict = CompatibilityResult()
        latest = compared[-1] if compared else None
        of_readers = tuple(
            self._check_reader(reader, proposal.schema, latest, terms.policy) for reader in readers
        )
        is_broken = not verdict.is_compatible or any(
            one.status is CheckStatus.BREAKING for one in of_readers
        )
        old = verdict.against or latest
        return CheckResult(
            proposal.subject,
            CheckStatus.BREAKING if is_broken else CheckStatus.COMPATIBLE,
            terms.level,
            proposal.path,
            is_known=is_known,
            against=None if old is None else old.version,
            findings=tuple(self._finding(one, proposal.schema, old) for one in verdict.breaks),
            passes=self._passing(proposal.schema, compared, terms.policy),
            forced_order=_FORCED[terms.level.is_backward, terms.level.is_forward],
            safe_order=self._safe_order(proposal.schema, latest, terms.policy),
            showings=() if is_known else self._showings(proposal.schema, old, terms),
            lints=()
            if is_known
            else lint(proposal.schema, None if latest is None else latest.schema),
            readers=of_readers,
        )

    def _incompatibilities(
        self, reader: ParsedSchema, writer: ParsedSchema, policy: Policy
    ) -> tuple[Difference, ...]:
        key = (id(reader), id(writer), policy)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = reader.incompatibilities(writer, policy)
            self._compared += [reader, writer]
        return known

    def _finding(
        self, one: Break, proposed: ParsedSchema, old: EarlierVersion | None
    ) -> BreakingChange:
        assert old is not None, "a break is with a version"
        writer, reader = (old.schema, proposed) if one.new_is_reader else (proposed, old.schema)
        place = locate(writer, reader, one.difference)
        before, after = place.writer, place.reader
        if not one.new_is_reader:
            before, after = after, before
        return BreakingChange(
            one.difference.kind,
            one.difference.path,
            one.sentence,
            before,
            after,
            one.new_is_reader,
        )

    def _passing(
        self, proposed: ParsedSchema, earlier: Sequence[EarlierVersion], policy: Policy
    ) -> tuple[Level, ...]:
        return tuple(
            level
            for level in Level
            if check(level, proposed, earlier, policy, self._incompatibilities).is_compatible
        )

    def _safe_order(
        self, proposed: ParsedSchema, latest: EarlierVersion | None, policy: Policy
    ) -> UpgradeOrder:
        if latest is None:
            return UpgradeOrder.ANY
        if latest.schema.type is not proposed.type:
            return UpgradeOrder.NONE
        is_backward = not self._incompatibilities(proposed, latest.schema, policy)
        is_forward = not self._incompatibilities(latest.schema, proposed, policy)
        return _FORCED[is_backward, is_forward]

    def _showings(
        self, proposed: ParsedSchema, old: EarlierVersion | None, terms: CompatibilitySettings
    ) -> tuple[Proof, ...]:
        """One for each direction that the level asks for."""
        if not self._shows_events:
            return ()
        if old is None:
            return (self._showing(proposed, proposed, PROPOSED, "itself", terms.policy),)
        title = f"version {old.version}"
        showings = []
        if terms.level.is_forward:
            showings.append(self._showing(proposed, old.schema, PROPOSED, title, terms.policy))
        if terms.level.is_backward:
            showings.append(self._showing(old.schema, proposed, title, PROPOSED, terms.policy))
        return tuple(showings)

    def _showing(
        self, writes: ParsedSchema, reads: ParsedSchema, writer: str, reader: str, policy: Policy
    ) -> Proof:
        differs = (
            self._incompatibilities(reads, writes, policy) if reads.type is writes.type else ()
        )
        is_refused = bool(differs) or reads.type is not writes.type
        if self._asserts_formats:
            writes, reads = _asserting_formats(writes), _asserting_formats(reads)
        evidence = prove(writes, reads, differs, seed=self._seed)
        return Proof(writer, reader, evidence, is_refused)

    def _check_reader(
        self, reader: Reader, proposed: ParsedSchema, latest: EarlierVersion | None, policy: Policy
    ) -> ReaderResult:
        if reader.is_expired(self._today):
            return ReaderResult(reader, CheckStatus.COMPATIBLE, is_expired=True)
        old = None if latest is None else latest.schema
        findings = tuple(
            BreakingChange(
                one.kind, one.path, one.sentence, one.before, one.after, new_is_reader=False
            )
            for one in find_reader_breaks(reader, proposed, old, policy, self._incompatibilities)
        )
        if not findings:
            return ReaderResult(reader, CheckStatus.COMPATIBLE)
        showing = None
        schema = reader.schema or old
        if self._shows_events and schema is not None and schema.type is proposed.type:
            showing = self._showing(proposed, schema, PROPOSED, reader.title, policy)
        return ReaderResult(reader, CheckStatus.BREAKING, findings=findings, showing=showing)


def _asserting_formats(schema: ParsedSchema) -> ParsedSchema:
    if schema.type is not SchemaType.JSON:
        return schema
    from penstock.serde.json import (
        event as json_event,  # a language is imported when it is first met
    )

    return json_event.own(schema, True)


def comparable_versions(
    versions: Sequence[ContractVersion], terms: CompatibilitySettings
) -> list[ContractVersion]:
    """Those a proposal is compared with: where a group is set, those of the latest's value."""
    if terms.group is None or not versions:
        return list(versions)
    wanted = versions[-1].properties.get(terms.group)
    return [one for one in versions if one.properties.get(terms.group) == wanted]


def _is_same(one: ParsedSchema, other: ParsedSchema) -> bool:
    if one.type is not other.type:
        return False
    return one.references == other.references and one.equivalent(other)


def rewritten(
    version: ContractVersion, published: ContractVersion, next_number: int
) -> BreakingChange:
    """A published version that was edited: events were written with it, so it stays as it is."""
    sentence = (
        f"version {version.number} was published and is another schema now. Put it back, "
        f"and write the change as v{next_number}"
    )
    before, after = published.schema.canonical, version.schema.canonical
    return BreakingChange("VERSION_REWRITTEN", version.path, sentence, before, after, True)


def unchecked(subject: str, error: str, path: str = "") -> CheckResult:
    """The answer where there is none."""
    return CheckResult(subject, CheckStatus.UNCHECKED, error=error, file=path)


def exit_status(results: Iterable[CheckResult]) -> int:
    """0 all compatible, 1 something breaks, 2 something could not be checked and nothing breaks."""
    found = {result.status for result in results}
    if CheckStatus.BREAKING in found:
        return 1
    return 2 if CheckStatus.UNCHECKED in found else 0
