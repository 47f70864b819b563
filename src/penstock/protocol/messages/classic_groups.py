"""The answer to JoinGroup, versions 0 to 9.

The answer to SyncGroup, versions 0 to 5.

The answer to Heartbeat, versions 0 to 4.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from penstock.protocol.fields import encoding_of

JOIN_GROUP: Final = 11
_JOIN_THROTTLE_FROM: Final = 2
_INSTANCES_FROM: Final = 5
_TYPE_FROM: Final = 7  # and a protocol may be null
_SKIP_FROM: Final = 9

_THROTTLE: Final = Struct(">i")
_START: Final = Struct(
    ">"
    "h"  # error_code
    "i"  # generation
)
_SKIP: Final = Struct(">?")


class MemberAnswer(NamedTuple):
    """A member, as the leader is told of it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinAnswer(NamedTuple):
    """The outcome of a join. Only the leader is told of the members."""

    error_code: int
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: Sequence[MemberAnswer] = ()


def pack_join_group(version: int, joined: JoinAnswer, *, throttle_ms: int = 0) -> bytes:
    """The body."""
    encoding = encoding_of(JOIN_GROUP, version)
    string = encoding.string
    parts = [_THROTTLE.pack(throttle_ms)] if version >= _JOIN_THROTTLE_FROM else []
    parts.append(_START.pack(joined.error_code, joined.generation))
    if version >= _TYPE_FROM:
        parts += (string(joined.protocol_type), string(joined.protocol))
    else:  # an absent protocol cannot be said; the empty one is what clients know
        parts.append(string(joined.protocol or ""))
    parts.append(string(joined.leader))
    if version >= _SKIP_FROM:
        parts.append(_SKIP.pack(joined.skip_assignment))
    parts += (string(joined.member_id), encoding.count(len(joined.members)))
    for member in joined.members:
        parts.append(string(member.member_id))
        if version >= _INSTANCES_FROM:
            parts.append(string(member.instance_id))
        parts += (encoding.size(len(member.metadata)), member.metadata, encoding.no_tags)
    parts.append(encoding.no_tags)
    return b"".join(parts)


SYNC_GROUP: Final = 14
_SYNC_THROTTLE_FROM: Final = 1
_PROTOCOL_FROM: Final = 5

_ERROR_CODE: Final = Struct(">h")


def pack_sync_group(
    version: int,
    error_code: int,
    assignment: bytes = b"",
    *,
    protocol_type: str | None = None,
    protocol: str | None = None,
    throttle_ms: int = 0,
) -> bytes:
    """The body."""
    encoding = encoding_of(SYNC_GROUP, version)
    parts = [_THROTTLE.pack(throttle_ms)] if version >= _SYNC_THROTTLE_FROM else []
    parts.append(_ERROR_CODE.pack(error_code))
    if version >= _PROTOCOL_FROM:
        parts += (encoding.string(protocol_type), encoding.string(protocol))
    parts += (encoding.size(len(assignment)), assignment, encoding.no_tags)
    return b"".join(parts)


_HEARTBEAT_THROTTLE_FROM: Final = 1
_FLEXIBLE_FROM: Final = 4

_HEARTBEAT_0: Final = Struct(">h")  # error_code
_HEARTBEAT_1: Final = Struct(
    ">"
    "i"  # throttle_ms
    "h"  # error_code
)
_HEARTBEAT_4: Final = Struct(
    ">"
    "i"  # throttle_ms
    "h"  # error_code
    "x"  # no tagged fields
)


def pack_heartbeat(version: int, error_code: int, *, throttle_ms: int = 0) -> bytes:
    """The body."""
    if version >= _FLEXIBLE_FROM:
        return _HEARTBEAT_4.pack(throttle_ms, error_code)
    if version >= _HEARTBEAT_THROTTLE_FROM:
        return _HEARTBEAT_1.pack(throttle_ms, error_code)
    return _HEARTBEAT_0.pack(error_code)
