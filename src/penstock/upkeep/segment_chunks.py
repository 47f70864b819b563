"""A closed segment as a row of stretches: some megabytes of whole batches, checked and opened.

Reads, never writes. Raises Malformed at the first batch that is not what it claims, with its
position in the file: nothing of a damaged segment is ever handed out after that place.
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

STRETCH_BYTES: Final = 4 << 20
BATCHES_MAX: Final = 16384
UNPACKED_BYTES_MAX: Final = 64 << 20  # of a stretch, over which it is cut at a batch
UNPACKED_BATCH_BYTES_MAX: Final = 256 << 20  # of one batch, over which it is a bomb
_LENGTH: Final = Struct(">i")
_NOTHING: Final = read_only(b"\0")  # a buffer to stand for "no batch is compressed"


class Stretch(NamedTuple):
    """Whole batches as they lie in the file, and their records where a kernel can walk them."""

    position: int  # in the file
    packed: Bytes
    unpacked: Bytes
    table: compaction_kernels.Table

    def slice(self, first: int, end: int) -> "Stretch":
        """The same bytes, fewer batches."""
        return self._replace(table=self.table[first:end])


def read_stretches(
    path: str, base_offset: Offset, *, first_offset: Offset = Offset(0)
) -> Iterator[Stretch]:
    """The segment from its first batch to its last.

    Batches that end before `first_offset` are left packed: whoever passes it does not open them.
    """
    table = np.zeros(BATCHES_MAX, dtype=compaction_kernels.BATCH)
    end_offset = int(base_offset)
    with open(path, "rb", buffering=0) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        position = 0
        wanted = STRETCH_BYTES
        while position < size_bytes:
            packed = read_only(
                os.pread(file.fileno(), min(wanted, size_bytes - position), position)
            )
            count, read_bytes, end_offset, rot = compaction_kernels.scan_batches(
                packed, end_offset, table
            )
            if rot:
                raise Malformed(compaction_kernels.REASONS[rot], position + read_bytes)
            if count == 0:
                wanted = _larger(packed, wanted, position, size_bytes)
                continue
            whole = Stretch(position, packed, _NOTHING, table[:count].copy())
            _check_sums(whole)
            yield from _opened(whole, first_offset)
            position += read_bytes
            wanted = STRETCH_BYTES


def _larger(packed: Bytes, wanted: int, position: int, size_bytes: int) -> int:
    """How much to read so that a batch larger than a stretch is whole."""
    if wanted >= size_bytes - position:
        raise Malformed("the last batch is cut short", position)
    (length,) = _LENGTH.unpack_from(packed.data, 8)
    return max(wanted, LOG_OVERHEAD_BYTES + int(length))


def _check_sums(stretch: Stretch) -> None:
    view = stretch.packed.data
    rows = stretch.table[["position", "size", "crc"]].tolist()
    for position, size, crc in rows:
        if crc32c(view[position + CRC_FROM : position + size]) != crc:
            raise Malformed(
                "the batch's checksum does not match its bytes", stretch.position + position
            )


def _opened(stretch: Stretch, first_offset: Offset) -> Iterator[Stretch]:
    """The stretch with its compressed batches opened, cut where that grows too large."""
    table = stretch.table
    end_offsets = table["base_offset"] + table["last_offset_delta"] + 1
    codecs = table["attributes"] & CODEC_MASK
    is_packed = (codecs != 0) & (table["record_count"] > 0) & (end_offsets > first_offset)
    first = filled = 0
    parts: list[memoryview] = []
    for index in np.flatnonzero(is_packed).tolist():
        if filled > UNPACKED_BYTES_MAX:
            yield _with_unpacked(stretch.slice(first, index), parts)
            first, filled, parts = index, 0, []
        batch = table[index]
        records = _open_batch(stretch, batch, int(codecs[index]))
        batch["is_unpacked"] = 1
        batch["records_at"] = filled
        filled += len(records)
        batch["records_end"] = filled
        parts.append(records)
    yield _with_unpacked(stretch.slice(first, len(table)), parts)


def _open_batch(stretch: Stretch, batch: compaction_kernels.Table, codec: int) -> memoryview:
    position = int(batch["position"])
    packed = stretch.packed.data[position + HEADER_BYTES : position + int(batch["size"])]
    try:
        return memoryview(decompress(codec, packed, max_bytes=UNPACKED_BATCH_BYTES_MAX))
    except Malformed as error:
        raise Malformed(error.reason, stretch.position + position) from error


def _with_unpacked(stretch: Stretch, parts: list[memoryview]) -> Stretch:
    table = stretch.table
    section_bytes = table["records_end"] - table["records_at"]
    short = np.flatnonzero(
        section_bytes < table["record_count"] * compaction_kernels.RECORD_BYTES_MIN
    )
    still_packed = (table["attributes"] & CODEC_MASK != 0) & (table["is_unpacked"] == 0)
    short = short[~still_packed[short]]
    if len(short):
        position = stretch.position + int(table[short[0]]["position"])
        raise Malformed(compaction_kernels.REASONS[compaction_kernels.BAD_COUNT], position)
    return stretch._replace(unpacked=read_only(b"".join(parts))) if parts else stretch
