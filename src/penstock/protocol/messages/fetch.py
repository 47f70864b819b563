"""Fetch: slices of logs, for consumers and for replicas.

Records are passed through as views: those of a request's frame when a response is read, those of
the log when one is written. A response body is a list of buffers, to be sent one after the other.
Requests of flexible versions without tagged fields, and all responses, are packed by hand; the
schemas' codecs do the rest.
"""

from collections.abc import Sequence
from dataclasses import replace
from struct import Struct
from struct import error as StructError
from typing import Annotated, Final, NamedTuple
from uuid import UUID

from penstock.errors import ErrorCode, Malformed, Refused
from penstock.model import Offset, ProducerId
from penstock.protocol.api import Api
from penstock.protocol.bind import Older, WireName, bind
from penstock.protocol.fields import (
    FLEXIBLE,
    Encoding,
    LeaderAndEpoch,
    NodeEndpoint,
    TopicKey,
    encoding_of,
    leader_field,
    nodes_field,
    tagged,
)
from penstock.protocol.messages.quorum import SnapshotId
from penstock.protocol.varint import Buffer

READ_COMMITTED: Final = 1  # isolation level
FLEXIBLE_FROM: Final = 12
TOPIC_IDS_FROM: Final = 13
SESSIONS_FROM: Final = 7
INT_64_MAX: Final = (1 << 63) - 1
CONSUMER: Final = -1  # no replica

# Requests.


class FetchPartition(NamedTuple):
    """One partition to fetch from."""

    partition: int
    current_leader_epoch: int = -1
    fetch_offset: int = 0
    last_fetched_epoch: int = -1
    log_start_offset: int = -1  # of a replica
    partition_max_bytes: int = 0
    replica_directory_id: UUID | None = None
    high_watermark: int = INT_64_MAX  # as far as the replica knows


class FetchTopic(NamedTuple):
    """By name, or by id from version 13 on."""

    topic: Annotated[TopicKey, WireName("topic_id", "topic")]
    partitions: Sequence[FetchPartition]


class RemovedTopic(NamedTuple):
    """Partitions that leave the session."""

    topic: Annotated[TopicKey, WireName("topic_id", "topic")]
    partitions: Sequence[int]


class FetchingReplica(NamedTuple):
    """The broker that fetches as a replica."""

    replica_id: int = CONSUMER
    replica_epoch: int = -1


class FetchRequest(NamedTuple):
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1  # no session
    topics: Sequence[FetchTopic] = ()
    removed_topics: Annotated[Sequence[RemovedTopic], WireName("forgotten_topics_data")] = ()
    rack_id: str = ""
    cluster_id: str | None = None
    replica: Annotated[FetchingReplica, WireName("replica_state")] = FetchingReplica()


class _OlderFetchRequest(NamedTuple):
    """Up to version 14, where a replica has only its id."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    topics: Sequence[FetchTopic] = ()
    removed_topics: Annotated[Sequence[RemovedTopic], WireName("forgotten_topics_data")] = ()
    rack_id: str = ""
    cluster_id: str | None = None
    replica_id: int = CONSUMER


# Responses.


class FetchedAbort(NamedTuple):
    """A transaction whose records in the fetched range do not count."""

    producer_id: ProducerId
    first_offset: Offset


class DivergingEpoch(NamedTuple):
    """Where a leader epoch ends in the leader's log: a replica that diverged truncates to there."""

    epoch: int  # the largest that both logs may share
    end_offset: int


class FetchedPartition(NamedTuple):
    """One partition of a response; after an error, all but the code keep their defaults."""

    partition: Annotated[int, WireName("partition_index")]
    error_code: ErrorCode = ErrorCode.none
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Buffer | None = b""
    # None unless the client reads committed records only.
    aborted_transactions: Sequence[FetchedAbort] | None = None
    preferred_read_replica: int = -1  # -1: fetch from this broker
    diverging_epoch: DivergingEpoch | None = None
    current_leader: LeaderAndEpoch | None = None
    snapshot_id: SnapshotId | None = None


class FetchedTopic(NamedTuple):
    topic: Annotated[TopicKey, WireName("topic_id", "topic")]
    partitions: Sequence[FetchedPartition]


class FetchResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    session_id: int = 0  # none
    topics: Annotated[Sequence[FetchedTopic], WireName("responses")] = ()
    node_endpoints: Sequence[NodeEndpoint] = ()  # those that any `current_leader` names
    throttle_time_ms: int = 0  # as read


