"""Arrow columns -> record batches ready to produce, a list for each Kafka partition.

Rows keep their order within a partition. A batch is cut before the row that would make it too
large uncompressed, as Kafka's producer does it; a row too large by itself is refused by number.

Arrow columns as the arrays that the write kernels take: without a copy of any key or value.

Expects the columns `value` and, if wanted, `key`, `headers`, `timestamp`, `partition`; `offset` is
allowed and means nothing to a writer, so what was opened can be written elsewhere as it is. What a
column holds must fit what Kafka can say: otherwise ValueError, with the column's name.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns import record_kernels_write as kernels
from penstock.columns.arrow_records import ArrowArray
from penstock.columns.compiled import Bools, Int64s
from penstock.columns.partitioner import Unkeyed, assign_partitions
from penstock.columns.record_kernels_write import BatchesLayout, BytesLayout, RowsLayout
from penstock.errors import ErrorCode, Refused
from penstock.model import (
    NO_EPOCH,
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Millis,
    ProducerEpoch,
    ProducerId,
    SequenceNumber,
)
from penstock.protocol.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    SEQUENCE_MASK,
    TRANSACTIONAL,
    BatchHeader,
    seal,
    write_header,
)
from penstock.protocol.compression import Codec, compress

COLUMN_NAMES: Final = frozenset({"key", "value", "headers", "timestamp", "partition", "offset"})


def _fixed(array: Any, kind: type[np.generic]) -> Any:
    """A read-only array, of the one type that the kernels are compiled for."""
    view = np.ascontiguousarray(array, dtype=kind).view()
    view.flags.writeable = False
    return view


_NO_BOOLS: Final[Bools] = _fixed((), np.bool_)
_NO_INTS: Final[Int64s] = _fixed((), np.int64)
_NO_BYTES: Final = _fixed((), np.uint8)
_NO_COLUMN: Final = BytesLayout(_NO_INTS, _NO_BYTES, _NO_BOOLS)


def rows_layout(records: pa.RecordBatch, now: Millis) -> RowsLayout:
    """The rows as the kernels take them. A row without a timestamp gets `now`."""
    names = set(records.schema.names)
    if "value" not in names or not names <= COLUMN_NAMES or len(names) != records.num_columns:
        raise ValueError(f"expected value and some of {sorted(COLUMN_NAMES)}, not {sorted(names)}")
    keys = bytes_layout("key", records.column("key")) if "key" in names else _all_null(len(records))
    values = bytes_layout("value", records.column("value"))
    timestamps = _timestamps(records, now)
    if "headers" not in names:
        return RowsLayout(keys, values, timestamps, _NO_INTS, _NO_COLUMN, _NO_COLUMN)
    return RowsLayout(keys, values, timestamps, *_headers(records.column("headers")))


def bytes_layout(name: str, column: ArrowArray) -> BytesLayout:
    """Any of Arrow's binary or text types."""
    if pa.types.is_null(column.type):
        return _all_null(len(column))
    try:
        wide = column.cast(pa.large_binary())
    except pa.ArrowException as error:
        raise ValueError(f"column {name} is {column.type}, not binary or text") from error
    _, ends, content = wide.buffers()
    if ends is None or len(wide) == 0:
        return BytesLayout(_fixed((0,), np.int64), _NO_BYTES, _NO_BOOLS)
    rows = slice(wide.offset, wide.offset + len(wide) + 1)
    return BytesLayout(
        ends=_fixed(np.frombuffer(memoryview(ends), dtype=np.int64)[rows], np.int64),
        content=_NO_BYTES
        if content is None
        else _fixed(np.frombuffer(memoryview(content), np.uint8), np.uint8),
        valid=_valid(wide),
    )


def chosen_partitions(records: pa.RecordBatch) -> Int64s | None:
    """The column `partition`, -1 where it is null; None without one."""
    if "partition" not in records.schema.names:
        return None
    column = records.column("partition")
    if not pa.types.is_integer(column.type):
        raise ValueError(f"column partition is {column.type}, not a whole number")
    if column.null_count < len(column) and pc.min(column).as_py() < 0:
        raise ValueError("column partition holds a number below zero")
    return np.asarray(column.cast(pa.int64()).fill_null(-1))


def _all_null(rows: int) -> BytesLayout:
    ends = _fixed(np.zeros(rows + 1), np.int64)
    return BytesLayout(ends, _NO_BYTES, _fixed(np.zeros(rows), np.bool_))


