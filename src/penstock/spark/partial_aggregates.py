"""A task's rows before they are shuffled: one row per key and window instead of one per event.

Beside them go rows about the batch itself, which are keyed state as well: how far each partition
was read, and the newest event time. Only that last row has a time that Spark's watermark sees:
which windows are late is for the state to say, by the end of the window, as Spark's own do.

Runs in Spark's workers, on Arrow tables; imports no Spark.

What a key's state can be made of: numbers that add up, piece by piece, in any order.

    orders=count(), cents=total("cents"), first=least("at"), last=greatest("at")

Each is worked out for a whole batch as a vector, and two results of it are one by `merge`. Knows
nothing of Spark.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class Kind(StrEnum):
    """How values become one; the name is Arrow's."""

    COUNT = "count"
    TOTAL = "sum"
    LEAST = "min"
    GREATEST = "max"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One number of a state. Without a column: of rows."""

    kind: Kind
    column: str | None = None

    @property
    def again(self) -> str:
        """Arrow's name for making one of several results."""
        return "sum" if self.kind is Kind.COUNT else str(self.kind)

    def merge(self, one: Any, other: Any) -> Any:
        """Both results as one; None is nothing yet."""
        if one is None or other is None:
            return one if other is None else other
        return _MERGES[self.kind](one, other)


_MERGES: Final[Mapping[Kind, Callable[[Any, Any], Any]]] = {
    Kind.COUNT: lambda one, other: one + other,
    Kind.TOTAL: lambda one, other: one + other,
    Kind.LEAST: min,
    Kind.GREATEST: max,
}


def count() -> Aggregate:
    """How many rows."""
    return Aggregate(Kind.COUNT)


def total(column: str) -> Aggregate:
    """The sum of a column; nulls are left out."""
    return Aggregate(Kind.TOTAL, column)


def least(column: str) -> Aggregate:
    """The smallest value of a column."""
    return Aggregate(Kind.LEAST, column)


def greatest(column: str) -> Aggregate:
    """The largest value of a column."""
    return Aggregate(Kind.GREATEST, column)


