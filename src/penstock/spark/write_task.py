"""The second half of a write: packed batches to their partitions, under a transaction's handle.

Producer, epoch, sequence and checksum are set in batches that are already built. There are two
schedules of one rule, that a partition's batches are sent in the order of their sequence numbers:
each partition has one writing task (PartitionWriter), or tasks take turns (TurnWriter). A second
attempt of a task never writes over, or after, its first. Runs in tasks. Imports no pyspark.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from penstock.columns.build_batches import PartitionBatches
from penstock.errors import ErrorCode, Refused
from penstock.link.send_batches import send_batches
from penstock.link.transactions import TransactionHandle, describe_producers
from penstock.model import SequenceNumber, TopicPartition
from penstock.protocol.batch import SEQUENCE_MASK, read_header, stamp
from penstock.spark.batch_transaction import (
    OVERLAP,
    REWRITE,
    TaskWrite,
    overlapping_write,
    sequence_of,
)
from penstock.spark.connections import background_thread, cluster_for
from penstock.spark.pack_rows import BuiltBatches
from penstock.spark.workers import AcknowledgeOnArrival, freeze_loaded
from penstock.spark.write_turns import WriteTurns

_FIELDS: Final[list[Any]] = [
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("records", pa.int64()),
    pa.field("end_sequence", pa.int64()),
    pa.field("writer", pa.string()),
]
WRITES: Final = pa.schema(_FIELDS)
_SEND_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """What a writing task must know."""

    properties: Mapping[str, str]
    handle: TransactionHandle
    sequences: Mapping[TopicPartition, SequenceNumber] = field(default_factory=dict)  # or 0
    remedy: str = REWRITE  # shown if another task has written
    arrival: AcknowledgeOnArrival = field(default_factory=AcknowledgeOnArrival, compare=False)

    def stamp(self, batch: bytearray | memoryview, sequence: SequenceNumber) -> SequenceNumber:
        """Put a batch into the transaction, and seal it; the sequence number after it."""
        handle = self.handle
        return stamp(batch, handle.producer_id, handle.producer_epoch, sequence, transactional=True)

    def send(
        self, batches: Mapping[TopicPartition, Sequence[bytearray | memoryview]], writer: str
    ) -> None:
        """Send stamped batches over this thread's connections, and wait for acknowledgement."""
        operation = send_batches(batches, transactional_id=self.handle.transactional_id)
        try:
            cluster_for(self.properties).run(operation)
        except Refused as refusal:
            if refusal.code is OVERLAP:
                raise overlapping_write(writer, refusal.message, self.remedy) from refusal
            raise


class PartitionWriter:
    """Writes the batches of one task, in the order they come."""

    def __init__(self, target: WriteTarget, writer: str) -> None:
        self._target = target
        self._writer = writer
        self._sequences: dict[TopicPartition, SequenceNumber] = {}
        self._counts: dict[TopicPartition, int] = {}
        self._numbers: dict[tuple[TopicPartition, int], int] = {}  # the last, by packing task
        self._waiting: dict[TopicPartition, list[bytearray]] = {}
        self._waiting_bytes = 0

    def write(self, packed: Iterator[pa.RecordBatch]) -> list[TaskWrite]:
        """Write all rows of PACKED; what was written where, after all is acknowledged."""
        for rows in packed:
            topics, partitions = rows.column("topic"), rows.column("partition")
            tasks, numbers = rows.column("task"), rows.column("number")
            contents = rows.column("batch")
            for index in range(rows.num_rows):
                partition = TopicPartition(topics[index].as_py(), partitions[index].as_py())
                self._check_order(partition, tasks[index].as_py(), numbers[index].as_py())
                self._add(partition, contents[index].as_buffer())
        self._send()
        freeze_loaded("writing")
        return [
            TaskWrite(partition, count, self._sequences[partition], self._writer)
            for partition, count in self._counts.items()
        ]

    def _check_order(self, partition: TopicPartition, task: int, number: int) -> None:
        last = self._numbers.get((partition, task), -1)
        if number <= last:
            raise Refused(
                ErrorCode.invalid_record,
                f"{self._writer}: the batches of task {task} for {partition} are not in the order"
                " in which they were packed",
            )
        self._numbers[partition, task] = number

    def _add(self, partition: TopicPartition, content: Any) -> None:
        batch = bytearray(content)
        sequence = self._sequences.get(partition)
        if sequence is None:
            sequence = self._first_sequence(partition)
        end_sequence = self._target.stamp(batch, sequence)
        self._sequences[partition] = end_sequence
        self._waiting.setdefault(partition, []).append(batch)
        self._waiting_bytes += len(batch)
        count = (end_sequence - sequence) & SEQUENCE_MASK
        self._counts[partition] = self._counts.get(partition, 0) + count
        if self._waiting_bytes >= _SEND_BYTES:
            self._send()

    def _send(self) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, {}, 0
        if waiting:
            self._check_unused(waiting)
            self._target.send(waiting, self._writer)

    def _check_unused(self, waiting: Mapping[TopicPartition, list[bytearray]]) -> None:
        """Where this task has not written yet, no other may have.

        A broker would take a batch with the sequence numbers of another's for its retry.
        """
        first = [
            partition
            for partition, batches in waiting.items()
            if read_header(batches[0]).base_sequence == self._first_sequence(partition)
        ]
        if not first:
            return
        target = self._target
        producers = cluster_for(target.properties).run(describe_producers(first))
        for partition, active in producers.items():
            if sequence_of(active, target.handle) != self._first_sequence(partition):
                raise overlapping_write(self._writer, str(partition), target.remedy)

    def _first_sequence(self, partition: TopicPartition) -> SequenceNumber:
        return self._target.sequences.get(partition, SequenceNumber(0))


class TurnWriter:
    """Writes the batches of one task to any partitions, some whenever it has its turn.

    The background thread sends, with its own connections: the task builds its next batches
    meanwhile.
    """

    def __init__(self, target: WriteTarget, turns: WriteTurns, writer: str) -> None:
        self._target = target
        self._turns = turns
        self._writer = writer
        self._writes: dict[TopicPartition, TaskWrite] = {}

    def write(self, packed: Iterator[tuple[str, BuiltBatches]]) -> list[TaskWrite]:
        """Write all; what was written where, after all is acknowledged."""
        sending: Future[None] | None = None
        try:
            for topic, built in packed:
                if sending is not None:
                    sending.result()
                batches = {TopicPartition(topic, index): some for index, some in built.items()}
                sending = background_thread().submit(self._send, batches)
            if sending is not None:
                sending.result()
        finally:
            if sending is not None:
                wait([sending])  # no turn outlives its task, whatever has failed
        freeze_loaded("writing")
        return list(self._writes.values())

    def _send(self, batches: Mapping[TopicPartition, PartitionBatches]) -> None:
        counts = {partition: len(some.rows) for partition, some in batches.items()}
        with self._turns.turn() as turn:
            first = turn.take(counts)
            stamped = {
                partition: self._stamped(some, first[partition])
                for partition, some in batches.items()
            }
            self._target.send(stamped, self._writer)
            for partition, count in counts.items():
                before = self._writes.get(partition)
                total = count if before is None else before.record_count + count
                end_sequence = turn.sequences[partition]
                self._writes[partition] = TaskWrite(partition, total, end_sequence, self._writer)

    def _stamped(self, some: PartitionBatches, sequence: SequenceNumber) -> list[memoryview]:
        for batch in some.batches:
            sequence = self._target.stamp(batch.content, sequence)
        return [batch.content for batch in some.batches]