def _valid(column: ArrowArray) -> Bools:
    if column.null_count == 0:
        return _NO_BOOLS
    valid: Bools = _fixed(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    return valid


def _timestamps(records: pa.RecordBatch, now: Millis) -> Int64s:
    if "timestamp" not in records.schema.names:
        constant: Int64s = _fixed(np.full(len(records), now), np.int64)
        return constant
    column = records.column("timestamp")
    if pa.types.is_timestamp(column.type):
        zone = column.type.tz
        column = column.cast(pa.timestamp("ms", tz=zone), safe=False)
    elif not pa.types.is_integer(column.type):
        raise ValueError(f"column timestamp is {column.type}, not a timestamp or milliseconds")
    times: Int64s = _fixed(column.cast(pa.int64()).fill_null(now), np.int64)
    if len(times) and times.min() < NO_TIMESTAMP:
        raise ValueError("column timestamp holds a time before 1970")
    return times


def _headers(column: ArrowArray) -> tuple[Int64s, BytesLayout, BytesLayout]:
    """A list of pairs (key: text, value: binary) per row; a null list is an empty one."""
    kind = column.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not (is_list and pa.types.is_struct(kind.value_type) and kind.value_type.num_fields == 2):
        raise ValueError(f"column headers is {kind}, not a list of (key, value)")
    counts = np.asarray(pc.list_value_length(column).fill_null(0), dtype=np.int64)
    pairs: Any = pc.list_flatten(column)
    names, values = pairs.flatten()
    if names.null_count:
        raise ValueError("column headers has a header without a name")
    ends = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts)))
    return (
        _fixed(ends, np.int64),
        bytes_layout("headers.key", names),
        bytes_layout("headers.value", values),
    )


@dataclass(frozen=True, slots=True)
class Framing:
    """How batches are cut and packed."""

    codec: Codec = Codec.NONE
    level: int | None = None  # None: the codec's own
    batch_bytes_max: int = (
        1_000_000  # uncompressed, header and all; brokers take 1 048 588 at first
    )
    batch_records_max: int = SEQUENCE_MASK
    single_bytes_max: int = 0  # of a batch with one record that is too large for any other

    def __post_init__(self) -> None:
        assert HEADER_BYTES < self.batch_bytes_max <= kernels.RECORD_BYTES_MAX
        assert 0 < self.batch_records_max <= SEQUENCE_MASK


@dataclass(frozen=True, slots=True)
class Stamp:
    """Whose batches they are. `sequences` has the next sequence of each partition, 0 if absent.

    Not final: the caller writes the producer into the batches, and seals them then.
    """

    producer_id: ProducerId = NO_PRODUCER
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    transactional: bool = False
    sequences: Mapping[int, SequenceNumber] = field(default_factory=dict)
    is_final: bool = True


class BuiltBatch(NamedTuple):
    """One batch as it goes into a produce request."""

    content: memoryview
    record_count: int


class PartitionBatches(NamedTuple):
    """What one partition gets: batches in order, and the input rows they hold in that order."""

    batches: list[BuiltBatch]
    rows: Int64s
    end_sequence: SequenceNumber  # the next batch's; -1 without a producer


ANONYMOUS: Final = Stamp()
UNSEALED: Final = Stamp(is_final=False)  # to be stamped later: the checksum would be for nothing
USUAL_FRAMING: Final = Framing()


def build_batches(
    records: pa.RecordBatch,
    *,
    partition_count: int,
    now: Millis,
    unkeyed: Unkeyed,
    framing: Framing = USUAL_FRAMING,
    stamp: Stamp = ANONYMOUS,
) -> dict[int, PartitionBatches]:
    """The batches of each partition that gets any.

    Columns are those of `arrow_rows`. A row goes where its `partition` says, else by its key, else
    as `unkeyed` says; a row without a timestamp gets `now`.
    """
    rows = rows_layout(records, now)
    partitions = assign_partitions(rows.keys, partition_count, unkeyed, chosen_partitions(records))
    order = np.empty(len(partitions), dtype=np.int64)
    ends = np.zeros(partition_count + 1, dtype=np.int64)
    kernels.group_rows(partitions, ends, order)
    taken = {
        partition: order[ends[partition] : ends[partition + 1]]
        for partition in np.flatnonzero(np.diff(ends)).tolist()
    }
    cuts = {partition: list(_cut(rows, some, framing)) for partition, some in taken.items()}
    contents = _write(rows, partitions, partition_count, cuts)
    built = {}
    for partition, some in taken.items():
        batches, end_sequence = _headed(cuts[partition], contents, framing, stamp, partition)
        built[partition] = PartitionBatches(batches, some, end_sequence)
    return built


