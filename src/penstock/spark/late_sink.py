"""Late events to a topic of their own, counted, instead of being dropped silently.

    late = WriteRequest("orders.late", bootstrap=..., registry=..., key="order_id",
                        schema=Path("order.avsc"))
    events.writeStream.foreachBatch(late_events(
        late, time="at", lateness="10 minutes", query="orders-late", then=write_others
    ))

An event is late if it is older than the watermark: the newest event time of earlier batches minus
`lateness`, as in Spark. Spark's own operators drop such events; here they are written to a topic
exactly once, and all others are passed to `then`. An event without a time is never late.

The watermark and the number of late events are stored in the same transaction as the late events,
as metadata of the offsets of group `penstock.late.<query>`: a batch that is run again has the same
watermark, and a query with a new checkpoint continues with the stored one.
"""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from penstock.link.offsets import committed_offsets
from penstock.model import Offset, TopicPartition
from penstock.spark.connections import cluster_for
from penstock.spark.exactly_once_sink import (
    TransactionalBatch,
    batch_name,
    compute_if_written_before,
    in_transaction,
)
from penstock.spark.given_options import config_error
from penstock.spark.write_options import WriteRequest

logger: Final = logging.getLogger(__name__)

GROUP: Final = "penstock.late."


@dataclass(frozen=True, slots=True)
class EventClock:
    """What is stored about a query: the watermark before and after its last batch."""

    checkpoint: str = ""
    batch_id: int = -1
    before_us: int | None = None
    after_us: int | None = None
    late: int = 0  # events, in all batches

    def watermark(self, checkpoint: str, batch_id: int) -> int | None:
        """The watermark of a batch: from the batches before it."""
        if (checkpoint, batch_id) == (self.checkpoint, self.batch_id):
            return self.before_us
        return self.after_us

    def dump(self) -> str:
        """As it is stored."""
        return json.dumps(
            [self.checkpoint, self.batch_id, self.before_us, self.after_us, self.late]
        )

    @classmethod
    def load(cls, stored: str) -> "EventClock":
        """What `dump` returned."""
        checkpoint, batch_id, before_us, after_us, late = json.loads(stored)
        return cls(checkpoint, batch_id, before_us, after_us, late)


def late_events(
    request: WriteRequest,
    *,
    time: str,
    lateness: str,
    query: str,
    then: Callable[[DataFrame, int], object] | None = None,
) -> "LateEvents":
    """A function for `foreachBatch` that writes late events as `request` says.

    `query` names the writer: only one query at a time may use it.
    """
    if request.topic is None:
        raise config_error("late events need one `topic`")
    return LateEvents(request.prepared(), request.topic, time, lateness, query, then)


class LateEvents:
    """What `late_events` returns: called by Spark with each micro-batch."""

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
        """The number of late events in all batches so far."""
        return self._clock().late

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write the late events of a batch, and pass the others to `then`."""
        name = batch_name(frame, batch_id, f"late.{self._query}")
        clock = self._clock()
        watermark_us = clock.watermark(name.checkpoint, batch_id)
        frame = frame.persist()
        try:

            def put(batch: TransactionalBatch) -> None:
                count = 0
                if watermark_us is not None:
                    late = frame.where(self._is_late(watermark_us))
                    count = batch.write(late, self._request)
                after_us = self._next_watermark(frame, watermark_us)
                total = clock.late + count
                new = EventClock(name.checkpoint, batch_id, watermark_us, after_us, total)
                offsets = {TopicPartition(self._topic, 0): Offset(total)}
                batch.add_offsets(GROUP + self._query, offsets, metadata=new.dump())
                if count:
                    logger.warning("%s: %d late events, in %s", name, count, self._topic)

            request = self._request
            outcome = in_transaction(
                name, put, bootstrap=request.bootstrap, kafka=request.kafka, topics=[self._topic]
            )
            compute_if_written_before(frame, outcome)
            if self._then is not None:
                rest = frame
                if watermark_us is not None:
                    rest = frame.where(~sf.coalesce(self._is_late(watermark_us), sf.lit(False)))
                self._then(rest, batch_id)
        finally:
            frame.unpersist()

    def _is_late(self, watermark_us: int) -> Any:
        return sf.unix_micros(self._time) < watermark_us

    def _next_watermark(self, frame: DataFrame, watermark_us: int | None) -> int | None:
        """The watermark after this batch."""
        newest = sf.max(self._time) - sf.expr(f"interval {self._lateness}")
        newest_us: int | None = frame.select(sf.unix_micros(newest)).collect()[0][0]
        if newest_us is None or watermark_us is None:
            return watermark_us if newest_us is None else newest_us
        return max(newest_us, watermark_us)

    def _clock(self) -> EventClock:
        cluster = cluster_for(self._request.properties)
        rows: Mapping[TopicPartition, Any] = cluster.run(committed_offsets(GROUP + self._query))
        stored = [row.metadata for row in rows.values() if row.metadata]
        return EventClock.load(stored[0]) if stored else EventClock()
