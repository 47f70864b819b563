"""Decodes produced batches of topics that check keys or timestamps.

Small batches are decoded in Python, one object per record; large ones by compiled kernels. Loading
the kernels takes a second and some hundred megabytes, so a broker that never receives a large batch
of such a topic never loads them. Called in threads.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from penstock.broker.admission import RecordFacts
from penstock.log.time_lookup import find_one_by_one
from penstock.model import Millis, Offset
from penstock.protocol import batch as v2
from penstock.protocol.batch import read_header
from penstock.protocol.compression import compress, decompress
from penstock.protocol.records import OPENED_BYTES_MAX, read_records


class PlainInspector:
    """Decodes each record in Python."""

    def find_time(
        self, batch: memoryview, timestamp: Millis, start_offset: Offset, end_offset: Offset
    ) -> tuple[Offset, Millis] | None:
        """The first record in [start_offset, end_offset) of that time or later."""
        return find_one_by_one(batch, timestamp, start_offset, end_offset)

    def inspect(
        self,
        batch: bytearray,
        *,
        earliest: Millis | None,
        latest: Millis | None,
        opened_bytes_max: int,
    ) -> RecordFacts:
        """Which records have no key, and whose timestamps are outside the bounds."""
        records = read_records(batch, max_bytes=opened_bytes_max)
        return RecordFacts(
            unkeyed=[index for index, record in enumerate(records) if record.key is None],
            out_of_range=[
                index
                for index, record in enumerate(records)
                if (earliest is not None and record.timestamp < earliest)
                or (latest is not None and record.timestamp > latest)
            ],
        )

    def recompress(
        self, batch: bytearray, codec: int, level: int | None, *, opened_bytes_max: int
    ) -> bytearray:
        """The same batch in another codec, with its checksum."""
        header = v2.read_header(batch)
        packed = memoryview(batch)[v2.HEADER_BYTES : header.size_bytes]
        raw = decompress(header.codec, packed, max_bytes=opened_bytes_max)
        repacked = compress(codec, raw, level)
        changed = bytearray(v2.HEADER_BYTES)
        v2.write_header(
            changed,
            0,
            header._replace(
                length=v2.HEADER_BYTES - v2.LOG_OVERHEAD_BYTES + len(repacked),
                attributes=header.attributes & ~v2.CODEC_MASK | codec,
            ),
        )
        changed += repacked
        v2.seal(changed)
        return changed


VECTOR_RECORDS_LEAST: Final = 200  # below, a Python loop takes less than a millisecond
TIME_VECTOR_RECORDS_LEAST: Final = 50_000  # a lookup by time is rare, and may take 0.1 s


class Inspector(PlainInspector):
    """Implements `broker.admission.RecordInspector`."""

    def find_time(
        self, batch: memoryview, timestamp: Millis, start_offset: Offset, end_offset: Offset
    ) -> tuple[Offset, Millis] | None:
        """The first record in [start_offset, end_offset) of that time or later."""
        if read_header(batch).record_count < TIME_VECTOR_RECORDS_LEAST:
            return super().find_time(batch, timestamp, start_offset, end_offset)
        open_batches = _opening()
        columns = open_batches.open_batches(
            batch,
            start_offset=start_offset,
            end_offset=end_offset,
            parts=open_batches.RecordParts(keys=False, values=False, headers=False),
            limits=open_batches.PageLimits(batch_bytes_max=OPENED_BYTES_MAX),
        )
        late_enough = columns.timestamps >= timestamp
        if not late_enough.any():
            return None
        row = int(late_enough.argmax())
        return Offset(int(columns.offsets[row])), Millis(int(columns.timestamps[row]))

    def inspect(
        self,
        batch: bytearray,
        *,
        earliest: Millis | None,
        latest: Millis | None,
        opened_bytes_max: int,
    ) -> RecordFacts:
        """Which records have no key, and whose timestamps are outside the bounds."""
        if read_header(batch).record_count < VECTOR_RECORDS_LEAST:
            return super().inspect(
                batch, earliest=earliest, latest=latest, opened_bytes_max=opened_bytes_max
            )
        open_batches = _opening()
        keys_only = open_batches.RecordParts(keys=True, values=False, headers=False)
        limits = open_batches.PageLimits(batch_bytes_max=opened_bytes_max)
        columns = open_batches.open_batches(batch, parts=keys_only, limits=limits)
        valid, timestamps = columns.keys.valid, columns.timestamps
        outside = timestamps != timestamps
        if earliest is not None:
            outside |= timestamps < earliest
        if latest is not None:
            outside |= timestamps > latest
        return RecordFacts(
            unkeyed=() if valid is None else (~valid).nonzero()[0],
            out_of_range=outside.nonzero()[0],
        )


@cache
def _opening() -> Any:
    from penstock.columns import open_batches

    return open_batches
