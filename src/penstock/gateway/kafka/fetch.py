"""One fetch of committed records from any number of partitions: one request to each leader.

Waits at most `wait_ms` for records. Never creates a topic, and never fetches more than it was asked
for, except that the first batch of a partition always comes whole.
"""

from collections.abc import Mapping
from typing import NamedTuple

from penstock.errors import ErrorCode, Refused
from penstock.gateway.errors import GatewayError, not_found
from penstock.gateway.kafka.topic_admin import unknown_topic
from penstock.link.fetch_range import OffsetOutOfRange
from penstock.link.offsets import EARLIEST, LATEST, Isolation, list_offsets
from penstock.link.operation import BrokerRequest, Request, Steps, send_all, worse
from penstock.link.routing import PartitionRoute, Routes, operation
from penstock.model import Offset, TopicPartition
from penstock.protocol.messages.fetch import (
    FETCH,
    FLEXIBLE_FROM,
    READ_COMMITTED,
    TOPIC_IDS_FROM,
    FetchedAbort,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)


class CommittedBatches(NamedTuple):
    """What a partition returned: whole batches, maybe with a cut one at the end."""

    batches: memoryview
    aborted: tuple[FetchedAbort, ...]
    high_watermark: Offset
    last_stable_offset: Offset


class FetchLimits(NamedTuple):
    """How long a fetch waits, and how much it returns."""

    wait_ms: int
    bytes_max: int  # of all partitions together
    partition_bytes_max: int


@operation
def fetch_partitions(
    routes: Routes, positions: Mapping[TopicPartition, Offset], limits: FetchLimits
) -> Steps[dict[TopicPartition, CommittedBatches]]:
    """What each partition has from its position on; OffsetOutOfRange if one has not."""

    def attempt() -> Steps[dict[TopicPartition, CommittedBatches]]:
        by_leader = yield from routes.by_leader(positions)
        requests = [
            BrokerRequest(address, _request(rows, positions, limits))
            for address, rows in by_leader.items()
        ]
        fetched: dict[TopicPartition, CommittedBatches] = {}
        failure: Exception | None = None
        responses = yield from send_all(requests)
        for response, rows in zip(responses, by_leader.values(), strict=True):
            if isinstance(response, Exception):
                failure = worse(failure, response)
                continue
            _accept(response.error_code, "fetch")
            for partition, row in _rows(response, rows):
                if row.error_code is ErrorCode.offset_out_of_range:
                    raise (yield from _out_of_range(routes, partition, positions[partition]))
                _accept(row.error_code, f"fetch {partition}")
                fetched[partition] = _batches(row)
        if failure is not None:
            raise failure
        return fetched

    def invalidate() -> None:
        routes.invalidate_topics({partition.topic for partition in positions})

    return (yield from routes.with_retries("fetch", attempt, invalidate))


@operation
def partition_count(routes: Routes, topic: str) -> Steps[int]:
    """How many partitions a topic has; declined at once if it does not exist."""

    def attempt() -> Steps[int]:
        try:
            topics = yield from routes.topic_metadata([topic])
        except Refused as refusal:
            if refusal.code is ErrorCode.unknown_topic_or_partition:
                raise unknown_topic(topic) from None
            raise
        return len(topics[topic].partitions)

    return (
        yield from routes.with_retries(
            f"describe {topic}", attempt, lambda: routes.invalidate_topics([topic])
        )
    )


def unknown_partition(partition: TopicPartition, count: int) -> GatewayError:
    message = f"topic {partition.topic} has no partition {partition.partition}: it has {count}"
    return not_found("unknown_topic_or_partition", message)


def _request(
    rows: Mapping[TopicPartition, PartitionRoute],
    positions: Mapping[TopicPartition, Offset],
    limits: FetchLimits,
) -> Request[FetchResponse]:
    topics: dict[str, list[FetchPartition]] = {}
    for partition, route in rows.items():
        row = FetchPartition(
            partition.partition,
            route.leader_epoch,
            positions[partition],
            partition_max_bytes=limits.partition_bytes_max,
        )
        topics.setdefault(partition.topic, []).append(row)
    ids = {partition.topic: route.topic_id for partition, route in rows.items()}

    def body(version: int) -> FetchRequest:
        named = []
        for name, partitions in topics.items():
            topic_id = ids[name]
            by_name = version < TOPIC_IDS_FROM or topic_id is None
            named.append(
                FetchTopic(name if by_name or topic_id is None else topic_id.bytes, partitions)
            )
        return FetchRequest(limits.wait_ms, 1, limits.bytes_max, READ_COMMITTED, topics=named)

    has_ids = all(topic_id is not None for topic_id in ids.values())
    return Request(
        FETCH, body, FLEXIBLE_FROM, TOPIC_IDS_FROM + 4 if has_ids else TOPIC_IDS_FROM - 1
    )


def _rows(
    response: FetchResponse, requested: Mapping[TopicPartition, PartitionRoute]
) -> list[tuple[TopicPartition, FetchedPartition]]:
    names = {
        route.topic_id.bytes: partition.topic
        for partition, route in requested.items()
        if route.topic_id is not None
    }
    return [
        (TopicPartition(name, row.partition), row)
        for topic in response.topics
        for name in (topic.topic if isinstance(topic.topic, str) else names[topic.topic],)
        for row in topic.partitions
    ]


def _batches(row: FetchedPartition) -> CommittedBatches:
    return CommittedBatches(
        memoryview(row.records or b""),
        tuple(row.aborted_transactions or ()),
        Offset(row.high_watermark),
        Offset(row.last_stable_offset),
    )


def _out_of_range(routes: Routes, partition: TopicPartition, offset: Offset) -> Steps[Refused]:
    earliest = yield from list_offsets({partition: EARLIEST})(routes)
    committed = Isolation.READ_COMMITTED
    latest = yield from list_offsets({partition: LATEST}, isolation=committed)(routes)
    return OffsetOutOfRange(
        partition,
        offset,
        start_offset=earliest[partition].offset,
        end_offset=latest[partition].offset,
    )


def _accept(code: ErrorCode, what: str) -> None:
    if code is not ErrorCode.none:
        raise Refused(code, f"{what}: {code.name}")
