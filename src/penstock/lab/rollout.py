"""A rolling upgrade under load: every producer and consumer, one by one, in a chosen order.

Producers write at a constant rate, two groups of consumers read everything. The lag of both groups
and the versions in use are recorded about twice a second. What was read is compared with the log
for each group and partition by offsets, so that duplicates cannot hide a loss.
"""

import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import psutil

from penstock.lab.lab_platform import LabError
from penstock.lab.lab_result import LabPlot, LabResult
from penstock.lab.lab_run import LabRun
from penstock.lab.order_schemas import SHAPES, schema_text
from penstock.lab.rollout_fleet import (
    GROUPS,
    OLD_VERSION,
    FleetTotals,
    RolloutFleet,
    RolloutMode,
    RolloutSize,
)
from penstock.lab.rollout_workers import FETCHES, FIELDS
from penstock.link.blocking import BlockingCluster
from penstock.link.offsets import committed_offsets, end_offsets, partitions_of
from penstock.schemas.model import SchemaType

if TYPE_CHECKING:
    from penstock.model import Offset, TopicPartition

_QUESTION: Final = "Can all producers and consumers be upgraded under load, one by one?"
_DRAIN_S: Final = 120.0
_READY_S: Final = 120.0
_RECOVERED_S: Final = 5  # a lag of the events of so many seconds is normal
_GIB: Final = 1 << 30
_MODES: Final = (
    RolloutMode("FULL", "v2", "any"),
    RolloutMode("BACKWARD", "remove a required field", "consumers first"),
    RolloutMode("FORWARD", "add a required field", "producers first"),
)


@dataclass(slots=True)
class RolloutRecord:
    """What was seen, by second since the start."""

    totals: FleetTotals
    lag: dict[str, list[tuple[float, float]]] = field(
        default_factory=lambda: {group: [] for group in GROUPS}
    )
    old_members: list[tuple[float, float]] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)  # of the partitions, after the last event
    rolled_s: float = 0.0  # when the last upgrade was done
    stopped_s: float = 0.0  # when the producers were stopped
    rate: float = 0.0  # events per second from the first upgrade's lead until the stop
    memory_bytes: int = 0  # used at most, beyond what was used before

    @property
    def peak_lag(self) -> float:
        return max(lag for line in self.lag.values() for _, lag in line)

    @property
    def last_lag(self) -> float:
        return max(line[-1][1] for line in self.lag.values())

    def lag_under_load(self) -> float:
        """The median after the last upgrade, while producers run on, of the group behind more."""
        from_s = (self.rolled_s + self.stopped_s) / 2
        tails = [
            [lag for at, lag in line if from_s <= at <= self.stopped_s]
            for line in self.lag.values()
        ]
        return max(statistics.median(tail) if tail else self.peak_lag for tail in tails)

    def coexistence_s(self) -> float:
        mixed = [at for at, old in self.old_members if old]
        return mixed[-1] - mixed[0] if mixed else 0.0


def rollout_size(lab: LabRun) -> RolloutSize:
    """By the scale; a fraction makes only its duration shorter, so that it is a trial of it."""
    quick = RolloutSize(2, 4, 2_000, (6, 6, 6), 4)
    default = RolloutSize(4, 8, 20_000, (40, 30, 30), 8)
    full = RolloutSize(24, 48, 200_000, (1_200, 900, 900), 24)
    size = {"quick": quick, "default": default, "full": full}[str(lab.scale)]
    seconds = [max(6, int(one * lab.fraction)) for one in size.seconds]
    return RolloutSize(
        size.producers, size.consumers, size.rate, (seconds[0], seconds[1], seconds[2]),
        size.partitions,
    )  # fmt: skip


