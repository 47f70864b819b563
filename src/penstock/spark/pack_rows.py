"""Rows -> record batches that only lack producer and checksum, each for one Kafka partition.

The first half of a write, done by the tasks that have the rows: a batch is built once, from whole
columns. Either the same task writes it, or it is sent as one row to the task that writes its
partition, so that no single record passes through Spark's shuffle.

A task numbers its batches: the writer sorts them by (task, number), and rows of one task that go to
one partition keep their order. Runs in tasks. Imports no pyspark.
"""

from binascii import crc32
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.clock import wall_ms
from penstock.columns.build_batches import UNSEALED, PartitionBatches, build_batches
from penstock.columns.partitioner import Unkeyed
from penstock.link.offsets import partitions_of
from penstock.spark.connections import cluster_for
from penstock.spark.encode_rows import RowEncoder
from penstock.spark.workers import acknowledged, freeze_loaded, keep_memory
from penstock.spark.write_options import WritePlan

_FIELDS: Final[list[Any]] = [
    pa.field("lane", pa.int32()),  # which task writes the partition
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("task", pa.int32()),
    pa.field("number", pa.int32()),
    pa.field("records", pa.int32()),
    pa.field("batch", pa.binary()),
]
PACKED: Final = pa.schema(_FIELDS)
PACKED_NAMES: Final = PACKED.names
_ROWS_BYTES_MIN: Final = 2 << 20  # of rows that are packed together: fits into caches
_ROWS_BYTES_MAX: Final = 8 << 20
_BATCHES_PER_PARTITION: Final = 3  # in rows that are packed together; one of them is not full
_LANE_MASK: Final = 0x3FFFFFFF
BuiltBatches: TypeAlias = dict[int, PartitionBatches]  # by partition


class Packer:
    """Packs the rows of one task."""

    def __init__(self, plan: WritePlan, task: int) -> None:
        self._plan = plan
        self._task = task
        self._encoder = RowEncoder(plan)
        self._partition_counts: dict[str, int] = {}
        self._number = 0
        self._unkeyed = 0  # selects the partition of the next rows without a key

    def pack(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The packed batches as rows of PACKED."""
        for topic, built in self.build(batches):
            yield self._as_rows(topic, built)

    def build(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, BuiltBatches]]:
        """The packed batches with their topic, for some rows at a time."""
        keep_memory()
        for rows in gathered(acknowledged(batches), self._rows_bytes()):
            for topic, records in self._encoder.encode(rows):
                yield topic, self._built(topic, records)
        freeze_loaded("packing")

    def _built(self, topic: str, records: pa.RecordBatch) -> BuiltBatches:
        count = self._partition_count(topic)
        built = build_batches(
            records,
            partition_count=count,
            now=wall_ms(),
            unkeyed=Unkeyed.sticky((self._task + self._unkeyed) % count),
            framing=self._plan.framing,
            stamp=UNSEALED,
        )
        self._unkeyed += 1
        return built

    def _as_rows(self, topic: str, built: BuiltBatches) -> pa.RecordBatch:
        first_lane = 0 if self._plan.topic is not None else crc32(topic.encode()) & _LANE_MASK
        rows = [
            (first_lane + partition, partition, batch)
            for partition, some in built.items()
            for batch in some.batches
        ]
        numbers = range(self._number, self._number + len(rows))
        self._number += len(rows)
        return pa.RecordBatch.from_arrays(
            [
                pa.array([lane for lane, _, _ in rows], pa.int32()),
                pa.array([topic] * len(rows), pa.string()),
                pa.array([partition for _, partition, _ in rows], pa.int32()),
                pa.array([self._task] * len(rows), pa.int32()),
                pa.array(numbers, pa.int32()),
                pa.array([batch.record_count for _, _, batch in rows], pa.int32()),
                batches_column([batch.content for _, _, batch in rows]),
            ],
            schema=PACKED,
        )

    def _rows_bytes(self) -> int:
        """How much to pack together: enough for batches of their full size."""
        if self._plan.topic is None:
            return _ROWS_BYTES_MAX
        count = self._partition_count(self._plan.topic)
        full = _BATCHES_PER_PARTITION * count * self._plan.framing.batch_bytes_max
        return min(max(full, _ROWS_BYTES_MIN), _ROWS_BYTES_MAX)

    def _partition_count(self, topic: str) -> int:
        if topic not in self._partition_counts:
            partitions = cluster_for(self._plan.properties).run(partitions_of([topic]))
            self._partition_counts[topic] = len(partitions)
        return self._partition_counts[topic]


def batches_column(batches: list[memoryview]) -> Any:
    """The batches as one column. `pa.array` never releases the memoryviews it is given."""
    ends = np.cumsum([0, *map(len, batches)], dtype=np.int32)
    buffers = [None, pa.py_buffer(ends.data), pa.py_buffer(b"".join(batches))]
    return pa.Array.from_buffers(pa.binary(), len(batches), buffers)


def gathered(batches: Iterator[pa.RecordBatch], size_bytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of about this size: many small ones become few large ones."""
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        waiting.append(batch)
        waiting_bytes += batch.get_total_buffer_size()
        if waiting_bytes >= size_bytes:
            yield _joined(waiting)
            waiting, waiting_bytes = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined
