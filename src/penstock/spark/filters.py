"""Spark's filters on a record's own columns -> which partitions and offsets need not be read.

Exact for topic, partition and offset: those filters are done here, and Spark need not repeat them.
Of times only a lower bound helps, and only to skip what is older for certain: writers set the
times, so that later records may be older; Spark still filters those.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from penstock.model import Millis, Offset, TopicPartition
from penstock.spark import row_columns as own
from penstock.spark.planning import OffsetRange

_LAST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is left to read: of topics and partitions None means all."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    partition_min: int = 0
    partition_end: int = _LAST
    offset_min: int = 0
    offset_end: int = _LAST  # exclusive
    time_min: Millis | None = None

    def has(self, place: TopicPartition) -> bool:
        """Whether anything of a partition is left."""
        return (
            (self.topics is None or place.topic in self.topics)
            and (self.partitions is None or place.partition in self.partitions)
            and self.partition_min <= place.partition < self.partition_end
        )

    def cut(self, one: OffsetRange) -> OffsetRange | None:
        """What is left of a range; None: nothing."""
        start, end = max(one.start, self.offset_min), min(one.end, self.offset_end)
        if start >= end or not self.has(one.partition):
            return None
        return one._replace(start=Offset(start), end=Offset(end))


def push(filters: Iterable[Filter], columns: Mapping[str, str]) -> tuple[Bounds, list[Filter]]:
    """The bounds, and the filters that Spark must still apply.

    `columns` says which of the record's own columns a name is.
    """
    bounds = Bounds()
    left: list[Filter] = []
    for one in filters:
        known = columns.get(_only_name(one) or "")
        narrowed = None if known is None else _narrowed(bounds, known, one)
        if narrowed is not None:
            bounds = narrowed
        if narrowed is None or known == own.TIMESTAMP:
            left.append(one)
    return bounds, left


def _only_name(one: Filter) -> str | None:
    attribute: tuple[str, ...] = getattr(one, "attribute", ())
    return attribute[0] if len(attribute) == 1 else None


def _narrowed(bounds: Bounds, column: str, one: Filter) -> Bounds | None:
    """None where the filter is not understood."""
    if isinstance(one, IsNotNull):
        return bounds if column in _NEVER_NULL else None
    narrow = _NARROW.get(column)
    return None if narrow is None else narrow(bounds, one)


def _by_topic(bounds: Bounds, one: Filter) -> Bounds | None:
    names = _listed(one)
    if names is None:
        return None
    topics = frozenset(names) if bounds.topics is None else bounds.topics & names
    return replace(bounds, topics=topics)


def _by_partition(bounds: Bounds, one: Filter) -> Bounds | None:
    numbers = _listed(one)
    if numbers is not None:
        kept = frozenset(numbers) if bounds.partitions is None else bounds.partitions & numbers
        return replace(bounds, partitions=kept)
    span = _span(one)
    if span is None:
        return None
    return replace(
        bounds,
        partition_min=max(bounds.partition_min, span[0]),
        partition_end=min(bounds.partition_end, span[1]),
    )


def _by_offset(bounds: Bounds, one: Filter) -> Bounds | None:
    span = (one.value, one.value + 1) if isinstance(one, EqualTo) else _span(one)
    if span is None:
        return None
    return replace(
        bounds,
        offset_min=max(bounds.offset_min, span[0]),
        offset_end=min(bounds.offset_end, span[1]),
    )


def _by_time(bounds: Bounds, one: Filter) -> Bounds | None:
    if not isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual):
        return None
    if not isinstance(one.value, datetime) or one.value.tzinfo is None:
        return None
    millis = Millis(int(one.value.timestamp() * 1000))
    return replace(bounds, time_min=max(millis, bounds.time_min or Millis(0)))


def _listed(one: Filter) -> frozenset[Any] | None:
    if isinstance(one, EqualTo):
        return frozenset([one.value])
    return frozenset(one.value) if isinstance(one, In) else None


def _span(one: Filter) -> tuple[int, int] | None:
    """From, and to before."""
    match one:
        case GreaterThan(_, value):
            return value + 1, _LAST
        case GreaterThanOrEqual(_, value):
            return value, _LAST
        case LessThan(_, value):
            return 0, value
        case LessThanOrEqual(_, value):
            return 0, value + 1
        case _:
            return None


_NEVER_NULL: Final = frozenset({own.TOPIC, own.PARTITION, own.OFFSET})
_NARROW: Final[Mapping[str, Callable[[Bounds, Filter], Bounds | None]]] = {
    own.TOPIC: _by_topic,
    own.PARTITION: _by_partition,
    own.OFFSET: _by_offset,
    own.TIMESTAMP: _by_time,
}
