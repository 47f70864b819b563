"""A group of the consumer protocol (KIP-848) as `__consumer_offsets` stores it, as Kafka does.

    3  group           epoch, hash of the topics' metadata
    4  partition metadata: only tombstones of it are written any more; they are ignored
    5  member          what it subscribes to
    6  target epoch    of the assignment in 7
    7  target          per member
    8  current         per member: epochs, state, what it owns, what it must give back
    16 regular expression, and the topics it matched

An assignment is a mapping of topic id to partitions; a current assignment also says since which
epoch the member owns each partition.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from penstock.coordination.groups.record_fields import (
    INT16,
    INT32,
    INT64,
    NO_TAGS,
    FieldReader,
    write_compact_array,
    write_compact_bytes,
    write_compact_string,
    write_tags,
)
from penstock.errors import Malformed
from penstock.protocol.varint import unsigned_varint

GROUP_EPOCH_KEY: Final = 3
MEMBER_KEY: Final = 5
TARGET_EPOCH_KEY: Final = 6
TARGET_KEY: Final = 7
CURRENT_KEY: Final = 8
REGEX_KEY: Final = 16

_VERSION_0: Final = INT16.pack(0)

Assignment = Mapping[UUID, tuple[int, ...]]  # partitions in order
Owned = Mapping[UUID, Mapping[int, int]]  # partition -> the member epoch it was given at


class MemberState(IntEnum):
    """How far a member is on its way to its target assignment."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1  # must give partitions back before it reaches the next epoch
    UNRELEASED_PARTITIONS = 2  # waits for partitions that other members must give back


class ClassicMemberMetadata(NamedTuple):
    """The session and the protocols of a member that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class StoredSubscription(NamedTuple):
    """What a member said about itself."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicMemberMetadata | None


class StoredCurrent(NamedTuple):
    """The epochs, the state and the partitions of a member."""

    member_epoch: int
    previous_member_epoch: int
    state: MemberState
    assigned: Owned
    pending_revocation: Owned


class StoredRegex(NamedTuple):
    """The topics a regular expression matched."""

    topics: tuple[str, ...]
    version: int
    resolved_at: int


def write_group_epoch(epoch: int, metadata_hash: int) -> bytes:
    """The value of key 3."""
    tags = {0: INT64.pack(metadata_hash)} if metadata_hash else {}
    return _VERSION_0 + INT32.pack(epoch) + write_tags(tags)


def read_group_epoch(value: bytes) -> tuple[int, int]:
    """Epoch and metadata hash."""
    fields = FieldReader(value, 2)
    epoch, packed = fields.int32(), fields.tags().get(0)
    return epoch, FieldReader(packed).int64() if packed else 0


def write_subscription(member: StoredSubscription) -> bytes:
    """The value of key 5."""
    return b"".join(
        (
            _VERSION_0,
            write_compact_string(member.instance_id),
            write_compact_string(member.rack_id),
            write_compact_string(member.client_id),
            write_compact_string(member.client_host),
            write_compact_array([write_compact_string(name) for name in member.topic_names]),
            write_compact_string(member.topic_regex or ""),  # Kafka never writes null here
            INT32.pack(member.rebalance_timeout_ms),
            write_compact_string(member.server_assignor),
            write_tags({0: _write_classic(member.classic)}),
        )
    )


def _write_classic(classic: ClassicMemberMetadata | None) -> bytes:
    """A nullable structure inside a tagged field starts with a byte: 1 if it is present."""
    if classic is None:
        return b"\x00"
    protocols = [
        write_compact_string(name) + write_compact_bytes(metadata) + NO_TAGS
        for name, metadata in classic.protocols
    ]
    return (
        b"\x01" + INT32.pack(classic.session_timeout_ms) + write_compact_array(protocols) + NO_TAGS
    )


def read_subscription(value: bytes) -> StoredSubscription:
    """The value of key 5."""
    fields = FieldReader(value, 2)
    return StoredSubscription(
        fields.compact_nullable_string(),
        fields.compact_nullable_string(),
        fields.compact_string(),
        fields.compact_string(),
        fields.compact_array(fields.compact_string),
        fields.compact_nullable_string() or None,
        fields.int32(),
        fields.compact_nullable_string(),
        _read_classic(fields.tags().get(0)),
    )


