"""A rolling upgrade under load: every producer and consumer, one by one, in a chosen order.

Producers write at a constant rate, two groups of consumers read everything. The lag of both groups,
the errors and the versions in use are recorded every second.
"""

import random
import time
from dataclasses import dataclass, field
from queue import Empty
from typing import TYPE_CHECKING, Any, Final

from penstock.lab.lab_processes import lab_processes
from penstock.lab.lab_result import LabPlot, LabResult
from penstock.lab.lab_run import LabRun
from penstock.lab.order_schemas import SHAPES, schema_text
from penstock.lab.order_writer import OrderPlan
from penstock.lab.rollout_workers import WorkerReport, consume_until, produce_until
from penstock.link.blocking import BlockingCluster
from penstock.link.offsets import committed_offsets, end_offsets, partitions_of
from penstock.protocol.compression import Codec
from penstock.schemas.model import SchemaType

if TYPE_CHECKING:
    from penstock.model import Offset, TopicPartition

_QUESTION: Final = "Can all producers and consumers be upgraded under load, one by one?"
_GROUPS: Final = ("billing", "search")
_OLD: Final = "v1"
_DRAIN_S: Final = 120.0
_FOREVER: Final = 1 << 50
# Level, the new version, the order of roles; "any": shuffled by the seed.
_MODES: Final = (
    ("FULL", "v2", "any"),
    ("BACKWARD", "remove a required field", "consumers first"),
    ("FORWARD", "add a required field", "producers first"),
)


@dataclass(frozen=True, slots=True)
class RolloutSize:
    """How large a rollout is."""

    producers: int
    consumers: int  # in both groups together
    rate: int  # events per second
    seconds: tuple[int, int, int]  # for each mode
    partitions: int


@dataclass(slots=True)
class _Record:
    """What was seen, by second since the start."""

    lag: dict[str, list[tuple[float, float]]] = field(
        default_factory=lambda: {group: [] for group in _GROUPS}
    )
    old_members: list[tuple[float, float]] = field(default_factory=list)
    sent: int = 0
    read: int = 0
    errors: int = 0
    sending_s: tuple[float, float] = (0.0, 0.0)  # the first and the last report of a producer

    @property
    def rate(self) -> float:
        """Events per second while producers were running."""
        first_s, last_s = self.sending_s
        return self.sent / (last_s - first_s) if last_s > first_s else 0.0


def rollout_size(lab: LabRun) -> RolloutSize:
    """By the scale; a fraction makes it smaller in every way but its duration per member."""
    quick = RolloutSize(2, 4, 2_000, (6, 6, 6), 4)
    default = RolloutSize(4, 8, 20_000, (40, 30, 30), 8)
    full = RolloutSize(24, 48, 200_000, (1_200, 900, 900), 24)
    size = {"quick": quick, "default": default, "full": full}[str(lab.scale)]
    if lab.fraction == 1.0:
        return size
    seconds = [max(10, int(one * lab.fraction)) for one in size.seconds]
    return RolloutSize(
        max(2, round(size.producers * lab.fraction)),
        max(4, round(size.consumers * lab.fraction)),
        max(1_000, int(size.rate * lab.fraction)),
        (seconds[0], seconds[1], seconds[2]),
        size.partitions,
    )


