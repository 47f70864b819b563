"""One fetch of many partitions: the raw batches that their leaders have after each offset.

For readers that follow a log without an end and decide before each request what they want next.
`fetch_once` returns whole batches of one leader, and what a partition was refused is in its row;
`fetch_partitions` fetches from all leaders and raises. Neither creates a topic.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.errors import ErrorCode, Malformed, Refused
from penstock.link.fetch_range import offset_out_of_range
from penstock.link.fetch_request import FetchLimits, FetchPlace, fetch_request, read_rows
from penstock.link.offsets import Isolation
from penstock.link.operation import BrokerRequest, Steps, send, send_all, worse
from penstock.link.routing import PartitionRoute, Routes, operation
from penstock.link.settings import Address
from penstock.model import Offset, TopicPartition
from penstock.protocol.batch import iterate_headers
from penstock.protocol.messages.fetch import READ_COMMITTED, FetchedAbort, FetchedPartition

WAIT_MS: Final = 250  # how long the broker may wait for `bytes_min`


class FetchedBatches(NamedTuple):
    """What one partition has after an offset."""

    code: ErrorCode
    start_offset: Offset  # as requested
    end_offset: Offset  # the next to request
    records: memoryview  # whole batches
    record_count: int  # as the batches' headers say
    aborted: tuple[FetchedAbort, ...]  # transactions whose records are to be skipped


class CommittedBatches(NamedTuple):
    """What is committed in one partition after an offset; the last batch may be cut."""

    batches: memoryview
    aborted: tuple[FetchedAbort, ...]  # transactions whose records are to be skipped
    high_watermark: Offset
    last_stable_offset: Offset


@operation
def fetch_once(
    routes: Routes,
    address: Address,
    offsets: Mapping[TopicPartition, Offset],
    *,
    isolation: Isolation,
    bytes_max: int,
    bytes_min: int = 1,
    wait_ms: int = WAIT_MS,
) -> Steps[dict[TopicPartition, FetchedBatches]]:
    """The batches after these offsets, of partitions that this broker leads, in its order.

    The first partitions are served first when there are more bytes than `bytes_max`: callers
    rotate them. A single larger batch comes whole.
    """
    places = _places(offsets, (yield from routes.routes_to(offsets)))
    limits = FetchLimits(wait_ms, bytes_max, bytes_max, min(bytes_min, bytes_max))
    response = yield from send(address, fetch_request(places, limits, int(isolation)))
    rows: dict[TopicPartition, FetchedBatches] = {}
    for partition, row in read_rows(response, places).items():
        start = offsets[partition]
        if row.error_code:
            rows[partition] = _refused(row.error_code, start)
        else:
            rows[partition] = _whole_batches(partition, row, start)
    return rows


@operation
def fetch_partitions(
    routes: Routes, positions: Mapping[TopicPartition, Offset], limits: FetchLimits
) -> Steps[dict[TopicPartition, CommittedBatches]]:
    """What is committed from these positions on, from all leaders at the same time.

    Retried until each leader has responded. OffsetOutOfRange if a position is not in its log.
    """

    def attempt() -> Steps[dict[TopicPartition, CommittedBatches]]:
        by_leader = yield from routes.by_leader(positions)
        places = [_places(positions, found) for found in by_leader.values()]
        requests = [
            BrokerRequest(address, fetch_request(some, limits, READ_COMMITTED))
            for address, some in zip(by_leader, places, strict=True)
        ]
        fetched: dict[TopicPartition, FetchedPartition] = {}
        failure: Exception | None = None
        for some, response in zip(places, (yield from send_all(requests)), strict=True):
            if isinstance(response, Exception):
                failure = worse(failure, response)
            else:
                fetched |= read_rows(response, some)
        for partition, row in fetched.items():
            if row.error_code is ErrorCode.offset_out_of_range:
                committed = Isolation.READ_COMMITTED
                raise (
                    yield from offset_out_of_range(
                        routes, partition, positions[partition], committed
                    )
                )
            if row.error_code:
                refusal = Refused(row.error_code, f"fetch {partition}: {row.error_code.name}")
                failure = worse(failure, refusal)
        if failure is not None:
            raise failure
        return {partition: _committed(row) for partition, row in fetched.items()}

    def invalidate() -> None:
        routes.invalidate_topics({partition.topic for partition in positions})

    return (yield from routes.with_retries("fetch", attempt, invalidate))


def _committed(row: FetchedPartition) -> CommittedBatches:
    return CommittedBatches(
        memoryview(row.records or b""),
        tuple(row.aborted_transactions or ()),
        Offset(row.high_watermark),
        Offset(row.last_stable_offset),
    )


def _places(
    offsets: Mapping[TopicPartition, Offset], found: Mapping[TopicPartition, PartitionRoute]
) -> list[FetchPlace]:
    return [
        FetchPlace(partition, offset, found[partition].leader_epoch, found[partition].topic_id)
        for partition, offset in offsets.items()
        if partition in found
    ]


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
