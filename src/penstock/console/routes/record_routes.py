"""`/topics/{topic}/search`, `/histogram` and one record: the records of a topic for people."""

import asyncio
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request, Response

from penstock.console.console_node import ConsoleNode
from penstock.console.record_page import record_page
from penstock.console.search.search import SearchBody, search, topic_places
from penstock.console.time_buckets import bucket_edges, buckets_of
from penstock.gateway.errors import bad_request
from penstock.gateway.json_responses import json_response
from penstock.gateway.request_bodies import (
    TopicName,
    described_body,
    described_response,
    read_document,
)
from penstock.link.offsets import MAX_TIMESTAMP, Isolation, end_offsets, list_offsets
from penstock.link.topic_admin import describe_configs
from penstock.model import NO_OFFSET, Millis, Offset, TopicPartition

BODY_BYTES_MAX: Final = 256 << 10
BUCKETS_MAX: Final = 200
INT_64_MAX: Final = (1 << 63) - 1
SEARCHES_MAX: Final = 4  # at a time
# Offsets by time at once, of all histograms: a broker opens a batch for each, and what searches
# send over the same connection waits behind them.
LOOKUPS_MAX: Final = 2
_RESULT: Final = {
    "records": [],
    "scanned": "200000",
    "total": "1000000",
    "matched": "0",
    "stopped": "scan_max",
    "reached": {"partition": 0, "offset": "199999", "timestamp": "1700000000000"},
    "cursor": "WyJmb3J3YXJkIiwi…",
}


def record_routes(node: ConsoleNode) -> APIRouter:
    """Records."""
    router = APIRouter(tags=["events"])
    gateway = node.gateway
    turns = asyncio.Semaphore(SEARCHES_MAX)  # the others wait: threads are for writers too

    @router.post(
        "/topics/{topic}/search",
        openapi_extra=described_body(
            SearchBody,
            the_latest_records={"from": "latest", "limit": 50},
            a_page_at_an_offset={"partitions": [0], "from": {"offset": "1000"}},
            a_filter={"filter": 'value.cents >= 1000 and headers["source"] == "shop"'},
        ),
        responses=described_response(_RESULT, "What matched, and how far the search came."),
    )
    async def search_records(topic: TopicName, request: Request) -> Response:
        """Search the records of a topic by a filter, merged by time.

        `scanned` of `total` offsets were looked at since the search began, and `stopped` says why
        it stopped: `limit`, `scan_max`, `time`, or `end`; `reached` is the last record that was
        looked at. Send `{"from": {"cursor": …}}` with the
        same filter to go on.
        """
        body = await read_document(request, SearchBody, BODY_BYTES_MAX)
        async with turns:
            return json_response(await search(gateway, node.decoder, topic, body))

    @router.get("/topics/{topic}/partitions/{partition}/records/{offset}")
    async def read_record(
        topic: TopicName,
        partition: int,
        offset: Annotated[int, Path(ge=0, le=INT_64_MAX)],
        whole: Annotated[bool, Query(description="all bytes of a large key and value")] = False,
    ) -> Response:
        """One record: decoded, its bytes with their meaning, and as other tools read it."""
        (place,) = await topic_places(gateway, topic, [partition])
        return json_response(await record_page(node, place, Offset(offset), whole=whole))

    return router


def histogram_routes(node: ConsoleNode) -> APIRouter:
    """Records by time."""
    router = APIRouter(tags=["events"])
    turns = asyncio.Semaphore(LOOKUPS_MAX)

    async def offsets_at(places: list[TopicPartition], at: int) -> dict[TopicPartition, Offset]:
        async with turns:
            return await _offsets_at(node, places, at)

    @router.get("/topics/{topic}/histogram")
    async def count_by_time(
        topic: TopicName,
        from_: Annotated[
            int | None, Query(alias="from", ge=0, le=INT_64_MAX, description="ms")
        ] = None,
        until: Annotated[
            int | None, Query(ge=0, le=INT_64_MAX, description="ms; exclusive")
        ] = None,
        buckets: Annotated[int, Query(ge=1, le=BUCKETS_MAX)] = 60,
        partition: Annotated[int | None, Query(ge=0)] = None,
    ) -> Response:
        """How many records there are in each span of time, by their timestamps.

        Counted by offsets at the edges: `exact` is false where timestamps may be out of order, or
        where compaction leaves gaps.
        """
        chosen = None if partition is None else [partition]
        places = await topic_places(node.gateway, topic, chosen)
        began = from_ if from_ is not None else await _first_time(node, places)
        ended = until if until is not None else await _last_time(node, places)
        if began is None or ended is None:
            return json_response({"buckets": [], "exact": True})
        if ended <= began:
            raise bad_request("until must be after from")
        edges = bucket_edges(began, ended, buckets)
        offsets = await asyncio.gather(*(offsets_at(places, edge) for edge in edges))
        rows = buckets_of(edges, [sum(each.values()) for each in offsets])
        return json_response({"buckets": rows, "exact": await _is_exact(node, topic)})

    return router


async def _first_time(node: ConsoleNode, places: list[TopicPartition]) -> int | None:
    rows = await node.gateway.run(list_offsets(dict.fromkeys(places, Millis(0))))
    return min((row.timestamp for row in rows.values() if row.offset != NO_OFFSET), default=None)


async def _last_time(node: ConsoleNode, places: list[TopicPartition]) -> int | None:
    """Just after the newest record."""
    rows = await node.gateway.run(list_offsets(dict.fromkeys(places, MAX_TIMESTAMP)))
    times = [row.timestamp for row in rows.values() if row.offset != NO_OFFSET]
    return max(times) + 1 if times else None


async def _offsets_at(
    node: ConsoleNode, places: list[TopicPartition], at: int
) -> dict[TopicPartition, Offset]:
    times = dict.fromkeys(places, Millis(at))
    committed = Isolation.READ_COMMITTED
    rows = await node.gateway.run(list_offsets(times, isolation=committed))
    late = [place for place, row in rows.items() if row.offset == NO_OFFSET]
    ends = await node.gateway.run(end_offsets(late, isolation=committed)) if late else {}
    return {place: ends.get(place, row.offset) for place, row in rows.items()}


async def _is_exact(node: ConsoleNode, topic: str) -> bool:
    configs = {
        row.name: row.value for row in (await node.gateway.run(describe_configs([topic])))[topic]
    }
    is_compacted = "compact" in (configs.get("cleanup.policy") or "")
    return configs.get("message.timestamp.type") == "LogAppendTime" and not is_compacted