def run_rollout(lab: LabRun) -> LabResult:
    """Roll out at every level."""
    size = rollout_size(lab)
    fetches = ", ".join(f"{key}={value}" for key, value in FETCHES.items())
    result = lab.result(
        _QUESTION, producers=size.producers, consumers=size.consumers, groups=len(GROUPS),
        rate=size.rate, seconds=size.seconds, partitions=size.partitions, codec="lz4",
        columns=" and ".join(FIELDS), consumer_settings=fetches,
    )  # fmt: skip
    rows = []
    for mode, seconds in zip(_MODES, size.seconds, strict=True):
        record = _Rollout(lab, size, mode, seconds).run()
        claim_rollout(result, size, mode, record)
        rows.append(_row(mode, record))
        level = mode.level
        result.plots.append(LabPlot(f"{level}: lag of the groups", "events", record.lag, "s"))
        result.plots.append(
            LabPlot(f"{level}: members", "members", {"not upgraded": record.old_members}, "s")
        )
    result.table(
        "Rollouts",
        ("level", "new version", "order", "events", "events/s", "errors", "duplicates",
         "coexistence, s", "peak lag", "lag under load at the end", "memory, GiB"),
        rows,
    )  # fmt: skip
    return result


def claim_rollout(
    result: LabResult, size: RolloutSize, mode: RolloutMode, record: RolloutRecord
) -> None:
    """Add the claims about one rollout."""
    where, totals = f"{mode.level}, {mode.order}", record.totals
    result.claim(f"{where}: no error", f"{totals.errors} errors", totals.errors == 0)
    failed = f"{len(totals.failures)} of {totals.started} processes"
    result.claim(
        f"{where}: no process fails", "; ".join([failed, *totals.failures[:5]]), not totals.failures
    )
    in_log = sum(record.ends.values())
    result.claim(
        f"{where}: every acknowledged event is in the log once", f"{in_log:,} of {totals.sent:,}",
        in_log == totals.sent,
    )  # fmt: skip
    for group, coverage in totals.read.items():
        missing = sum(coverage.missing(record.ends).values())
        result.claim(
            f"{where}: {group} reads every event of every partition",
            f"{coverage.distinct:,} of {in_log:,}, {coverage.duplicates:,} of them again",
            missing == 0 and coverage.distinct == in_log,
        )
    result.claim(
        f"{where}: the lag ends at 0", f"{record.last_lag:,.0f} events", record.last_lag == 0
    )
    behind = record.lag_under_load()
    result.claim(
        f"{where}: while producers run on after the last upgrade, the lag is below the events of"
        f" {_RECOVERED_S} s",
        f"{behind:,.0f} events (median)", behind < _RECOVERED_S * size.rate, is_speed=True,
    )  # fmt: skip
    result.claim(
        f"{where}: at least 95 % of the rate", f"{record.rate:,.0f} events/s",
        record.rate >= 0.95 * size.rate, is_speed=True,
    )  # fmt: skip
    result.numbers[mode.level] = {
        "events": totals.sent, "errors": totals.errors, "events_s": round(record.rate),
        "coexistence_s": round(record.coexistence_s()), "peak_lag": round(record.peak_lag),
        "duplicates": sum(one.duplicates for one in totals.read.values()),
        "memory_gib": round(record.memory_bytes / _GIB, 1),
    }  # fmt: skip


def _row(mode: RolloutMode, record: RolloutRecord) -> tuple[Any, ...]:
    totals = record.totals
    return (
        *mode, f"{totals.sent:,}", f"{record.rate:,.0f}", totals.errors,
        f"{sum(one.duplicates for one in totals.read.values()):,}",
        f"{record.coexistence_s():.0f}", f"{record.peak_lag:,.0f}",
        f"{record.lag_under_load():,.0f}", f"{record.memory_bytes / _GIB:.1f}",
    )  # fmt: skip


