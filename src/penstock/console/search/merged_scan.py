"""Records of several partitions in the order of their timestamps, forward or backward. Pure.

Within a partition the order is that of its offsets, whatever the timestamps say. The next record is
known only if every partition that is not at its end has records here; `missing` names the others.
A position is always that of the next record to look at, so a scan resumes where it stopped.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from penstock.model import Offset
from penstock.protocol.records import Record


class Direction(StrEnum):
    """Which way a scan goes."""

    FORWARD = "forward"
    BACKWARD = "backward"


class ScanRange(NamedTuple):
    """What is left of a partition.

    Forward from `position` to before `stop`; backward from before `position` down to `stop`.
    """

    partition: int
    position: Offset
    stop: Offset

    @property
    def left(self) -> int:
        """How many offsets there are."""
        return abs(self.stop - self.position)


@dataclass(slots=True)
class _PartitionBuffer:
    position: Offset  # of the next record to look at
    stop: Offset
    read_to: Offset  # where the next read begins
    records: deque[Record] = field(default_factory=deque)


class MergedScan:
    """The state of one scan."""

    def __init__(self, direction: Direction, ranges: Iterable[ScanRange]) -> None:
        self.direction = direction
        self._buffers = {
            row.partition: _PartitionBuffer(row.position, row.stop, row.position) for row in ranges
        }

    def ranges(self) -> list[ScanRange]:
        """What is left of each partition."""
        return [
            ScanRange(partition, buffer.position, buffer.stop)
            for partition, buffer in self._buffers.items()
        ]

    def is_finished(self) -> bool:
        """Whether nothing is left of any partition."""
        return all(row.left == 0 for row in self.ranges())

    def missing(self) -> list[ScanRange]:
        """What must be read before the next record is known."""
        return [
            ScanRange(partition, buffer.read_to, buffer.stop)
            for partition, buffer in self._buffers.items()
            if not buffer.records and buffer.read_to != buffer.stop
        ]

    def add(self, partition: int, records: Sequence[Record], read_to: Offset) -> None:
        """Records of a partition in the order of their offsets, and where the next read begins."""
        buffer = self._buffers[partition]
        assert not buffer.records, "one read at a time"
        low, high = sorted((buffer.read_to, buffer.stop))
        wanted = [record for record in records if low <= record.offset < high]
        if self.direction is Direction.BACKWARD:
            wanted.reverse()
            buffer.read_to = max(read_to, buffer.stop)
        else:
            buffer.read_to = min(read_to, buffer.stop)
        buffer.records.extend(wanted)
        if not wanted:
            buffer.position = buffer.read_to

    def next(self) -> tuple[int, Record] | None:
        """The next record and its partition; None if something must be read, or at the end."""
        chosen: int | None = None
        best = 0
        sign = 1 if self.direction is Direction.FORWARD else -1
        for partition, buffer in self._buffers.items():
            if buffer.records:
                time = sign * buffer.records[0].timestamp
                if chosen is None or time < best:
                    chosen, best = partition, time
            elif buffer.read_to != buffer.stop:
                return None
        if chosen is None:
            return None
        buffer = self._buffers[chosen]
        record = buffer.records.popleft()
        if not buffer.records:
            buffer.position = buffer.read_to
        elif self.direction is Direction.FORWARD:
            buffer.position = Offset(record.offset + 1)
        else:
            buffer.position = Offset(record.offset)
        return chosen, record
