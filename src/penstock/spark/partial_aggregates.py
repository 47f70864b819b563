"""A task's rows before they are shuffled: one row per key and window instead of one per event.

Rows about the batch itself, which are keyed state as well, follow them: how far each partition was
read, and the newest event time. Only that last row has a time that Spark's watermark sees: the
state decides which windows are late, by the end of the window, as Spark's own windows do.

Runs in Spark's workers, on Arrow tables. Imports no pyspark.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.aggregates import StateAggregate

STATE: Final = "state"
OFFSET: Final = "offset"
CLOCK: Final = "clock"
KIND: Final = "_kind"
WINDOW: Final = "_window"  # its start
NEWEST: Final = "_newest"  # event time of the row about it; null in all others
PARTITION: Final = ("_topic", "_partition")
END: Final = "_end"
ROWS: Final = "_rows"
_GROUPS_MAX: Final = 200_000  # then they are emitted, and the state merges them
_MICROS: Final = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """Windows of `size_us`, a new one every `every_us`; adjacent if both are the same."""

    time: str
    size_us: int
    every_us: int


@dataclass(frozen=True, slots=True)
class AggregationPlan:
    """What a task makes of its rows; small, because it is sent to every task."""

    keys: tuple[str, ...]
    aggregates: Mapping[str, StateAggregate]  # empty: a list of the whole rows per key
    windows: WindowSpec | None
    offset_columns: tuple[str, str, str]  # columns with topic, partition, offset
    schema: pa.Schema  # of the rows that come out
    newest_us: int | None = None  # the newest event time before this query started


def partials(batches: Iterable[pa.RecordBatch], plan: AggregationPlan) -> Iterator[pa.RecordBatch]:
    """One row per key and window, then one per partition, then one about the time."""
    ends: dict[tuple[str, int], int] = {}
    newest_us = plan.newest_us
    pending: list[pa.Table] = []
    pending_rows = 0
    for batch in batches:
        table = pa.Table.from_batches([batch])
        if not table.num_rows:
            continue
        note_end_offsets(table, plan.offset_columns, ends)
        if plan.windows is not None:
            table = with_windows(table, plan.windows)
            newest_us = _newer(newest_us, table, plan.windows.time)
        rows = grouped(table, plan) if plan.aggregates else table
        pending.append(rows)
        pending_rows += rows.num_rows
        if pending_rows > _GROUPS_MAX:
            yield from _emitted(pending, plan)
            pending, pending_rows = [], 0
    yield from _emitted(pending, plan)
    yield _rows_about_batch(plan, ends, newest_us)


def note_end_offsets(
    table: pa.Table, offset_columns: tuple[str, str, str], ends: dict[tuple[str, int], int]
) -> None:
    """Keep the end offset of each partition that has rows here."""
    topic, partition, offset = offset_columns
    last = table.select(offset_columns).group_by([topic, partition]).aggregate([(offset, "max")])
    for row in last.to_pylist():
        name = (row[topic], row[partition])
        ends[name] = max(ends.get(name, 0), row[f"{offset}_max"] + 1)


def with_windows(table: pa.Table, windows: WindowSpec) -> pa.Table:
    """The rows that have a time, with the start of the latest window they are in."""
    times: Any = table.column(windows.time)
    if times.null_count:
        table = table.filter(times.is_valid())
        times = table.column(windows.time)
    micros = np.asarray(times.cast(_MICROS).cast(pa.int64()))
    starts = micros - micros % windows.every_us  # numpy's remainder is never negative
    return table.append_column(WINDOW, pa.array(starts, pa.int64()))


def grouped(table: pa.Table, plan: AggregationPlan) -> pa.Table:
    """One row per key and window, with the aggregates by their names."""
    functions = {
        name: ("", "count_all") if aggregate.column is None else (aggregate.column, aggregate.kind)
        for name, aggregate in plan.aggregates.items()
    }
    # Arrow computes the same function of the same column once.
    unique: list[Any] = [
        ([] if function == "count_all" else column, str(function))
        for column, function in dict.fromkeys(functions.values())
    ]
    columns = {
        name: function if function == "count_all" else f"{column}_{function}"
        for name, (column, function) in functions.items()
    }
    return _aggregated(table, plan, unique, columns)


def _merged(tables: Sequence[pa.Table], plan: AggregationPlan) -> pa.Table:
    """Results of several batches as one."""
    whole = pa.concat_tables(tables, promote_options="none")
    if len(tables) == 1:
        return whole
    functions = {name: aggregate.merge_function for name, aggregate in plan.aggregates.items()}
    columns = {name: f"{name}_{function}" for name, function in functions.items()}
    return _aggregated(whole, plan, list(functions.items()), columns)


def _aggregated(
    table: pa.Table,
    plan: AggregationPlan,
    functions: list[Any],
    columns: Mapping[str, str],
) -> pa.Table:
    """One row per key and window; `columns` are Arrow's names of the results by ours."""
    keys = [*plan.keys, *([WINDOW] if plan.windows else [])]
    results = table.group_by(keys).aggregate(functions)
    return pa.table(
        {name: results.column(name) for name in keys}
        | {name: results.column(column) for name, column in columns.items()}
    )


