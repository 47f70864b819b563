"""Fetched bytes -> columns: batches back to back, any codec, opened in a few passes over them all.

Control batches never come out; records of aborted transactions do not if the caller says which
those are. Every batch is checked (CRC, counts, lengths, offsets): what is wrong raises Malformed
with its position in the buffer, and no more memory is taken than the limits allow. A batch cut off
at the end of the buffer, as brokers send it, is left for the next fetch.

Header names that are not UTF-8 come out with U+FFFD in place of what is wrong, as Java's consumer
shows them: no broker looks at them, and one such record must not stop its readers forever.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.columns import record_kernels_read as kernels
from penstock.columns.compiled import Bytes, Int64s, read_only
from penstock.columns.record_columns import (
    BatchFacts,
    BytesColumn,
    BytesSpans,
    HeadersColumn,
    RecordColumns,
)
from penstock.errors import Malformed
from penstock.model import Offset, ProducerId
from penstock.protocol.batch import (
    HEADER_BYTES,
    BatchHeader,
    check_stored_batch,
    iterate_headers,
)
from penstock.protocol.compression import Codec, decompress
from penstock.protocol.control_records import read_marker
from penstock.protocol.varint import Buffer

PAGE_BYTES: Final = 256 << 20  # of opened records; a page ends with the batch that passes it
BATCH_BYTES_MAX: Final = 256 << 20  # of one batch's opened records; more is Malformed
LAST_OFFSET: Final = Offset(2**63 - 1)
_INT32_MAX: Final = 2**31 - 1  # what Arrow's binary offsets can count


@dataclass(frozen=True, slots=True)
class RecordParts:
    """Which columns to fill. The others are checked all the same, but not copied."""

    keys: bool = True
    values: bool = True
    headers: bool = True
    value_spans: bool = False  # where the values are, without a copy


@dataclass(frozen=True, slots=True)
class PageLimits:
    """How large a page may be: together less than what Arrow's 32-bit offsets can count.

    While it is opened a page takes two to three times its bytes; ten times where every record is
    of the smallest kind, seven bytes.
    """

    page_bytes: int = PAGE_BYTES
    batch_bytes_max: int = BATCH_BYTES_MAX

    def __post_init__(self) -> None:
        assert 0 < self.page_bytes + self.batch_bytes_max <= _INT32_MAX, "a page is below 2 GiB"


ALL_PARTS: Final = RecordParts()
USUAL_PAGE_LIMITS: Final = PageLimits()


def open_batches(
    buffer: Buffer,
    *,
    start_offset: Offset = Offset(0),
    end_offset: Offset = LAST_OFFSET,
    parts: RecordParts = ALL_PARTS,
    aborted: Iterable[tuple[ProducerId, Offset]] | None = None,
    limits: PageLimits = USUAL_PAGE_LIMITS,
) -> RecordColumns:
    """Everything in the buffer as one page; Malformed when that is more than a page may hold."""
    pages = open_pages(
        buffer,
        start_offset=start_offset,
        end_offset=end_offset,
        parts=parts,
        aborted=aborted,
        limits=limits,
    )
    first = next(pages)
    if next(pages, None) is not None:
        raise Malformed(
            f"the batches open to more than {limits.page_bytes} bytes", first.end_position
        )
    return first


def open_pages(
    buffer: Buffer,
    *,
    start_offset: Offset = Offset(0),
    end_offset: Offset = LAST_OFFSET,
    parts: RecordParts = ALL_PARTS,
    aborted: Iterable[tuple[ProducerId, Offset]] | None = None,
    limits: PageLimits = USUAL_PAGE_LIMITS,
) -> Iterator[RecordColumns]:
    """The records with start_offset <= offset < end_offset, page by page; at least one page.

    `aborted` is what a fetch answers under read_committed: (producer id, first offset) of each
    aborted transaction in reach. None shows all records.
    """
    view = memoryview(buffer).cast("B")
    transactions = AbortedTransactions(aborted or ())
    page = _Page(view, 0, start_offset)
    following = 0  # the offset that the next batch must not be below
    for position, header in iterate_headers(view):
        if header.base_offset >= end_offset:
            break
        if not following <= header.base_offset <= header.end_offset <= LAST_OFFSET:
            raise Malformed(f"a batch at offset {header.base_offset} after {following}", position)
        following = header.end_offset
        check_stored_batch(view, position, header=header)
        hidden = transactions.hide(view, position, header)
        if header.end_offset > start_offset and header.record_count and not hidden:
            if page.opened_bytes >= limits.page_bytes:
                yield page.columns(start_offset, end_offset, parts)
                page = _Page(view, page.end_position, page.end_offset)
            page.add(position, header, limits.batch_bytes_max)
        page.end_position = position + header.size_bytes
        page.end_offset = max(page.end_offset, min(header.end_offset, end_offset))
    yield page.columns(start_offset, end_offset, parts)


class AbortedTransactions:
    """Which producers' batches to hide, as a consumer works it out while it reads along."""

    def __init__(self, aborted: Iterable[tuple[ProducerId, Offset]]) -> None:
        self._ahead = deque(sorted(aborted, key=lambda transaction: transaction[1]))
        self._open: set[int] = set()

    def hide(self, buffer: Buffer, position: int, header: BatchHeader) -> bool:
        """Whether no reader is to see this batch: it is a control batch, or was aborted.

        Batches come in log order, all of them. An abort marker ends the hiding: what the same
        producer writes after it is another transaction.
        """
        while self._ahead and self._ahead[0][1] <= header.last_offset:
            self._open.add(self._ahead.popleft()[0])
        is_open = header.is_transactional and header.producer_id in self._open
        if not header.is_control:
            return is_open
        if is_open and header.record_count and not read_marker(buffer, position).commit:
            self._open.remove(header.producer_id)
        return True


