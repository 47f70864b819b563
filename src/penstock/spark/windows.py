"""Windows over event time: tumbling, sliding and sessions, with a watermark.

    hourly = tumbling(
        orders, "at", "1 hour", lateness="10 minutes", by=["country"],
        orders=count("*"), cents=sum("cents"),
    )

Each gives flat columns: `window_start`, `window_end` (exclusive), the columns of `by`, the
aggregates. An event is late, and left out, when its window ended before the newest event time of
earlier batches less `lateness`; to have late events instead of silence, see `late`. Over a batch
frame the same call gives the same windows and nothing is late.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


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
    """Windows of one size, end to end: each event is in one. Sizes are "1 hour", "5 minutes"."""
    return _windowed(events, time, F.window(F.col(time), size), lateness, by, aggregates)


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
    """Windows of one size, a new one `every` so often: each event is in size / every of them."""
    return _windowed(events, time, F.window(F.col(time), size, every), lateness, by, aggregates)


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
    """Windows that go on while the events of one `by` are less than `gap` apart.

    A stream of these has no update mode, in Spark itself: write it in append mode.
    """
    if not by:
        raise ValueError("a session is somebody's: name the columns that tell whose, by=[...]")
    return _windowed(events, time, F.session_window(F.col(time), gap), lateness, by, aggregates)


def _windowed(
    events: DataFrame,
    time: str,
    window: Column,
    lateness: str,
    by: Sequence[str],
    aggregates: dict[str, Column],
) -> DataFrame:
    if not aggregates:
        raise ValueError("nothing to work out: give at least one aggregate, such as n=count('*')")
    columns = [aggregate.alias(name) for name, aggregate in aggregates.items()]
    grouped = events.withWatermark(time, lateness).groupBy(window.alias("_window"), *by)
    return grouped.agg(*columns).select(
        F.col("_window.start").alias("window_start"),
        F.col("_window.end").alias("window_end"),
        *by,
        *aggregates,
    )