def _emitted(pending: Sequence[pa.Table], plan: AggregationPlan) -> Iterator[pa.RecordBatch]:
    if not pending:
        return
    if not plan.aggregates:
        table = listed(pa.concat_tables(pending, promote_options="none"), plan)
    else:
        table = _in_each_window(_merged(pending, plan), plan.windows)
    kinds: Any = pa.array([STATE], pa.string()).take(np.zeros(table.num_rows, dtype=np.int64))
    yield from shaped(table.append_column(KIND, kinds), plan.schema)


def _in_each_window(table: pa.Table, windows: WindowSpec | None) -> pa.Table:
    """Rows of one step, repeated for each window that contains the step."""
    if windows is None:
        return table
    steps = -(-windows.size_us // windows.every_us)
    starts: Any = table.column(WINDOW)
    index = table.schema.get_field_index(WINDOW)
    shifted = []
    for step in range(steps):
        start = pc.subtract(starts, step * windows.every_us)
        shifted.append(table.set_column(index, WINDOW, start))
    return pa.concat_tables(shifted)


def listed(table: pa.Table, plan: AggregationPlan) -> pa.Table:
    """One row per key with the list of its rows, in the order of their offsets."""
    order: list[Any] = [(name, "ascending") for name in (*plan.keys, *plan.offset_columns)]
    table = table.sort_by(order).combine_chunks()
    keys = table.select(list(plan.keys))
    starts = _first_rows(keys)
    ends = pa.array(np.append(starts, table.num_rows), pa.int32())
    row_type = plan.schema.field(ROWS).type.value_type
    fields = [table.column(field.name).combine_chunks().cast(field.type) for field in row_type]
    rows: Any = pa.StructArray.from_arrays(fields, fields=list(row_type))
    return keys.take(pa.array(starts)).append_column(ROWS, pa.ListArray.from_arrays(ends, rows))


def _first_rows(keys: pa.Table) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Where each key starts, in sorted keys."""
    changes = np.zeros(keys.num_rows, dtype=np.bool_)
    changes[:1] = True
    for name in keys.column_names:
        column: Any = keys.column(name).combine_chunks()
        codes = np.asarray(column.dictionary_encode(null_encoding="encode").indices)
        changes[1:] |= codes[1:] != codes[:-1]
    return np.flatnonzero(changes)


def _newer(newest_us: int | None, table: pa.Table, time: str) -> int | None:
    maximum: Any = pc.max(table.column(time).cast(_MICROS).cast(pa.int64()))
    table_us: int | None = maximum.as_py()
    if table_us is None or newest_us is None:
        return newest_us if table_us is None else table_us
    return max(table_us, newest_us)


def _rows_about_batch(
    plan: AggregationPlan, ends: Mapping[tuple[str, int], int], newest_us: int | None
) -> pa.RecordBatch:
    rows: list[dict[str, Any]] = [
        {KIND: OFFSET, PARTITION[0]: topic, PARTITION[1]: partition, END: end}
        for (topic, partition), end in sorted(ends.items())
    ]
    if newest_us is not None:
        rows.append({KIND: CLOCK, NEWEST: newest_us})
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in plan.schema]
    return pa.RecordBatch.from_arrays(columns, schema=plan.schema)


def shaped(table: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The columns of the schema, in its order and types; absent ones are null."""
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.column_names
        else pa.chunked_array([pa.nulls(table.num_rows, field.type)])
        for field in schema
    ]
    yield from pa.table(columns, schema=schema).combine_chunks().to_batches()