def _read_classic(packed: bytes | None) -> ClassicMemberMetadata | None:
    if not packed or packed[0] != 1:
        return None
    fields = FieldReader(packed, 1)

    def protocol() -> tuple[str, bytes]:
        named = fields.compact_string(), fields.compact_bytes()
        fields.tags()
        return named

    return ClassicMemberMetadata(fields.int32(), fields.compact_array(protocol))


def write_target_epoch(epoch: int, assigned_at: int) -> bytes:
    """The value of key 6."""
    tags = {0: INT64.pack(assigned_at)} if assigned_at else {}
    return _VERSION_0 + INT32.pack(epoch) + write_tags(tags)


def read_target_epoch(value: bytes) -> int:
    """The epoch of the target assignment."""
    return FieldReader(value, 2).int32()


def write_target(assignment: Assignment) -> bytes:
    """The value of key 7."""
    topics = [
        topic_id.bytes + _write_partitions(partitions) + NO_TAGS
        for topic_id, partitions in assignment.items()
    ]
    return _VERSION_0 + write_compact_array(topics) + NO_TAGS


def _write_partitions(partitions: tuple[int, ...]) -> bytes:
    return unsigned_varint(len(partitions) + 1) + b"".join(map(INT32.pack, partitions))


def read_target(value: bytes) -> dict[UUID, tuple[int, ...]]:
    """The partitions a member shall have."""
    fields = FieldReader(value, 2)

    def topic() -> tuple[UUID, tuple[int, ...]]:
        read = fields.uuid(), fields.compact_array(fields.int32)
        fields.tags()
        return read

    return dict(fields.compact_array(topic))


def write_current(current: StoredCurrent) -> bytes:
    """The value of key 8."""
    return b"".join(
        (
            _VERSION_0,
            INT32.pack(current.member_epoch),
            INT32.pack(current.previous_member_epoch),
            bytes((current.state,)),
            _write_owned(current.assigned),
            _write_owned(current.pending_revocation),
            NO_TAGS,
        )
    )


def _write_owned(owned: Owned) -> bytes:
    topics = []
    for topic_id, epochs in owned.items():
        partitions = _write_partitions(tuple(epochs))
        since = _write_partitions(tuple(epochs.values()))
        topics.append(topic_id.bytes + partitions + write_tags({0: since}))
    return write_compact_array(topics)


def read_current(value: bytes) -> StoredCurrent:
    """The value of key 8. Records without epochs per partition give the member's epoch."""
    fields = FieldReader(value, 2)
    epoch, previous, state = fields.int32(), fields.int32(), fields.int8()
    if state not in tuple(MemberState):
        raise Malformed(f"{state} is not a state of a member", fields.position)

    def topic() -> tuple[UUID, dict[int, int]]:
        topic_id, partitions = fields.uuid(), fields.compact_array(fields.int32)
        packed = fields.tags().get(0)
        since: tuple[int, ...] = (epoch,) * len(partitions)
        if packed:
            inner = FieldReader(packed)
            since = inner.compact_array(inner.int32) or since
        return topic_id, dict(zip(partitions, since, strict=False))

    assigned = dict(fields.compact_array(topic))
    return StoredCurrent(
        epoch, previous, MemberState(state), assigned, dict(fields.compact_array(topic))
    )


def write_regex(regex: StoredRegex) -> bytes:
    """The value of key 16."""
    return b"".join(
        (
            _VERSION_0,
            write_compact_array([write_compact_string(name) for name in regex.topics]),
            INT64.pack(regex.version),
            INT64.pack(regex.resolved_at),
            NO_TAGS,
        )
    )


def read_regex(value: bytes) -> StoredRegex:
    """The value of key 16."""
    fields = FieldReader(value, 2)
    return StoredRegex(fields.compact_array(fields.compact_string), fields.int64(), fields.int64())
