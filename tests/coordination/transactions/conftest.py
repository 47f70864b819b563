"""A coordinator on a desk: the machine under its runner, a journal in memory, a clock in hand."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from penstock.coordination.transactions import (
    AbortTimedOut,
    AddPartitions,
    Command,
    Describe,
    EndTransaction,
    Event,
    InitProducer,
    ListIds,
    MarkersWritten,
    Missed,
    Missing,
    Producer,
    Transaction,
    TransactionMachine,
    Transactions,
    TransactionSettings,
    WantProducerId,
    WriteMarkers,
    needs_producer_id,
)
from penstock.coordination.transactions.state import Stored
from penstock.errors import Refused
from penstock.machine import CallerId, Deferred, Runner
from penstock.model import Millis, Moment, ProducerEpoch, ProducerId, TopicPartition
from tests.support.memory_journal import MemoryJournal
from tests.support.settings import default_settings

CALLER = CallerId(1)
START = Millis(1_000_000_000)


class Desk:
    """Says in words what the coordinator answers, sends and stores."""

    def __init__(self) -> None:
        self.journal = MemoryJournal()
        self.now = Millis(5_000)  # by the steady clock
        self.wall_ahead_ms = START - self.now
        self.said: list[str] = []
        self.next_producer_id = 1000
        self.runner = self.load()
        self.tick()

    @property
    def moment(self) -> Moment:
        return Moment(self.now, Millis(self.now + self.wall_ahead_ms))

    def tick(self) -> None:
        """As the shell does: as long as something is due."""
        while (wake_at := self.runner.wake_at()) is not None and wake_at <= self.now:
            self.runner.tick(self.moment)

    def load(self) -> Runner[Transactions, Command, Event]:
        runner = Runner(
            TransactionMachine(default_settings(TransactionSettings)), send=self._on_send
        )
        self.journal.compact()
        runner.replay(record for record, _ in self.journal.records)
        runner.start(self.journal)
        return runner

    @property
    def state(self) -> Transactions:
        return self.runner.state

    def _on_answer(self, body: object) -> None:
        match body:
            case Refused():
                self.said.append(f"refused {body.code.name}")
            case Producer():
                self.said.append(f"producer {body.producer_id}/{body.producer_epoch}")
            case Missed():
                missed = " ".join(str(partition) for partition in sorted(body.partitions))
                self.said.append(f"missed {missed}" if missed else "all in")
            case Transaction():
                self.said.append(in_words(body))
            case tuple():
                self.said += [in_words(transaction) for transaction in body]

    def _on_send(self, message: object) -> None:
        match message:
            case WriteMarkers():
                verb = "commit" if message.commit else "abort"
                where = " ".join(str(partition) for partition in sorted(message.partitions))
                self.said.append(f"marker {verb} {'/'.join(map(str, message.producer))} to {where}")
            case WantProducerId():
                self.said.append(f"wants a producer id for {message.transactional_id}")

    def mint(self) -> ProducerId:
        minted = ProducerId(self.next_producer_id)
        self.next_producer_id += 1
        return minted

    def submit(self, command: Command) -> None:
        if needs_producer_id(self.state, command):
            assert isinstance(command, InitProducer | EndTransaction)
            command = command._replace(minted_producer_id=self.mint())
        reply = self.runner.submit(lambda caller: with_caller(command, caller), self.moment)
        assert not isinstance(reply, Deferred) or isinstance(
            command, MarkersWritten | AbortTimedOut
        )
        self._on_answer(reply)

    def say(self, step: str) -> str:
        """Take one step of a case file."""
        self.said = []
        verb, *words = step.split()
        flags = dict(word.split("=", 1) for word in words if "=" in word)
        STEPS[verb](self, [word for word in words if "=" not in word], flags)
        self.runner.machine.validate(self.state)
        return "\n".join(self.said) or "nothing"


def with_caller(command: Command, caller: CallerId) -> Command:
    """Reports of the shell have no caller."""
    if isinstance(command, MarkersWritten | AbortTimedOut):
        return command
    return command._replace(caller=caller)


def in_words(transaction: Transaction) -> str:
    where = " ".join(str(partition) for partition in sorted(transaction.partitions))
    started = "" if transaction.started_at < 0 else f" since {transaction.started_at - START}"
    return (
        f"{transaction.transactional_id} {transaction.state.title}"
        f" {transaction.producer_id}/{transaction.producer_epoch}{started}"
        f"{f' in {where}' if where else ''}"
    )


def producer(word: str) -> Producer:
    producer_id, epoch = word.split("/")
    return Producer(ProducerId(int(producer_id)), ProducerEpoch(int(epoch)))


def partitions(words: Sequence[str]) -> frozenset[TopicPartition]:
    pairs = (word.rsplit("-", 1) for word in words)
    return frozenset(TopicPartition(topic, int(number)) for topic, number in pairs)


def _init(desk: Desk, words: list[str], flags: dict[str, str]) -> None:
    expected = producer(flags["as"]) if "as" in flags else None
    timeout_ms = Millis(int(flags.get("timeout", "60000")))
    desk.submit(InitProducer(CALLER, words[0], timeout_ms, expected))


def _add(desk: Desk, words: list[str], flags: dict[str, str]) -> None:
    added = partitions(words[2:])
    version = int(flags.get("version", "2"))
    desk.submit(AddPartitions(CALLER, words[0], producer(words[1]), added, client_version=version))


def _verify(desk: Desk, words: list[str], flags: dict[str, str]) -> None:
    asked = partitions(words[2:])
    desk.submit(AddPartitions(CALLER, words[0], producer(words[1]), asked, Missing.REFUSE))


def _end(raises_epoch: bool) -> Callable[[Desk, list[str], dict[str, str]], None]:
    def end(desk: Desk, words: list[str], flags: dict[str, str]) -> None:
        commit = {"commit": True, "abort": False}[words[2]]
        desk.submit(EndTransaction(CALLER, words[0], producer(words[1]), commit, raises_epoch))

    return end


def _written(desk: Desk, words: list[str], flags: dict[str, str]) -> None:
    desk.submit(MarkersWritten(words[0], producer(words[1]), partitions(words[2:])))


def _mint(desk: Desk, words: list[str], flags: dict[str, str]) -> None:
    desk.submit(AbortTimedOut(words[0], producer(words[1]), desk.mint()))


def _wait(desk: Desk, words: list[str], flags: dict[str, str]) -> None:
    desk.now = Millis(desk.now + int(words[0]))
    desk.tick()


def _clock(desk: Desk, words: list[str], flags: dict[str, str]) -> None:
    """The time of day is set forward, or back."""
    desk.wall_ahead_ms += int(words[0])


def _reload(desk: Desk, words: list[str], flags: dict[str, str]) -> None:
    desk.runner = desk.load()
    desk.tick()


def _age(desk: Desk, words: list[str], flags: dict[str, str]) -> None:
    """Make a producer old: the epoch is what thousands of ends would have left."""
    aged = replace(desk.state.by_id[words[0]], producer_epoch=ProducerEpoch(int(words[1])))
    record = desk.runner.machine.write_event(Stored(aged))
    desk.journal.append([record], desk.now)
    desk.runner.observe(Stored(aged))


def _refuse(desk: Desk, words: list[str], flags: dict[str, str]) -> None:
    error = OSError("no space left") if words[0] == "writes" else None
    desk.journal.failure = lambda: error


STEPS: dict[str, Callable[[Desk, list[str], dict[str, str]], None]] = {
    "init": _init,
    "add": _add,
    "verify": _verify,
    "end": _end(raises_epoch=True),
    "end-v4": _end(raises_epoch=False),
    "written": _written,
    "mint": _mint,
    "wait": _wait,
    "reload": _reload,
    "age": _age,
    "refuse": _refuse,
    "clock": _clock,
    "describe": lambda desk, words, flags: desk.submit(Describe(CALLER, words[0])),
    "list": lambda desk, words, flags: desk.submit(ListIds(CALLER)),
}


@pytest.fixture
def desk() -> Desk:
    """A coordinator that has never been asked anything."""
    return Desk()
