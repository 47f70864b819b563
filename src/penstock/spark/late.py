"""Late events to a topic of their own, counted, instead of silence.

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
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.client.contract import Contract
from penstock.link.offsets import committed_offsets
from penstock.model import Offset, TopicPartition
from penstock.spark.connecting import cluster, kafka_properties
from penstock.spark.micro_batch import TransactionalBatch, batch_name, in_transaction, run_through
from penstock.spark.write_options import WriteRequest, contract_of, framing_of, prepared

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
