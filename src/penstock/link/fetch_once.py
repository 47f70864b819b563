"""One fetch of many partitions from their leader: the raw batches that it has after each offset.

For readers that follow a log without an end and decide before each request what they want next.
A response is whole batches as the leader stores them; the first may begin before the requested
offset. What a partition was refused is in its row, never raised.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from penstock.errors import ErrorCode, Malformed
from penstock.link.offsets import Isolation
from penstock.link.operation import VERSION_MAX, Request, Steps, send
from penstock.link.routing import PartitionRoute, Routes, operation
from penstock.link.settings import Address
from penstock.model import Offset, TopicPartition
from penstock.protocol.batch import iterate_headers
from penstock.protocol.messages.fetch import (
    FETCH,
    FLEXIBLE_FROM,
    TOPIC_IDS_FROM,
    FetchedAbort,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)

WAIT_MS: Final = 250  # how long the broker may wait for the first byte


class FetchedBatches(NamedTuple):
    """What one partition has after an offset."""

    code: ErrorCode
    start_offset: Offset  # as requested
    end_offset: Offset  # the next to request
    records: memoryview  # whole batches
    record_count: int  # as the batches' headers say
    aborted: tuple[FetchedAbort, ...]  # transactions whose records are to be skipped


@operation
def fetch_once(
    routes: Routes,
    address: Address,
    offsets: Mapping[TopicPartition, Offset],
    *,
    isolation: Isolation,
    bytes_max: int,
) -> Steps[dict[TopicPartition, FetchedBatches]]:
    """The batches after these offsets, of partitions that this broker leads, in its order.

    The first partitions are served first when there are more bytes than `bytes_max`: callers
    rotate them. A single larger batch comes whole.
    """
    found = yield from routes.routes_to(offsets)
    response = yield from send(address, _request(offsets, found, isolation, bytes_max))
    rows: dict[TopicPartition, FetchedBatches] = {}
    if response.error_code:
        return {one: _refused(response.error_code, offset) for one, offset in offsets.items()}
    for partition, row in _rows(response, found):
        start = offsets[partition]
        if row.error_code:
            rows[partition] = _refused(row.error_code, start)
        else:
            rows[partition] = _whole_batches(partition, row, start)
    return rows


def _request(
    offsets: Mapping[TopicPartition, Offset],
    found: Mapping[TopicPartition, PartitionRoute],
    isolation: Isolation,
    bytes_max: int,
) -> Request[FetchResponse]:
    by_id = all(found[one].topic_id is not None for one in offsets)

    def body(version: int) -> FetchRequest:
        topics: list[FetchTopic] = []
        for partition, offset in offsets.items():
            route = found[partition]
            row = FetchPartition(
                partition.partition, route.leader_epoch, offset, partition_max_bytes=bytes_max
            )
            id_bytes = None if route.topic_id is None else route.topic_id.bytes
            key = partition.topic if version < TOPIC_IDS_FROM or id_bytes is None else id_bytes
            if topics and topics[-1].topic == key:
                topics[-1] = FetchTopic(key, [*topics[-1].partitions, row])
            else:
                topics.append(FetchTopic(key, [row]))
        return FetchRequest(WAIT_MS, 1, bytes_max, int(isolation), topics=topics)

    return Request(FETCH, body, FLEXIBLE_FROM, VERSION_MAX if by_id else TOPIC_IDS_FROM - 1)


def _rows(
    response: FetchResponse, found: Mapping[TopicPartition, PartitionRoute]
) -> Iterator[tuple[TopicPartition, FetchedPartition]]:
    names: dict[str | bytes, str] = {}
    for partition, route in found.items():
        names[partition.topic] = partition.topic
        if route.topic_id is not None:
            names[route.topic_id.bytes] = partition.topic
    for topic in response.topics:
        name = names.get(topic.topic)
        for row in topic.partitions:
            if name is None or TopicPartition(name, row.partition) not in found:
                raise Malformed(f"a fetch response has partition {row.partition} unasked", 0)
            yield TopicPartition(name, row.partition), row


def _whole_batches(
    partition: TopicPartition, row: FetchedPartition, start: Offset
) -> FetchedBatches:
    received = memoryview(row.records or b"")
    first = last = record_count = 0
    following = start
    for position, header in iterate_headers(received):
        if last > first and header.base_offset < following:
            raise Malformed(
                f"{partition}: offset {header.base_offset} comes after {following}", position
            )
        last = position + header.size_bytes
        if header.end_offset <= start:
            first = last
        else:
            following = header.end_offset
            record_count += header.record_count
    aborted = tuple(row.aborted_transactions or ())
    return FetchedBatches(
        ErrorCode.none, start, following, received[first:last], record_count, aborted
    )


def _refused(code: ErrorCode, start: Offset) -> FetchedBatches:
    return FetchedBatches(code, start, start, memoryview(b""), 0, ())
