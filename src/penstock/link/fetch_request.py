"""A fetch of many partitions from one leader, and the rows of its response. Pure.

Partitions are requested in the order in which they are given: a leader serves the first ones first
when there are more bytes than a response may have.
"""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.errors import ErrorCode, Malformed
from penstock.link.operation import VERSION_MAX, Request
from penstock.model import LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.protocol.fields import TopicKey
from penstock.protocol.messages.fetch import (
    FETCH,
    FLEXIBLE_FROM,
    TOPIC_IDS_FROM,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)


class FetchPlace(NamedTuple):
    """Where to fetch in one partition."""

    partition: TopicPartition
    offset: Offset
    leader_epoch: LeaderEpoch
    topic_id: TopicId | None  # None: the broker is too old to have one


class FetchLimits(NamedTuple):
    """How long a leader may wait for `bytes_min`, and how much it returns."""

    wait_ms: int
    bytes_max: int  # of all partitions together; the first batch comes whole
    partition_bytes_max: int
    bytes_min: int = 1


def fetch_request(
    places: Sequence[FetchPlace], limits: FetchLimits, isolation_level: int
) -> Request[FetchResponse]:
    """One request for all places, which are of different partitions."""
    with_ids = all(place.topic_id is not None for place in places)

    def body(version: int) -> FetchRequest:
        topics: list[FetchTopic] = []
        rows: list[FetchPartition] = []
        for place in places:
            key = _key(place, by_id=with_ids and version >= TOPIC_IDS_FROM)
            if not topics or topics[-1].topic != key:
                rows = []
                topics.append(FetchTopic(key, rows))
            rows.append(
                FetchPartition(
                    place.partition.partition,
                    place.leader_epoch,
                    place.offset,
                    partition_max_bytes=limits.partition_bytes_max,
                )
            )
        return FetchRequest(
            limits.wait_ms, limits.bytes_min, limits.bytes_max, isolation_level, topics=topics
        )

    version_max = VERSION_MAX if with_ids else TOPIC_IDS_FROM - 1
    return Request(FETCH, body, FLEXIBLE_FROM, version_max)


def read_rows(
    response: FetchResponse, places: Sequence[FetchPlace]
) -> dict[TopicPartition, FetchedPartition]:
    """The rows of a response. A response that failed as a whole is a row for each partition."""
    if response.error_code is not ErrorCode.none:
        return {
            place.partition: FetchedPartition(place.partition.partition, response.error_code)
            for place in places
        }
    requested = {
        (_key(place, by_id=by_id), place.partition.partition): place.partition
        for place in places
        for by_id in (False, True)
    }
    rows = {}
    for topic in response.topics:
        for row in topic.partitions:
            partition = requested.get((topic.topic, row.partition))
            if partition is None:
                raise Malformed(
                    f"a fetch response has partition {row.partition} without a request", 0
                )
            rows[partition] = row
    return rows


def _key(place: FetchPlace, *, by_id: bool) -> TopicKey:
    if by_id and place.topic_id is not None:
        return place.topic_id.bytes
    return place.partition.topic