def _refuse(request: FetchRequest, refusal: Refused) -> FetchResponse:
    topics = [
        FetchedTopic(topic, [FetchedPartition(row.partition, refusal.code) for row in partitions])
        for topic, partitions in request.topics
    ]
    return FetchResponse(refusal.code, topics=topics)


_BOUND: Final = bind(
    Api.FETCH,
    FetchRequest,
    FetchResponse,
    refuse=_refuse,
    older_request=Older(
        14,
        _OlderFetchRequest,
        lambda old: tuple.__new__(FetchRequest, (*old[:-1], FetchingReplica(old.replica_id))),
        lambda new: tuple.__new__(_OlderFetchRequest, (*new[:-1], new.replica.replica_id)),
    ),
)

# Reading requests.

_REPLICA_ID_UNTIL: Final = 14  # later ones have it in a tagged field
_REPLICA: Final = Struct(">i")
_START: Final = Struct(
    ">"
    "i"  # max_wait_ms
    "i"  # min_bytes
    "i"  # max_bytes
    "b"  # isolation_level  0 everything, 1 committed
    "i"  # session_id
    "i"  # session_epoch
)
_PARTITION: Final = Struct(
    ">"
    "i"  # partition
    "i"  # current_leader_epoch
    "q"  # fetch_offset
    "i"  # last_fetched_epoch
    "q"  # log_start_offset  of a replica
    "i"  # partition_max_bytes
    "B"  # tagged fields     0: none
)
_NO_PARTITION_TAGS: Final = (None, INT_64_MAX)


class _HasTags(Exception):  # noqa: N818 - not an error: another way is taken
    """A request with tagged fields: the schemas' codec reads those."""


def _read_request(frame: memoryview, position: int, version: int) -> FetchRequest:
    if version >= FLEXIBLE_FROM:
        try:
            return _read_consumer_request(frame, position, version)
        except _HasTags:
            pass
        except StructError as error:  # cheaper than a length check before every number
            raise Malformed("the fetch request is truncated", len(frame)) from error
    return _BOUND.read_request(frame, position, version)


def _read_consumer_request(frame: memoryview, position: int, version: int) -> FetchRequest:
    by_id = version >= TOPIC_IDS_FROM
    replica = FetchingReplica()
    if version <= _REPLICA_ID_UNTIL:
        replica = FetchingReplica(*_REPLICA.unpack_from(frame, position))
        position += _REPLICA.size
    start = _START.unpack_from(frame, position)
    topics, position = _read_topics(frame, position + _START.size, by_id)
    removed, position = _read_removed(frame, position, by_id)
    rack_id, position = FLEXIBLE.read_string(frame, position)
    _skip_no_tags(frame, position)
    return tuple.__new__(FetchRequest, (*start, topics, removed, rack_id, None, replica))


def _read_topics(
    frame: memoryview, position: int, by_id: bool
) -> tuple[tuple[FetchTopic, ...], int]:
    count, position = FLEXIBLE.read_count(frame, position)
    topics = []
    for _ in range(count):
        topic, position = FLEXIBLE.read_topic(frame, position, by_id)
        partition_count, position = FLEXIBLE.read_count(frame, position)
        partitions = []
        for _ in range(partition_count):
            *fields, tags = _PARTITION.unpack_from(frame, position)
            if tags:
                raise _HasTags
            partitions.append(tuple.__new__(FetchPartition, (*fields, *_NO_PARTITION_TAGS)))
            position += _PARTITION.size
        position = _skip_no_tags(frame, position)
        topics.append(tuple.__new__(FetchTopic, (topic, tuple(partitions))))
    return tuple(topics), position


def _read_removed(
    frame: memoryview, position: int, by_id: bool
) -> tuple[tuple[RemovedTopic, ...], int]:
    count, position = FLEXIBLE.read_count(frame, position)
    topics = []
    for _ in range(count):
        topic, position = FLEXIBLE.read_topic(frame, position, by_id)
        partition_count, position = FLEXIBLE.read_count(frame, position)
        layout = Struct(f">{partition_count}i")
        topics.append(RemovedTopic(topic, layout.unpack_from(frame, position)))
        position = _skip_no_tags(frame, position + layout.size)
    return tuple(topics), position


def _skip_no_tags(frame: memoryview, position: int) -> int:
    if position >= len(frame):
        raise Malformed("the fetch request is truncated", position)
    if frame[position]:
        raise _HasTags
    return position + 1


# Writing responses.

_LOG_START_FROM: Final = 5
_PREFERRED_REPLICA_FROM: Final = 11
_NODES_FROM: Final = 16

