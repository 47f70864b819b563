"""Sends many events over `link`: columns to record batches, on one thread.

Callers encode and queue rows; the thread takes what is queued, builds batches for each partition
and sends them as an idempotent producer of its own. One group of batches is in flight at a time,
and the next one is encoded meanwhile. Rows keep their order within a partition.

A batch that a broker refuses fails its rows only: the others are sent again under a new producer
id, because the sequence numbers behind a refused batch do not count. When the time for retries is
over, all rows of the group fail, because it is unknown which of them were written.

No Python object is made per record.
"""

import random
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError

from penstock.client.column_settings import ColumnSettings
from penstock.client.delivery import QUEUE_WAIT_S, STICKY_EVENTS, Deliveries, stuck_error
from penstock.client.errors import ClosedError, DeliveryError
from penstock.client.kafka_errors import BrokerError, explained
from penstock.clock import wall_ms
from penstock.columns.arrow_records import HEADERS_TYPE, ArrowArray
from penstock.columns.build_batches import UNSEALED, BuiltBatch, build_batches
from penstock.columns.compiled import Int64s
from penstock.columns.partitioner import Unkeyed
from penstock.errors import ErrorCode, Refused
from penstock.link.blocking import BlockingCluster
from penstock.link.offsets import partition_count
from penstock.link.operation import FAILURES, is_temporary
from penstock.link.send_batches import SentBatches, try_batches
from penstock.link.transactions import TransactionHandle, init_producer_id
from penstock.model import Offset, SequenceNumber, TopicPartition
from penstock.protocol.batch import HEADER_BYTES, read_header, seal, stamp
from penstock.serde.framed_column import FramedColumn, RowHeaders, record_headers

GROUP_BYTES: Final = 8 << 20  # keys and values that are sent together, about
RECORD_OVERHEAD_BYTES: Final = 70  # of a record beside key, value and headers, at most
_NEW_PRODUCER: Final = frozenset(
    {
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.unknown_producer_id,
    }
)


class _QueuedRows(NamedTuple):
    """Rows of one call."""

    records: pa.RecordBatch
    size_bytes: int
    deliveries: Deliveries
    first_row: int
    queued_s: float


