"""Events of groups as records of `__consumer_offsets`, byte for byte as Apache Kafka writes them.

Unknown keys are skipped. The record of an offset commit:

    key    int16 1, group, topic, int32 partition           (0 is the same key in its oldest form)
    value  int16 4, int64 offset, int32 leader epoch, compact metadata, int64 commit time, tags
           tag 0: topic id

Values of versions 0 to 3 are read too. The state of the machine keeps values packed: a restart
reads a million of them, and most are never requested.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct, error
from typing import Any, Final, NamedTuple
from uuid import UUID

from penstock.coordination.groups import codec_consumer as consumer
from penstock.coordination.groups.codec_classic import (
    GROUP_KEY_VERSION,
    read_group_value,
    write_group_key,
    write_group_value,
    write_member_key,
)
from penstock.coordination.groups.events import (
    ClassicGroupSet,
    CurrentAssignmentSet,
    Event,
    GroupEpochSet,
    OffsetSet,
    PendingOffsetSet,
    RegexSet,
    SubscriptionSet,
    TargetAssignmentSet,
    TargetEpochSet,
)
from penstock.coordination.groups.record_fields import FieldReader, write_compact_bytes
from penstock.errors import Malformed
from penstock.machine import JournalRecord, TransactionMark
from penstock.model import NO_EPOCH, LeaderEpoch, Millis, Offset

OFFSET_KEY_VERSIONS: Final = (0, 1)
OFFSET_KEY: Final = b"\x00\x01"  # how the key of a commit begins
NO_TOPIC_ID: Final = UUID(int=0)

_VALUE_HEAD: Final = Struct(
    ">"
    "h"  # version
    "q"  # offset
    "i"  # leader_epoch  from version 3
)
_VALUE_TIME: Final = Struct(">q")
_TOPIC_ID_TAG: Final = b"\x01\x00\x10"  # one tagged field: tag 0, 16 bytes
_SHORT_VALUE: Final = Struct(
    ">"
    "h"  # version
    "q"  # offset
    "i"  # leader_epoch
    "b"  # metadata        1: an empty string, as in most commits
    "q"  # committed_at
    "19s"  # a tagged field with the topic's id
)
_PARTITION: Final = Struct(">i")
_SIZE: Final = Struct(">h")


class CommittedOffset(NamedTuple):
    """A group's committed offset in one partition."""

    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str
    committed_at: Millis
    expires_at: Millis | None  # only commits of very old clients carry their own retention
    topic_id: UUID


