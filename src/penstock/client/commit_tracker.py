"""How far a program is: what it was given, what it is done with, and what is committed when.

AT_MOST_ONCE    committed before it is handed over: lost if the program dies with it in hand
AT_LEAST_ONCE   committed some time after the program asks for the next: perhaps handed over again
EXACTLY_ONCE    committed by the transaction of a producer, together with what was made of it

A program that asks for more is done with what it has. What was handed over and then revoked, as
the group gave the partition to another member, is never committed by a transaction of ours.

What a program is done with, held until quarantine has its part of it.

No offset is stored while something before it is still on its way to quarantine. Waiting for each
such record alone would be slow, so with some on their way offsets wait for others to join them.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from confluent_kafka import Message
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.client.poll_thread import Intake, end_offsets, offset_of, places_by_partition
from penstock.client.quarantine_writer import QuarantineWriter
from penstock.model import Offset, TopicPartition
from penstock.serde.errors import RebalancedError


class Commits(StrEnum):
    """When an event counts as handled."""

    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class Progress:
    """The offsets of one consumer. Told by the program's thread, and by rebalances."""

    def __init__(self, intake: Intake, commits: Commits) -> None:
        self.commits = commits
        self._intake = intake
        self._lock = threading.Lock()
        self._first: dict[TopicPartition, Offset] = {}  # handed over and not yet settled
        self._end: dict[TopicPartition, Offset] = {}  # after the last of them
        self._is_torn = False  # some of what was handed over was revoked since

    def handing_over(
        self, messages: Sequence[Message], is_current: Callable[[TopicPartition], bool]
    ) -> list[int]:
        """The program is about to get these; which of them it may have, by their place.

        The question is asked under the lock that `on_revoked` needs, so a partition that goes
        elsewhere is either noticed here, or finds its records among those handed over.
        """
        allowed: list[int] = []
        by_partition = places_by_partition(messages)
        with self._lock:
            for partition, places in by_partition.items():
                if is_current(partition):
                    allowed += places
                    self._first.setdefault(partition, offset_of(messages[places[0]]))
                    self._end[partition] = Offset(offset_of(messages[places[-1]]) + 1)
        if self.commits is Commits.AT_MOST_ONCE:
            self.commit()
        return sorted(allowed)

    def done(self, ends: Mapping[TopicPartition, Offset]) -> None:
        """The program is done with all before these, which are committed before long."""
        if self.commits is Commits.AT_LEAST_ONCE:
            self._intake.store(ends)

    def commit(self) -> None:
        """Commit all that was handed over, and wait for it."""
        with self._lock:
            ends = dict(self._end)
        if ends:
            self._intake.commit(ends)
            self.settled()

    def positions(self) -> list[KafkaPartition]:
        """For a transaction: what comes after all that was handed over. Raises RebalancedError."""
        with self._lock:
            if self._is_torn:
                raise RebalancedError(
                    "partitions went to another member of the group while their events were being "
                    "handled; it will handle them"
                )
            return [KafkaPartition(*one, offset) for one, offset in self._end.items()]

    def settled(self) -> None:
        """All that was handed over is committed."""
        with self._lock:
            self._first.clear()
            self._end.clear()

    def unsettle(self) -> dict[TopicPartition, Offset]:
        """Where to go back to, for none of it is committed."""
        with self._lock:
            first = dict(self._first)
            self._first.clear()
            self._end.clear()
            self._is_torn = False
            return first

    def on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Another member has them now; what was handed over of them is no longer ours to commit."""
        with self._lock:
            for partition in partitions:
                if self._first.pop(partition, None) is not None:
                    self._is_torn = self.commits is Commits.EXACTLY_ONCE
                self._end.pop(partition, None)


SETTLE_RECORDS: Final = 500  # so many wait together at the most
SETTLE_S: Final = 0.5  # and so long


class Settling:
    """For one consumer, on the program's thread."""

    def __init__(self, quarantine: QuarantineWriter, progress: Progress) -> None:
        self._quarantine = quarantine
        self._progress = progress
        self._ends: dict[TopicPartition, Offset] = {}
        self._records = 0
        self._since_s = 0.0

    def done(self, messages: Sequence[Message]) -> None:
        """The program asked past these."""
        self._ends |= end_offsets(messages)
        now_s = time.monotonic()
        if not self._records:
            self._since_s = now_s
        self._records += len(messages)
        if (
            not self._quarantine.is_waiting
            or self._records >= SETTLE_RECORDS
            or now_s - self._since_s >= SETTLE_S
        ):
            self.settle()

    def settle(self) -> None:
        """All that is done may be committed; waits for quarantine, and raises if that failed."""
        self._quarantine.settle()
        ends, self._ends, self._records = self._ends, {}, 0
        self._progress.done(ends)
