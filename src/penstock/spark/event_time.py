"""Windows over event time, and joins of two streams within bounds of it.

    hourly = tumbling(
        orders, "at", "1 hour", lateness="10 minutes", by=["country"],
        orders=count("*"), cents=sum("cents"),
    )

A window gives flat columns: `window_start`, `window_end` (exclusive), the columns of `by`, the
aggregates. An event is late, and dropped, if its window ended before the watermark: the newest
event time of earlier batches minus `lateness`. `late_events` writes late events to a topic instead.
Over a batch frame the same call gives the same windows and no event is late.

    paid = join_within(
        TimedStream(orders, "at", lateness="10 minutes"),
        TimedStream(payments, "paid_at", lateness="10 minutes"),
        on=["order_id"], within="1 hour",
    )

A row of the left is joined with rows of the right that happened after it, at most `within` later.
Spark keeps a row until the watermarks say that nothing can join it any more. Which rows are joined
does not depend on how the streams are cut into batches, unless a row is later than its lateness.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

StreamJoin: TypeAlias = Literal["inner", "left_outer", "right_outer", "full_outer", "left_semi"]


def tumbling(
    events: DataFrame,
    time: str,
    size: str,
    /,
    *,
    lateness: str,
    by: Sequence[str] = (),
    **aggregates: Column,
) -> DataFrame:
    """Adjacent windows of one size: each event is in one. Sizes are "1 hour", "5 minutes"."""
    return _windowed(events, time, sf.window(sf.col(time), size), lateness, by, aggregates)


def sliding(
    events: DataFrame,
    time: str,
    size: str,
    every: str,
    /,
    *,
    lateness: str,
    by: Sequence[str] = (),
    **aggregates: Column,
) -> DataFrame:
    """Windows of one size, a new one `every` interval: each event is in size / every of them."""
    return _windowed(events, time, sf.window(sf.col(time), size, every), lateness, by, aggregates)


def sessions(
    events: DataFrame,
    time: str,
    gap: str,
    /,
    *,
    lateness: str,
    by: Sequence[str],
    **aggregates: Column,
) -> DataFrame:
    """Windows that continue while the events of one `by` are less than `gap` apart.

    Spark has no update mode for streams of these: write them in append mode.
    """
    if not by:
        raise ValueError("sessions need a key: name its columns, by=[...]")
    return _windowed(events, time, sf.session_window(sf.col(time), gap), lateness, by, aggregates)


def _windowed(
    events: DataFrame,
    time: str,
    window: Column,
    lateness: str,
    by: Sequence[str],
    aggregates: Mapping[str, Column],
) -> DataFrame:
    if not aggregates:
        raise ValueError("no aggregate: give at least one, such as n=count('*')")
    columns = [aggregate.alias(name) for name, aggregate in aggregates.items()]
    grouped = events.withWatermark(time, lateness).groupBy(window.alias("_window"), *by)
    return grouped.agg(*columns).select(
        sf.col("_window.start").alias("window_start"),
        sf.col("_window.end").alias("window_end"),
        *by,
        *aggregates,
    )


class TimedStream(NamedTuple):
    """A stream, its column of event time, and how late its events may come."""

    events: DataFrame
    time: str
    lateness: str


def join_within(
    left: TimedStream,
    right: TimedStream,
    *,
    on: Sequence[str],
    within: str,
    before: str = "0 seconds",
    how: StreamJoin = "inner",
) -> DataFrame:
    """Rows with the same `on`, the right at most `before` earlier and `within` later than the left.

    The columns of `on` come once; all other column names must differ. With an outer join, a row
    without a partner comes once the watermarks have passed its bounds.
    """
    if not on:
        raise ValueError("name the columns that both streams share, on=[...]")
    _check_names(left.events, right.events, on)
    left_rows = left.events.withWatermark(left.time, left.lateness).alias("left")
    right_rows = right.events.withWatermark(right.time, right.lateness).alias("right")
    condition = sf.col(f"right.{right.time}").between(
        sf.col(f"left.{left.time}") - sf.expr(f"interval {before}"),
        sf.col(f"left.{left.time}") + sf.expr(f"interval {within}"),
    )
    for name in on:
        condition &= sf.col(f"left.{name}") == sf.col(f"right.{name}")
    joined = left_rows.join(right_rows, condition, how)
    if how == "left_semi":
        return joined
    shared = [sf.coalesce(f"left.{name}", f"right.{name}").alias(name) for name in on]
    of_left = [sf.col(f"left.{name}") for name in left.events.columns if name not in on]
    of_right = [sf.col(f"right.{name}") for name in right.events.columns if name not in on]
    return joined.select(*shared, *of_left, *of_right)


def _check_names(left: DataFrame, right: DataFrame, on: Sequence[str]) -> None:
    for name in on:
        for side, frame in (("left", left), ("right", right)):
            if name not in frame.columns:
                raise ValueError(f"the {side} stream has no column {name}: it has {frame.columns}")
    shared = sorted((set(left.columns) & set(right.columns)) - set(on))
    if shared:
        raise ValueError(f"both streams have {', '.join(shared)}: rename or drop one of each")