def write_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key of a commit, in the form Kafka 4 writes."""
    return _key_start(group_id, topic) + _PARTITION.pack(partition)


@lru_cache(maxsize=10_000)  # a group commits to the same topics all its life
def _key_start(group_id: str, topic: str) -> bytes:
    group, name = group_id.encode(), topic.encode()
    return b"".join((OFFSET_KEY, _SIZE.pack(len(group)), group, _SIZE.pack(len(name)), name))


def read_offset_key(key: bytes) -> tuple[str, str, int]:
    """Group, topic and partition of a commit. Read with slices: a restart reads very many."""
    try:
        group_end = 4 + (key[2] << 8 | key[3])
        topic_end = group_end + 2 + (key[group_end] << 8 | key[group_end + 1])
        (partition,) = _PARTITION.unpack_from(key, topic_end)
        return key[4:group_end].decode(), key[group_end + 2 : topic_end].decode(), partition
    except (IndexError, UnicodeDecodeError, error):
        raise Malformed("the key of an offset commit is truncated", len(key)) from None


def write_offset_value(
    offset: int, leader_epoch: int, metadata: str, committed_at: int, topic_id: UUID = NO_TOPIC_ID
) -> bytes:
    """The value of a commit: version 4."""
    number = topic_id.int  # UUID's own comparison and bytes are slow, and commits are many
    if number and not metadata:
        return _SHORT_VALUE.pack(4, offset, leader_epoch, 1, committed_at, _topic_id_tag(number))
    return b"".join(
        (
            _VALUE_HEAD.pack(4, offset, leader_epoch),
            write_compact_bytes(metadata.encode()),
            _VALUE_TIME.pack(committed_at),
            _topic_id_tag(number) if number else b"\x00",
        )
    )


@lru_cache(maxsize=10_000)
def _topic_id_tag(number: int) -> bytes:
    return _TOPIC_ID_TAG + number.to_bytes(16, "big")


def read_offset_value(value: bytes) -> CommittedOffset:
    """The value of a commit, of any version up to ours; a newer one reads as far as we know it."""
    fields = FieldReader(value)
    version = fields.int16()
    offset = Offset(fields.int64())
    leader_epoch = LeaderEpoch(fields.int32()) if version >= 3 else NO_EPOCH
    metadata = fields.compact_string() if version >= 4 else fields.string()
    committed_at = Millis(fields.int64())
    expires_at = None
    topic_id = NO_TOPIC_ID
    if version == 1:
        own_expiry = fields.int64()
        expires_at = None if own_expiry < 0 else Millis(own_expiry)
    if version >= 4 and (packed := fields.tags().get(0)):
        topic_id = UUID(bytes=packed)
    return CommittedOffset(offset, leader_epoch, metadata, committed_at, expires_at, topic_id)


def offset_of(value: bytes) -> int:
    """Only the offset, for comparisons."""
    return int.from_bytes(value[2:10], "big", signed=True)


def write_event(event: Event) -> JournalRecord:
    """The event as `__consumer_offsets` stores it."""
    return _WRITERS[type(event)](event)


def _write_offset(event: OffsetSet | PendingOffsetSet) -> JournalRecord:
    key = _key_start(event.group_id, event.topic) + _PARTITION.pack(event.partition)
    return tuple.__new__(JournalRecord, (key, event.value))  # commits are many


def _write_classic(event: ClassicGroupSet) -> JournalRecord:
    value = None if event.stored is None else write_group_value(event.stored)
    return JournalRecord(write_group_key(GROUP_KEY_VERSION, event.group_id), value)


def _write_group_epoch(event: GroupEpochSet) -> JournalRecord:
    value = None
    if event.epoch is not None:
        value = consumer.write_group_epoch(event.epoch, event.metadata_hash)
    return JournalRecord(write_group_key(consumer.GROUP_EPOCH_KEY, event.group_id), value)


def _write_subscription(event: SubscriptionSet) -> JournalRecord:
    value = None
    if event.subscription is not None:
        value = consumer.write_subscription(event.subscription)
    key = write_member_key(consumer.MEMBER_KEY, event.group_id, event.member_id)
    return JournalRecord(key, value)


def _write_target_epoch(event: TargetEpochSet) -> JournalRecord:
    value = None
    if event.epoch is not None:
        value = consumer.write_target_epoch(event.epoch, event.assigned_at)
    return JournalRecord(write_group_key(consumer.TARGET_EPOCH_KEY, event.group_id), value)


def _write_target(event: TargetAssignmentSet) -> JournalRecord:
    value = None if event.assignment is None else consumer.write_target(event.assignment)
    key = write_member_key(consumer.TARGET_KEY, event.group_id, event.member_id)
    return JournalRecord(key, value)


def _write_current(event: CurrentAssignmentSet) -> JournalRecord:
    value = None if event.current is None else consumer.write_current(event.current)
    key = write_member_key(consumer.CURRENT_KEY, event.group_id, event.member_id)
    return JournalRecord(key, value)


def _write_regex(event: RegexSet) -> JournalRecord:
    value = None if event.resolved is None else consumer.write_regex(event.resolved)
    key = write_member_key(consumer.REGEX_KEY, event.group_id, event.regex)
    return JournalRecord(key, value)


_WRITERS: Final[dict[type, Callable[[Any], JournalRecord]]] = {
    OffsetSet: _write_offset,
    PendingOffsetSet: _write_offset,
    ClassicGroupSet: _write_classic,
    GroupEpochSet: _write_group_epoch,
    SubscriptionSet: _write_subscription,
    TargetEpochSet: _write_target_epoch,
    TargetAssignmentSet: _write_target,
    CurrentAssignmentSet: _write_current,
    RegexSet: _write_regex,
}


def read_events(record: JournalRecord, mark: TransactionMark | None) -> Sequence[Event]:
    """The event a record stands for; none for an unknown key."""
    key, value = record
    if len(key) < 2:
        raise Malformed("the key of a group record has no version", 0)
    version = key[0] << 8 | key[1]
    if version in OFFSET_KEY_VERSIONS:
        group_id, topic, partition = read_offset_key(key)
        if mark is None:
            return (OffsetSet(group_id, topic, partition, value),)
        if value is None:  # a transaction never deletes an offset
            return ()
        return (PendingOffsetSet(mark.producer_id, group_id, topic, partition, value),)
    read = _READERS.get(version)
    return () if read is None else (read(FieldReader(key, 2), value),)


def _read_classic(key: FieldReader, value: bytes | None) -> Event:
    return ClassicGroupSet(key.string(), None if value is None else read_group_value(value))


def _read_group_epoch(key: FieldReader, value: bytes | None) -> Event:
    if value is None:
        return GroupEpochSet(key.string(), None)
    return GroupEpochSet(key.string(), *consumer.read_group_epoch(value))


def _read_subscription(key: FieldReader, value: bytes | None) -> Event:
    subscription = None if value is None else consumer.read_subscription(value)
    return SubscriptionSet(key.string(), key.string(), subscription)


def _read_target_epoch(key: FieldReader, value: bytes | None) -> Event:
    return TargetEpochSet(
        key.string(), None if value is None else consumer.read_target_epoch(value)
    )


def _read_target(key: FieldReader, value: bytes | None) -> Event:
    assignment = None if value is None else consumer.read_target(value)
    return TargetAssignmentSet(key.string(), key.string(), assignment)


def _read_current(key: FieldReader, value: bytes | None) -> Event:
    current = None if value is None else consumer.read_current(value)
    return CurrentAssignmentSet(key.string(), key.string(), current)


def _read_regex(key: FieldReader, value: bytes | None) -> Event:
    resolved = None if value is None else consumer.read_regex(value)
    return RegexSet(key.string(), key.string(), resolved)


_READERS: Final[dict[int, Callable[[FieldReader, bytes | None], Event]]] = {
    GROUP_KEY_VERSION: _read_classic,
    consumer.GROUP_EPOCH_KEY: _read_group_epoch,
    consumer.MEMBER_KEY: _read_subscription,
    consumer.TARGET_EPOCH_KEY: _read_target_epoch,
    consumer.TARGET_KEY: _read_target,
    consumer.CURRENT_KEY: _read_current,
    consumer.REGEX_KEY: _read_regex,
}