class _Rollout:
    """One rollout, from the first event to the last."""

    def __init__(self, lab: LabRun, size: RolloutSize, mode: RolloutMode, seconds: int) -> None:
        self._lab, self._size, self._mode, self._seconds = lab, size, mode, seconds
        self._topic = lab.platform.make_topic(
            f"rollout-{mode.level}".lower(), size.partitions,
            {"retention.bytes": str(256 << 20), "segment.bytes": str(64 << 20)},
        )  # fmt: skip
        self._fleet = RolloutFleet(lab, size, mode, self._topic)
        self._record = RolloutRecord(self._fleet.totals)
        self._old_ends: dict[TopicPartition, Offset] = {}  # when the last producer was upgraded
        self._memory_before = psutil.virtual_memory().used
        self._start_s = 0.0

    def run(self) -> RolloutRecord:
        """Start everything on the old version, upgrade, stop, and wait for the readers."""
        with self._lab.platform.registry() as registry:
            subject = f"{self._topic}-value"
            registry.api.set_config(subject, {"compatibility": self._mode.level})
            for version in (OLD_VERSION, self._mode.version):
                registry.register(subject, schema_text(SHAPES[version], SchemaType.AVRO))
        members = self._fleet.members()
        with BlockingCluster(self._lab.platform.bootstrap) as cluster:
            try:
                for name in members:
                    self._fleet.start(name)
                self._wait_until_writing()
                before, self._start_s = sum(self._ends(cluster).values()), time.monotonic()
                self._roll(cluster, members)
                self._record.stopped_s = self._now_s
                written = sum(self._ends(cluster).values()) - before
                self._record.rate = written / self._now_s
                self._fleet.stop([name for name in members if name.startswith("p")])
                self._drain(cluster)
                self._record.ends = {
                    one.partition: int(end) for one, end in self._ends(cluster).items()
                }
            finally:
                self._fleet.stop_all()
        return self._record

    @property
    def _now_s(self) -> float:
        return time.monotonic() - self._start_s

    def _wait_until_writing(self) -> None:
        """Until every producer writes; the time of the rollout begins then."""
        deadline_s = time.monotonic() + _READY_S
        while not self._fleet.is_writing and time.monotonic() < deadline_s:
            time.sleep(0.2)
            self._fleet.check()
            self._fleet.gather()

    def _roll(self, cluster: BlockingCluster, members: list[str]) -> None:
        """A sixth of the time before the first upgrade, and at least that after the last."""
        left = list(members)
        lead_s = self._seconds / 6
        step_s = (self._seconds - 2 * lead_s) / len(members)
        give_up_s = 3 * self._seconds + _READY_S
        while left or self._now_s < max(self._seconds, self._record.rolled_s + lead_s):
            if left and self._now_s > give_up_s:
                raise LabError(f"{len(left)} processes could not be upgraded: {left[0]} and others")
            is_due = self._now_s >= lead_s + step_s * (len(members) - len(left))
            if left and is_due and self._is_safe(cluster, left):
                self._fleet.upgrade(left.pop(0))
                self._record.rolled_s = self._now_s
            self._watch(cluster)

    def _is_safe(self, cluster: BlockingCluster, left: list[str]) -> bool:
        """FORWARD: a consumer is upgraded when no event of the old version is unread."""
        if self._mode.level != "FORWARD" or left[0].startswith("p"):
            return True
        if not self._old_ends:
            self._old_ends = self._ends(cluster)
        return all(
            committed.get(one, 0) >= end
            for committed in self._committed(cluster).values()
            for one, end in self._old_ends.items()
        )

    def _watch(self, cluster: BlockingCluster) -> None:
        """Wait a moment, and note the lag."""
        time.sleep(0.5)
        self._fleet.check()
        self._fleet.gather()
        now_s = round(self._now_s, 1)
        ends = self._ends(cluster)
        for group, committed in self._committed(cluster).items():
            lag = sum(end - committed.get(one, 0) for one, end in ends.items())
            self._record.lag[group].append((now_s, float(max(0, lag))))
        upgraded = len(self._fleet.upgraded)
        old = self._size.members - upgraded
        self._record.old_members.append((now_s, float(old if upgraded else 0)))
        used = psutil.virtual_memory().used - self._memory_before
        self._record.memory_bytes = max(self._record.memory_bytes, used)
        what = f"{self._mode.level}: {upgraded} upgraded"
        self._lab.show(what, min(now_s, self._seconds), self._seconds)

    def _ends(self, cluster: BlockingCluster) -> "dict[TopicPartition, Offset]":
        return cluster.run(end_offsets(cluster.run(partitions_of([self._topic]))))

    def _committed(self, cluster: BlockingCluster) -> "dict[str, dict[TopicPartition, Offset]]":
        partitions = cluster.run(partitions_of([self._topic]))
        found = {}
        for group in GROUPS:
            rows = cluster.run(committed_offsets(self._fleet.group_id(group), partitions))
            found[group] = {one: row.offset for one, row in rows.items()}
        return found

    def _drain(self, cluster: BlockingCluster) -> None:
        deadline_s = time.monotonic() + _DRAIN_S
        while time.monotonic() < deadline_s:
            self._watch(cluster)
            if self._record.last_lag == 0:
                return
