"""A closed segment as a sequence of chunks: some megabytes of whole batches, checked and opened.

Reads, never writes. Raises Malformed at the first batch that is not valid, with its position in the
file, and returns nothing after it.
"""

import os
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

import numpy as np
from crc32c import crc32c

from penstock.columns import compaction_kernels
from penstock.columns.compiled import Bytes, read_only
from penstock.errors import Malformed
from penstock.model import Offset
from penstock.protocol.batch import CODEC_MASK, CRC_FROM, HEADER_BYTES, LOG_OVERHEAD_BYTES
from penstock.protocol.compression import decompress

CHUNK_BYTES: Final = 4 << 20
BATCHES_MAX: Final = 16384
UNPACKED_BYTES_MAX: Final = 64 << 20  # of a chunk; then it is divided
UNPACKED_BATCH_BYTES_MAX: Final = 256 << 20  # of one batch; a larger one is malformed
_LENGTH: Final = Struct(">i")
_NOTHING: Final = read_only(b"\0")  # when no batch is compressed


class SegmentChunk(NamedTuple):
    """Whole batches as they are in the file, and their records, decompressed."""

    position: int  # in the file
    packed: Bytes
    unpacked: Bytes
    table: compaction_kernels.Table

    def slice(self, first: int, end: int) -> "SegmentChunk":
        """The same bytes, fewer batches."""
        return self._replace(table=self.table[first:end])


def read_chunks(
    path: str, base_offset: Offset, *, first_offset: Offset = Offset(0)
) -> Iterator[SegmentChunk]:
    """The segment from its first batch to its last.

    Batches that end before `first_offset` are not decompressed.
    """
    table = np.zeros(BATCHES_MAX, dtype=compaction_kernels.BATCH)
    end_offset = int(base_offset)
    with open(path, "rb", buffering=0) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        position = 0
        chunk_bytes = CHUNK_BYTES
        while position < size_bytes:
            packed = read_only(
                os.pread(file.fileno(), min(chunk_bytes, size_bytes - position), position)
            )
            count, read_bytes, end_offset, problem = compaction_kernels.scan_batches(
                packed, end_offset, table
            )
            if problem:
                raise Malformed(compaction_kernels.REASONS[problem], position + read_bytes)
            if count == 0:
                chunk_bytes = _larger(packed, chunk_bytes, position, size_bytes)
                continue
            whole = SegmentChunk(position, packed, _NOTHING, table[:count].copy())
            _check_sums(whole)
            yield from _opened(whole, first_offset)
            position += read_bytes
            chunk_bytes = CHUNK_BYTES


def _larger(packed: Bytes, chunk_bytes: int, position: int, size_bytes: int) -> int:
    """How much to read so that a batch that is larger than a chunk is complete."""
    if chunk_bytes >= size_bytes - position:
        raise Malformed("the last batch is incomplete", position)
    (length,) = _LENGTH.unpack_from(packed.data, 8)
    return max(chunk_bytes, LOG_OVERHEAD_BYTES + int(length))


def _check_sums(chunk: SegmentChunk) -> None:
    view = chunk.packed.data
    rows = chunk.table[["position", "size", "crc"]].tolist()
    for position, size, crc in rows:
        if crc32c(view[position + CRC_FROM : position + size]) != crc:
            raise Malformed(
                "the batch's checksum does not match its bytes", chunk.position + position
            )


def _opened(chunk: SegmentChunk, first_offset: Offset) -> Iterator[SegmentChunk]:
    """The chunk with its batches decompressed, divided where that gets too large."""
    table = chunk.table
    end_offsets = table["base_offset"] + table["last_offset_delta"] + 1
    codecs = table["attributes"] & CODEC_MASK
    is_packed = (codecs != 0) & (table["record_count"] > 0) & (end_offsets > first_offset)
    first = filled = 0
    sections: list[memoryview] = []
    for index in np.flatnonzero(is_packed).tolist():
        if filled > UNPACKED_BYTES_MAX:
            yield _with_unpacked(chunk.slice(first, index), sections)
            first, filled, sections = index, 0, []
        batch = table[index]
        records = _open_batch(chunk, batch, int(codecs[index]))
        batch["is_unpacked"] = 1
        batch["records_at"] = filled
        filled += len(records)
        batch["records_end"] = filled
        sections.append(records)
    yield _with_unpacked(chunk.slice(first, len(table)), sections)


def _open_batch(chunk: SegmentChunk, batch: compaction_kernels.Table, codec: int) -> memoryview:
    position = int(batch["position"])
    packed = chunk.packed.data[position + HEADER_BYTES : position + int(batch["size"])]
    try:
        return memoryview(decompress(codec, packed, max_bytes=UNPACKED_BATCH_BYTES_MAX))
    except Malformed as error:
        raise Malformed(error.reason, chunk.position + position) from error


def _with_unpacked(chunk: SegmentChunk, sections: list[memoryview]) -> SegmentChunk:
    table = chunk.table
    section_bytes = table["records_end"] - table["records_at"]
    short = np.flatnonzero(
        section_bytes < table["record_count"] * compaction_kernels.RECORD_BYTES_MIN
    )
    still_packed = (table["attributes"] & CODEC_MASK != 0) & (table["is_unpacked"] == 0)
    short = short[~still_packed[short]]
    if len(short):
        position = chunk.position + int(table[short[0]]["position"])
        raise Malformed(compaction_kernels.REASONS[compaction_kernels.BAD_COUNT], position)
    return chunk._replace(unpacked=read_only(b"".join(sections))) if sections else chunk