_THROTTLE: Final = Struct(">i")
_SESSION: Final = Struct(
    ">"
    "h"  # error_code  of the whole response
    "i"  # session_id  0: none
)
_PARTITION_4: Final = Struct(
    ">"
    "i"  # partition
    "h"  # error_code
    "q"  # high_watermark
    "q"  # last_stable_offset
)
_PARTITION_5: Final = Struct(
    ">"
    "i"  # partition
    "h"  # error_code
    "q"  # high_watermark
    "q"  # last_stable_offset
    "q"  # log_start_offset
)
_PARTITION_12: Final = Struct(  # flexible, and no aborted transactions: what most are
    ">"
    "i"  # partition
    "h"  # error_code
    "q"  # high_watermark
    "q"  # last_stable_offset
    "q"  # log_start_offset
    "B"  # aborted_transactions    0: null, 1: none
    "i"  # preferred_read_replica  -1: fetch from this broker
)
_NO_RECORDS_NOR_TAGS: Final = b"\x01\x00"  # flexible
_ABORTED: Final = Struct(
    ">"
    "q"  # producer_id
    "q"  # first_offset
)
_PREFERRED_REPLICA: Final = Struct(">i")
_DIVERGING: Final = Struct(
    ">"
    "i"  # epoch
    "q"  # end_offset
    "x"  # no tagged fields
)
_SNAPSHOT: Final = Struct(
    ">"
    "q"  # end_offset
    "i"  # epoch
    "x"  # no tagged fields
)
_NO_TAGGED_FIELDS: Final = (None, None, None)  # the last three of a FetchedPartition


def _write_response(response: FetchResponse, version: int, throttle_ms: int) -> list[Buffer]:
    error_code, session_id, topics, nodes, _ = response
    encoding = encoding_of(Api.FETCH, version)
    is_flexible = encoding.is_flexible
    pieces: list[Buffer] = []
    own = bytearray(_THROTTLE.pack(throttle_ms))
    if version >= SESSIONS_FROM:
        own += _SESSION.pack(error_code, session_id)
    own += encoding.count(len(topics))
    for topic, partitions in topics:
        own += encoding.topic(topic)
        own += encoding.count(len(partitions))
        for row in partitions:
            own += _write_partition(version, encoding, row)
            records = row.records
            if records:
                own += encoding.size(len(records))
                pieces += (own, records)
                own = bytearray(_write_tags(encoding, row))
            elif is_flexible and records is not None and row[-3:] == _NO_TAGGED_FIELDS:
                own += _NO_RECORDS_NOR_TAGS
            else:
                own += encoding.size(-1 if records is None else 0)
                own += _write_tags(encoding, row)
        own += encoding.no_tags
    own += tagged(nodes_field(0, nodes)) if nodes and version >= _NODES_FROM else encoding.no_tags
    if own:
        pieces.append(own)
    return pieces


def _write_partition(version: int, encoding: Encoding, row: FetchedPartition) -> bytes:
    """Everything up to the size of the records."""
    aborted = row.aborted_transactions
    if encoding.is_flexible and not aborted:
        return _PARTITION_12.pack(*row[:5], aborted is not None, row.preferred_read_replica)
    if version >= _LOG_START_FROM:
        fixed = _PARTITION_5.pack(*row[:5])
    else:
        fixed = _PARTITION_4.pack(*row[:4])
    listed = encoding.null_array if aborted is None else _write_aborted(encoding, aborted)
    if version < _PREFERRED_REPLICA_FROM:
        return fixed + listed
    return fixed + listed + _PREFERRED_REPLICA.pack(row.preferred_read_replica)


def _write_aborted(encoding: Encoding, aborted: Sequence[FetchedAbort]) -> bytes:
    tags = encoding.no_tags
    return encoding.count(len(aborted)) + b"".join(
        [_ABORTED.pack(producer_id, first_offset) + tags for producer_id, first_offset in aborted]
    )


def _write_tags(encoding: Encoding, row: FetchedPartition) -> bytes:
    diverging, leader, snapshot = row[-3:]
    if not encoding.is_flexible:
        return b""
    fields = []
    if diverging is not None:
        fields.append((0, _DIVERGING.pack(*diverging)))
    if leader is not None:
        fields.append(leader_field(1, leader))
    if snapshot is not None:
        fields.append((2, _SNAPSHOT.pack(*snapshot)))
    return tagged(*fields)


FETCH: Final = replace(_BOUND, read_request=_read_request, write_response=_write_response)
