"""Events of a coordinator as records of its log, and back. Unknown keys are stepped over."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.coordination.groups import consumer_records as consumer
from penstock.coordination.groups.classic_records import (
    GROUP_KEY_VERSION,
    read_group_value,
    write_group_key,
    write_group_value,
    write_member_key,
)
from penstock.coordination.groups.events import (
    ClassicGroupSet,
    CurrentSet,
    Event,
    GroupEpochSet,
    OffsetSet,
    PendingOffsetSet,
    RegexSet,
    SubscriptionSet,
    TargetEpochSet,
    TargetSet,
)
from penstock.coordination.groups.fields import FieldReader
from penstock.coordination.groups.offset_records import (
    OFFSET_KEY_VERSIONS,
    read_offset_key,
    write_offset_key,
)
from penstock.errors import Malformed
from penstock.machine import JournalRecord, TransactionStamp


def write_event(event: Event) -> JournalRecord:
    """The event as `__consumer_offsets` stores it."""
    return _WRITERS[type(event)](event)


def _write_offset(event: OffsetSet | PendingOffsetSet) -> JournalRecord:
    key = write_offset_key(event.group_id, event.topic, event.partition)
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


def _write_target(event: TargetSet) -> JournalRecord:
    value = None if event.assignment is None else consumer.write_target(event.assignment)
    key = write_member_key(consumer.TARGET_KEY, event.group_id, event.member_id)
    return JournalRecord(key, value)


def _write_current(event: CurrentSet) -> JournalRecord:
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
    TargetSet: _write_target,
    CurrentSet: _write_current,
    RegexSet: _write_regex,
}


def read_events(record: JournalRecord, stamp: TransactionStamp | None) -> Sequence[Event]:
    """The event a record stands for; none for what is not ours."""
    key, value = record
    if len(key) < 2:
        raise Malformed("the key of a group record has no version", 0)
    version = key[0] << 8 | key[1]
    if version in OFFSET_KEY_VERSIONS:
        group_id, topic, partition = read_offset_key(key)
        if stamp is None:
            return (OffsetSet(group_id, topic, partition, value),)
        if value is None:  # nothing that a transaction writes takes an offset away
            return ()
        return (PendingOffsetSet(stamp.producer_id, group_id, topic, partition, value),)
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
    return TargetSet(key.string(), key.string(), assignment)


def _read_current(key: FieldReader, value: bytes | None) -> Event:
    current = None if value is None else consumer.read_current(value)
    return CurrentSet(key.string(), key.string(), current)


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
