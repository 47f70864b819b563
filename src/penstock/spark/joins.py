"""Joins of two streams on a shared key, with bounds in time so that their state stays bounded.

    paid = join_within(
        Timed(orders, "at", lateness="10 minutes"),
        Timed(payments, "paid_at", lateness="10 minutes"),
        on=["order_id"], within="1 hour",
    )

A row of the left meets a row of the right that happened after it, by `within` at most. Spark keeps
a row until the watermarks say that nothing can meet it any more. Which rows meet does not depend
on how the streams are cut into batches, unless something is later than its lateness.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

How: TypeAlias = Literal["inner", "left_outer", "right_outer", "full_outer", "left_semi"]


class Timed(NamedTuple):
    """A stream, its column of event time, and how late its events may come."""

    events: DataFrame
    time: str
    lateness: str


def join_within(
    left: Timed,
    right: Timed,
    *,
    on: Sequence[str],
    within: str,
    before: str = "0 seconds",
    how: How = "inner",
) -> DataFrame:
    """Rows with the same `on`, the right one `before` at most before and `within` after the left.

    The columns of `on` come once; any other column must have a name of its own. With an outer join
    a row without a partner comes when the watermarks have passed its bounds.
    """
    if not on:
        raise ValueError("name the columns that both sides share, on=[...]")
    _refuse_twins(left.events, right.events, on)
    ours = left.events.withWatermark(left.time, left.lateness).alias("ours")
    theirs = right.events.withWatermark(right.time, right.lateness).alias("theirs")
    condition = F.col(f"theirs.{right.time}").between(
        F.col(f"ours.{left.time}") - F.expr(f"interval {before}"),
        F.col(f"ours.{left.time}") + F.expr(f"interval {within}"),
    )
    for name in on:
        condition &= F.col(f"ours.{name}") == F.col(f"theirs.{name}")
    joined = ours.join(theirs, condition, how)
    if how == "left_semi":
        return joined
    shared = [F.coalesce(f"ours.{name}", f"theirs.{name}").alias(name) for name in on]
    own = [F.col(f"ours.{name}") for name in left.events.columns if name not in on]
    other = [F.col(f"theirs.{name}") for name in right.events.columns if name not in on]
    return joined.select(*shared, *own, *other)


def _refuse_twins(left: DataFrame, right: DataFrame, on: Sequence[str]) -> None:
    for name in on:
        for side, frame in (("left", left), ("right", right)):
            if name not in frame.columns:
                raise ValueError(f"the {side} side has no column {name}: it has {frame.columns}")
    twins = sorted((set(left.columns) & set(right.columns)) - set(on))
    if twins:
        raise ValueError(f"both sides have {', '.join(twins)}: rename or drop one of each")