class ColumnSender:
    """Sends rows of one topic. Safe for threads."""

    def __init__(self, bootstrap: str, topic: str, settings: ColumnSettings) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._settings = settings
        self._changed = threading.Condition()
        self._queue: deque[_QueuedRows] = deque()
        self._queued_bytes = 0  # of rows that are neither delivered nor failed
        self._rows = 0  # the same
        self._flushing = 0  # callers that wait: nothing lingers
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="send-columns", daemon=True)
        self._thread.start()

    def send(
        self,
        deliveries: Deliveries,
        values: FramedColumn,
        keys: FramedColumn | None,
        headers: RowHeaders,
        partitions: Sequence[int] | None,
    ) -> None:
        """Queue rows, as soon as there is room; none if one of them is too large."""
        records, sizes = self._records(values, keys, headers, partitions)
        if not len(sizes):
            return
        size_bytes, largest = int(sizes.sum()), int(sizes.argmax())
        if sizes[largest] > self._settings.framing.single_bytes_max - HEADER_BYTES:
            reason = f"event {deliveries.sent + largest} has {sizes[largest]} bytes"
            error = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, reason)
            raise BrokerError(error, f"sending to {self._topic}")
        with self._changed:
            self._wait_for_room(size_bytes)
            first_row = deliveries.add(len(sizes))
            self._queue.append(
                _QueuedRows(records, size_bytes, deliveries, first_row, time.monotonic())
            )
            self._queued_bytes += size_bytes
            self._rows += len(sizes)
            self._changed.notify_all()

    def _records(
        self,
        values: FramedColumn,
        keys: FramedColumn | None,
        headers: RowHeaders,
        partitions: Sequence[int] | None,
    ) -> tuple[pa.RecordBatch, Int64s]:
        """The rows with the same columns whatever was given, and their sizes."""
        rows = len(values.contents)
        own = record_headers(rows, headers, keys, values)
        value = values.contents.cast(pa.large_binary())
        key: ArrowArray = pa.nulls(rows, pa.large_binary())
        if keys is not None:
            key = keys.contents.cast(pa.large_binary())
        columns: dict[str, Any] = {
            "key": key,
            "value": value,
            "headers": pa.nulls(rows, HEADERS_TYPE) if own is None else own,
            "partition": pa.nulls(rows, pa.int64())
            if partitions is None
            else pa.array(partitions, pa.int64()),
        }
        records = pa.RecordBatch.from_pydict(columns)
        header_bytes = 0 if own is None else own.nbytes // max(1, rows)
        sizes = _lengths(key) + _lengths(value) + (RECORD_OVERHEAD_BYTES + header_bytes)
        return records, sizes

    def _wait_for_room(self, size_bytes: int) -> None:
        limit = self._settings.queue_bytes_max
        before, since_s = self._queued_bytes, time.monotonic()
        while (
            not self._is_closed and self._queued_bytes and self._queued_bytes + size_bytes > limit
        ):
            self._changed.wait(1.0)
            now_s = time.monotonic()
            if self._queued_bytes != before:
                before, since_s = self._queued_bytes, now_s
            elif now_s - since_s > QUEUE_WAIT_S:
                raise stuck_error(self._topic, self._bootstrap)
        if self._is_closed:
            raise ClosedError("the producer is closed")

    def flush(self, timeout_s: float) -> int:
        """Wait until all rows are delivered or failed; returns how many are not in time."""
        with self._changed:
            self._flushing += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._rows, timeout_s)
            self._flushing -= 1
            return self._rows

    def close(self, timeout_s: float) -> None:
        """Deliver what is queued, and stop."""
        left_s = time.monotonic() + timeout_s
        self.flush(timeout_s)
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(max(0.0, left_s - time.monotonic()))

    # On the thread.

    def _run(self) -> None:
        try:
            with BlockingCluster(self._bootstrap, self._settings.link) as cluster:
                batches = _BatchSender(self._topic, self._settings, cluster)
                while group := self._take():
                    batches.send(_Group(self._topic, group))
                    self._remove(group)
        finally:
            with self._changed:
                self._is_closed = True
                unsent = list(self._queue)
            for part in unsent:
                rows = _Group(self._topic, [part])
                rows.on_failed(np.arange(part.records.num_rows), ClosedError("closed before that"))
            self._remove(unsent)

    def _remove(self, group: Sequence[_QueuedRows]) -> None:
        with self._changed:
            self._queued_bytes -= sum(part.size_bytes for part in group)
            self._rows -= sum(part.records.num_rows for part in group)
            self._changed.notify_all()

    def _take(self) -> list[_QueuedRows]:
        """The rows to send next, after they lingered; empty when the sender is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._is_closed)
            while self._queue and self._lingers():
                until_s = self._queue[0].queued_s + self._settings.linger_s
                self._changed.wait(max(0.0, until_s - time.monotonic()))
            group: list[_QueuedRows] = []
            size_bytes = 0
            while self._queue and size_bytes < GROUP_BYTES and not self._is_closed:
                group.append(self._queue.popleft())
                size_bytes += group[-1].size_bytes
            return group

    def _lingers(self) -> bool:
        if self._flushing or self._is_closed:
            return False
        size_bytes = sum(part.size_bytes for part in self._queue)
        age_s = time.monotonic() - self._queue[0].queued_s
        return age_s < self._settings.linger_s and (
            size_bytes < self._settings.framing.batch_bytes_max
        )


class _Group:
    """Rows that are sent together, and which call each of them belongs to."""

    def __init__(self, topic: str, parts: Sequence[_QueuedRows]) -> None:
        self._topic = topic
        self._parts = parts
        sizes = [part.records.num_rows for part in parts]
        self._starts: Int64s = np.cumsum([0, *sizes[:-1]], dtype=np.int64)
        tables: Any = pa.Table.from_batches([part.records for part in parts]).combine_chunks()
        (self.records,) = tables.to_batches()

    def on_delivered(self, partition: TopicPartition, rows: Int64s, base_offset: Offset) -> None:
        """A batch with these rows was written."""
        for number, indexes in self._by_part(rows):
            last = None if base_offset < 0 else Offset(base_offset + int(indexes[-1]))
            self._parts[number].deliveries.on_delivered(partition, len(indexes), last)

    def on_failed(self, rows: Int64s, failure: Exception) -> None:
        """These rows were not written, or that is unknown."""
        for number, indexes in self._by_part(rows):
            part = self._parts[number]
            numbers = rows[indexes] - self._starts[number] + part.first_row
            errors = [_delivery_error(self._topic, failure, row) for row in numbers.tolist()]
            part.deliveries.on_failed(errors)

    def _by_part(self, rows: Int64s) -> list[tuple[int, Int64s]]:
        """The parts that have some of these rows, and the places of theirs among them."""
        if len(self._parts) == 1:
            return [(0, np.arange(len(rows)))]
        owners = np.searchsorted(self._starts, rows, side="right") - 1
        return [(number, np.flatnonzero(owners == number)) for number in np.unique(owners).tolist()]


class _Lane(NamedTuple):
    """What one partition still gets: batches in order, and the rows in them."""

    partition: TopicPartition
    batches: list[BuiltBatch]
    rows: Int64s

    def split(self, count: int) -> "tuple[_Lane, _Lane]":
        """The first batches, and the others."""
        middle = sum(batch.record_count for batch in self.batches[:count])
        return (
            _Lane(self.partition, self.batches[:count], self.rows[:middle]),
            _Lane(self.partition, self.batches[count:], self.rows[middle:]),
        )


class _BatchSender:
    """Builds and sends groups, one after the other, as one producer."""

    def __init__(self, topic: str, settings: ColumnSettings, cluster: BlockingCluster) -> None:
        self._topic = topic
        self._settings = settings
        self._cluster = cluster
        self._producer: TransactionHandle | None = None
        self._sequences: dict[TopicPartition, SequenceNumber] = {}
        self._unkeyed = random.randrange(1 << 20) * STICKY_EVENTS  # events without a key so far

    def send(self, group: _Group) -> None:
        """Until each row is delivered or failed."""
        try:
            lanes = self._lanes(group)
        except (*FAILURES, ValueError) as failure:
            group.on_failed(np.arange(group.records.num_rows), failure)
            return
        while lanes:
            try:
                sent = self._try(lanes)
            except FAILURES as failure:
                for lane in lanes:
                    group.on_failed(lane.rows, failure)
                return
            landed = [self._land(group, lane, sent[lane.partition]) for lane in lanes]
            lanes = [lane for lane in landed if lane.batches]

    def _lanes(self, group: _Group) -> list[_Lane]:
        settings = self._settings
        count = self._cluster.run(partition_count(self._topic))
        built = build_batches(
            self._with_partitions(group.records, count),
            partition_count=count,
            now=wall_ms(),
            unkeyed=Unkeyed.sticky(0),
            framing=settings.framing,
            stamp=UNSEALED,
        )
        return [
            _Lane(TopicPartition(self._topic, number), part.batches, part.rows)
            for number, part in built.items()
        ]

    def _with_partitions(self, records: pa.RecordBatch, count: int) -> pa.RecordBatch:
        """Rows without a key or a partition stay together for a while, as librdkafka's do."""
        keys, partitions = records.column("key"), records.column("partition")
        if not keys.null_count or not partitions.null_count:
            return records
        chosen = np.asarray(partitions.fill_null(-1)).copy()
        free = np.flatnonzero(np.asarray(keys.is_null()) & (chosen < 0))
        chosen[free] = (self._unkeyed + np.arange(len(free))) // STICKY_EVENTS % count
        self._unkeyed += len(free)
        column = pa.array(chosen, mask=chosen < 0)
        return records.set_column(records.schema.names.index("partition"), "partition", column)

    def _try(self, lanes: Sequence[_Lane]) -> dict[TopicPartition, SentBatches]:
        if self._settings.is_idempotent and self._producer is None:
            self._producer = self._cluster.run(init_producer_id())
            self._sequences = {}
        for lane in lanes:
            self._stamp(lane, self._producer)
        batches = {lane.partition: [batch.content for batch in lane.batches] for lane in lanes}
        return self._cluster.run(try_batches(batches, acks=self._settings.acks))

    def _stamp(self, lane: _Lane, producer: TransactionHandle | None) -> None:
        sequence = self._sequences.get(lane.partition, SequenceNumber(0))
        for batch in lane.batches:
            if producer is None:
                seal(batch.content)
            else:
                _, producer_id, epoch = producer
                sequence = stamp(batch.content, producer_id, epoch, sequence)
        self._sequences[lane.partition] = sequence

    def _land(self, group: _Group, lane: _Lane, sent: SentBatches) -> _Lane:
        """Report what is written or failed; what is to be sent again."""
        written, left = lane.split(len(sent.offsets))
        for offset in sent.offsets:
            batch, written = written.split(1)
            group.on_delivered(lane.partition, batch.rows, offset)
        if not left.batches:
            return left
        self._producer = None  # its sequence numbers behind this do not count
        if sent.failure is None or self._is_outdated(left, sent.failure):
            return left
        if is_temporary(sent.failure):
            group.on_failed(left.rows, sent.failure)
            return left.split(len(left.batches))[1]
        refused, left = left.split(1)
        group.on_failed(refused.rows, sent.failure)
        return left

    def _is_outdated(self, left: _Lane, failure: Exception) -> bool:
        """Whether the partition lost what it knew of this producer: a new one may write this."""
        return (
            isinstance(failure, Refused)
            and failure.code in _NEW_PRODUCER
            and read_header(left.batches[0].content).base_sequence > 0
        )


def _lengths(column: ArrowArray) -> Int64s:
    """The bytes of each row; 0 for a null."""
    large: Any = column
    lengths: Any = pc.binary_length(large)
    return np.asarray(lengths.fill_null(0), dtype=np.int64)


def _delivery_error(topic: str, failure: Exception, row: int) -> DeliveryError:
    if isinstance(failure, Refused):
        code, retriable = int(failure.code), failure.code.retriable
    elif isinstance(failure, OSError):
        code, retriable = KafkaError._MSG_TIMED_OUT, True  # noqa: SLF001 - librdkafka's own code
    else:
        return DeliveryError(topic, str(failure), retriable=False, row=row)
    message = explained(KafkaError(code, str(failure)))
    return DeliveryError(topic, message, retriable=retriable, row=row)
