"""Which events the program got, which it has handled, and what is committed when.

AT_MOST_ONCE    committed before the program gets it: lost if the program crashes while handling it
AT_LEAST_ONCE   committed some time after the program takes the next: perhaps delivered again
EXACTLY_ONCE    committed by a producer's transaction, together with what was produced from it

Taking the next event means that the previous one is handled. Events of a partition that was revoked
since are never committed by a transaction of this member.

No offset is stored while an unreadable event before it is still in flight to quarantine. Waiting
for each of them alone would be slow, so offsets wait together.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from confluent_kafka import Message
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.client.errors import RebalancedError
from penstock.client.kafka_messages import offset_of, partition_of
from penstock.client.poll_thread import PollThread
from penstock.client.quarantine_writer import QuarantineWriter
from penstock.model import Offset, TopicPartition

PENDING_RECORDS_MAX: Final = 500
PENDING_MAX_S: Final = 0.5


class CommitMode(StrEnum):
    """When an event counts as handled."""

    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class OffsetSpan(NamedTuple):
    """The offsets of some records of one partition, in order."""

    first: Offset
    end: Offset  # after the last

    def up_to(self, later: "OffsetSpan") -> "OffsetSpan":
        """This one and a later one."""
        return OffsetSpan(self.first, later.end)


def spans_of(messages: Iterable[Message]) -> dict[TopicPartition, OffsetSpan]:
    """The offsets of these records by partition."""
    first: dict[tuple[str | None, int | None], Message] = {}
    last: dict[tuple[str | None, int | None], Message] = {}
    for message in messages:
        key = message.topic(), message.partition()
        first.setdefault(key, message)
        last[key] = message
    return {
        partition_of(message): OffsetSpan(offset_of(message), Offset(offset_of(last[key]) + 1))
        for key, message in first.items()
    }


class CommitTracker:
    """The offsets of one consumer; used by the program's thread and by rebalances."""

    def __init__(self, polling: PollThread, mode: CommitMode) -> None:
        self.mode = mode
        self._polling = polling
        self._lock = threading.Lock()
        self._first: dict[TopicPartition, Offset] = {}  # delivered and not committed
        self._end: dict[TopicPartition, Offset] = {}  # after the last of them
        self._lost_uncommitted = False  # a partition with uncommitted events was revoked

    def deliver(
        self,
        spans: Mapping[TopicPartition, OffsetSpan],
        is_current: Callable[[TopicPartition], bool],
    ) -> set[TopicPartition]:
        """The program is about to get these; the partitions whose records it may have.

        `is_current` is called under the lock that `on_revoked` needs: a partition that is revoked
        is either seen here, or its events are among those delivered.
        """
        allowed: set[TopicPartition] = set()
        with self._lock:
            for partition, span in spans.items():
                if is_current(partition):
                    allowed.add(partition)
                    self._first.setdefault(partition, span.first)
                    self._end[partition] = span.end
        if self.mode is CommitMode.AT_MOST_ONCE:
            self.commit()
        return allowed

    def undeliver(self, spans: Mapping[TopicPartition, OffsetSpan]) -> None:
        """The program did not get these, the last that were delivered."""
        with self._lock:
            for partition, span in spans.items():
                if self._first.get(partition) == span.first:
                    del self._first[partition], self._end[partition]
                elif partition in self._end:
                    self._end[partition] = span.first

    def on_handled(self, ends: Mapping[TopicPartition, Offset]) -> None:
        """The program handled all before these offsets, which are committed soon."""
        if self.mode is CommitMode.AT_LEAST_ONCE:
            self._polling.store(ends)

    def commit(self) -> None:
        """Commit all that was delivered, and wait."""
        with self._lock:
            ends = dict(self._end)
        if ends:
            self._polling.commit(ends)
            self.on_committed()

    def offsets_to_commit(self) -> list[KafkaPartition]:
        """For a transaction: the offsets after all that was delivered. Raises RebalancedError."""
        with self._lock:
            if self._lost_uncommitted:
                raise RebalancedError(
                    "partitions moved to another member of the group while their events were "
                    "handled; that member will handle them"
                )
            return [KafkaPartition(*partition, offset) for partition, offset in self._end.items()]

    def on_committed(self) -> None:
        """All that was delivered is committed."""
        with self._lock:
            self._first.clear()
            self._end.clear()

    def roll_back(self) -> dict[TopicPartition, Offset]:
        """Where to read again from, because nothing that was delivered is committed."""
        with self._lock:
            first = dict(self._first)
            self._first.clear()
            self._end.clear()
            self._lost_uncommitted = False
            return first

    def on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Another member owns these now; their delivered events are no longer committed here."""
        with self._lock:
            for partition in partitions:
                if self._first.pop(partition, None) is not None:
                    self._lost_uncommitted = self.mode is CommitMode.EXACTLY_ONCE
                self._end.pop(partition, None)


class HandledOffsets:
    """Holds the offsets of handled events until quarantine has the unreadable ones before them."""

    def __init__(self, quarantine: QuarantineWriter, tracker: CommitTracker) -> None:
        self._quarantine = quarantine
        self._tracker = tracker
        self._ends: dict[TopicPartition, Offset] = {}
        self._records = 0
        self._since_s = 0.0

    def add(self, spans: Mapping[TopicPartition, OffsetSpan], count: int) -> None:
        """The program handled these records."""
        self._ends |= {partition: span.end for partition, span in spans.items()}
        now_s = time.monotonic()
        if not self._records:
            self._since_s = now_s
        self._records += count
        if (
            not self._quarantine.has_pending
            or self._records >= PENDING_RECORDS_MAX
            or now_s - self._since_s >= PENDING_MAX_S
        ):
            self.release()

    def release(self) -> None:
        """Let the offsets be committed; waits for quarantine, and raises if that failed."""
        self._quarantine.wait()
        ends, self._ends, self._records = self._ends, {}, 0
        self._tracker.on_handled(ends)
