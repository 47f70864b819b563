"""The answer to Fetch, versions 4 to 18: small pieces of our own between the log's own bytes.

Record bytes are passed through as the views they came as and are never copied; the pieces are to
be written one after the other. An incremental session's answer is one with fewer partitions.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from penstock.protocol.fields import (
    NO_TOPIC_ID,
    Encoding,
    LeaderAndEpoch,
    Node,
    encoding_of,
    leader_field,
    nodes_field,
    tagged,
)
from penstock.protocol.primitives import Buffer

FETCH: Final = 1
_LOG_START_FROM: Final = 5
_SESSIONS_FROM: Final = 7
_PREFERRED_REPLICA_FROM: Final = 11
_TOPIC_IDS_FROM: Final = 13
_NODES_FROM: Final = 16

_THROTTLE: Final = Struct(">i")
_SESSION: Final = Struct(
    ">"
    "h"  # error_code  of the whole answer
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
    "i"  # preferred_read_replica  -1: fetch here
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
    "i"  # epoch       the largest that both logs may share
    "q"  # end_offset  of that epoch here
    "x"  # no tagged fields
)


class EpochEnd(NamedTuple):
    """Where a leader epoch ends here: what a replica that diverged must cut back to."""

    epoch: int
    end_offset: int


class PartitionAnswer(NamedTuple):
    """One partition's news; after an error all but the code stay as they are here."""

    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Buffer = b""
    # Producer id and first offset; None unless the client reads committed records only.
    aborted: Sequence[tuple[int, int]] | None = None
    preferred_read_replica: int = -1
    diverging_epoch: EpochEnd | None = None
    current_leader: LeaderAndEpoch | None = None


_NO_TAGGED_FIELDS: Final = (None, None)  # the last two of a PartitionAnswer


class TopicAnswer(NamedTuple):
    """The partitions of one topic, which was asked for by name, or by id from version 13 on."""

    name: str
    partitions: Sequence[PartitionAnswer]
    topic_id: bytes = NO_TOPIC_ID


def pack_fetch(
    version: int,
    topics: Sequence[TopicAnswer],
    *,
    throttle_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    nodes: Sequence[Node] = (),
) -> list[Buffer]:
    """The body in pieces. `nodes` are those that any `current_leader` names."""
    encoding = encoding_of(FETCH, version)
    is_flexible = encoding.is_flexible
    pieces: list[Buffer] = []
    own = bytearray(_THROTTLE.pack(throttle_ms))
    if version >= _SESSIONS_FROM:
        own += _SESSION.pack(error_code, session_id)
    own += encoding.count(len(topics))
    for topic in topics:
        own += topic.topic_id if version >= _TOPIC_IDS_FROM else encoding.string(topic.name)
        own += encoding.count(len(topic.partitions))
        for answer in topic.partitions:
            own += _pack_partition(version, encoding, answer)
            records = answer.records
            if records:
                own += encoding.size(len(records))
                pieces += (own, records)
                own = bytearray(_pack_tags(encoding, answer))
            elif is_flexible and answer[-2:] == _NO_TAGGED_FIELDS:
                own += _NO_RECORDS_NOR_TAGS
            else:
                own += encoding.size(0)
                own += _pack_tags(encoding, answer)
        own += encoding.no_tags
    own += tagged(nodes_field(0, nodes)) if nodes and version >= _NODES_FROM else encoding.no_tags
    if own:
        pieces.append(own)
    return pieces


def _pack_partition(version: int, encoding: Encoding, answer: PartitionAnswer) -> bytes:
    """Everything up to the size of the records."""
    aborted = answer.aborted
    if encoding.is_flexible and not aborted:
        return _PARTITION_12.pack(*answer[:5], aborted is not None, answer.preferred_read_replica)
    if version >= _LOG_START_FROM:
        fixed = _PARTITION_5.pack(*answer[:5])
    else:
        fixed = _PARTITION_4.pack(*answer[:4])
    listed = encoding.null_array if aborted is None else _pack_aborted(encoding, aborted)
    if version < _PREFERRED_REPLICA_FROM:
        return fixed + listed
    return fixed + listed + _PREFERRED_REPLICA.pack(answer.preferred_read_replica)


def _pack_aborted(encoding: Encoding, aborted: Sequence[tuple[int, int]]) -> bytes:
    tags = encoding.no_tags
    return encoding.count(len(aborted)) + b"".join(
        [_ABORTED.pack(producer_id, first_offset) + tags for producer_id, first_offset in aborted]
    )


def _pack_tags(encoding: Encoding, answer: PartitionAnswer) -> bytes:
    diverging, leader = answer.diverging_epoch, answer.current_leader
    if not encoding.is_flexible or (diverging is None and leader is None):
        return encoding.no_tags
    fields = []
    if diverging is not None:
        fields.append((0, _DIVERGING.pack(diverging.epoch, diverging.end_offset)))
    if leader is not None:
        fields.append(leader_field(1, leader))
    return tagged(*fields)
