"""Which offsets of a topic a group has read: gaps and duplicates are both visible.

A span is a run of offsets of one partition, from its start to before its end.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa


class ReadSpan(NamedTuple):
    """Offsets of one partition that were read in one piece."""

    partition: int
    start: int
    end: int


def spans_in(
    partitions: "pa.Array[pa.Int32Scalar]", offsets: "pa.Array[pa.Int64Scalar]"
) -> list[ReadSpan]:
    """The spans of a batch, in its order."""
    numbers, ats = np.asarray(partitions), np.asarray(offsets)
    breaks = np.flatnonzero((np.diff(ats) != 1) | (np.diff(numbers) != 0)) + 1
    edges = [0, *breaks.tolist(), len(ats)]
    return [
        ReadSpan(int(numbers[start]), int(ats[start]), int(ats[end - 1]) + 1)
        for start, end in pairwise(edges)
        if end > start
    ]


def joined(spans: Iterable[ReadSpan]) -> list[ReadSpan]:
    """The same spans, those that follow one another in a partition as one."""
    last: dict[int, ReadSpan] = {}
    done = []
    for span in spans:
        before = last.get(span.partition)
        if before is not None and before.end == span.start:
            last[span.partition] = before._replace(end=span.end)
            continue
        if before is not None:
            done.append(before)
        last[span.partition] = span
    return [*done, *last.values()]


class ReadCoverage:
    """All that one group has read."""

    def __init__(self) -> None:
        self.events: int = 0
        self._pieces: dict[int, list[tuple[int, int]]] = {}  # disjoint, in order; by partition

    def add(self, span: ReadSpan) -> None:
        """A span that a member has read; it may overlap others."""
        self.events += span.end - span.start
        pieces = self._pieces.setdefault(span.partition, [])
        at = bisect_left(pieces, (span.start, span.start))
        if at and pieces[at - 1][1] >= span.start:
            at -= 1
        start, end, last = span.start, span.end, at
        while last < len(pieces) and pieces[last][0] <= end:
            start, end = min(start, pieces[last][0]), max(end, pieces[last][1])
            last += 1
        pieces[at:last] = [(start, end)]

    @property
    def distinct(self) -> int:
        """Events that were read at least once."""
        return sum(end - start for pieces in self._pieces.values() for start, end in pieces)

    @property
    def duplicates(self) -> int:
        """Reads beyond the first of an event."""
        return self.events - self.distinct

    def missing(self, ends: Mapping[int, int]) -> dict[int, int]:
        """By partition, where there are any: offsets before the end that were never read."""
        lacking = {}
        for partition, log_end in ends.items():
            pieces = self._pieces.get(partition, [])
            read = sum(min(end, log_end) - min(start, log_end) for start, end in pieces)
            if read < log_end:
                lacking[partition] = log_end - read
        return lacking