class _Cut(NamedTuple):
    """What goes into one batch."""

    record_count: int
    size_bytes: int  # header and all
    base_timestamp: int
    max_timestamp: int


def _cut(rows: RowsLayout, order: Int64s, framing: Framing) -> Iterator[_Cut]:
    """One partition's batches, each as large as it may be."""
    start = 0
    while start < len(order):
        end, size, max_timestamp = kernels.measure_batch(
            rows, order, start, framing.batch_bytes_max - HEADER_BYTES, framing.batch_records_max
        )
        if end == start:
            single_max = framing.single_bytes_max - HEADER_BYTES
            end, size, max_timestamp = kernels.measure_batch(rows, order, start, single_max, 1)
        if end == start:
            raise Refused(
                ErrorCode.message_too_large,
                f"row {order[start]} makes a batch of {size + HEADER_BYTES} bytes,"
                f" {max(framing.batch_bytes_max, framing.single_bytes_max)} are allowed",
            )
        base_timestamp = int(rows.timestamps[order[start]])
        yield _Cut(end - start, HEADER_BYTES + size, base_timestamp, max_timestamp)
        start = end


def _write(
    rows: RowsLayout, partitions: Int64s, partition_count: int, cuts: Mapping[int, list[_Cut]]
) -> Iterator[memoryview]:
    """The batches one after the other, with room for their headers; all are views of one memory."""
    current = np.zeros(partition_count, dtype=np.int64)
    in_order: list[_Cut] = []
    for partition, some in cuts.items():
        current[partition] = len(in_order)
        in_order += some
    ends = np.cumsum([0, *(cut.size_bytes for cut in in_order)])
    target = np.empty(ends[-1], dtype=np.uint8)
    batches = BatchesLayout(
        counts=np.array([cut.record_count for cut in in_order], dtype=np.int64),
        base_timestamps=np.array([cut.base_timestamp for cut in in_order], dtype=np.int64),
        positions=ends[:-1] + HEADER_BYTES,
        written=np.zeros(len(in_order), dtype=np.int64),
    )
    kernels.write_records(rows, partitions, current, batches, target)
    assert (batches.positions == ends[1:]).all(), "measured and written sizes differ"
    return (target.data[start:end] for start, end in pairwise(ends.tolist()))


def _headed(
    cuts: list[_Cut], contents: Iterator[memoryview], framing: Framing, stamp: Stamp, partition: int
) -> tuple[list[BuiltBatch], SequenceNumber]:
    """One partition's batches, the next of `contents`, and the sequence after them."""
    sequence = NO_SEQUENCE
    if stamp.producer_id != NO_PRODUCER:
        sequence = stamp.sequences.get(partition, SequenceNumber(0))
    batches = []
    for cut in cuts:
        header = BatchHeader(
            base_offset=0,
            length=cut.size_bytes - LOG_OVERHEAD_BYTES,
            leader_epoch=NO_EPOCH,
            magic=MAGIC,
            crc=0,
            attributes=framing.codec | (TRANSACTIONAL if stamp.transactional else 0),
            last_offset_delta=cut.record_count - 1,
            base_timestamp=cut.base_timestamp,
            max_timestamp=cut.max_timestamp,
            producer_id=stamp.producer_id,
            producer_epoch=stamp.producer_epoch,
            base_sequence=sequence,
            record_count=cut.record_count,
        )
        packed = _packed(next(contents), header, framing)
        if stamp.is_final:
            seal(packed)
        batches.append(BuiltBatch(packed, cut.record_count))
        if sequence != NO_SEQUENCE:
            sequence = SequenceNumber((sequence + cut.record_count) & SEQUENCE_MASK)
    return batches, sequence


def _packed(content: memoryview, header: BatchHeader, framing: Framing) -> memoryview:
    """The batch, compressed if so wanted, with its header."""
    if framing.codec != Codec.NONE:
        packed = compress(framing.codec, content[HEADER_BYTES:], framing.level)
        content = memoryview(bytearray(HEADER_BYTES + len(packed)))
        content[HEADER_BYTES:] = packed
        header = header._replace(length=len(content) - LOG_OVERHEAD_BYTES)
    write_header(content, 0, header)
    return content