class _Page:
    """Batches gathered until their records are opened together."""

    def __init__(self, buffer: memoryview, position: int, offset: Offset) -> None:
        self.end_position = position
        self.end_offset = offset
        self.opened_bytes = 0
        self._buffer = buffer
        self._headers: list[BatchHeader] = []
        self._positions: list[int] = []
        self._opened: list[Buffer] = []
        self._is_packed = False

    def add(self, position: int, header: BatchHeader, batch_bytes_max: int) -> None:
        """One batch, opened but not looked into."""
        start = position + HEADER_BYTES
        packed = self._buffer[start : position + header.size_bytes]
        try:
            opened = decompress(header.codec, packed, max_bytes=batch_bytes_max)
        except Malformed as wrong:
            raise Malformed(wrong.reason, start + wrong.position) from wrong
        if header.record_count > len(opened) // kernels.RECORD_BYTES_MIN:
            raise Malformed(
                f"{header.record_count} records cannot be in {len(opened)} bytes", position
            )
        self._headers.append(header)
        self._positions.append(start)
        self._opened.append(opened)
        self._is_packed |= header.codec != Codec.NONE
        self.opened_bytes += len(opened)

    def columns(
        self, start_offset: Offset, end_offset: Offset, parts: RecordParts
    ) -> RecordColumns:
        """All records of the page with start_offset <= offset < end_offset."""
        source, spans = self._source()
        sections = self._sections(spans)
        claimed = int(sections[:, kernels.COUNT].sum())
        offsets = np.empty(claimed, dtype=np.int64)
        timestamps = np.empty(claimed, dtype=np.int64)
        places = np.empty((claimed + 1, kernels.PLACE_FIELDS), dtype=np.int64)
        row_counts = np.zeros(len(sections), dtype=np.int64)
        totals = np.zeros(kernels.TOTAL_FIELDS, dtype=np.int64)
        kernels.index_records(
            source, sections, start_offset, end_offset,
            offsets, timestamps, places, row_counts, totals,
        )  # fmt: skip
        if totals[kernels.WRONG]:
            raise self._malformed(totals, spans)
        rows = int(totals[kernels.KEPT])
        places = places[:rows]

        def bytes_of(part: int, total: int) -> BytesColumn:
            return _bytes_column(source, places, part, totals[total])

        return RecordColumns(
            offsets=offsets[:rows],
            timestamps=timestamps[:rows],
            keys=bytes_of(kernels.KEY_AT, kernels.KEY_BYTES) if parts.keys else None,
            values=bytes_of(kernels.VALUE_AT, kernels.VALUE_BYTES) if parts.values else None,
            headers=_headers_column(source, places, totals) if parts.headers else None,
            batches=self._facts(row_counts),
            end_offset=self.end_offset,
            end_position=self.end_position,
            value_spans=_value_spans(source, places) if parts.value_spans else None,
        )

    def _source(self) -> tuple[Bytes, Int64s]:
        """All records in one array, and where each batch's start and end there.

        That array is the fetched bytes themselves unless one of the batches was compressed.
        """
        sizes = np.array([len(opened) for opened in self._opened], dtype=np.int64)
        if not self._is_packed:
            source = read_only(self._buffer)
            starts = np.array(self._positions, dtype=np.int64)
        else:
            parts = [read_only(opened) for opened in self._opened]
            source = parts[0] if len(parts) == 1 else read_only(np.concatenate(parts))
            starts = np.cumsum(sizes) - sizes
        self._opened.clear()
        return source, np.column_stack((starts, starts + sizes))

    def _sections(self, spans: Int64s) -> Int64s:
        sections = np.empty((len(spans), kernels.SECTION_FIELDS), dtype=np.int64)
        sections[:, kernels.START : kernels.END + 1] = spans
        if self._headers:
            sections[:, kernels.COUNT :] = [
                (
                    header.record_count,
                    header.base_offset,
                    header.last_offset_delta,
                    header.base_timestamp,
                    header.max_timestamp if header.is_log_append_time else kernels.NOT_APPENDED,
                )
                for header in self._headers
            ]
        return sections

    def _facts(self, row_counts: Int64s) -> BatchFacts:
        headers = self._headers
        return BatchFacts(
            row_counts=row_counts,
            base_offsets=np.array([h.base_offset for h in headers], dtype=np.int64),
            leader_epochs=np.array([h.leader_epoch for h in headers], dtype=np.int32),
            attributes=np.array([h.attributes for h in headers], dtype=np.int16),
            producer_ids=np.array([h.producer_id for h in headers], dtype=np.int64),
            producer_epochs=np.array([h.producer_epoch for h in headers], dtype=np.int16),
            base_sequences=np.array([h.base_sequence for h in headers], dtype=np.int32),
        )

    def _malformed(self, totals: Int64s, spans: Int64s) -> Malformed:
        """What the kernel found, at the byte where it is; in a compressed batch, at its first."""
        reason = kernels.REASONS[int(totals[kernels.WRONG])]
        section = int(totals[kernels.WRONG_SECTION])
        distance = int(totals[kernels.WRONG_AT] - spans[section, 0])
        if self._headers[section].codec == Codec.NONE:
            return Malformed(reason, self._positions[section] + distance)
        return Malformed(
            f"{reason}, {distance} bytes into the opened records", self._positions[section]
        )


