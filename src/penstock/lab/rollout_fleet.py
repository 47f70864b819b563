"""The workers of a rollout: started, upgraded and stopped by name, and what they reported.

A worker that fails, or does not stop when it is asked to, is noted; it is never taken for one that
did its work.
"""

import random
import time
from dataclasses import dataclass, field
from queue import Empty
from typing import Any, Final, NamedTuple

from penstock.lab.lab_processes import lab_processes
from penstock.lab.lab_run import LabRun
from penstock.lab.order_writer import OrderPlan
from penstock.lab.read_coverage import ReadCoverage
from penstock.lab.rollout_workers import WorkerReport, consume_until, produce_until
from penstock.protocol.compression import Codec

GROUPS: Final = ("billing", "search")
OLD_VERSION: Final = "v1"
_STOP_S: Final = 120.0
_FOREVER: Final = 1 << 50


@dataclass(frozen=True, slots=True)
class RolloutSize:
    """How large a rollout is."""

    producers: int
    consumers: int  # in both groups together
    rate: int  # events per second
    seconds: tuple[int, int, int]  # for each mode
    partitions: int

    @property
    def members(self) -> int:
        """Processes at a time."""
        return self.producers + self.consumers


class RolloutMode(NamedTuple):
    """What is rolled out."""

    level: str
    version: str  # the new one
    order: str  # of roles; "any": shuffled by the seed


@dataclass(slots=True)
class FleetTotals:
    """What all workers have reported."""

    sent: int = 0
    errors: int = 0
    read: dict[str, ReadCoverage] = field(
        default_factory=lambda: {group: ReadCoverage() for group in GROUPS}
    )
    started: int = 0  # processes, in all
    failures: list[str] = field(default_factory=list)


class RolloutFleet:
    """Producers p0, p1, … and consumers c0, c1, …, which are in the groups in turn."""

    def __init__(self, lab: LabRun, size: RolloutSize, mode: RolloutMode, topic: str) -> None:
        self._lab, self._size, self._mode, self._topic = lab, size, mode, topic
        self._context = lab_processes()
        self._reports: Any = self._context.Queue()
        self._workers: dict[str, tuple[Any, Any]] = {}  # process and its stop event, by name
        self._written: dict[str, int] = {}
        self._since_s: dict[str, float] = {}  # when a producer's rate began
        self.upgraded: set[str] = set()
        self.totals: FleetTotals = FleetTotals()

    def members(self) -> list[str]:
        """In the order in which they are upgraded."""
        producers = [f"p{number}" for number in range(self._size.producers)]
        consumers = [f"c{number}" for number in range(self._size.consumers)]
        if self._mode.order == "consumers first":
            return consumers + producers
        if self._mode.order == "producers first":
            return producers + consumers
        members = producers + consumers
        random.Random(self._lab.seed).shuffle(members)
        return members

    @property
    def is_writing(self) -> bool:
        """Whether every producer has written."""
        return len(self._written) == self._size.producers

    def group_of(self, name: str) -> str:
        """The group of a consumer."""
        return GROUPS[int(name[1:]) % len(GROUPS)]

    def group_id(self, group: str) -> str:
        """The group's name at the broker."""
        return f"{self._topic}-{group}"

    def start(self, name: str) -> None:
        """Start a worker with the version that it has now."""
        number = int(name[1:])
        version = self._mode.version if name in self.upgraded else OLD_VERSION
        plan = self._plan(name, number, version)
        stop = self._context.Event()
        where = (self._lab.platform.bootstrap, self._lab.platform.registry_url)
        if name.startswith("p"):
            target: Any = produce_until
            arguments: tuple[Any, ...] = (name, plan, *where, stop, self._reports)
        else:
            group = self.group_id(self.group_of(name))
            target = consume_until
            arguments = (name, version, plan, group, *where, stop, self._reports)
        process = self._context.Process(target=target, args=arguments, name=f"{name} {version}")
        process.start()
        self.totals.started += 1
        self._workers[name] = process, stop

    def _plan(self, name: str, number: int, version: str) -> OrderPlan:
        """Producer i of n writes the rounds i, i + n, …; a new process continues its rounds."""
        size = self._size
        rate = size.rate // size.producers
        pool = max(100, rate // 2)
        done = self._written.get(name, 0) // pool
        return OrderPlan(
            self._topic, (version,), seed=self._lab.seed, count=_FOREVER, pool=pool, rate=rate,
            codec=Codec.LZ4, first_round=number + done * size.producers,
            round_step=size.producers, since_s=self._since_s.get(name),
        )  # fmt: skip

    def upgrade(self, name: str) -> None:
        """Stop a worker, and start it with the new version."""
        self.stop([name])
        self.upgraded.add(name)
        self.start(name)

    def stop(self, names: list[str]) -> None:
        """Stop workers, and take their last reports."""
        for name in names:
            self._workers[name][1].set()
        deadline_s = time.monotonic() + _STOP_S
        for name in names:
            if name not in self._workers:
                continue
            process, _ = self._workers[name]
            while process.is_alive() and time.monotonic() < deadline_s:
                self.gather()  # a full queue would keep a worker from ending
                process.join(0.05)
            if process.is_alive():
                process.kill()
                process.join()
            self._note_end(process)
            del self._workers[name]
        self.gather()

    def _note_end(self, process: Any) -> None:
        if process.exitcode:
            self.totals.failures.append(f"{process.name}: exit status {process.exitcode}")

    def stop_all(self) -> None:
        """Stop whatever runs."""
        self.stop(list(self._workers))

    def check(self) -> None:
        """Note workers that ended without being asked to, and start them again."""
        for name, (process, stop) in list(self._workers.items()):
            if not process.is_alive() and not stop.is_set():
                process.join()
                self.totals.failures.append(f"{process.name}: ended, status {process.exitcode}")
                self.start(name)

    def gather(self) -> None:
        """Take the reports that are there."""
        while True:
            try:
                report: WorkerReport = self._reports.get_nowait()
            except Empty:
                return
            self.totals.errors += report.errors
            if report.spans is not None:
                coverage = self.totals.read[self.group_of(report.name)]
                for span in report.spans:
                    coverage.add(span)
                continue
            self.totals.sent += report.events
            self._since_s.setdefault(report.name, time.monotonic())
            self._written[report.name] = self._written.get(report.name, 0) + report.events
