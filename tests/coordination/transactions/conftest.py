"""A transaction coordinator for case files: its runner, a journal in memory, a simulated clock."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from penstock.coordination.transactions import (
    AbortTimedOut,
    AddPartitions,
    Command,
    DescribeTransaction,
    EndTransaction,
    Event,
    IfMissing,
    InitProducer,
    ListTransactions,
    MarkersWritten,
    MissingPartitions,
    ProducerIdentity,
    RequestProducerId,
    Transaction,
    TransactionMachine,
    TransactionSettings,
    TransactionsState,
    WriteMarkers,
    needs_producer_id,
)
from penstock.coordination.transactions.events import TransactionSet
from penstock.errors import Refused
from penstock.machine import CallerId, Deferred, Runner
from penstock.model import Millis, Moment, ProducerEpoch, ProducerId, TopicPartition
from tests.support.memory_journal import MemoryJournal
from tests.support.settings import default_settings

CALLER = CallerId(1)
START = Millis(1_000_000_000)


class Scenario:
    """One coordinator; each step returns its replies and messages in words."""

    def __init__(self) -> None:
        self.journal = MemoryJournal()
        self.now = Millis(5_000)  # by the steady clock
        self.wall_ahead_ms = START - self.now
        self.lines: list[str] = []
        self.next_producer_id = 1000
        self.runner = self.load()
        self.tick()

    @property
    def moment(self) -> Moment:
        return Moment(self.now, Millis(self.now + self.wall_ahead_ms))

    def tick(self) -> None:
        """As the shell does, for as long as something is due."""
        while (wake_at := self.runner.wake_at()) is not None and wake_at <= self.now:
            self.runner.tick(self.moment)

    def load(self) -> Runner[TransactionsState, Command, Event]:
        runner = Runner(
            TransactionMachine(default_settings(TransactionSettings)), send=self._on_send
        )
        self.journal.compact()
        runner.replay(record for record, _ in self.journal.records)
        runner.start(self.journal)
        return runner

    @property
    def state(self) -> TransactionsState:
        return self.runner.state

    def _on_reply(self, body: object) -> None:
        match body:
            case Refused():
                self.lines.append(f"refused {body.code.name}")
            case ProducerIdentity():
                self.lines.append(f"producer {body.producer_id}/{body.producer_epoch}")
            case MissingPartitions():
                missing = " ".join(str(partition) for partition in sorted(body.partitions))
                self.lines.append(f"missing {missing}" if missing else "none missing")
            case Transaction():
                self.lines.append(in_words(body))
            case tuple():
                self.lines += [in_words(transaction) for transaction in body]

    def _on_send(self, message: object) -> None:
        match message:
            case WriteMarkers():
                verb = "commit" if message.commit else "abort"
                where = " ".join(str(partition) for partition in sorted(message.partitions))
                self.lines.append(
                    f"marker {verb} {'/'.join(map(str, message.producer))} to {where}"
                )
            case RequestProducerId():
                self.lines.append(f"requests a producer id for {message.transactional_id}")

    def new_producer_id(self) -> ProducerId:
        self.next_producer_id += 1
        return ProducerId(self.next_producer_id - 1)

    def submit(self, command: Command) -> None:
        if needs_producer_id(self.state, command):
            assert isinstance(command, InitProducer | EndTransaction)
            command = command._replace(new_producer_id=self.new_producer_id())
        reply = self.runner.submit(lambda caller: with_caller(command, caller), self.moment)
        assert not isinstance(reply, Deferred) or isinstance(
            command, MarkersWritten | AbortTimedOut
        )
        self._on_reply(reply)

    def step(self, line: str) -> str:
        """Take one step of a case file."""
        self.lines = []
        verb, *words = line.split()
        flags = dict(word.split("=", 1) for word in words if "=" in word)
        STEPS[verb](self, [word for word in words if "=" not in word], flags)
        self.runner.machine.validate(self.state)
        return "\n".join(self.lines) or "nothing"


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


def producer(word: str) -> ProducerIdentity:
    producer_id, epoch = word.split("/")
    return ProducerIdentity(ProducerId(int(producer_id)), ProducerEpoch(int(epoch)))


def partitions(words: Sequence[str]) -> frozenset[TopicPartition]:
    pairs = (word.rsplit("-", 1) for word in words)
    return frozenset(TopicPartition(topic, int(number)) for topic, number in pairs)


def _init(scenario: Scenario, words: list[str], flags: dict[str, str]) -> None:
    expected = producer(flags["as"]) if "as" in flags else None
    timeout_ms = Millis(int(flags.get("timeout", "60000")))
    scenario.submit(InitProducer(CALLER, words[0], timeout_ms, expected))


def _add(scenario: Scenario, words: list[str], flags: dict[str, str]) -> None:
    added = partitions(words[2:])
    version = int(flags.get("version", "2"))
    scenario.submit(
        AddPartitions(CALLER, words[0], producer(words[1]), added, client_version=version)
    )


def _verify(scenario: Scenario, words: list[str], flags: dict[str, str]) -> None:
    requested = partitions(words[2:])
    scenario.submit(
        AddPartitions(CALLER, words[0], producer(words[1]), requested, IfMissing.REFUSE)
    )


def _end(raises_epoch: bool) -> Callable[[Scenario, list[str], dict[str, str]], None]:
    def end(scenario: Scenario, words: list[str], flags: dict[str, str]) -> None:
        commit = {"commit": True, "abort": False}[words[2]]
        scenario.submit(EndTransaction(CALLER, words[0], producer(words[1]), commit, raises_epoch))

    return end


def _written(scenario: Scenario, words: list[str], flags: dict[str, str]) -> None:
    scenario.submit(MarkersWritten(words[0], producer(words[1]), partitions(words[2:])))


def _new_producer_id(scenario: Scenario, words: list[str], flags: dict[str, str]) -> None:
    scenario.submit(AbortTimedOut(words[0], producer(words[1]), scenario.new_producer_id()))


def _wait(scenario: Scenario, words: list[str], flags: dict[str, str]) -> None:
    scenario.now = Millis(scenario.now + int(words[0]))
    scenario.tick()


def _clock(scenario: Scenario, words: list[str], flags: dict[str, str]) -> None:
    """The time of day is set forward, or back."""
    scenario.wall_ahead_ms += int(words[0])


def _reload(scenario: Scenario, words: list[str], flags: dict[str, str]) -> None:
    scenario.runner = scenario.load()
    scenario.tick()


def _age(scenario: Scenario, words: list[str], flags: dict[str, str]) -> None:
    """Set the epoch that thousands of transactions would have left."""
    aged = replace(scenario.state.by_id[words[0]], producer_epoch=ProducerEpoch(int(words[1])))
    record = scenario.runner.machine.write_event(TransactionSet(aged))
    scenario.journal.append([record], scenario.now)
    scenario.runner.observe(TransactionSet(aged))


def _list(scenario: Scenario, words: list[str], flags: dict[str, str]) -> None:
    scenario.submit(ListTransactions(CALLER))


def _story(scenario: Scenario, words: list[str], flags: dict[str, str]) -> None:
    scenario.lines += [text for _, text in scenario.runner.story.of(words[0])]


def _refuse(scenario: Scenario, words: list[str], flags: dict[str, str]) -> None:
    error = OSError("no space left") if words[0] == "writes" else None
    scenario.journal.failure = lambda: error


STEPS: dict[str, Callable[[Scenario, list[str], dict[str, str]], None]] = {
    "init": _init,
    "add": _add,
    "verify": _verify,
    "end": _end(raises_epoch=True),
    "end-v4": _end(raises_epoch=False),
    "written": _written,
    "new-producer-id": _new_producer_id,
    "wait": _wait,
    "reload": _reload,
    "age": _age,
    "refuse": _refuse,
    "clock": _clock,
    "describe": lambda scenario, words, flags: scenario.submit(
        DescribeTransaction(CALLER, words[0])
    ),
    "story": _story,
    "list": _list,
}


@pytest.fixture
def scenario() -> Scenario:
    """A coordinator without any transactional id."""
    return Scenario()
