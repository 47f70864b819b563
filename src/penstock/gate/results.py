"""The result of checking a proposed schema. Values only."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from penstock.gate.lint import Lint
from penstock.gate.proof import Evidence
from penstock.schemas.compatibility import Level
from penstock.schemas.readers import Reader


class CheckStatus(StrEnum):
    """Whether a change is safe."""

    COMPATIBLE = "compatible"
    BREAKING = "breaking"
    UNCHECKED = "unchecked"  # could not be checked


class UpgradeOrder(StrEnum):
    """Who must be upgraded first."""

    ANY = "any order"
    CONSUMERS_FIRST = "consumers first"
    PRODUCERS_FIRST = "producers first"
    NONE = "no order is safe"


@dataclass(frozen=True, slots=True)
class BreakingChange:
    """One change that breaks readers, and how to avoid it."""

    kind: str
    path: str
    sentence: str
    before: str | None  # None: absent
    after: str | None  # None: absent
    new_is_reader: bool  # who cannot read: consumers with the new schema, or with the old one
    remedy: str


@dataclass(frozen=True, slots=True)
class Proof:
    """Events written with one schema and read with the other, as evidence for a result."""

    writer: str  # "version 3", "the proposed schema"
    reader: str
    evidence: Evidence
    is_refused: bool = False  # by the rules, in this direction

    @property
    def is_stricter(self) -> bool:
        """Whether the rules refuse the change although no event was found that breaks."""
        return self.is_refused and self.evidence.fails is None


@dataclass(frozen=True, slots=True)
class ReaderResult:
    """What the change does to one declared reader."""

    reader: Reader
    status: CheckStatus
    is_expired: bool = False
    breaking_changes: tuple[BreakingChange, ...] = ()
    proof: Proof | None = None


@dataclass(slots=True)
class WriterResult:
    """How many recorded events of one writer schema can be read."""

    writer: str  # "version 3 (id 17)", or the id alone
    events: int = 0
    failed: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    first: str = ""  # partition, offset and reason of the first failure


@dataclass(slots=True)
class RecordedResult:
    """How many recorded events of a topic can be read."""

    topic: str
    events: int = 0
    failed: int = 0
    empty: int = 0  # without a value
    by_writer: dict[str, WriterResult] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result for one subject."""

    subject: str
    status: CheckStatus
    level: Level | None = None
    file: str = ""
    error: str = ""  # why it could not be checked
    is_known: bool = False  # the schema is registered already
    against: int | None = None  # the version that broke, or the latest
    breaking_changes: tuple[BreakingChange, ...] = ()
    passes: tuple[Level, ...] = ()  # the levels that allow the change
    forced_order: UpgradeOrder = UpgradeOrder.ANY  # by the level
    safe_order: UpgradeOrder = UpgradeOrder.ANY  # by the effect of the change
    proofs: tuple[Proof, ...] = ()
    lints: tuple[Lint, ...] = ()
    readers: tuple[ReaderResult, ...] = ()
    recorded: RecordedResult | None = None  # if it was tried on the events of a topic

    def with_recorded(self, recorded: RecordedResult) -> "CheckResult":
        """The result including recorded events: one that cannot be read breaks it."""
        status = CheckStatus.BREAKING if recorded.failed else self.status
        return replace(self, recorded=recorded, status=status)


def unchecked(subject: str, error: str, path: str = "") -> CheckResult:
    """The result of a check that was not possible."""
    return CheckResult(subject, CheckStatus.UNCHECKED, error=error, file=path)


def exit_status(results: Iterable[CheckResult]) -> int:
    """1 if any result is breaking, else 2 if one could not be checked, else 0."""
    statuses = {result.status for result in results}
    if CheckStatus.BREAKING in statuses:
        return 1
    return 2 if CheckStatus.UNCHECKED in statuses else 0
