"""What happens to a key's state when its rows come: merged, or updated by the user's function.

Runs in Spark's workers under `transformWithState`, which calls a processor for each key of a batch
with that key's rows. Every change comes out as one row: the new state, or that it was removed. How
far the source was read and the newest event time are states like any other.

A window is late if its end is not after the watermark, as in Spark's own windows. Spark has no
watermark in the first batch of a checkpoint; for that batch, a query that started from a changelog
topic uses the one it had before, `watermark_ms`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import StructType

from penstock.spark.aggregates import StateAggregate
from penstock.spark.partial_aggregates import CLOCK, END, NEWEST, OFFSET, ROWS, STATE, WINDOW

LATE: Final = "late"
_MILLI_US: Final = 1000

Update: TypeAlias = Callable[[dict[str, Any] | None, list[dict[str, Any]]], dict[str, Any] | None]


@dataclass(frozen=True, slots=True)
class StateRules:
    """How states change; small, because it is sent to every task."""

    names: tuple[str, ...]  # of the state's own columns
    state: StructType  # those, and the columns of the rows about the batch
    aggregates: Mapping[str, StateAggregate]
    update: Update | None  # instead of aggregates
    size_us: int | None  # of windows
    watermark_ms: int  # of the query before this one


class StateProcessor(StatefulProcessor):
    """The states of all keys: (kind, id) in, changes out."""

    def __init__(self, rules: StateRules) -> None:
        self._rules = rules

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Spark's: before the first key."""
        self._handle = handle
        self._state = handle.getValueState("state", self._rules.state)
        self._watermark: tuple[str | None, int] | None = None  # batch, and its watermark

    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,
    ) -> Iterator[Row]:
        """Spark's: the rows of one key in this batch."""
        kind, name = key
        inputs = list(rows)
        if kind == OFFSET:
            yield from self._advance(key, END, max(row[END] for row in inputs))
        elif kind == CLOCK:
            yield from self._advance(key, NEWEST, max(row[NEWEST] for row in inputs))
        elif self._is_late(inputs[0], timerValues):
            yield self._row(LATE, name, self._merged({}, inputs), window=inputs[0][WINDOW])
        else:
            yield from self._change(name, inputs)

    def handleExpiredTimer(
        self,
        key: Any,
        timerValues: Any,
        expiredTimerInfo: Any,
    ) -> Iterator[Row]:
        """Spark's: the watermark has passed the end of a window."""
        state = self._current()
        if state is not None:
            self._state.clear()
            yield self._row(STATE, key[1], None, window=state[WINDOW])

    def handleInitialState(
        self,
        key: Any,
        initialState: Row,
        timerValues: Any,
    ) -> None:
        """Spark's: what the changelog topic has for a key, before the first batch."""
        state = initialState.asDict(recursive=False)
        self._state.update(tuple(state[name] for name in self._rules.state.names))
        self._set_timer(state[WINDOW])

    def close(self) -> None:
        """Spark's: there is nothing to release."""

    def _change(self, name: str, rows: list[Row]) -> Iterator[Row]:
        before = self._current()
        window = rows[0][WINDOW] if self._rules.size_us is not None else None
        if self._rules.update is not None:
            state = (
                None if before is None else {column: before[column] for column in self._rules.names}
            )
            after = self._rules.update(state, [*_unpacked(rows)])
        else:
            after = self._merged(before or {}, rows)
        if after is None:
            if before is not None:
                self._state.clear()
                yield self._row(STATE, name, None, window=window)
            return
        self._store({**after, WINDOW: window})
        if before is None:
            self._set_timer(window)
        yield self._row(STATE, name, after, window=window)

    def _advance(self, key: Any, column: str, value: Any) -> Iterator[Row]:
        """A state that only grows."""
        before = self._current()
        if before is not None and before[column] >= value:
            return
        self._store({column: value})
        yield self._row(key[0], key[1], {column: value})

    def _merged(self, before: Mapping[str, Any], rows: Iterable[Row]) -> dict[str, Any]:
        after = {name: before.get(name) for name in self._rules.aggregates}
        for row in rows:
            for name, aggregate in self._rules.aggregates.items():
                after[name] = aggregate.merge(after[name], row[name])
        return after

    def _is_late(self, row: Row, timer_values: Any) -> bool:
        if self._rules.size_us is None:
            return False
        watermark_us = self._watermark_ms(timer_values) * _MILLI_US
        return bool(row[WINDOW] + self._rules.size_us <= watermark_us)

    def _watermark_ms(self, timer_values: Any) -> int:
        """Of this batch; read once, because that is a call to the JVM."""
        context = TaskContext.get()
        batch_id = None if context is None else context.getLocalProperty("streaming.sql.batchId")
        if self._watermark is None or self._watermark[0] != batch_id:
            watermark_ms = timer_values.getCurrentWatermarkInMs()
            if batch_id == "0":
                watermark_ms = max(watermark_ms, self._rules.watermark_ms)
            self._watermark = (batch_id, watermark_ms)
        return self._watermark[1]

    def _set_timer(self, window: int | None) -> None:
        """Have Spark report when the window is over."""
        if window is not None and self._rules.size_us is not None:
            self._handle.registerTimer((window + self._rules.size_us) // _MILLI_US)

    def _current(self) -> dict[str, Any] | None:
        values = self._state.get()
        return None if values is None else dict(zip(self._rules.state.names, values, strict=True))

    def _store(self, state: Mapping[str, Any]) -> None:
        self._state.update(tuple(state.get(name) for name in self._rules.state.names))

    def _row(
        self, kind: str, name: str, state: Mapping[str, Any] | None, *, window: int | None = None
    ) -> Row:
        values = state or {}
        columns = {column: values.get(column) for column in self._rules.state.names}
        columns[WINDOW] = window
        return Row(_kind=kind, _id=name, _removed=state is None, **columns)


def _unpacked(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    for row in rows:
        for item in row[ROWS]:  # structs inside a list come as dicts already
            yield item.asDict(recursive=True) if isinstance(item, Row) else dict(item)
