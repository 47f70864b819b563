"""Transactions under faults, from a seed: producers crash, pause and return as zombies; requests,
responses and markers are lost; writes arrive late; the coordinator restarts; its log refuses.

Partitions are lists here that check the producer's epoch and nothing else. After every step:
nothing is visible whose producer did not request a commit, and what was acknowledged as committed
is never aborted. Then everything heals: every transaction is visible whole or not at all, and no
partition stays blocked.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias

import pytest

from penstock.coordination.transactions import (
    AbortTimedOut,
    AddPartitions,
    Command,
    EndTransaction,
    Event,
    IfMissing,
    InitProducer,
    MarkersWritten,
    MissingPartitions,
    ProducerIdentity,
    RequestProducerId,
    TransactionMachine,
    TransactionSettings,
    TransactionsState,
    WriteMarkers,
    needs_producer_id,
)
from penstock.errors import ErrorCode, Refused
from penstock.machine import CallerId, Runner
from penstock.model import Millis, Moment, ProducerEpoch, ProducerId, TopicPartition
from tests.support.memory_journal import MemoryJournal
from tests.support.settings import default_settings

SEEDS = range(120)
STEPS = 400
IDS = ("t1", "t2", "t3")
PARTITIONS = [TopicPartition("a", index) for index in range(4)]
RETRIED = (
    ErrorCode.concurrent_transactions,
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
)


class LostError(Exception):
    """No response came: the request may or may not have had its effect."""


@dataclass(eq=False)
class Work:
    """One transaction from the view of its producer."""

    producer: ProducerIdentity
    written: list[tuple[TopicPartition, int]] = field(default_factory=list)  # acknowledged
    commit_requested: bool = False
    result: str = "unknown"


@dataclass
class Entry:
    producer: ProducerIdentity
    work: Work | None  # None: a marker
    number: int = 0
    commit: bool = False


class Log:
    """A partition: entries, and per producer its epoch and whether a transaction is open."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.epochs: dict[ProducerId, ProducerEpoch] = {}
        self.open: dict[ProducerId, int] = {}

    def append(self, work: Work, producer: ProducerIdentity, number: int) -> None:
        if producer.producer_epoch < self.epochs.get(producer.producer_id, -1):
            raise Refused(ErrorCode.invalid_producer_epoch, "fenced")
        for entry in self.entries:
            if entry.work is work and entry.number == number:
                return  # a retry: the producer's sequence says so
        self.epochs[producer.producer_id] = producer.producer_epoch
        self.open.setdefault(producer.producer_id, len(self.entries))
        self.entries.append(Entry(producer, work, number))

    def end(self, producer: ProducerIdentity, commit: bool) -> None:
        if producer.producer_epoch < self.epochs.get(producer.producer_id, -1):
            raise Refused(ErrorCode.invalid_producer_epoch, "fenced")
        self.epochs[producer.producer_id] = producer.producer_epoch
        self.open.pop(producer.producer_id, None)
        self.entries.append(Entry(producer, None, commit=commit))

    @property
    def last_stable_offset(self) -> int:
        return min(self.open.values(), default=len(self.entries))

    def visible(self) -> list[Entry]:
        """What a read_committed consumer reads."""
        visible: list[Entry] = []
        stable_offset = self.last_stable_offset
        committed: dict[ProducerId, bool] = {}  # by the marker that follows
        for offset in reversed(range(len(self.entries))):
            entry = self.entries[offset]
            producer_id = entry.producer.producer_id
            if entry.work is None:
                committed[producer_id] = entry.commit
            elif offset < stable_offset and committed[producer_id]:
                visible.append(entry)
        return visible


