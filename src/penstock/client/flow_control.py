"""When to stop fetching and when to go on: a high-water and a low-water mark, in records and bytes.

Takes what happened and says what must be paused and resumed; touches no client and no clock.

A partition is paused while the queue is full, or while the program holds it; one that is newly
assigned while the queue is full is paused too. The queue is full from the moment it reaches a
high-water mark until it is down to both low-water marks.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.model import TopicPartition
from penstock.serde.errors import ArgumentError

RECORD_OVERHEAD_BYTES: Final = 200  # what a message costs beside its bytes, roughly


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """How much may wait between the network and the program."""

    high_records: int = 10_000
    high_bytes: int = 64 << 20
    low_records: int = 2_500
    low_bytes: int = 16 << 20

    def __post_init__(self) -> None:
        if not (0 <= self.low_records < self.high_records and self.high_records > 0):
            raise ArgumentError("low_records must be less than high_records")
        if not (0 <= self.low_bytes < self.high_bytes):
            raise ArgumentError("low_bytes must be less than high_bytes")


@dataclass(slots=True)
class FlowStats:
    """What the queue went through."""

    arrived: int = 0
    taken: int = 0
    dropped: int = 0  # waited here when their partition was given to another member
    pauses: int = 0
    peak_records: int = 0
    peak_bytes: int = 0


class Steering(NamedTuple):
    """What the client must be told."""

    pause: list[TopicPartition]
    resume: list[TopicPartition]


class Flow:
    """The state of one consumer's queue and partitions."""

    def __init__(self, limits: FlowLimits) -> None:
        self.limits = limits
        self.stats = FlowStats()
        self.assigned: set[TopicPartition] = set()
        self.held: set[TopicPartition] = set()  # by the program; survives rebalances
        self.is_full = False
        self.epoch = 0  # counts the times that partitions were taken from under the queue
        self._turned_at: dict[TopicPartition, int] = {}  # in which epoch, for each that ever was
        self._paused: set[TopicPartition] = set()  # as the client was told
        self._untold: set[TopicPartition] = set()  # newly assigned: the client may think either
        self._records = 0
        self._size_bytes = 0

    @property
    def waiting(self) -> int:
        """Records in the queue."""
        return self._records

    @property
    def room_records(self) -> int:
        """How many more may be asked for; at least one, for a paused client must be polled too."""
        return max(1, self.limits.high_records - self._records)

    @property
    def room_bytes(self) -> int:
        """How many more bytes may come."""
        return max(1, self.limits.high_bytes - self._size_bytes)

    def arrived(self, records: int, size_bytes: int) -> None:
        """The queue grew."""
        self._records += records
        self._size_bytes += size_bytes
        stats = self.stats
        stats.arrived += records
        stats.peak_records = max(stats.peak_records, self._records)
        stats.peak_bytes = max(stats.peak_bytes, self._size_bytes)
        limits = self.limits
        if not self.is_full and (
            self._records >= limits.high_records or self._size_bytes >= limits.high_bytes
        ):
            self.is_full = True
            stats.pauses += 1

    def left(self, records: int, size_bytes: int, *, dropped: bool = False) -> None:
        """The queue shrank: taken by the program, or dropped."""
        self._records -= records
        self._size_bytes -= size_bytes
        assert self._records >= 0, "no more leaves the queue than came"
        if dropped:
            self.stats.dropped += records
        else:
            self.stats.taken += records
        limits = self.limits
        if self._records <= limits.low_records and self._size_bytes <= limits.low_bytes:
            self.is_full = False

    def returned(self, records: int, size_bytes: int) -> None:
        """What the program took and could not use is in the queue again."""
        self._records += records
        self._size_bytes += size_bytes
        self.stats.taken -= records

    def on_assigned(self, partitions: list[TopicPartition]) -> None:
        """The group gave us more; whether they start paused is for us to say."""
        self.assigned.update(partitions)
        self._untold.update(partitions)

    def on_revoked(self, partitions: list[TopicPartition]) -> None:
        """The group took some away."""
        self.assigned.difference_update(partitions)
        self._paused.difference_update(partitions)
        self._untold.difference_update(partitions)
        self.turned(partitions)

    def turned(self, partitions: Iterable[TopicPartition]) -> None:
        """What was fetched of these so far is void: they are another member's, or read anew."""
        self.epoch += 1
        self._turned_at.update(dict.fromkeys(partitions, self.epoch))

    def is_current(self, partition: TopicPartition, epoch: int) -> bool:
        """Whether what was taken from the queue in that epoch may still be handled here."""
        return partition in self.assigned and self._turned_at.get(partition, 0) <= epoch

    def steer(self) -> Steering:
        """What must change; taken to be done when the next question comes."""
        wanted = set(self.assigned) if self.is_full else self.held & self.assigned
        pause = wanted - (self._paused - self._untold)
        resume = (self._paused | self._untold) - wanted
        self._paused, self._untold = wanted, set()
        return Steering(sorted(pause), sorted(resume))
