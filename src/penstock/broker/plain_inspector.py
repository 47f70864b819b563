"""A RecordInspector in plain Python: one object per record, so for small loads and tests only."""

from __future__ import annotations

from penstock.broker.accepting import RecordFacts
from penstock.log.timestamps import find_one_by_one
from penstock.model import Millis, Offset
from penstock.protocol import batch as v2
from penstock.protocol.codecs import compress, decompress
from penstock.protocol.records import read_records


class PlainInspector:
    """Opens each record."""

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
        """Which records have no key, and which lie outside the bounds."""
        records = read_records(batch, max_bytes=opened_bytes_max)
        return RecordFacts(
            unkeyed=[index for index, record in enumerate(records) if record.key is None],
            outside=[
                index
                for index, record in enumerate(records)
                if (earliest is not None and record.timestamp < earliest)
                or (latest is not None and record.timestamp > latest)
            ],
        )

    def recompress(
        self, batch: bytearray, codec: int, level: int | None, *, opened_bytes_max: int
    ) -> bytearray:
        """The same batch in another codec, sealed."""
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
