"""A classic group as `__consumer_offsets` stores it, byte for byte as Apache Kafka does.

    key    int16 2, group
    value  int16 3, protocol type, int32 generation, protocol, leader, int64 state time, members

Values of versions 0 to 4 are read; Kafka 4 writes version 3, and so do we.
"""

from typing import Final, NamedTuple

from penstock.coordination.groups.record_fields import (
    INT16,
    INT32,
    INT64,
    FieldReader,
    write_bytes,
    write_string,
)

GROUP_KEY_VERSION: Final = 2
NO_STATE_TIME: Final = -1


class StoredMember(NamedTuple):
    """One member of a classic group, with its metadata for the chosen protocol."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class StoredGroup(NamedTuple):
    """A classic group at the end of a rebalance."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_since: int
    members: tuple[StoredMember, ...]


def write_group_key(version: int, group_id: str) -> bytes:
    """A key that is a version and a group."""
    return INT16.pack(version) + write_string(group_id)


def write_member_key(version: int, group_id: str, member_id: str) -> bytes:
    """A key that is a version, a group, and the name of something in the group."""
    return INT16.pack(version) + write_string(group_id) + write_string(member_id)


def write_group_value(group: StoredGroup) -> bytes:
    """The value of a classic group: version 3."""
    packed = [
        INT16.pack(3),
        write_string(group.protocol_type),
        INT32.pack(group.generation),
        write_string(group.protocol),
        write_string(group.leader),
        INT64.pack(group.state_since),
        INT32.pack(len(group.members)),
    ]
    for member in group.members:
        packed += (
            write_string(member.member_id),
            write_string(member.instance_id),
            write_string(member.client_id),
            write_string(member.client_host),
            INT32.pack(member.rebalance_timeout_ms),
            INT32.pack(member.session_timeout_ms),
            write_bytes(member.subscription),
            write_bytes(member.assignment),
        )
    return b"".join(packed)


def read_group_value(value: bytes) -> StoredGroup:
    """The value of a classic group, of any version up to 4."""
    fields = FieldReader(value)
    version = fields.int16()
    if version >= 4:
        return _read_compact_group(fields)
    return StoredGroup(
        protocol_type=fields.string(),
        generation=fields.int32(),
        protocol=fields.nullable_string(),
        leader=fields.nullable_string(),
        state_since=fields.int64() if version >= 2 else NO_STATE_TIME,
        members=fields.array(lambda: _read_member(fields, version)),
    )


def _read_member(fields: FieldReader, version: int) -> StoredMember:
    member_id = fields.string()
    instance_id = fields.nullable_string() if version >= 3 else None
    client_id, client_host = fields.string(), fields.string()
    rebalance_timeout_ms = fields.int32() if version >= 1 else -1
    session_timeout_ms = fields.int32()
    return StoredMember(
        member_id,
        instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms if rebalance_timeout_ms >= 0 else session_timeout_ms,
        session_timeout_ms,
        fields.bytes_(),
        fields.bytes_(),
    )


def _read_compact_group(fields: FieldReader) -> StoredGroup:
    return StoredGroup(
        protocol_type=fields.compact_string(),
        generation=fields.int32(),
        protocol=fields.compact_nullable_string(),
        leader=fields.compact_nullable_string(),
        state_since=fields.int64(),
        members=fields.compact_array(lambda: _read_compact_member(fields)),
    )


def _read_compact_member(fields: FieldReader) -> StoredMember:
    member = StoredMember(
        fields.compact_string(),
        fields.compact_nullable_string(),
        fields.compact_string(),
        fields.compact_string(),
        fields.int32(),
        fields.int32(),
        fields.compact_bytes(),
        fields.compact_bytes(),
    )
    fields.tags()
    return member