def run_rollout(lab: LabRun) -> LabResult:
    """Roll out at every level."""
    size = rollout_size(lab)
    result = lab.result(
        _QUESTION, producers=size.producers, consumers=size.consumers, rate=size.rate,
        seconds=size.seconds, partitions=size.partitions, fraction=lab.fraction,
    )  # fmt: skip
    rows = []
    for (level, version, order), seconds in zip(_MODES, size.seconds, strict=True):
        record = _Rollout(lab, size, level, version, order, seconds).run()
        coexisted = [at for at, old in record.old_members if old]
        apart_s = coexisted[-1] - coexisted[0] if coexisted else 0.0
        peak = max(lag for line in record.lag.values() for _, lag in line)
        last = max(line[-1][1] for line in record.lag.values())
        rate = record.rate
        rows.append(
            (level, version, order, f"{record.sent:,}", f"{rate:,.0f}", record.errors,
             f"{apart_s:.0f}", f"{peak:,.0f}", f"{last:,.0f}")
        )  # fmt: skip
        result.claim(f"{level}, {order}: no error", f"{record.errors} errors", record.errors == 0)
        result.claim(
            f"{level}, {order}: every event is read by both groups, and the lag ends at 0",
            f"{record.read:,} reads of {record.sent:,} events, lag {last:,.0f}",
            last == 0 and record.read >= 2 * record.sent,
        )
        result.claim(
            f"{level}, {order}: at least 95 % of the rate", f"{rate:,.0f} events/s",
            rate >= 0.95 * size.rate, is_speed=True,
        )  # fmt: skip
        result.plots.append(LabPlot(f"{level}: lag of the groups", "events", record.lag, "s"))
        result.plots.append(
            LabPlot(f"{level}: members", "members", {"not upgraded": record.old_members}, "s")
        )
        result.numbers[level] = {
            "events": record.sent, "errors": record.errors, "events_s": round(rate),
            "coexistence_s": round(apart_s), "peak_lag": round(peak),
        }  # fmt: skip
    result.table(
        "Rollouts",
        ("level", "new version", "order", "events", "events/s", "errors", "coexistence, s",
         "peak lag", "lag at the end"),
        rows,
    )  # fmt: skip
    return result


