"""Windows over event time: tumbling, sliding and sessions, with a watermark.

    hourly = tumbling(
        orders, "at", "1 hour", lateness="10 minutes", by=["country"],
        orders=count("*"), cents=sum("cents"),
    )

Each gives flat columns: `window_start`, `window_end` (exclusive), the columns of `by`, the
aggregates. An event is late, and left out, when its window ended before the newest event time of
earlier batches less `lateness`; to have late events instead of silence, see `late`. Over a batch
frame the same call gives the same windows and nothing is late.

Joins of two streams on a shared key, with bounds in time so that their state stays bounded.

    paid = join_within(
        Timed(orders, "at", lateness="10 minutes"),
        Timed(payments, "paid_at", lateness="10 minutes"),
        on=["order_id"], within="1 hour",
    )

A row of the left meets a row of the right that happened after it, by `within` at most. Spark keeps
a row until the watermarks say that nothing can meet it any more. Which rows meet does not depend
on how the streams are cut into batches, unless something is later than its lateness.

Late events to a topic of their own, counted, instead of silence.

    events.writeStream.foreachBatch(late_events(
        "orders.late", time="at", lateness="10 minutes", query="orders-late",
        key="order_id", schema=Path("order.avsc"), registry=..., bootstrap_servers=...,
        then=write_the_rest,
    ))

An event is late when it is older than the watermark: the newest event time of earlier batches less
`lateness`, as Spark has it. Spark's own operators drop such events and say little of them; here
they are written to a topic exactly once, and everything else goes on to `then`.

The watermark, and how many were late, are kept in the same transaction as the late events, as a
note with the offsets of the group `penstock.late.<query>`: a batch that is run again has the
watermark it had, and a query that begins anew goes on with the one it had. An event without a time
is never late.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.link.offsets import committed_offsets
from penstock.model import Offset, TopicPartition
from penstock.serde.contract import Contract
from penstock.spark.connections import cluster, kafka_properties
from penstock.spark.exactly_once_sink import (
    TransactionalBatch,
    batch_name,
    in_transaction,
    run_through,
)
from penstock.spark.write_options import WriteRequest, contract_of, framing_of, prepared


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


logger = logging.getLogger(__name__)

GROUP: Final = "penstock.late."


@dataclass(frozen=True, slots=True)
class Clock:
    """What is kept of a query: before and after its last batch, in microseconds."""

    checkpoint: str = ""
    batch_id: int = -1
    before_us: int | None = None
    after_us: int | None = None
    late: int = 0  # events, ever

    def watermark(self, checkpoint: str, batch_id: int) -> int | None:
        """In force for a batch: what the batches before it have seen."""
        if (checkpoint, batch_id) == (self.checkpoint, self.batch_id):
            return self.before_us
        return self.after_us

    def note(self) -> str:
        """As it is kept."""
        return json.dumps(
            [self.checkpoint, self.batch_id, self.before_us, self.after_us, self.late]
        )

    @classmethod
    def noted(cls, note: str) -> "Clock":
        """What `note` wrote."""
        checkpoint, batch_id, before_us, after_us, late = json.loads(note)
        return cls(checkpoint, batch_id, before_us, after_us, late)


def late_events(
    topic: str,
    *,
    time: str,
    lateness: str,
    query: str,
    then: Callable[[DataFrame, int], object] | None = None,
    key: str | Sequence[str] | None = None,
    value: str | Sequence[str] | None = None,
    schema: Contract | str | Path | None = None,
    registry: str | None = None,
    **kafka: str,
) -> "LateEvents":
    """A function for `foreachBatch`; columns and schema are as for `exactly_once`.

    `query` names the writer: one at a time may use it.
    """
    properties = kafka_properties(
        {f"kafka.{name.replace('_', '.')}": str(word) for name, word in kafka.items()}
    )
    request = prepared(
        WriteRequest(
            properties=properties,
            topic=topic,
            key=key,
            value=value,
            schema=contract_of(schema),
            registry_url=registry,
            framing=framing_of(properties),
        )
    )
    return LateEvents(request, topic, time, lateness, query, then)


class LateEvents:
    """What `late_events` makes: called by Spark with each micro-batch."""

    def __init__(
        self,
        request: WriteRequest,
        topic: str,
        time: str,
        lateness: str,
        query: str,
        then: Callable[[DataFrame, int], object] | None,
    ) -> None:
        self._request = request
        self._topic = topic
        self._time = time
        self._lateness = lateness
        self._query = query
        self._then = then

    @property
    def late_total(self) -> int:
        """How many events were late, in all batches there ever were."""
        return self._clock().late

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write the late events of a batch, and give the others to `then`."""
        name = batch_name(frame, batch_id, f"late.{self._query}", self._topic)
        clock = self._clock()
        watermark_us = clock.watermark(name.checkpoint, batch_id)
        frame = frame.persist()
        try:

            def put(batch: TransactionalBatch) -> None:
                count = 0
                if watermark_us is not None:
                    late = frame.where(self._is_late(watermark_us))
                    count = batch.write(late, self._request)
                after_us = self._newest(frame, watermark_us)
                known = Clock(name.checkpoint, batch_id, watermark_us, after_us, clock.late + count)
                place = TopicPartition(self._topic, 0)
                offsets = {place: Offset(known.late)}
                batch.add_offsets(GROUP + self._query, offsets, metadata=known.note())
                if count:
                    logger.warning("%s: %d late events, in %s", name, count, self._topic)

            outcome = in_transaction(name, self._request.properties, put, topics=[self._topic])
            run_through(frame, outcome)
            if self._then is not None:
                rest = frame
                if watermark_us is not None:
                    rest = frame.where(~F.coalesce(self._is_late(watermark_us), F.lit(False)))
                self._then(rest, batch_id)
        finally:
            frame.unpersist()

    def _is_late(self, watermark_us: int) -> Any:
        return F.unix_micros(self._time) < watermark_us

    def _newest(self, frame: DataFrame, watermark_us: int | None) -> int | None:
        """The watermark after this batch."""
        newest = F.max(self._time) - F.expr(f"interval {self._lateness}")
        found: int | None = frame.select(F.unix_micros(newest)).collect()[0][0]
        if found is None or watermark_us is None:
            return watermark_us if found is None else found
        return max(found, watermark_us)

    def _clock(self) -> Clock:
        brokers = cluster(self._request.properties)
        rows: Mapping[TopicPartition, Any] = brokers.run(committed_offsets(GROUP + self._query))
        notes = [row.metadata for row in rows.values() if row.metadata]
        return Clock.noted(notes[0]) if notes else Clock()
