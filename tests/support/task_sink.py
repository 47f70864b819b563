"""Sinks without Spark: what the tasks of a write do, called by tests directly."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.columns.arrow_records import bytes_to_arrow
from penstock.columns.open_batches import open_batches
from penstock.link.blocking import BlockingCluster
from penstock.link.fetch_range import FetchSettings, fetch_range
from penstock.link.offsets import Isolation, end_offsets, partitions_of
from penstock.model import Offset
from penstock.spark.batch_transaction import BatchName, OpenTransaction, TaskWrite
from penstock.spark.pack_rows import Packer
from penstock.spark.write_options import WriteRequest
from penstock.spark.write_task import PartitionWriter, TurnWriter, WriteTarget
from penstock.spark.write_turns import WriteTurns


class TaskSink:
    """Writes rows as one task of a transaction would."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.request = WriteRequest(topic, bootstrap=bootstrap)

    def write(
        self,
        transaction: OpenTransaction,
        rows: list[tuple[str | None, str]],
        writer: str = "task 0",
    ) -> list[TaskWrite]:
        target = WriteTarget(
            self.request.properties, transaction.handle, dict(transaction.sequences)
        )
        packed = self._packer().pack(iter([frame_of(rows)]))
        return PartitionWriter(target, writer).write(packed)

    def write_in_turn(
        self,
        transaction: OpenTransaction,
        turns: WriteTurns,
        rows: list[tuple[str | None, str]],
        writer: str = "task 0",
    ) -> list[TaskWrite]:
        target = WriteTarget(self.request.properties, transaction.handle)
        packed = self._packer().build(iter([frame_of(rows)]))
        return TurnWriter(target, turns, writer).write(packed)

    def _packer(self) -> Packer:
        return Packer(self.request.plan(["key", "value"]), 0)


def frame_of(rows: list[tuple[str | None, str]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([key for key, _ in rows], pa.string()),
            "value": pa.array([value for _, value in rows], pa.string()),
        }
    )


def rows(first: int, end: int) -> list[tuple[str | None, str]]:
    return [(f"key-{number % 5}", str(number)) for number in range(first, end)]


def visible(cluster: BlockingCluster, topic: str) -> list[int]:
    """What a read_committed reader sees."""
    isolation = Isolation.READ_COMMITTED
    partitions = cluster.run(partitions_of([topic]))
    ends = cluster.run(end_offsets(partitions, isolation=isolation))
    settings = FetchSettings(isolation=isolation)
    numbers: list[int] = []
    for partition, end in ends.items():
        for chunk in cluster.stream(fetch_range(partition, Offset(0), end, settings=settings)):
            columns = open_batches(chunk.records, aborted=chunk.aborted)
            assert columns.values is not None
            values: list[Any] = bytes_to_arrow(columns.values).to_pylist()
            numbers += [int(value) for value in values]
    return sorted(numbers)


def written(
    sink: TaskSink, some_rows: list[tuple[str | None, str]]
) -> Callable[[OpenTransaction], object]:
    """The writing of a batch with these rows."""
    return lambda transaction: transaction.add_writes(sink.write(transaction, some_rows))


def batch(query: str, batch_id: int = 0, checkpoint: str = "checkpoint-1") -> BatchName:
    return BatchName(query, checkpoint, batch_id)