STATE: Final = "state"
OFFSET: Final = "offset"
CLOCK: Final = "clock"
KIND: Final = "_kind"
WINDOW: Final = "_window"  # its start
NEWEST: Final = "_newest"  # event time of the row about it; null in all others
PLACE: Final = ("_topic", "_partition")
END: Final = "_end"
ROWS: Final = "_rows"
_GROUPS_MAX: Final = 200_000  # then they go on as they are, and the state merges them
_MICROS: Final = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class Windows:
    """Of `size_us`, a new one every `every_us`; end to end when both are the same."""

    time: str
    size_us: int
    every_us: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What a task makes of its rows; small, because it is sent to every one."""

    keys: tuple[str, ...]
    aggregates: Mapping[str, Aggregate]  # empty: rows are kept whole, a list of them per key
    windows: Windows | None
    place: tuple[str, str, str]  # columns with topic, partition, offset
    schema: pa.Schema  # of the rows that come out
    newest_us: int | None = None  # what was known before this query began

    @property
    def time(self) -> str | None:
        """The column of event time, if any."""
        return None if self.windows is None else self.windows.time


def partials(batches: Iterable[pa.RecordBatch], plan: Plan) -> Iterator[pa.RecordBatch]:
    """One row per key and window, then one per partition, then one about the time."""
    reached: dict[tuple[str, int], int] = {}
    newest_us = plan.newest_us
    held: list[pa.Table] = []
    held_rows = 0
    for batch in batches:
        table = pa.Table.from_batches([batch])
        if not table.num_rows:
            continue
        note_reached(table, plan.place, reached)
        if plan.windows is not None:
            table = with_windows(table, plan.windows)
            newest_us = _later(newest_us, table, plan.windows.time)
        part = grouped(table, plan) if plan.aggregates else table
        held.append(part)
        held_rows += part.num_rows
        if held_rows > _GROUPS_MAX:
            yield from _emitted(held, plan)
            held, held_rows = [], 0
    yield from _emitted(held, plan)
    yield _told(plan, reached, newest_us)


def note_reached(
    table: pa.Table, place: tuple[str, str, str], reached: dict[tuple[str, int], int]
) -> None:
    """Keep the end offset of each partition that has rows here."""
    topic, partition, offset = place
    ends = table.select(place).group_by([topic, partition]).aggregate([(offset, "max")])
    for row in ends.to_pylist():
        where = (row[topic], row[partition])
        reached[where] = max(reached.get(where, 0), row[f"{offset}_max"] + 1)


def with_windows(table: pa.Table, windows: Windows) -> pa.Table:
    """The rows with the start of the latest window they are in; those without a time are not."""
    times: Any = table.column(windows.time)
    if times.null_count:
        table = table.filter(times.is_valid())
        times = table.column(windows.time)
    micros = np.asarray(times.cast(_MICROS).cast(pa.int64()))
    starts = micros - micros % windows.every_us  # numpy's remainder is never negative
    return table.append_column(WINDOW, pa.array(starts, pa.int64()))


def grouped(table: pa.Table, plan: Plan) -> pa.Table:
    """One row per key and window, with the aggregates by their names."""
    keys = [*plan.keys, *([WINDOW] if plan.windows else [])]
    asked: list[Any] = [
        ([], "count_all") if one.column is None else (one.column, str(one.kind))
        for one in plan.aggregates.values()
    ]
    # Twice the same question has one answer in Arrow.
    unique = list(dict.fromkeys((str(column), function) for column, function in asked))
    by_name = {(str(column), function): (column, function) for column, function in asked}
    found = table.group_by(keys).aggregate([by_name[one] for one in unique])
    columns = {name: found.column(name) for name in keys}
    for name, (column, function) in zip(plan.aggregates, asked, strict=True):
        made = function if function == "count_all" else f"{column}_{function}"
        columns[name] = found.column(made)
    return pa.table(columns)


def _merged(parts: Sequence[pa.Table], plan: Plan) -> pa.Table:
    """Results of several batches as one."""
    whole = pa.concat_tables(parts, promote_options="none")
    if len(parts) == 1:
        return whole
    keys = [*plan.keys, *([WINDOW] if plan.windows else [])]
    asked: list[Any] = [(name, one.again) for name, one in plan.aggregates.items()]
    found = whole.group_by(keys).aggregate(asked)
    columns = {name: found.column(name) for name in keys}
    columns |= {name: found.column(f"{name}_{one.again}") for name, one in plan.aggregates.items()}
    return pa.table(columns)


def _emitted(held: Sequence[pa.Table], plan: Plan) -> Iterator[pa.RecordBatch]:
    if not held:
        return
    if not plan.aggregates:
        table = listed(pa.concat_tables(held, promote_options="none"), plan)
    else:
        table = _over_windows(_merged(held, plan), plan.windows)
    yield from shaped(table.append_column(KIND, _same(STATE, table.num_rows)), plan.schema)


def _over_windows(table: pa.Table, windows: Windows | None) -> pa.Table:
    """Rows of one step as rows of each window that the step is in."""
    if windows is None:
        return table
    steps = -(-windows.size_us // windows.every_us)
    starts: Any = table.column(WINDOW)
    position = table.schema.get_field_index(WINDOW)
    shifted = []
    for step in range(steps):
        start = pc.subtract(starts, step * windows.every_us)
        shifted.append(table.set_column(position, WINDOW, start))
    return pa.concat_tables(shifted)


def listed(table: pa.Table, plan: Plan) -> pa.Table:
    """One row per key with the list of its rows, in the order of their offsets."""
    topic, partition, offset = plan.place
    order: list[Any] = [(name, "ascending") for name in (*plan.keys, topic, partition, offset)]
    table = table.sort_by(order).combine_chunks()
    keys = table.select(list(plan.keys))
    starts = _first_rows(keys)
    ends = pa.array(np.append(starts, table.num_rows), pa.int32())
    kind = plan.schema.field(ROWS).type.value_type
    fields = [table.column(field.name).combine_chunks().cast(field.type) for field in kind]
    rows: Any = pa.StructArray.from_arrays(fields, fields=list(kind))
    return keys.take(pa.array(starts)).append_column(ROWS, pa.ListArray.from_arrays(ends, rows))


def _first_rows(keys: pa.Table) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Where another key begins, of keys in order."""
    changes = np.zeros(keys.num_rows, dtype=np.bool_)
    changes[:1] = True
    for name in keys.column_names:
        column: Any = keys.column(name).combine_chunks()
        codes = np.asarray(column.dictionary_encode(null_encoding="encode").indices)
        changes[1:] |= codes[1:] != codes[:-1]
    return np.flatnonzero(changes)


def _later(newest_us: int | None, table: pa.Table, time: str) -> int | None:
    found: Any = pc.max(table.column(time).cast(_MICROS).cast(pa.int64()))
    told: int | None = found.as_py()
    if told is None or newest_us is None:
        return newest_us if told is None else told
    return max(told, newest_us)


def _told(
    plan: Plan, reached: Mapping[tuple[str, int], int], newest_us: int | None
) -> pa.RecordBatch:
    """The rows about the batch itself."""
    rows: list[dict[str, Any]] = [
        {KIND: OFFSET, PLACE[0]: topic, PLACE[1]: partition, END: end}
        for (topic, partition), end in sorted(reached.items())
    ]
    if newest_us is not None:
        rows.append({KIND: CLOCK, NEWEST: newest_us})
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in plan.schema]
    return pa.RecordBatch.from_arrays(columns, schema=plan.schema)


def shaped(table: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The columns that Spark was told of, in its order and types; null where there are none."""
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.column_names
        else pa.chunked_array([pa.nulls(table.num_rows, field.type)])
        for field in schema
    ]
    yield from pa.table(columns, schema=schema).combine_chunks().to_batches()


def _same(word: str, rows: int) -> Any:
    return pa.array([word], pa.string()).take(np.zeros(rows, dtype=np.int64))
