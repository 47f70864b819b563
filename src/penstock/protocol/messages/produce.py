"""Produce: batches for partitions, and what became of them.

Batches are views of the frame that they arrived in: the leader writes offsets there before it
appends them. No batch is opened. A request for one partition is the common one: what precedes its
records is the same in every request of a client, so it is decoded once and cached; so is what
precedes the row of its response. The schemas' codecs read and write all others.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from struct import Struct
from typing import Annotated, Final, NamedTuple

from penstock.errors import ErrorCode, Refused
from penstock.protocol.api import Api
from penstock.protocol.bind import WireName, bind
from penstock.protocol.fields import (
    FLEXIBLE,
    TOPIC_ID_BYTES,
    LeaderAndEpoch,
    NodeEndpoint,
    TopicKey,
    encoding_of,
)
from penstock.protocol.message import Body
from penstock.protocol.varint import Buffer, read_unsigned_varint

ALL_IN_SYNC: Final = -1  # acks=all
FLEXIBLE_FROM: Final = 9
TRANSACTIONS_FROM: Final = 12  # a transactional batch adds its own partition to the transaction
TOPIC_IDS_FROM: Final = 13


class ProducePartition(NamedTuple):
    """The batch for one partition. None: the client sent no records."""

    partition: Annotated[int, WireName("index")]
    records: memoryview | None


class ProduceTopic(NamedTuple):
    """By name, or by id from version 13 on."""

    topic: Annotated[TopicKey, WireName("topic_id", "name")]
    partitions: Annotated[Sequence[ProducePartition], WireName("partition_data")]


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int  # 0 none, 1 the leader, -1 every in-sync replica
    timeout_ms: int  # how long the leader waits for the replicas
    topics: Annotated[Sequence[ProduceTopic], WireName("topic_data")]


class RecordError(NamedTuple):
    """Why a record made its batch invalid."""

    batch_index: int
    message: Annotated[str | None, WireName("batch_index_error_message")]


class ProducedPartition(NamedTuple):
    """What became of one partition's batch."""

    partition: Annotated[int, WireName("index")]
    error_code: ErrorCode = ErrorCode.none
    base_offset: int = -1
    log_append_time_ms: int = -1  # -1 unless the topic has LogAppendTime
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None
    current_leader: LeaderAndEpoch | None = None


class ProducedTopic(NamedTuple):
    topic: Annotated[TopicKey, WireName("topic_id", "name")]
    partitions: Annotated[Sequence[ProducedPartition], WireName("partition_responses")]


class ProduceResponse(NamedTuple):
    topics: Annotated[Sequence[ProducedTopic], WireName("responses")]
    node_endpoints: Sequence[NodeEndpoint] = ()  # those that any `current_leader` names


def _refuse(request: ProduceRequest, refusal: Refused) -> ProduceResponse:
    return ProduceResponse(
        [
            ProducedTopic(
                topic,
                [
                    ProducedPartition(row.partition, refusal.code, error_message=refusal.message)
                    for row in partitions
                ],
            )
            for topic, partitions in request.topics
        ]
    )


_BOUND: Final = bind(Api.PRODUCE, ProduceRequest, ProduceResponse, refuse=_refuse)


# Requests.

_HEAD: Final = Struct(
    ">"
    "B"  # transactional_id  0: null
    "h"  # acks
    "i"  # timeout_ms
    "B"  # topics            one more than there are
)
_PARTITION_HEAD: Final = Struct(
    ">"
    "B"  # partitions        one more than there are
    "i"  # partition
)
_ONE_ENTRY: Final = 2
_TAGS: Final = Struct("3s")  # of the partition, the topic, the request
_NO_TAGS: Final = (bytes(_TAGS.size),)
_AFTER_HEAD_BYTES_MIN: Final = 32  # a batch alone takes more
_ONE_BYTE_MAX: Final = 0x7F  # the largest varint of one byte
_HEADS_MAX: Final = 10_000  # cached: one per client settings and partition


def _read_request(frame: memoryview, position: int, version: int) -> ProduceRequest:
    if version >= FLEXIBLE_FROM:
        request = _read_one_partition(frame, position, version >= TOPIC_IDS_FROM)
        if request is not None:
            return request
    return _BOUND.read_request(frame, position, version)


