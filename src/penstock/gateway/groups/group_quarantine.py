"""Unreadable events of consumer groups go to `<topic>.quarantine`, as those of the client do.

The records and their headers are the client's, so the same commands list them and send them back.
An offset is committed only after the unreadable events before it are in quarantine: `write` returns
when they are there, or raises.
"""

from collections.abc import Sequence
from typing import Final

from penstock.client.quarantine import (
    TOPIC_SETTINGS,
    OriginalRecord,
    failure_of,
    quarantine_topic,
    write_envelope,
)
from penstock.clock import wall_ms
from penstock.errors import ErrorCode, Refused
from penstock.gateway.errors import GatewayError, unavailable
from penstock.gateway.events import UnreadableRecord
from penstock.gateway.gateway_node import GatewayNode
from penstock.gateway.produce.encode import EncodedRecord
from penstock.gateway.produce.gateway_producer import ACKS, GatewayProducer
from penstock.link.topic_admin import create_topic, partition_count
from penstock.model import Millis, Offset, TopicPartition

_TOPICS_MAX: Final = 10_000  # that are known to exist; then all are looked up again


class GroupQuarantine:
    """Writes to quarantine topics, and creates them when they are first needed."""

    def __init__(self, node: GatewayNode, producer: GatewayProducer) -> None:
        self._node = node
        self._producer = producer
        self._known_topics: set[str] = set()

    async def write(
        self, group: str, partition: TopicPartition, unreadable: Sequence[UnreadableRecord]
    ) -> None:
        """Write unreadable records of a partition, all of them; GatewayError if one is not."""
        topic = quarantine_topic(partition.topic)
        await self._create(topic, partition.topic)
        now = wall_ms()
        records = [_record(group, partition, each, now) for each in unreadable]
        for result in await self._producer.write(topic, records, ACKS["all"]):
            if isinstance(result, GatewayError):
                raise unavailable(
                    f"an unreadable event could not be written to {topic}: {result.message}",
                    "quarantine_unavailable",
                )
        self._node.counts["events_quarantined"] += len(records)

    async def _create(self, topic: str, origin_topic: str) -> None:
        if topic in self._known_topics:
            return
        partitions = await self._node.run(partition_count(origin_topic))
        try:
            await self._node.run(create_topic(topic, partitions=partitions, configs=TOPIC_SETTINGS))
        except Refused as refusal:
            if refusal.code is not ErrorCode.topic_already_exists:
                raise
        if len(self._known_topics) >= _TOPICS_MAX:
            self._known_topics.clear()
        self._known_topics.add(topic)


def _record(
    group: str, partition: TopicPartition, unreadable: UnreadableRecord, now: Millis
) -> EncodedRecord:
    record = unreadable.record
    origin = OriginalRecord(
        partition.topic,
        partition.partition,
        Offset(record.offset),
        Millis(record.timestamp),
        record.key,
        record.value,
        record.headers,
    )
    failure = failure_of(unreadable.error, unreadable.side, client=group, at=now)
    headers = tuple(write_envelope(origin, failure))
    return EncodedRecord(record.key, record.value, headers, None, None)