class _Rollout:
    """One rollout: its processes, and what they report."""

    def __init__(
        self, lab: LabRun, size: RolloutSize, level: str, version: str, order: str, seconds: int
    ) -> None:
        self._lab, self._size = lab, size
        self._level, self._version, self._order, self._seconds = level, version, order, seconds
        self._topic = lab.platform.make_topic(
            f"rollout-{level}".lower(), size.partitions,
            {"retention.bytes": str(256 << 20), "segment.bytes": str(64 << 20)},
        )  # fmt: skip
        self._context = lab_processes()
        self._reports: Any = self._context.Queue()
        self._workers: dict[str, tuple[Any, Any]] = {}  # process and its stop event, by name
        self._written: dict[str, int] = {}
        self._since_s: dict[str, float] = {}  # when a producer's rate began
        self._upgraded: set[str] = set()
        self._old_ends: dict[TopicPartition, Offset] = {}  # when the last producer was upgraded
        self._record = _Record()

    def run(self) -> _Record:
        """Start everything on the old version, upgrade, stop, and wait for the readers."""
        with self._lab.platform.registry() as registry:
            subject = f"{self._topic}-value"
            registry.api.set_config(subject, {"compatibility": self._level})
            for version in (_OLD, self._version):
                registry.register(subject, schema_text(SHAPES[version], SchemaType.AVRO))
        members = self._members()
        for name in members:
            self._start(name)
        start_s = time.monotonic()
        with BlockingCluster(self._lab.platform.bootstrap) as cluster:
            try:
                self._roll(cluster, members, start_s)
                for name in members:
                    if name.startswith("p"):
                        self._stop(name)
                self._drain(cluster, start_s)
            finally:
                for name in members:
                    self._workers[name][1].set()
                for process, _ in self._workers.values():
                    process.join(_DRAIN_S)
                self._gather()
        return self._record

    def _members(self) -> list[str]:
        """In the order in which they are upgraded."""
        producers = [f"p{number}" for number in range(self._size.producers)]
        consumers = [f"c{number}" for number in range(self._size.consumers)]
        if self._order == "consumers first":
            return consumers + producers
        if self._order == "producers first":
            return producers + consumers
        members = producers + consumers
        random.Random(self._lab.seed).shuffle(members)
        return members

    def _roll(self, cluster: BlockingCluster, members: list[str], start_s: float) -> None:
        """A sixth of the time before the first upgrade, and after the last."""
        left = list(members)
        lead_s = self._seconds / 6
        step_s = (self._seconds - 2 * lead_s) / len(members)
        while (now_s := time.monotonic() - start_s) < self._seconds:
            is_due = now_s >= lead_s + step_s * (len(members) - len(left))
            if left and is_due and self._is_safe(cluster, left):
                self._upgrade(left.pop(0))
            self._watch(cluster, now_s)
        while left:
            while not self._is_safe(cluster, left):
                self._watch(cluster, time.monotonic() - start_s)
            self._upgrade(left.pop(0))

    def _is_safe(self, cluster: BlockingCluster, left: list[str]) -> bool:
        """FORWARD: a consumer is upgraded when no event of the old version is unread."""
        if self._level != "FORWARD" or left[0].startswith("p"):
            return True
        if not self._old_ends:
            partitions = cluster.run(partitions_of([self._topic]))
            self._old_ends = cluster.run(end_offsets(partitions))
        for group in _GROUPS:
            rows = cluster.run(committed_offsets(f"{self._topic}-{group}", list(self._old_ends)))
            done = {one: row.offset for one, row in rows.items()}
            if any(done.get(one, 0) < end for one, end in self._old_ends.items()):
                return False
        return True

    def _upgrade(self, name: str) -> None:
        self._stop(name)
        self._upgraded.add(name)
        self._start(name)

    def _start(self, name: str) -> None:
        size, number = self._size, int(name[1:])
        version = self._version if name in self._upgraded else _OLD
        stop = self._context.Event()
        rate = size.rate // size.producers
        plan = OrderPlan(
            self._topic, (version,), seed=self._lab.seed, count=_FOREVER,
            pool=max(100, rate // 2), rate=rate, codec=Codec.LZ4, instance=number,
            instances=size.producers, start=self._written.get(name, 0),
            since_s=self._since_s.get(name),
        )  # fmt: skip
        where = (self._lab.platform.bootstrap, self._lab.platform.registry_url)
        if name.startswith("p"):
            target: Any = produce_until
            arguments: tuple[Any, ...] = (name, plan, *where, stop, self._reports)
        else:
            group = f"{self._topic}-{_GROUPS[number % len(_GROUPS)]}"
            target = consume_until
            arguments = (name, version, plan, group, *where, stop, self._reports)
        process = self._context.Process(target=target, args=arguments)
        process.start()
        self._workers[name] = process, stop

    def _stop(self, name: str) -> None:
        process, stop = self._workers[name]
        stop.set()
        process.join(_DRAIN_S)
        self._gather()

    def _watch(self, cluster: BlockingCluster, now_s: float) -> None:
        """Wait a moment, and note the lag."""
        time.sleep(0.5)
        self._gather()
        for group, lag in self._lags(cluster).items():
            self._record.lag[group].append((round(now_s, 1), float(lag)))
        old = self._size.producers + self._size.consumers - len(self._upgraded)
        is_mixed = 0 < len(self._upgraded) < self._size.producers + self._size.consumers
        self._record.old_members.append((round(now_s, 1), float(old if is_mixed else 0)))
        what = f"{self._level}: {len(self._upgraded)} upgraded"
        self._lab.show(what, min(now_s, self._seconds), self._seconds)

    def _lags(self, cluster: BlockingCluster) -> dict[str, int]:
        partitions = cluster.run(partitions_of([self._topic]))
        ends = cluster.run(end_offsets(partitions))
        lags = {}
        for group in _GROUPS:
            rows = cluster.run(committed_offsets(f"{self._topic}-{group}", partitions))
            done = {one: row.offset for one, row in rows.items()}
            lags[group] = sum(end - done.get(one, 0) for one, end in ends.items())
        return lags

    def _drain(self, cluster: BlockingCluster, start_s: float) -> None:
        deadline_s = time.monotonic() + _DRAIN_S
        while time.monotonic() < deadline_s:
            self._watch(cluster, time.monotonic() - start_s)
            if all(line[-1][1] == 0 for line in self._record.lag.values()):
                return

    def _gather(self) -> None:
        while True:
            try:
                report: WorkerReport = self._reports.get_nowait()
            except Empty:
                return
            if report.is_consumer:
                self._record.read += report.events + report.errors
                self._record.errors += report.errors
            else:
                now_s = time.monotonic()
                self._record.sending_s = (self._record.sending_s[0] or now_s, now_s)
                self._record.sent += report.events
                name = report.name
                self._since_s.setdefault(name, now_s)
                self._written[name] = self._written.get(name, 0) + report.events
