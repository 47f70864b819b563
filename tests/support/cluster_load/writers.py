"""Producers of confluent-kafka: an idempotent one, and one that writes in transactions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, Producer

from tests.support.cluster_load.client import WORK_S, Client
from tests.support.history import UNKNOWN_OFFSET, Outcome, Produced, Transaction

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.history import History

PARTITIONS = 3
EVENT_GAP_S = 0.006
TRANSACTION_GAP_S = 0.03
ABORT_EACH = 5
SETTINGS = {
    "enable.idempotence": True,
    "linger.ms": 2,
    "socket.timeout.ms": 5_000,
    "retry.backoff.ms": 50,
    "log_level": 0,
}


def offset_of(message: Any) -> int:
    """Where a message was stored; UNKNOWN_OFFSET if the library does not know.

    It takes the acknowledgement of a batch for that of earlier ones that have none, without their
    offsets.
    """
    offset = message.offset()
    return UNKNOWN_OFFSET if offset is None else int(offset)


class Writer(Client):
    """Sends numbered events; every one is acknowledged in the end."""

    def __init__(self, name: str, history: History, bootstrap: str, topic: str) -> None:
        super().__init__(name, history)
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, **SETTINGS})
        self._number = 0

    def step(self) -> None:
        produced = Produced(
            self.name, self._topic, self._number % PARTITIONS, f"{self.name}-{self._number}"
        )
        self._number += 1
        self._producer.produce(
            self._topic,
            produced.value,
            partition=produced.partition,
            on_delivery=partial(self._delivered, produced),
        )
        self._producer.poll(0)
        self.pause(EVENT_GAP_S)

    def close(self) -> None:
        left = self._producer.flush(2 * WORK_S)
        if left:
            self.errors.append(f"{left} events have no outcome")

    def _delivered(self, produced: Produced, error: Any, message: Any) -> None:
        if error is None:
            produced.outcome, produced.offset = Outcome.ACKNOWLEDGED, offset_of(message)
            self.acknowledged += 1
        else:
            self.errors.append(str(error))
        self.history.add(produced)


class TransactionalWriter(Client):
    """Writes transactions over all partitions; aborts some on purpose."""

    def __init__(self, name: str, history: History, bootstrap: str, topic: str) -> None:
        super().__init__(name, history)
        self._bootstrap = bootstrap
        self._topic = topic
        self._number = 0
        self._producer: Producer | None = None

    def step(self) -> None:
        producer = self._connected()
        name = f"{self.name}-{self._number}"
        wants_commit = self._number % ABORT_EACH != ABORT_EACH - 1
        self._number += 1
        try:
            producer.begin_transaction()
            self._send(producer, name)
            if wants_commit:
                _retried(producer.commit_transaction)
            else:
                producer.flush(WORK_S)
                _retried(producer.abort_transaction)
        except KafkaException as failure:
            self._recover(producer, name, failure)
        else:
            self.history.add(Transaction(name, wants_commit, Outcome.ACKNOWLEDGED))
            self.acknowledged += 1
        self.pause(TRANSACTION_GAP_S)

    def close(self) -> None:
        if self._producer is not None:
            self._producer.flush(WORK_S)

    def _connected(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(
                {"bootstrap.servers": self._bootstrap, "transactional.id": self.name, **SETTINGS}
            )
            _retried(self._producer.init_transactions)
        return self._producer

    def _send(self, producer: Producer, name: str) -> None:
        for index in range(2 * PARTITIONS):
            produced = Produced(
                self.name, self._topic, index % PARTITIONS, f"{name}.{index}", transaction=name
            )
            producer.produce(
                self._topic,
                produced.value,
                partition=produced.partition,
                on_delivery=partial(self._delivered, produced),
            )
        producer.poll(0)

    def _recover(self, producer: Producer, name: str, failure: KafkaException) -> None:
        """Abort, or leave the end of the transaction unknown and continue with a new producer."""
        error: Any = failure.args[0]
        if error.txn_requires_abort():
            self.notes[f"aborted: {error}"] += 1
            try:
                _retried(producer.abort_transaction)
            except KafkaException as fatal:
                error = fatal.args[0]
            else:
                self.history.add(Transaction(name, False, Outcome.ACKNOWLEDGED))
                return
        self.errors.append(f"the producer cannot continue: {error}")
        self.history.add(Transaction(name, True, Outcome.UNKNOWN))
        self._producer = None

    def _delivered(self, produced: Produced, error: Any, message: Any) -> None:
        if error is None:
            produced.outcome, produced.offset = Outcome.ACKNOWLEDGED, offset_of(message)
        self.history.add(produced)


def _retried(call: Callable[[float], Any]) -> None:
    """Repeat a call that says that it may be repeated."""
    while True:
        try:
            call(WORK_S)
        except KafkaException as failure:
            error: Any = failure.args[0]
            if not error.retriable():
                raise
        else:
            return
