"""Compiled loops that write the records of v2 batches (drawn in `read_kernels`).

`measure_batch` says how many rows fit and how many bytes they take; `write_records` then writes
just those bytes. Both take a record's size from `body_bytes`, so they cannot disagree.
"""

from typing import Final, NamedTuple

import numpy as np

from penstock.columns.compiled import (
    Bytes,
    ConstBools,
    ConstBytes,
    ConstInt64s,
    Int64s,
    copy_bytes,
    inlined,
    kernel,
)

RECORD_BYTES_MAX: Final = 2**31 - 1 - 5  # its length is a 32-bit number in front of it


class BytesLayout(NamedTuple):
    """A nullable column of bytes: row i is content[ends[i]:ends[i + 1]]."""

    ends: ConstInt64s  # one more than rows; the first is where row 0 starts
    content: ConstBytes
    valid: ConstBools  # empty: no row is null


class RowsLayout(NamedTuple):
    """All that is written of the rows. Headers are flat: list_ends says whose they are."""

    keys: BytesLayout
    values: BytesLayout
    timestamps: ConstInt64s
    list_ends: ConstInt64s  # empty: no row has headers
    header_keys: BytesLayout
    header_values: BytesLayout


class BatchesLayout(NamedTuple):
    """Batches in one target: a partition's in order, and next to each other."""

    counts: Int64s  # of records
    base_timestamps: Int64s
    positions: Int64s  # where the next record of each goes
    written: Int64s  # records so far


@inlined
def varint_bytes(value: int) -> int:
    """How many bytes a number takes as a zigzag varint."""
    rest = np.uint64((value << 1) ^ (value >> 63))
    size = 1
    while rest >= np.uint64(0x80):
        rest >>= np.uint64(7)
        size += 1
    return size


@inlined
def write_varint(target: Bytes, position: int, value: int) -> int:
    """Write a zigzag varint of up to 64 bits; the position after it."""
    rest = np.uint64((value << 1) ^ (value >> 63))
    while rest >= np.uint64(0x80):
        target[position] = np.uint8(rest & np.uint64(0x7F) | np.uint64(0x80))
        rest >>= np.uint64(7)
        position += 1
    target[position] = np.uint8(rest)
    return position + 1


@inlined
def sized_bytes(column: BytesLayout, row: int) -> int:
    """What a row takes with its size in front."""
    if column.valid.shape[0] and not column.valid[row]:
        return 1
    size: int = column.ends[row + 1] - column.ends[row]
    return varint_bytes(size) + size


@inlined
def write_sized(target: Bytes, position: int, column: BytesLayout, row: int) -> int:
    """Write a row with its size in front; the position after it."""
    if column.valid.shape[0] and not column.valid[row]:
        return write_varint(target, position, -1)
    start: int = column.ends[row]
    size: int = column.ends[row + 1] - start
    position = write_varint(target, position, size)
    copy_bytes(target, position, column.content, start, size)
    return position + size


@inlined
def header_span(rows: RowsLayout, row: int) -> tuple[int, int]:
    """The first and the end of a row's headers."""
    if rows.list_ends.shape[0] == 0:
        return 0, 0
    return rows.list_ends[row], rows.list_ends[row + 1]


@inlined
def body_bytes(rows: RowsLayout, row: int, timestamp_delta: int, offset_delta: int) -> int:
    """What a record takes without the length in front of it."""
    first, end = header_span(rows, row)
    size = 1 + varint_bytes(timestamp_delta) + varint_bytes(offset_delta)
    size += sized_bytes(rows.keys, row) + sized_bytes(rows.values, row) + varint_bytes(end - first)
    for header in range(first, end):
        size += sized_bytes(rows.header_keys, header) + sized_bytes(rows.header_values, header)
    return size


@kernel
def measure_batch(
    rows: RowsLayout, order: Int64s, start: int, bytes_max: int, records_max: int
) -> tuple[int, int, int]:
    """How far in `order` one batch reaches from `start`, its records' bytes, its latest timestamp.

    A batch of no rows, with the bytes it would take: the first record alone is too large.
    """
    base_timestamp = rows.timestamps[order[start]]
    max_timestamp = base_timestamp
    total = 0
    index = start
    while index < order.shape[0] and index - start < records_max:
        timestamp = rows.timestamps[order[index]]
        body = body_bytes(rows, order[index], timestamp - base_timestamp, index - start)
        size = varint_bytes(body) + body
        if total + size > bytes_max:
            return index, total or size, max_timestamp
        total += size
        max_timestamp = max(max_timestamp, timestamp)
        index += 1
    return index, total, max_timestamp


@inlined
def write_record(
    target: Bytes,
    position: int,
    rows: RowsLayout,
    row: int,
    timestamp_delta: int,
    offset_delta: int,
) -> int:
    """Write one record; the position after it."""
    position = write_varint(target, position, body_bytes(rows, row, timestamp_delta, offset_delta))
    target[position] = 0  # attributes: none are defined
    position = write_varint(target, position + 1, timestamp_delta)
    position = write_varint(target, position, offset_delta)
    position = write_sized(target, position, rows.keys, row)
    position = write_sized(target, position, rows.values, row)
    first_header, end_header = header_span(rows, row)
    position = write_varint(target, position, end_header - first_header)
    for header in range(first_header, end_header):
        position = write_sized(target, position, rows.header_keys, header)
        position = write_sized(target, position, rows.header_values, header)
    return position


@kernel
def write_records(
    rows: RowsLayout, partitions: Int64s, current: Int64s, batches: BatchesLayout, target: Bytes
) -> None:
    """Write all records, each behind the last one of its batch; `current` is each partition's.

    Row by row as they lie: to go through them partition by partition takes three times as long,
    since a processor fetches memory ahead only for who reads it in order.
    """
    for row in range(partitions.shape[0]):
        partition = partitions[row]
        batch = current[partition]
        if batches.written[batch] == batches.counts[batch]:
            batch += 1
            current[partition] = batch
        timestamp_delta = rows.timestamps[row] - batches.base_timestamps[batch]
        batches.positions[batch] = write_record(
            target, batches.positions[batch], rows, row, timestamp_delta, batches.written[batch]
        )
        batches.written[batch] += 1


@kernel
def group_rows(partitions: Int64s, ends: Int64s, order: Int64s) -> None:
    """Order the rows by partition, keeping their order within each.

    `ends` comes in as zeros, one more than partitions; partition p gets order[ends[p]:ends[p + 1]].
    """
    for row in range(partitions.shape[0]):
        ends[partitions[row] + 1] += 1
    for partition in range(1, ends.shape[0]):
        ends[partition] += ends[partition - 1]
    for row in range(partitions.shape[0]):
        partition = partitions[row]
        order[ends[partition]] = row
        ends[partition] += 1
    for partition in range(ends.shape[0] - 1, 0, -1):
        ends[partition] = ends[partition - 1]
    ends[0] = 0
