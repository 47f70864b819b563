"""The second half of a write: packed batches to their partitions, under a transaction's handle.

Each partition has one writing task; the task stamps producer, epoch and sequence on batches that
are built already. Before its first batch it asks the broker whether the handle has been used there
by somebody else: a second attempt of a task never writes over, or after, its first. Runs in tasks;
imports no pyspark.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from penstock.errors import ErrorCode, Refused
from penstock.link.producing import produce
from penstock.link.transactions import Handle, describe_producers
from penstock.model import Sequence, TopicPartition
from penstock.protocol.batch import TRANSACTIONAL, read_header, seal, write_header
from penstock.spark.connecting import cluster
from penstock.spark.transacting import SEQUENCE_MASK, Written, sequence_of
from penstock.spark.workers import freeze_loaded

WRITTEN: Final = "topic string, partition int, records long, end_sequence long, writer string"
_FIELDS: Final[list[Any]] = [
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("records", pa.int64()),
    pa.field("end_sequence", pa.int64()),
    pa.field("writer", pa.string()),
]
WRITTEN_SCHEMA: Final = pa.schema(_FIELDS)
ALREADY_WRITTEN: Final = "another task, or an earlier attempt of this one, has written to"
AGAIN: Final = "the batch is to be written again as a whole"
_CHUNK_BYTES: Final = 16 << 20  # sent at once


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """All that a writing task must know."""

    properties: Mapping[str, str]
    handle: Handle
    sequences: Mapping[TopicPartition, Sequence] = field(default_factory=dict)  # 0 where absent
    remedy: str = AGAIN  # told to who finds that another has written


class PartitionWriter:
    """Writes the batches of one task, in the order they come."""

    def __init__(self, target: WriteTarget, writer: str) -> None:
        self._cluster = cluster(target.properties)
        self._target = target
        self._writer = writer
        self._sequences: dict[TopicPartition, Sequence] = {}
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
        handle = self._target.handle
        batch = bytearray(content)
        header = read_header(batch)
        sequence = self._sequences.get(place)
        if sequence is None:
            sequence = self._first_sequence(place)
        stamped = header._replace(
            attributes=header.attributes | TRANSACTIONAL,
            producer_id=handle.producer_id,
            producer_epoch=handle.producer_epoch,
            base_sequence=sequence,
        )
        write_header(batch, 0, stamped)
        seal(batch)
        self._waiting.setdefault(place, []).append(batch)
        self._waiting_bytes += len(batch)
        self._sequences[place] = Sequence((sequence + header.record_count) & SEQUENCE_MASK)
        self._counts[place] = self._counts.get(place, 0) + header.record_count
        if self._waiting_bytes >= _CHUNK_BYTES:
            self._send()

    def _send(self) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, {}, 0
        if not waiting:
            return
        self._check_first(waiting)
        transactional_id = self._target.handle.transactional_id
        try:
            self._cluster.run(produce(waiting, transactional_id=transactional_id))
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

    def _first_sequence(self, place: TopicPartition) -> Sequence:
        return self._target.sequences.get(place, Sequence(0))

    def _already_written(self, where: str) -> Refused:
        told = f"{self._writer}: {ALREADY_WRITTEN} {where}; {self._target.remedy}"
        return Refused(ErrorCode.out_of_order_sequence_number, told)
