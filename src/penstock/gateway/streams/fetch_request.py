"""A fetch of many partitions from one leader, and its rows by partition. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from penstock.errors import ErrorCode
from penstock.link.operation import VERSION_MAX, Request
from penstock.model import LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.protocol.fields import TopicKey
from penstock.protocol.messages.fetch import (
    FETCH,
    FLEXIBLE_FROM,
    READ_COMMITTED,
    TOPIC_IDS_FROM,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)

RESPONSE_BYTES_MAX: Final = 4 << 20
PARTITION_BYTES_MAX: Final = 512 << 10


class FetchPlace(NamedTuple):
    """Where to fetch in one partition."""

    partition: TopicPartition
    offset: Offset
    leader_epoch: LeaderEpoch
    topic_id: TopicId | None  # None: the broker is too old to have one


def fetch_request(places: Sequence[FetchPlace], wait_ms: int) -> Request[FetchResponse]:
    """One request for all places, which are of different partitions."""
    with_ids = all(place.topic_id is not None for place in places)

    def body(version: int) -> FetchRequest:
        by_id = with_ids and version >= TOPIC_IDS_FROM
        topics: dict[TopicKey, list[FetchPartition]] = {}
        for place in places:
            row = FetchPartition(
                place.partition.partition,
                place.leader_epoch,
                place.offset,
                partition_max_bytes=PARTITION_BYTES_MAX,
            )
            topics.setdefault(_key(place, by_id=by_id), []).append(row)
        rows = [FetchTopic(*row) for row in topics.items()]
        return FetchRequest(wait_ms, 1, RESPONSE_BYTES_MAX, READ_COMMITTED, topics=rows)

    version_max = VERSION_MAX if with_ids else TOPIC_IDS_FROM - 1
    return Request(FETCH, body, FLEXIBLE_FROM, version_max)


def read_rows(
    response: FetchResponse, places: Iterable[FetchPlace]
) -> dict[TopicPartition, FetchedPartition]:
    """The rows of a response. A response that failed as a whole is a row for each partition."""
    if response.error_code is not ErrorCode.none:
        return {
            place.partition: FetchedPartition(place.partition.partition, response.error_code)
            for place in places
        }
    names = {_key(place, by_id=by_id): place.partition.topic
             for place in places for by_id in (False, True)}  # fmt: skip
    rows = {}
    for topic in response.topics:
        if topic.topic in names:
            for row in topic.partitions:
                rows[TopicPartition(names[topic.topic], row.partition)] = row
    return rows


def _key(place: FetchPlace, *, by_id: bool) -> TopicKey:
    if by_id and place.topic_id is not None:
        return place.topic_id.bytes
    return place.partition.topic
