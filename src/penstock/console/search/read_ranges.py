"""Reading records for a scan: forward as a fetch does, backward in windows before an offset.

A window that turns out to have too many bytes is made smaller; a batch comes whole, so records
before the window that came with it are used too. One call never keeps more than `WINDOW_BYTES_MAX`
of a partition, or one batch if that is larger.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from penstock.console.search.merged_scan import Direction, MergedScan, ScanRange
from penstock.gateway.errors import unavailable
from penstock.gateway.gateway_node import GatewayNode
from penstock.gateway.visible_records import visible_records
from penstock.link.fetch_once import CommittedBatches
from penstock.link.fetch_range import OffsetOutOfRange
from penstock.link.fetch_request import FetchLimits
from penstock.model import Offset, TopicPartition
from penstock.protocol.batch import iterate_headers
from penstock.protocol.records import Record

ALL_BYTES_MAX: Final = 8 << 20  # of all partitions in one read
PARTITION_BYTES_MIN: Final = 16 << 10
WINDOW_BYTES_MAX: Final = 4 << 20
_SHRINK: Final = 8
_STALLS_MAX: Final = 3  # reads without progress


class ReadRecords(NamedTuple):
    """Records of one partition, and where the next read begins."""

    partition: int
    records: Sequence[Record]
    read_to: Offset


class RangeReader:
    """Reads what a scan is missing."""

    def __init__(self, node: GatewayNode, topic: str, chunk_bytes: int, window: int) -> None:
        self._node = node
        self._topic = topic
        self._chunk_bytes = chunk_bytes
        self._window = window  # offsets that a backward read covers
        self._stalls = 0

    async def fill(self, scan: MergedScan) -> None:
        """Read until every partition of the scan has records or is at its end."""
        while missing := scan.missing():
            if scan.direction is Direction.FORWARD:
                rows = await self._read_forward(missing)
            else:
                share = self._share(len(missing))
                rows = await asyncio.gather(*(self._read_backward(row, share) for row in missing))
            before = [row.position for row in missing]
            for row in rows:
                scan.add(*row)
            self._check_progress(before, [row.read_to for row in rows])

    def _check_progress(self, before: Sequence[Offset], after: Sequence[Offset]) -> None:
        self._stalls = self._stalls + 1 if before == after else 0
        if self._stalls > _STALLS_MAX:
            raise unavailable(f"the records of {self._topic} cannot be read now; try again")

    async def _read_forward(self, missing: Sequence[ScanRange]) -> list[ReadRecords]:
        positions = {TopicPartition(self._topic, row.partition): row.position for row in missing}
        partition_bytes = self._share(len(positions))
        limits = FetchLimits(0, partition_bytes * len(positions), partition_bytes)
        try:
            fetched = await self._node.fetch(positions, limits)
        except OffsetOutOfRange as error:
            return [_moved(row, error) for row in missing]
        return await self._node.in_thread(
            lambda: [
                _visible(row, fetched[TopicPartition(self._topic, row.partition)])
                for row in missing
            ]
        )

    def _share(self, partitions: int) -> int:
        """The bytes of one partition in a read of so many."""
        return min(self._chunk_bytes, max(PARTITION_BYTES_MIN, ALL_BYTES_MAX // partitions))

    async def _read_backward(self, row: ScanRange, share: int) -> ReadRecords:
        """The last records before a position."""
        place = TopicPartition(self._topic, row.partition)
        window, low = self._window, row.stop
        while low < row.position:
            start = Offset(max(low, row.position - window))
            try:
                parts, end = await self._fetch_window(place, start, row.position, share)
            except OffsetOutOfRange as error:  # retention removed the lowest of them
                low = Offset(max(low + 1, error.start_offset))
                continue
            if end >= row.position or window == 1:
                is_lowest = start == low
                read = await self._node.in_thread(partial(_window, row, start, parts))
                return read._replace(read_to=row.stop) if is_lowest else read
            window = max(1, window // _SHRINK)
        return ReadRecords(row.partition, (), row.stop)

    async def _fetch_window(
        self, place: TopicPartition, start: Offset, end: Offset, share: int
    ) -> tuple[list[CommittedBatches], Offset]:
        """Batches from `start` to `end`, and how far they go if they are too large."""
        parts, position, size_bytes = list[CommittedBatches](), start, 0
        limits = FetchLimits(0, share, share)
        while position < end and size_bytes <= WINDOW_BYTES_MAX:
            part = (await self._node.fetch({place: position}, limits))[place]
            before, cut = position, len(part.batches)
            for at, header in iterate_headers(part.batches):
                if header.base_offset >= end:
                    cut, position = at, end
                    break
                position = max(position, header.end_offset)
            if position == before:  # behind it are only records of open transactions
                position = end
            parts.append(part._replace(batches=part.batches[:cut]))
            size_bytes += cut
        return parts, position


def _visible(row: ScanRange, fetched: CommittedBatches) -> ReadRecords:
    records, end_offset = visible_records(fetched.batches, fetched.aborted, row.position)
    return ReadRecords(row.partition, records, end_offset)


def _window(row: ScanRange, start: Offset, parts: Sequence[CommittedBatches]) -> ReadRecords:
    """The records of a window; it begins earlier if its first batch does."""
    records: list[Record] = []
    first = next((header for part in parts for _, header in iterate_headers(part.batches)), None)
    if first is not None:
        start = Offset(min(start, first.base_offset))
    following = start
    for part in parts:
        visible, following = visible_records(part.batches, part.aborted, following)
        records += visible
    return ReadRecords(row.partition, records, Offset(max(start, row.stop)))


def _moved(row: ScanRange, error: OffsetOutOfRange) -> ReadRecords:
    """Retention removed what was to be read: go on at what is there."""
    if error.partition.partition != row.partition:
        return ReadRecords(row.partition, (), row.position)
    is_removed = row.position < error.start_offset
    return ReadRecords(row.partition, (), error.start_offset if is_removed else row.stop)