def _read_one_partition(frame: memoryview, position: int, by_id: bool) -> ProduceRequest | None:
    """A flexible request of one batch outside a transaction, as most are; None: not of that form.

    librdkafka sends no others outside transactions.
    """
    topic_at = position + _HEAD.size
    if len(frame) - topic_at < _AFTER_HEAD_BYTES_MIN:
        return None
    topic_bytes = TOPIC_ID_BYTES if by_id else frame[topic_at]
    size_at = topic_at + topic_bytes + _PARTITION_HEAD.size
    head = _read_head(frame[position:size_at].tobytes(), by_id) if size_at < len(frame) else None
    if head is None:
        return None
    size, start = frame[size_at], size_at + 1
    if size > _ONE_BYTE_MAX:
        size, start = read_unsigned_varint(frame, size_at, len(frame))
    records_end = start + size - 1
    if size == 0 or len(frame) - records_end != _TAGS.size:
        return None
    if _TAGS.unpack_from(frame, records_end) != _NO_TAGS:
        return None
    acks, timeout_ms, topic, partition = head
    row = tuple.__new__(ProducePartition, (partition, frame[start:records_end]))
    topics = (tuple.__new__(ProduceTopic, (topic, (row,))),)
    return tuple.__new__(ProduceRequest, (None, acks, timeout_ms, topics))


@lru_cache(maxsize=_HEADS_MAX)
def _read_head(packed: bytes, by_id: bool) -> tuple[int, int, TopicKey, int] | None:
    """Acks, timeout, topic and partition."""
    transactional_id, acks, timeout_ms, topics = _HEAD.unpack_from(packed, 0)
    topic_end = len(packed) - _PARTITION_HEAD.size
    partitions, partition = _PARTITION_HEAD.unpack_from(packed, topic_end)
    if transactional_id or topics != _ONE_ENTRY or partitions != _ONE_ENTRY:
        return None
    topic = packed[_HEAD.size : topic_end]
    if by_id:
        return acks, timeout_ms, topic, partition
    if not 1 < topic[0] <= _ONE_BYTE_MAX:
        return None
    try:
        return acks, timeout_ms, topic[1:].decode(), partition
    except UnicodeDecodeError:
        return None


_ACKS_AND_TIMEOUT: Final = Struct(
    ">"
    "h"  # acks
    "i"  # timeout_ms
)
_INT_32: Final = Struct(">i")


def _write_request(request: ProduceRequest, version: int) -> list[Buffer]:
    """The body around batches, which are not copied."""
    encoding = encoding_of(Api.PRODUCE, version)
    parts: list[Buffer] = [
        encoding.string(request.transactional_id),
        _ACKS_AND_TIMEOUT.pack(request.acks, request.timeout_ms),
        encoding.count(len(request.topics)),
    ]
    for topic, partitions in request.topics:
        parts += (encoding.topic(topic), encoding.count(len(partitions)))
        for partition, records in partitions:
            size_bytes = -1 if records is None else len(records)
            parts.append(_INT_32.pack(partition) + encoding.size(size_bytes))
            if records is not None:
                parts.append(records)
            parts.append(encoding.no_tags)
        parts.append(encoding.no_tags)
    parts.append(encoding.no_tags)
    return parts


# Responses.

_ONE_ROW: Final = Struct(
    ">"
    "i"  # partition
    "h"  # error_code
    "q"  # base_offset
    "q"  # log_append_time_ms
    "q"  # log_start_offset
    "B"  # record_errors     1: none
    "x"  # error_message     null
    "x"  # no tags of the partition
    "x"  # no tags of the topic
    "i"  # throttle_ms
    "x"  # no tags of the response
)
_NO_RECORD_ERRORS: Final = 1
_NOTHING_MORE: Final = ((), None, None)  # record errors, error message, leader


def _write_response(response: ProduceResponse, version: int, throttle_ms: int) -> Body:
    topics, nodes = response
    if version >= FLEXIBLE_FROM and len(topics) == 1 and not nodes:
        ((topic, rows),) = topics
        if len(rows) == 1 and rows[0][5:] == _NOTHING_MORE:  # as most: one batch was appended
            return _one_row_start(topic) + _ONE_ROW.pack(
                *rows[0][:5], _NO_RECORD_ERRORS, throttle_ms
            )
    return _BOUND.write_response(response, version, throttle_ms)


@lru_cache(maxsize=4096)
def _one_row_start(topic: TopicKey) -> bytes:
    return FLEXIBLE.count(1) + FLEXIBLE.topic(topic) + FLEXIBLE.count(1)


PRODUCE: Final = replace(
    _BOUND,
    read_request=_read_request,
    write_request=_write_request,
    write_response=_write_response,
)
