"""Group members of confluent-kafka that read, commit, leave and return."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.support.cluster_load.client import Client
from tests.support.history import Committed, Fetched, Outcome, Read

if TYPE_CHECKING:
    from tests.support.history import History

POLL_S = 0.1
MESSAGES_MAX = 500
FETCH_S = 10.0
STAY_S = 5.0  # of a member that leaves again and again
OUTCOME_S = 15.0  # of a commit; then the next one is sent
GENERATION = -1  # the library does not say it


class Member(Client):
    """A member of a group; it commits what it has read.

    One commit is under way at a time: the library may send one that failed after a later one. The
    member reads on meanwhile, because a call that waits for the outcome may wait without an end.
    """

    def __init__(
        self,
        name: str,
        history: History,
        bootstrap: str,
        topic: str,
        *,
        group: str,
        protocol: str,
        leaves: bool = False,
    ) -> None:
        super().__init__(name, history)
        self._topic = topic
        self._group = group
        self._leaves = leaves
        self._leave_at = 0.0
        self._consumer: Consumer | None = None
        self._ends: dict[int, int] = {}  # read, and not committed
        self._committing_until = 0.0
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "socket.timeout.ms": 5_000,
            "log_level": 0,
            "on_commit": self._on_commit,
        }
        if protocol == "classic":
            self._settings |= {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000}

    def step(self) -> None:
        consumer = self._consumer
        if consumer is None:
            consumer = self._consumer = Consumer(self._settings)
            consumer.subscribe([self._topic], on_assign=self._on_assign)
            self._ends, self._committing_until = {}, 0.0
            self._leave_at = time.monotonic() + STAY_S
        self._take(consumer)
        if self._leaves and time.monotonic() > self._leave_at:
            self.close()

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _take(self, consumer: Consumer) -> None:
        ends: dict[int, int] = {}
        for message in consumer.consume(MESSAGES_MAX, POLL_S):
            if message.error() is not None:
                self.notes[f"consume: {message.error()}"] += 1
                continue
            partition, offset = int(message.partition() or 0), int(message.offset() or 0)
            value = (message.value() or b"").decode()
            self.history.add(Read(self.name, self._topic, partition, offset, value))
            ends[partition] = offset + 1
        self._ends |= ends
        if self._ends and time.monotonic() > self._committing_until:
            offsets = [TopicPartition(self._topic, *end) for end in self._ends.items()]
            self._committing_until, self._ends = time.monotonic() + OUTCOME_S, {}
            try:
                consumer.commit(offsets=offsets, asynchronous=True)
            except KafkaException as failure:
                self._committing_until = 0.0
                self.notes[f"commit: {failure.args[0]}"] += 1

    def _on_commit(self, error: Any, rows: list[TopicPartition]) -> None:
        """Runs inside `consume`. A commit that never gets here has an unknown outcome."""
        self._committing_until = 0.0
        if error is not None:
            self.notes[f"commit: {error}"] += 1
        for row in rows:
            is_known = error is None and row.error is None
            outcome = Outcome.ACKNOWLEDGED if is_known else Outcome.UNKNOWN
            self.acknowledged += is_known
            self.history.add(
                Committed(
                    self._group, GENERATION, self.name, row.topic, row.partition, row.offset,
                    outcome,
                )
            )  # fmt: skip

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._ends = {}
        try:
            rows = consumer.committed(partitions, timeout=FETCH_S)
        except KafkaException as failure:
            self.notes[f"committed: {failure.args[0]}"] += 1
            return
        for row in rows:
            if row.error is None:
                offset = max(row.offset, -1)
                self.history.add(
                    Fetched(self._group, GENERATION, self.name, row.topic, row.partition, offset)
                )
