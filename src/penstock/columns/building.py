"""Arrow columns -> record batches ready to produce, a list for each Kafka partition.

Rows keep their order within a partition. A batch is cut before the row that would make it too
large uncompressed, as Kafka's producer does it; a row too large by itself is refused by number.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.columns import write_kernels as kernels
from penstock.columns.arrow_rows import chosen_partitions, rows_layout
from penstock.columns.compiled import Bytes, Int64s
from penstock.columns.partitioner import Unkeyed, assign_partitions
from penstock.columns.write_kernels import RowsLayout
from penstock.errors import ErrorCode, Refused
from penstock.model import (
    NO_EPOCH,
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    Millis,
    ProducerEpoch,
    ProducerId,
    Sequence,
)
from penstock.protocol.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    seal,
    write_header,
)
from penstock.protocol.codecs import Codec, compress

SEQUENCE_MASK: Final = 2**31 - 1  # sequences count from 0 again after it


@dataclass(frozen=True, slots=True)
class Framing:
    """How batches are cut and packed."""

    codec: Codec = Codec.NONE
    level: int | None = None  # None: the codec's own
    batch_bytes_max: int = (
        1_000_000  # uncompressed, header and all; brokers take 1 048 588 at first
    )
    batch_records_max: int = SEQUENCE_MASK

    def __post_init__(self) -> None:
        assert HEADER_BYTES < self.batch_bytes_max <= kernels.RECORD_BYTES_MAX
        assert 0 < self.batch_records_max <= SEQUENCE_MASK


@dataclass(frozen=True, slots=True)
class Stamp:
    """Whose batches they are. `sequences` has the next sequence of each partition, 0 if absent.

    Not final: the producer is written in by somebody else, who seals the batches then.
    """

    producer_id: ProducerId = NO_PRODUCER
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    transactional: bool = False
    sequences: Mapping[int, Sequence] = field(default_factory=dict)
    is_final: bool = True


class BuiltBatch(NamedTuple):
    """One batch as it goes into a produce request."""

    content: memoryview
    record_count: int


class PartitionBatches(NamedTuple):
    """What one partition gets: batches in order, and the input rows they hold in that order."""

    batches: list[BuiltBatch]
    rows: Int64s
    end_sequence: Sequence  # the next batch's; -1 without a producer


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
    return {
        partition: _build_partition(
            rows, order[ends[partition] : ends[partition + 1]], partition, framing, stamp
        )
        for partition in np.flatnonzero(np.diff(ends)).tolist()
    }


def _build_partition(
    rows: RowsLayout, order: Int64s, partition: int, framing: Framing, stamp: Stamp
) -> PartitionBatches:
    sequence = NO_SEQUENCE
    if stamp.producer_id != NO_PRODUCER:
        sequence = stamp.sequences.get(partition, Sequence(0))
    batches = []
    start = 0
    while start < len(order):
        end, size, max_timestamp = kernels.measure_batch(
            rows, order, start, framing.batch_bytes_max - HEADER_BYTES, framing.batch_records_max
        )
        if end == start:
            raise Refused(
                ErrorCode.message_too_large,
                f"row {order[start]} makes a batch of {size + HEADER_BYTES} bytes,"
                f" {framing.batch_bytes_max} are allowed",
            )
        target = np.empty(HEADER_BYTES + size, dtype=np.uint8)
        written = kernels.write_batch(rows, order, start, end, target, HEADER_BYTES)
        assert written == len(target), "measured and written sizes differ"
        header = BatchHeader(
            base_offset=0,
            length=len(target) - LOG_OVERHEAD_BYTES,
            leader_epoch=NO_EPOCH,
            magic=MAGIC,
            crc=0,
            attributes=framing.codec | (TRANSACTIONAL if stamp.transactional else 0),
            last_offset_delta=end - start - 1,
            base_timestamp=int(rows.timestamps[order[start]]),
            max_timestamp=max_timestamp,
            producer_id=stamp.producer_id,
            producer_epoch=stamp.producer_epoch,
            base_sequence=sequence,
            record_count=end - start,
        )
        content = _packed(target, header, framing)
        if stamp.is_final:
            seal(content)
        batches.append(BuiltBatch(content, end - start))
        if sequence != NO_SEQUENCE:
            sequence = Sequence((sequence + end - start) & SEQUENCE_MASK)
        start = end
    return PartitionBatches(batches, order, sequence)


def _packed(target: Bytes, header: BatchHeader, framing: Framing) -> memoryview:
    """The batch, compressed if so wanted, with its header."""
    content = target.data
    if framing.codec != Codec.NONE:
        packed = compress(framing.codec, content[HEADER_BYTES:], framing.level)
        content = memoryview(bytearray(HEADER_BYTES + len(packed)))
        content[HEADER_BYTES:] = packed
        header = header._replace(length=len(content) - LOG_OVERHEAD_BYTES)
    write_header(content, 0, header)
    return content
