from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringContains,
)

from penstock.model import Offset, TopicPartition
from penstock.spark import row_columns as own
from penstock.spark.filters import Bounds, push
from penstock.spark.planning import OffsetRange
from penstock.spark.source import batch_reader, read_schema

NAMES = {name: name for name in (own.TOPIC, own.PARTITION, own.OFFSET, own.TIMESTAMP)}


def bounds(*filters: Any) -> Bounds:
    found, left = push(filters, NAMES)
    assert left == []
    return found


def span(found: Bounds, partition: int = 0) -> tuple[int, int] | None:
    whole = OffsetRange(TopicPartition("t", partition), Offset(0), Offset(100), None)
    cut = found.cut(whole)
    return None if cut is None else (cut.start, cut.end)


def test_offsets_cut_ranges() -> None:
    assert span(bounds(EqualTo(("_offset",), 7))) == (7, 8)
    low, high = GreaterThan(("_offset",), 7), LessThanOrEqual(("_offset",), 9)
    assert span(bounds(low, high, IsNotNull(("_offset",)))) == (8, 10)
    assert span(bounds(GreaterThanOrEqual(("_offset",), 7), LessThan(("_offset",), 7))) is None


def test_partitions_and_topics_choose() -> None:
    chosen = bounds(In(("_partition",), (1, 3)), GreaterThan(("_partition",), 1))
    assert [one for one in range(5) if span(chosen, one)] == [3]
    assert span(bounds(EqualTo(("_topic",), "other"))) is None
    assert span(bounds(In(("_topic",), ("t", "u")))) == (0, 100)


def test_times_give_a_lower_bound_and_are_left_to_spark_too() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    later = GreaterThan(("_timestamp",), at)
    earlier = LessThan(("_timestamp",), at)
    found, left = push([later, earlier], NAMES)
    assert found.time_min == int(at.timestamp() * 1000)
    assert left == [later, earlier]


def test_filters_on_anything_else_are_left_to_spark() -> None:
    others: list[Any] = [
        EqualTo(("id",), 3),
        EqualTo(("_offset", "inner"), 3),
        StringContains(("_topic",), "x"),
        IsNotNull(("_timestamp",)),
    ]
    found, left = push(others, NAMES)
    assert (found, left) == (Bounds(), others)


def test_a_reader_passes_for_one_without_push_down_where_that_is_off() -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "orders"}
    pushing: Any = batch_reader(options, read_schema(options)).pushFilters
    assert pushing.__func__ is DataSourceReader.pushFilters  # as Spark tells
    assert not list(pushing([EqualTo(("partition",), 1)]))