class World:
    """One broker with its coordinator and partitions, and the network in front of it."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.faults = 0.1
        self.now = Millis(1_000_000)
        self.logs = {target: Log() for target in PARTITIONS}
        self.works: list[Work] = []
        self.late: list[Callable[[], object]] = []  # writes still on their way
        self.epochs: dict[str, list[ProducerIdentity]] = {name: [] for name in IDS}
        self.journal = MemoryJournal()
        self.journal.failure = self.disk_failure
        self.last_producer_id = 0
        self.runner = self.load()

    def happens(self, share: float = 1.0) -> bool:
        return self.rng.random() < self.faults * share

    def disk_failure(self) -> OSError | None:
        return OSError("the disk is full") if self.happens(0.2) else None

    def load(self) -> Runner[TransactionsState, Command, Event]:
        runner = Runner(
            TransactionMachine(default_settings(TransactionSettings)), send=self.on_send
        )
        runner.replay(record for record, _ in self.journal.records)
        runner.start(self.journal)
        return runner

    def new_producer_id(self) -> ProducerId:
        self.last_producer_id += 1
        return ProducerId(self.last_producer_id)

    def request(self, command: Command) -> Any:
        """A request and its response; either may be lost."""
        if self.happens(0.5):
            raise LostError
        body = self.decide(command)
        if self.happens(0.5):
            raise LostError
        if isinstance(body, Refused):
            raise body
        return body

    def decide(self, command: Command) -> object:
        if needs_producer_id(self.runner.state, command):
            assert isinstance(command, InitProducer | EndTransaction)
            command = command._replace(new_producer_id=self.new_producer_id())
        assert isinstance(command, InitProducer | EndTransaction | AddPartitions)
        return self.runner.submit(lambda caller: command._replace(caller=caller), self.moment())

    def on_send(self, message: object) -> None:
        match message:
            case WriteMarkers():
                written = frozenset(
                    target for target in message.partitions if self.write_marker(message, target)
                )
                if not self.happens():  # else the report is lost
                    report = MarkersWritten(message.transactional_id, message.producer, written)
                    self.runner.report(report, self.moment())
            case RequestProducerId(transactional_id, producer):
                abort = AbortTimedOut(transactional_id, producer, self.new_producer_id())
                self.runner.report(abort, self.moment())

    def write_marker(self, message: WriteMarkers, target: TopicPartition) -> bool:
        if self.happens(2):
            return False
        self.logs[target].end(message.producer, message.commit)
        return True

    def write(
        self, name: str, work: Work, target: TopicPartition, number: int, *, adds: bool
    ) -> None:
        """A transactional produce as the broker serves it: verified, then appended."""
        log, producer = self.logs[target], work.producer
        opened = producer.producer_id in log.open
        if not opened or log.epochs[producer.producer_id] != producer.producer_epoch:
            body = self.decide(
                AddPartitions(
                    CallerId(1),
                    name,
                    producer,
                    frozenset((target,)),
                    IfMissing.ADD if adds else IfMissing.REFUSE,
                    client_version=2,
                )
            )
            if isinstance(body, Refused):
                raise body
            assert isinstance(body, MissingPartitions)
            if body.partitions:
                raise Refused(ErrorCode.transaction_abortable, "not added")
        log.append(work, producer, number)

    def moment(self) -> Moment:
        """The time of day is set back or forward by an hour every ten seconds."""
        hours = self.now // 10_000 % 3 - 1
        return Moment(self.now, Millis(1_000_000_000 + self.now + hours * 3_600_000))

    def tick(self) -> None:
        while (wake_at := self.runner.wake_at()) is not None and wake_at <= self.now:
            self.runner.tick(self.moment())

    def pass_time(self, span_ms: int) -> None:
        self.now = Millis(self.now + span_ms)
        self.tick()

    def restart(self) -> None:
        self.runner = self.load()
        self.tick()

    def check(self) -> None:
        self.runner.machine.validate(self.runner.state)
        for log in self.logs.values():
            for entry in log.visible():
                assert entry.work is not None
                assert entry.work.commit_requested, (
                    "visible, and its producer did not request a commit"
                )
                assert entry.work.result != "aborted", "visible, and acknowledged as aborted"
        for name, transaction in self.runner.state.by_id.items():
            producer = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
            seen = self.epochs[name]
            if not seen or seen[-1] != producer:
                assert producer not in seen, f"{name} went back to {producer}"
                seen.append(producer)


Life: TypeAlias = Generator[None, None, None]


def producer_life(world: World, name: str, *, raises_epoch: bool) -> Life:
    """A client: initialises, then one transaction after the other, until it is fenced."""
    producer: ProducerIdentity = yield from with_retries(
        lambda: world.request(InitProducer(CallerId(1), name, Millis(5_000)))
    )
    while True:
        work = Work(producer)
        world.works.append(work)
        targets = world.rng.sample(PARTITIONS, world.rng.randint(1, len(PARTITIONS)))
        if not raises_epoch:
            yield from with_retries(
                lambda work=work, targets=targets: world.request(  # type: ignore[misc]  # mypy infers no default types
                    AddPartitions(CallerId(1), name, work.producer, frozenset(targets))
                )
            )
        for number in range(world.rng.randint(1, 6)):
            target = world.rng.choice(targets)
            yield from with_retries(
                lambda work=work, target=target, number=number: deliver(  # type: ignore[misc]  # as above
                    world, name, work, target, number, adds=raises_epoch
                )
            )
            work.written.append((target, number))
        producer = yield from end(world, name, work, raises_epoch=raises_epoch)


def deliver(
    world: World, name: str, work: Work, target: TopicPartition, number: int, *, adds: bool
) -> None:
    def write() -> None:
        world.write(name, work, target, number, adds=adds)

    if world.happens():
        if adds:  # version 1 has no protection from late writes of the same epoch
            world.late.append(write)
        raise LostError
    write()
    if world.happens():
        raise LostError


def end(
    world: World, name: str, work: Work, *, raises_epoch: bool
) -> Generator[None, None, ProducerIdentity]:
    commit = world.rng.random() < 0.7
    work.commit_requested = commit
    try:
        producer: ProducerIdentity = yield from with_retries(
            lambda: world.request(
                EndTransaction(CallerId(1), name, work.producer, commit, raises_epoch)
            )
        )
    except Refused as refusal:
        if commit and refusal.code == ErrorCode.invalid_txn_state:
            work.result = "aborted"  # by its time-out
        raise
    work.result = "committed" if commit else "aborted"
    return producer


def with_retries(request: Callable[[], Any]) -> Generator[None, None, Any]:
    """Retry what a client retries; anything else ends this client."""
    while True:
        yield
        try:
            return request()
        except LostError:
            continue
        except Refused as refusal:
            if refusal.code not in RETRIED:
                raise


def run(seed: int) -> World:
    world = World(seed)
    lives: list[Life] = []
    for _ in range(STEPS):
        action = world.rng.random()
        if action < 0.03 or not lives:  # a new producer; its forerunner may live on as a zombie
            name = world.rng.choice(IDS)
            life = producer_life(world, name, raises_epoch=world.rng.random() < 0.7)
            lives.append(life)
        elif action < 0.04:
            lives.pop(world.rng.randrange(len(lives)))  # kill -9
        elif action < 0.06:
            world.restart()
        elif action < 0.10:
            world.pass_time(world.rng.choice((10, 200, 1_000, 6_000)))
        elif action < 0.14 and world.late:
            ignore_refusal(world.late.pop(world.rng.randrange(len(world.late))))
        else:
            advance(lives, world.rng)
        world.check()
    heal(world)
    return world


def advance(lives: list[Life], rng: Random) -> None:
    life = rng.choice(lives)
    try:
        next(life)
    except (Refused, StopIteration):
        lives.remove(life)


def ignore_refusal(action: Callable[[], object]) -> None:
    try:
        action()
    except Refused:
        return


def heal(world: World) -> None:
    """No more faults, no more producers: whatever is open must come to its end."""
    world.faults = 0.0
    world.restart()
    while world.late:
        ignore_refusal(world.late.pop())
    for _ in range(4):
        world.pass_time(10_000)
        world.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_transactions_are_all_or_nothing_under_faults(seed: int) -> None:
    world = run(seed)
    seen = {
        (target, entry.number, id(entry.work))
        for target, log in world.logs.items()
        for entry in log.visible()
    }
    for target, log in world.logs.items():
        assert log.last_stable_offset == len(log.entries), f"{target} stays blocked"
    for work in world.works:
        visible = [(target, number, id(work)) in seen for target, number in work.written]
        assert all(visible) or not any(visible), "half a transaction is visible"
        if work.result == "committed":
            assert all(visible), "acknowledged as committed, and not visible"
    assert all(t.state.is_ended for t in world.runner.state.by_id.values())


def test_the_runs_reach_what_they_should_reach() -> None:
    """A simulation that never meets the hard cases proves nothing."""
    results = {"committed": 0, "aborted": 0, "unknown": 0}
    epochs = 0
    for seed in range(20):
        world = run(seed)
        for work in world.works:
            results[work.result] += 1
        epochs += sum(len(seen) for seen in world.epochs.values())
    assert min(results.values()) > 20
    assert epochs > 200
