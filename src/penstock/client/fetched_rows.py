"""Fetched records that stay columns: pages of opened batches, and runs of rows in them.

A page is of one partition and never changes; taking, splitting and putting back only move row
numbers. Imported when a program first uses columns, because the kernels are heavy.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from penstock.client.commit_tracker import OffsetSpan
from penstock.client.flow_control import RECORD_OVERHEAD_BYTES
from penstock.client.quarantine import OriginalRecord
from penstock.client.tracing import sampled_rows
from penstock.columns.compiled import Int64s
from penstock.columns.record_columns import BytesSpans, HeadersColumn, RecordColumns
from penstock.model import Millis, Offset, TopicPartition

_Column = TypeVar("_Column")


class PageRows(NamedTuple):
    """Rows `start` to before `end` of a page of one partition."""

    partition: TopicPartition
    page: RecordColumns
    start: int
    end: int

    @property
    def rows(self) -> int:
        """How many rows."""
        return self.end - self.start

    @property
    def size_bytes(self) -> int:
        """What they take in memory, about."""
        values = _rows_of(self)
        return int((values.ends - values.starts).sum()) + self.rows * RECORD_OVERHEAD_BYTES

    @property
    def span(self) -> OffsetSpan:
        """From the first row's offset to after the last one's."""
        offsets = self.page.offsets
        return OffsetSpan(Offset(int(offsets[self.start])), Offset(int(offsets[self.end - 1]) + 1))

    def split(self, count: int) -> tuple["PageRows", "PageRows"]:
        """The first rows, and the others."""
        middle = self.start + count
        return self._replace(end=middle), self._replace(start=middle)


class FetchedRows:
    """Rows of one topic, in the order they were taken."""

    def __init__(self, parts: Sequence[PageRows]) -> None:
        self.parts: list[PageRows] = [part for part in parts if part.rows]
        self._ends = np.cumsum([part.rows for part in self.parts], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if self.parts else 0

    @property
    def topic(self) -> str:
        """Whose they are."""
        return self.parts[0].partition.topic

    def spans(self) -> dict[TopicPartition, OffsetSpan]:
        """The offsets of these rows by partition."""
        spans: dict[TopicPartition, OffsetSpan] = {}
        for part in self.parts:
            before = spans.get(part.partition)
            spans[part.partition] = part.span if before is None else before.up_to(part.span)
        return spans

    def before(self, row: int) -> "FetchedRows":
        """The rows in front of this one."""
        return FetchedRows([before for before, _ in self._cut(row)])

    def after(self, row: int) -> "FetchedRows":
        """This row and those behind it."""
        return FetchedRows([after for _, after in self._cut(row)])

    def _cut(self, row: int) -> Iterator[tuple[PageRows, PageRows]]:
        start = 0
        for part in self.parts:
            count = min(max(row - start, 0), part.rows)
            yield part.split(count)
            start += part.rows

    def of(self, partitions: Iterable[TopicPartition]) -> tuple["FetchedRows", Int64s]:
        """Those of some partitions, and their row numbers here."""
        kept = set(partitions)
        rows = [
            np.arange(end - part.rows, end)
            for part, end in zip(self.parts, self._ends.tolist(), strict=True)
            if part.partition in kept
        ]
        parts = [part for part in self.parts if part.partition in kept]
        return FetchedRows(parts), np.concatenate(rows) if rows else np.empty(0, dtype=np.int64)

    def value_spans(self) -> BytesSpans:
        """Where the values are; pages are joined only if there are several."""
        spans = [_rows_of(part) for part in self.parts]
        if len(spans) == 1:
            return spans[0]
        bases = np.cumsum([0, *(len(span.source) for span in spans[:-1])])
        valid = None
        if any(span.valid is not None for span in spans):
            valid = np.concatenate(
                [
                    np.ones(len(span), np.bool_) if span.valid is None else span.valid
                    for span in spans
                ]
            )
        return BytesSpans(
            np.concatenate([span.source for span in spans]),
            np.concatenate([span.starts + base for span, base in zip(spans, bases, strict=True)]),
            np.concatenate([span.ends + base for span, base in zip(spans, bases, strict=True)]),
            valid,
        )

    @property
    def has_headers(self) -> bool:
        """Whether any record of these pages has one."""
        return any(_headers(part.page) for part in self.parts)

    def header_sample(self) -> list[Sequence[tuple[str, bytes | None]]]:
        """The headers of some records, evenly spaced; none if no record has any."""
        if not self.has_headers:
            return []
        return [self.original(row).headers for row in sampled_rows(len(self))]

    def columns(self, read: Callable[[PageRows], _Column]) -> list[_Column]:
        """What `read` makes of each part."""
        return [read(part) for part in self.parts]

    def original(self, row: int) -> OriginalRecord:
        """One record as it is in its topic."""
        index = int(np.searchsorted(self._ends, row, side="right"))
        part = self.parts[index]
        at = part.end - int(self._ends[index]) + row
        page = part.page
        assert page.keys is not None, "keys are opened"
        assert page.value_spans is not None, "values are opened where they are"
        topic, partition = part.partition
        return OriginalRecord(
            topic,
            partition,
            Offset(int(page.offsets[at])),
            Millis(int(page.timestamps[at])),
            page.keys.row(at),
            page.value_spans.row(at),
            _header_pairs(page.headers, at),
        )


def _rows_of(part: PageRows) -> BytesSpans:
    spans, rows = part.page.value_spans, slice(part.start, part.end)
    assert spans is not None, "values are opened where they are"
    valid = None if spans.valid is None else spans.valid[rows]
    return BytesSpans(spans.source, spans.starts[rows], spans.ends[rows], valid)


def _headers(page: RecordColumns) -> int:
    return 0 if page.headers is None else len(page.headers.keys)


def _header_pairs(headers: HeadersColumn | None, row: int) -> list[tuple[str, bytes | None]]:
    assert headers is not None, "headers are opened"
    indexes = range(headers.offsets[row], headers.offsets[row + 1])
    return [((headers.keys.row(at) or b"").decode(), headers.values.row(at)) for at in indexes]
