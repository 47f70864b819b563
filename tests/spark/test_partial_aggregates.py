"""Rows aggregated before they are shuffled, compared with plain Python; without Spark."""

from collections import Counter
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.aggregates import count, maximum, minimum, total
from penstock.spark.partial_aggregates import (
    CLOCK,
    OFFSET,
    STATE,
    AggregationPlan,
    WindowSpec,
    partials,
)

OFFSET_COLUMNS = ("_topic", "_partition", "_offset")
Types: TypeAlias = dict[str, pa.DataType]
_EVENTS: Types = {
    "who": pa.string(),
    "cents": pa.int64(),
    "at": pa.timestamp("us", tz="UTC"),
    "_topic": pa.string(),
    "_partition": pa.int32(),
    "_offset": pa.int64(),
}
EVENTS = pa.schema(_EVENTS)
BATCH_COLUMNS: Types = {
    "_topic": pa.string(),
    "_partition": pa.int32(),
    "_end": pa.int64(),
    "_newest": pa.int64(),
    "_window": pa.int64(),
}
AGGREGATES = {
    "n": count(),
    "cents": total("cents"),
    "low": minimum("cents"),
    "high": maximum("cents"),
}
_NUMBERS: Types = dict.fromkeys(AGGREGATES, pa.int64())
_KEY: Types = {"_kind": pa.string(), "who": pa.string()}
OUT = pa.schema(_KEY | _NUMBERS | BATCH_COLUMNS)
rows_of_events = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None]),
        st.one_of(st.none(), st.integers(-5, 5)),
        st.one_of(st.none(), st.integers(-300, 300)),
        st.integers(0, 2),
    ),
    max_size=60,
)


def batches(rows: list[Any], size: int) -> list[pa.RecordBatch]:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], []]
    who, cents, at, partition = columns
    table = pa.table(
        [
            pa.array(who, pa.string()),
            pa.array(cents, pa.int64()),
            pa.array(at, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
            pa.array(["t"] * len(rows), pa.string()),
            pa.array(partition, pa.int32()),
            pa.array(range(len(rows)), pa.int64()),
        ],
        schema=EVENTS,
    )
    return table.to_batches(size)


def merged(rows: list[dict[str, Any]]) -> dict[Any, tuple[Any, ...]]:
    """As the state merges them: a key may occur more than once."""
    states: dict[Any, list[Any]] = {}
    for row in rows:
        state = states.setdefault((row["who"], row["_window"]), [None] * len(AGGREGATES))
        for index, (name, aggregate) in enumerate(AGGREGATES.items()):
            state[index] = aggregate.merge(state[index], row[name])
    return {key: tuple(state) for key, state in states.items()}


@given(rows=rows_of_events, size=st.integers(1, 20), steps=st.integers(1, 3))
def test_partials_are_those_of_plain_python(rows: list[Any], size: int, steps: int) -> None:
    windows = WindowSpec("at", size_us=60 * steps, every_us=60)
    plan = AggregationPlan(("who",), AGGREGATES, windows, OFFSET_COLUMNS, OUT)
    results = pa.Table.from_batches(list(partials(batches(rows, size), plan)), OUT).to_pylist()

    by_window: dict[Any, list[int | None]] = {}
    for who, cents, at, _ in rows:
        for step in range(steps):
            if at is not None:
                by_window.setdefault((who, at - at % 60 - 60 * step), []).append(cents)
    expected = {key: summed(values) for key, values in by_window.items()}
    assert merged([row for row in results if row["_kind"] == STATE]) == expected
    ends = {row["_partition"]: row["_end"] for row in results if row["_kind"] == OFFSET}
    assert ends == {partition: offset + 1 for offset, (_, _, _, partition) in enumerate(rows)}
    newest = max((at for _, _, at, _ in rows if at is not None), default=None)
    assert [row["_newest"] for row in results if row["_kind"] == CLOCK] == (
        [] if newest is None else [newest]
    )


def summed(values: list[int | None]) -> tuple[Any, ...]:
    known = [value for value in values if value is not None]
    if not known:
        return (len(values), None, None, None)
    return (len(values), sum(known), min(known), max(known))


def test_the_newest_time_is_never_before_the_stored_one() -> None:
    windows = WindowSpec("at", size_us=60, every_us=60)
    plan = AggregationPlan(("who",), AGGREGATES, windows, OFFSET_COLUMNS, OUT, newest_us=1000)
    results = partials(batches([("a", 1, 20, 0)], 10), plan)
    rows = [row for batch in results for row in batch.to_pylist() if row["_kind"] == CLOCK]
    assert [row["_newest"] for row in rows] == [1000]


@given(rows=rows_of_events, size=st.integers(1, 20))
def test_whole_rows_are_listed_by_key_in_offset_order(rows: list[Any], size: int) -> None:
    listed: Types = {"_rows": pa.list_(pa.struct(list(EVENTS)))}
    schema = pa.schema(_KEY | listed | BATCH_COLUMNS)
    plan = AggregationPlan(("who",), {}, None, OFFSET_COLUMNS, schema)
    results = pa.Table.from_batches(list(partials(batches(rows, size), plan)), schema).to_pylist()
    states = [row for row in results if row["_kind"] == STATE]
    assert Counter(row["who"] for row in states) == Counter({row[0] for row in rows})
    for state in states:
        offsets = [(row["_partition"], row["_offset"]) for row in state["_rows"]]
        expected = [
            (partition, offset)
            for offset, (who, _, _, partition) in enumerate(rows)
            if who == state["who"]
        ]
        assert offsets == sorted(expected)


def test_many_groups_are_emitted_before_there_are_too_many() -> None:
    rows = 450_000
    table = pa.table(
        [
            pa.array(np.arange(rows).astype(str)),
            pa.array(np.ones(rows, dtype=np.int64)),
            pa.array(np.arange(rows)).cast(pa.timestamp("us", tz="UTC")),
            pa.array(["t"]).take(np.zeros(rows, dtype=np.int64)),
            pa.array(np.zeros(rows, dtype=np.int32)),
            pa.array(np.arange(rows)),
        ],
        schema=EVENTS,
    )
    plan = AggregationPlan(("who",), AGGREGATES, None, OFFSET_COLUMNS, OUT)
    emitted = list(partials(iter(table.to_batches(100_000)), plan))
    assert len(emitted) >= 2 + 1
    assert sum(len(batch) for batch in emitted) == rows + 1
