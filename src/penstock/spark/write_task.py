"""The second half of a write: packed batches to their partitions, under a transaction's handle.

Producer, epoch, sequence and checksum are put on batches that are built already. There are two
ways. Each partition has one writing task, which asks the broker before its first batch whether the
handle has been used there by somebody else: a second attempt of a task never writes over, or after,
its first. Or tasks take turns, and each writes where its rows go. Runs in tasks; no pyspark here.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from penstock.columns.build_batches import PartitionBatches
from penstock.errors import ErrorCode, Refused
from penstock.link.send_batches import send_batches
from penstock.link.transactions import TransactionHandle, describe_producers
from penstock.model import SequenceNumber, TopicPartition
from penstock.protocol.batch import TRANSACTIONAL, read_header, seal, write_header
from penstock.spark.batch_transaction import (
    AGAIN,
    ALREADY_WRITTEN,
    SEQUENCE_MASK,
    Written,
    sequence_of,
)
from penstock.spark.connections import cluster, cluster_apart
from penstock.spark.pack_rows import Built
from penstock.spark.workers import WorkArrives, freeze_loaded
from penstock.spark.write_turns import Turns

_FIELDS: Final[list[Any]] = [
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("records", pa.int64()),
    pa.field("end_sequence", pa.int64()),
    pa.field("writer", pa.string()),
]
WRITTEN: Final = pa.schema(_FIELDS)
_CHUNK_BYTES: Final = 16 << 20  # sent at once


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """All that a writing task must know."""

    properties: Mapping[str, str]
    handle: TransactionHandle
    sequences: Mapping[TopicPartition, SequenceNumber] = field(
        default_factory=dict
    )  # 0 where absent
    remedy: str = AGAIN  # told to who finds that another has written
    arrival: WorkArrives = field(default_factory=WorkArrives, compare=False)


class PartitionWriter:
    """Writes the batches of one task, in the order they come."""

    def __init__(self, target: WriteTarget, writer: str) -> None:
        self._cluster = cluster(target.properties)
        self._target = target
        self._writer = writer
        self._sequences: dict[TopicPartition, SequenceNumber] = {}
        self._counts: dict[TopicPartition, int] = {}
        self._numbers: dict[tuple[TopicPartition, int], int] = {}  # of the last, by who packed it
        self._waiting: dict[TopicPartition, list[bytearray]] = {}
        self._waiting_bytes = 0

    def write(self, packed: Iterator[pa.RecordBatch]) -> list[Written]:
        """Write all rows of PACKED; what was written where, once all is acknowledged."""
        for rows in packed:
            topics, partitions = rows.column("topic"), rows.column("partition")
            tasks, numbers = rows.column("task"), rows.column("number")
            contents = rows.column("batch")
            for index in range(rows.num_rows):
                place = TopicPartition(topics[index].as_py(), partitions[index].as_py())
                self._check_order(place, tasks[index].as_py(), numbers[index].as_py())
                self._add(place, contents[index].as_buffer())
        self._send()
        freeze_loaded("writing")
        return [
            Written(place, count, self._sequences[place], self._writer)
            for place, count in self._counts.items()
        ]

    def _check_order(self, place: TopicPartition, task: int, number: int) -> None:
        last = self._numbers.get((place, task), -1)
        if number <= last:
            raise Refused(
                ErrorCode.invalid_record,
                f"{self._writer}: the batches of task {task} for {place} come in another order than"
                " they were packed in",
            )
        self._numbers[place, task] = number

    def _add(self, place: TopicPartition, content: Any) -> None:
        batch = bytearray(content)
        sequence = self._sequences.get(place)
        if sequence is None:
            sequence = self._first_sequence(place)
        self._sequences[place] = end_sequence = stamp(batch, self._target.handle, sequence)
        self._waiting.setdefault(place, []).append(batch)
        self._waiting_bytes += len(batch)
        count = (end_sequence - sequence) & SEQUENCE_MASK
        self._counts[place] = self._counts.get(place, 0) + count
        if self._waiting_bytes >= _CHUNK_BYTES:
            self._send()

    def _send(self) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, {}, 0
        if not waiting:
            return
        self._check_first(waiting)
        transactional_id = self._target.handle.transactional_id
        try:
            self._cluster.run(send_batches(waiting, transactional_id=transactional_id))
        except Refused as refusal:
            if refusal.code is ErrorCode.out_of_order_sequence_number:
                raise self._already_written(refusal.message) from refusal
            raise

    def _check_first(self, waiting: Mapping[TopicPartition, list[bytearray]]) -> None:
        """Where this task has not written yet, nobody else may have.

        Without the question a batch with the sequences of another's would be taken for its retry.
        """
        fresh = [
            place
            for place, batches in waiting.items()
            if read_header(batches[0]).base_sequence == self._first_sequence(place)
        ]
        if not fresh:
            return
        for place, producers in self._cluster.run(describe_producers(fresh)).items():
            if sequence_of(producers, self._target.handle) != self._first_sequence(place):
                raise self._already_written(str(place))

    def _first_sequence(self, place: TopicPartition) -> SequenceNumber:
        return self._target.sequences.get(place, SequenceNumber(0))

    def _already_written(self, where: str) -> Refused:
        told = f"{self._writer}: {ALREADY_WRITTEN} {where}; {self._target.remedy}"
        return Refused(ErrorCode.out_of_order_sequence_number, told)


class TurnWriter:
    """Writes the batches of one task to any partitions, some whenever it has its turn.

    A thread with connections of its own does it: the task builds its next batches meanwhile.
    """

    def __init__(self, target: WriteTarget, turns: Turns, writer: str) -> None:
        self._cluster = cluster_apart(target.properties)
        self._handle = target.handle
        self._turns = turns
        self._writer = writer
        self._written: dict[TopicPartition, Written] = {}

    def write(self, packed: Iterator[tuple[str, Built]]) -> list[Written]:
        """Write all; what was written where, once all is acknowledged."""
        sent: Future[None] | None = None
        with ThreadPoolExecutor(1) as thread:  # left when nothing is under way, whatever happens
            for topic, built in packed:
                if sent is not None:
                    sent.result()
                batches = {TopicPartition(topic, index): some for index, some in built.items()}
                sent = thread.submit(self._send, batches)
            if sent is not None:
                sent.result()
        freeze_loaded("writing")
        return list(self._written.values())

    def _send(self, batches: Mapping[TopicPartition, PartitionBatches]) -> None:
        counts = {place: len(some.rows) for place, some in batches.items()}
        with self._turns.turn() as turn:
            first = turn.take(counts)
            stamped = {place: self._stamped(some, first[place]) for place, some in batches.items()}
            try:
                transactional_id = self._handle.transactional_id
                self._cluster.run(send_batches(stamped, transactional_id=transactional_id))
            except Refused as refusal:
                if refusal.code is ErrorCode.out_of_order_sequence_number:
                    told = f"{self._writer}: {ALREADY_WRITTEN} {refusal.message}; {AGAIN}"
                    raise Refused(refusal.code, told) from refusal
                raise
            for place, count in counts.items():
                before = self._written.get(place)
                total = count if before is None else before.record_count + count
                end_sequence = turn.sequences[place]
                self._written[place] = Written(place, total, end_sequence, self._writer)

    def _stamped(self, some: PartitionBatches, sequence: SequenceNumber) -> list[memoryview]:
        for batch in some.batches:
            sequence = stamp(batch.content, self._handle, sequence)
        return [batch.content for batch in some.batches]


def stamp(
    batch: bytearray | memoryview, handle: TransactionHandle, sequence: SequenceNumber
) -> SequenceNumber:
    """Make a batch one of a transaction, and seal it; the sequence after it."""
    header = read_header(batch)
    stamped = header._replace(
        attributes=header.attributes | TRANSACTIONAL,
        producer_id=handle.producer_id,
        producer_epoch=handle.producer_epoch,
        base_sequence=sequence,
    )
    write_header(batch, 0, stamped)
    seal(batch)
    return SequenceNumber((sequence + header.record_count) & SEQUENCE_MASK)
