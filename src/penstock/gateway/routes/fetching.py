"""`GET /topics/{topic}/partitions/{partition}/events`: read from any offset or time; stateless."""

import asyncio
from typing import Annotated, Final

from fastapi import APIRouter, Query, Response

from penstock.gateway.errors import bad_request, unknown_partition
from penstock.gateway.gateway_node import GatewayNode
from penstock.gateway.json_responses import events_document, json_response
from penstock.gateway.request_bodies import TopicName, described_response
from penstock.link.fetch_request import FetchLimits
from penstock.link.offsets import EARLIEST, LATEST, Isolation, list_offsets
from penstock.link.topic_admin import partition_count
from penstock.model import NO_OFFSET, Millis, Offset, TopicPartition
from penstock.protocol.records import Record

BYTES_DEFAULT: Final = 1 << 20
_BATCH_BYTES_MIN: Final = 64 << 10  # a batch comes whole, so fetching less saves nothing
_DIGITS_MAX: Final = 19
_INT_64_MAX: Final = (1 << 63) - 1
_EXAMPLE: Final = {
    "events": [
        {
            "topic": "orders",
            "partition": 0,
            "offset": 7,
            "timestamp": 1700000000000,
            "key": "berlin",
            "value": {"cents": 1250},
            "headers": [["source", "shop"]],
        }
    ],
    "next_offset": 8,
    "high_watermark": 8,
}


def fetching(node: GatewayNode) -> APIRouter:
    """Fetches of one partition."""
    router = APIRouter(tags=["events"])

    @router.get(
        "/topics/{topic}/partitions/{partition}/events",
        responses=described_response(_EXAMPLE, "Events in the order of their offsets."),
    )
    async def fetch_events(
        topic: TopicName,
        partition: int,
        offset: Annotated[
            str | None, Query(description="A number, `earliest` or `latest`; default earliest.")
        ] = None,
        timestamp: Annotated[
            int | None, Query(description="Start at the first event at or after this time in ms.")
        ] = None,
        max_bytes: Annotated[int, Query(ge=1)] = BYTES_DEFAULT,
        max_wait_ms: Annotated[int, Query(ge=0)] = 0,
    ) -> Response:
        """Committed events of a partition, decoded by their schema ids.

        Offsets may have gaps: compaction and transactions leave them. Read on from `next_offset`.
        At least one event is returned, however large, if there is one.
        """
        place = await _place(node, topic, partition)
        start = await start_offset(node, place, offset, timestamp)
        limits = node.settings
        bytes_max = min(max_bytes, limits.fetch_bytes_max)
        wait_ms = min(max_wait_ms, limits.wait_ms_max)
        return await fetch_response(node, place, start, bytes_max, wait_ms)

    return router


async def fetch_response(
    node: GatewayNode, place: TopicPartition, start: Offset, bytes_max: int, wait_ms: int
) -> Response:
    """Events of one partition; waits on while only markers and aborted records arrive."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_ms / 1000
    offset, records = start, list[Record]()
    size_bytes = max(bytes_max, _BATCH_BYTES_MIN)
    while not records:
        left_ms = max(0, int((deadline - loop.time()) * 1000))
        limits = FetchLimits(left_ms, size_bytes, size_bytes)
        fetched = (await node.fetch({place: offset}, limits))[place]
        records, end_offset = await node.open(fetched.batches, fetched.aborted, offset, bytes_max)
        if end_offset == offset and loop.time() >= deadline:
            break
        offset = end_offset
    events = await node.render(place, records)
    node.counts["events_fetched"] += len(events)
    return json_response(
        {
            "events": events_document(events),
            "next_offset": offset,
            "high_watermark": fetched.high_watermark,
        }
    )


async def _place(node: GatewayNode, topic: str, partition: int) -> TopicPartition:
    count = await node.run(partition_count(topic))
    place = TopicPartition(topic, partition)
    if not 0 <= partition < count:
        raise unknown_partition(place, count)
    return place


async def start_offset(
    node: GatewayNode, place: TopicPartition, offset: str | None, timestamp: int | None
) -> Offset:
    """Where a reader starts, by an offset, a name or a time."""
    if offset is not None and timestamp is not None:
        raise bad_request("offset and timestamp exclude each other: give one of them")
    if timestamp is not None:
        return await _offset_at(node, place, timestamp)
    named = {None: EARLIEST, "earliest": EARLIEST, "latest": LATEST}
    if offset in named:
        return await _offset_named(node, place, named[offset])
    if (
        offset is None
        or not offset.isascii()
        or not offset.isdecimal()
        or len(offset) > _DIGITS_MAX
        or int(offset) > _INT_64_MAX
    ):
        raise bad_request(f"offset {offset!r} is neither a number nor earliest nor latest")
    return Offset(int(offset))


async def _offset_named(node: GatewayNode, place: TopicPartition, name: Millis) -> Offset:
    operation = list_offsets({place: name}, isolation=Isolation.READ_COMMITTED)
    return (await node.run(operation))[place].offset


async def _offset_at(node: GatewayNode, place: TopicPartition, timestamp: int) -> Offset:
    if not 0 <= timestamp <= _INT_64_MAX:
        raise bad_request(f"timestamp {timestamp} is not a time in milliseconds since 1970")
    operation = list_offsets({place: Millis(timestamp)}, isolation=Isolation.READ_COMMITTED)
    found = (await node.run(operation))[place].offset
    return await _offset_named(node, place, LATEST) if found == NO_OFFSET else found