def _value_spans(source: Bytes, places: Int64s) -> BytesSpans:
    starts, sizes = places[:, kernels.VALUE_AT], places[:, kernels.VALUE_SIZE]
    valid = sizes >= 0
    ends = starts + np.maximum(sizes, 0)
    return BytesSpans(source, starts.copy(), ends, None if valid.all() else valid)


def _bytes_column(source: Bytes, places: Int64s, part: int, content_bytes: int) -> BytesColumn:
    offsets = np.empty(len(places) + 1, dtype=np.int32)
    content = np.empty(content_bytes, dtype=np.uint8)
    valid = np.empty(len(places), dtype=np.bool_)
    nulls = kernels.gather_bytes(source, places, part, offsets, content, valid)
    return BytesColumn(offsets, content, valid if nulls else None)


def _headers_column(source: Bytes, places: Int64s, totals: Int64s) -> HeadersColumn:
    offsets = np.empty(len(places) + 1, dtype=np.int32)
    header_places = np.empty((totals[kernels.HEADERS], kernels.PLACE_FIELDS), dtype=np.int64)
    kernels.index_headers(source, places, offsets, header_places)
    names = _bytes_column(source, header_places, kernels.KEY_AT, totals[kernels.HEADER_KEY_BYTES])
    values = _bytes_column(
        source, header_places, kernels.VALUE_AT, totals[kernels.HEADER_VALUE_BYTES]
    )
    return HeadersColumn(offsets, _as_text(names), values)


def _as_text(names: BytesColumn) -> BytesColumn:
    """The names, corrected where one is not UTF-8. Only then is there a loop in Python."""
    if _is_text(names):
        return names
    corrected = [
        (names.row(row) or b"").decode(errors="replace").encode() for row in range(len(names))
    ]
    return BytesColumn(
        offsets=np.cumsum([0, *map(len, corrected)], dtype=np.int32),
        content=np.frombuffer(b"".join(corrected), dtype=np.uint8),
        valid=None,
    )


def _is_text(names: BytesColumn) -> bool:
    """Whether each row is UTF-8: all rows together are, and none starts inside a character."""
    try:
        str(names.content.data, "utf-8")
    except UnicodeDecodeError:
        return False
    starts = names.offsets[:-1]
    first_bytes = names.content[starts[starts < len(names.content)]]
    return not ((first_bytes & 0xC0) == 0x80).any()
