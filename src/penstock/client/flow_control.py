"""When to pause and resume fetching: a high and a low watermark, in records and in bytes.

Pure: takes what happened and returns which partitions to pause and resume.

A partition is paused while the queue is full, or while the program paused it; one that is newly
assigned while the queue is full is paused too. The queue is full from when it reaches a high
watermark until it is down to both low watermarks.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.model import TopicPartition
from penstock.serde.errors import ArgumentError

RECORD_OVERHEAD_BYTES: Final = 200  # of a message beside its key and value, about


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """How much may wait in memory between the network and the program."""

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
    """Counts of one consumer's queue."""

    arrived: int = 0
    taken: int = 0
    dropped: int = 0  # still queued when their partition was revoked
    pauses: int = 0
    peak_records: int = 0
    peak_bytes: int = 0


class FlowChanges(NamedTuple):
    """Which partitions the Kafka client must pause and resume."""

    pause: list[TopicPartition]
    resume: list[TopicPartition]


class FlowControl:
    """The state of one consumer's queue and partitions."""

    def __init__(self, limits: FlowLimits) -> None:
        self.limits = limits
        self.stats: Final = FlowStats()
        self.assigned: set[TopicPartition] = set()
        self.paused_by_program: set[TopicPartition] = set()  # survives rebalances
        self.is_full: bool = False
        self.is_external: bool = False  # another connection fetches: the Kafka client is paused
        self.epoch: int = 0  # counts the times that fetched records became invalid
        self._invalidated_at: dict[TopicPartition, int] = {}  # the epoch, by partition
        self._paused: set[TopicPartition] = set()  # in the Kafka client
        self._unknown: set[TopicPartition] = set()  # newly assigned: paused there or not
        self._records = 0
        self._size_bytes = 0

    @property
    def queued(self) -> int:
        """Records in the queue."""
        return self._records

    @property
    def capacity_records(self) -> int:
        """How many more may be fetched; at least one, because a paused client is polled too."""
        return max(1, self.limits.high_records - self._records)

    @property
    def capacity_bytes(self) -> int:
        """How many more bytes may be fetched; at least one."""
        return max(1, self.limits.high_bytes - self._size_bytes)

    def on_fetched(self, records: int, size_bytes: int) -> None:
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

    def on_removed(self, records: int, size_bytes: int, *, dropped: bool = False) -> None:
        """The queue shrank: records were taken by the program, or dropped."""
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

    def on_discarded(self, records: int, size_bytes: int) -> None:
        """Queued records left unread: they will be fetched again, and count then."""
        self._records -= records
        self._size_bytes -= size_bytes
        self.stats.arrived -= records
        self.is_full = False

    def on_returned(self, records: int, size_bytes: int) -> None:
        """Records that the program took and could not use are queued again."""
        self._records += records
        self._size_bytes += size_bytes
        self.stats.taken -= records

    def on_assigned(self, partitions: list[TopicPartition]) -> None:
        """The group assigned partitions; `changes` says whether they start paused."""
        self.assigned.update(partitions)
        self._unknown.update(partitions)

    def on_revoked(self, partitions: list[TopicPartition]) -> None:
        """The group revoked partitions."""
        self.assigned.difference_update(partitions)
        self._paused.difference_update(partitions)
        self._unknown.difference_update(partitions)
        self.invalidate(partitions)

    def invalidate(self, partitions: Iterable[TopicPartition]) -> None:
        """Records fetched so far do not count: the partitions were revoked, or sought."""
        self.epoch += 1
        self._invalidated_at.update(dict.fromkeys(partitions, self.epoch))

    def is_current(self, partition: TopicPartition, epoch: int) -> bool:
        """Whether records that were taken from the queue in an epoch may still be handled."""
        return partition in self.assigned and self._invalidated_at.get(partition, 0) <= epoch

    def fetchable(self) -> set[TopicPartition]:
        """What another connection may fetch now."""
        return set() if self.is_full else self.assigned - self.paused_by_program

    def changes(self) -> FlowChanges:
        """What must change in the Kafka client; counts as done when it is called again."""
        is_all = self.is_full or self.is_external
        target = set(self.assigned) if is_all else self.paused_by_program & self.assigned
        pause = target - (self._paused - self._unknown)
        resume = (self._paused | self._unknown) - target
        self._paused, self._unknown = target, set()
        return FlowChanges(sorted(pause), sorted(resume))
