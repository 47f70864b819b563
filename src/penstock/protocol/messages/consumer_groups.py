"""The answer to ConsumerGroupHeartbeat, versions 0 and 1."""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from penstock.protocol.fields import FLEXIBLE

_START: Final = Struct(
    ">"
    "i"  # throttle_ms
    "h"  # error_code   message and member id follow
)
_MEMBER: Final = Struct(
    ">"
    "i"  # member_epoch
    "i"  # heartbeat_interval_ms
    "b"  # 1 when an assignment follows, -1 when it is unchanged
)
_UNCHANGED: Final = -1
_FOLLOWS: Final = 1
_NO_TAGS: Final = b"\0"


class AssignedTopic(NamedTuple):
    """The partitions of one topic that the member owns."""

    topic_id: bytes
    partitions: Sequence[int]


def pack_consumer_group_heartbeat(
    *,
    member_id: str | None,
    member_epoch: int,
    heartbeat_interval_ms: int,
    assignment: Sequence[AssignedTopic] | None = None,
    error_code: int = 0,
    error_message: str | None = None,
    throttle_ms: int = 0,
) -> bytes:
    """The body, the same in both versions. No assignment means: as before."""
    parts = [
        _START.pack(throttle_ms, error_code),
        FLEXIBLE.string(error_message),
        FLEXIBLE.string(member_id),
        _MEMBER.pack(
            member_epoch, heartbeat_interval_ms, _UNCHANGED if assignment is None else _FOLLOWS
        ),
    ]
    if assignment is not None:
        parts.append(FLEXIBLE.count(len(assignment)))
        for topic in assignment:
            parts += (topic.topic_id, FLEXIBLE.ints(topic.partitions), _NO_TAGS)
        parts.append(_NO_TAGS)
    parts.append(_NO_TAGS)
    return b"".join(parts)
