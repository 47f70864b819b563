"""The records of `__transaction_state`, as Apache Kafka writes and reads them, with one more tag.

A key names a transactional id; a value is the whole metadata of one, version 0 (classic fields) or
1 (compact fields, tags at the end). Both are read; version 1 is written, as by a Kafka 4 cluster
with transaction.version 2. A tombstone removes the id. Keys and values of unknown versions are
skipped.

The tag that Apache Kafka does not have, and skips, is the last producer epoch. A coordinator that
takes over needs it to recognize a retry of InitProducerId: without it, a producer whose response
was lost with the coordinator would be fenced by itself.
"""

from struct import Struct, error
from typing import Final

from penstock.coordination.transactions.events import (
    Event,
    TransactionalIdExpired,
    TransactionSet,
)
from penstock.coordination.transactions.transaction_moves import Transaction, TransactionState
from penstock.errors import Malformed
from penstock.machine import JournalRecord
from penstock.model import (
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    NO_TIMESTAMP,
    Millis,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from penstock.protocol.varint import read_unsigned_varint, unsigned_varint

_VERSION: Final = Struct(">h")
_EPOCH: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_KEY: Final = Struct(
    ">"
    "h"  # version  0
    "h"  # length   of the transactional id in bytes
)
_HEAD: Final = Struct(
    ">"
    "q"  # producer_id
    "h"  # producer_epoch
    "i"  # timeout_ms
    "b"  # state
)
_TIMES: Final = Struct(
    ">"
    "q"  # updated_at
    "q"  # started_at  -1 without a transaction
)
_WRITTEN_VERSION: Final = 1
_PREVIOUS_PRODUCER_ID_TAG: Final = 0
_NEXT_PRODUCER_ID_TAG: Final = 1
_CLIENT_VERSION_TAG: Final = 2
_LAST_PRODUCER_EPOCH_TAG: Final = 10_000  # far from those that Apache Kafka may add
_NO_TAGS: Final = b"\x00"
_NULL_ARRAY: Final = b"\x00"


def write_key(transactional_id: str) -> bytes:
    """The key under which a transactional id is stored."""
    name = transactional_id.encode()
    return _KEY.pack(0, len(name)) + name


def read_key(key: bytes) -> str | None:
    """The transactional id of a key; None for an unknown version."""
    try:
        version, length = _KEY.unpack_from(key)
    except error:
        raise Malformed("the key of a transaction record is truncated", 0) from None
    return None if version != 0 else _text(key, _KEY.size, length)


def write_event(event: Event) -> JournalRecord:
    """A durable event as the log stores it."""
    if isinstance(event, TransactionalIdExpired):
        return JournalRecord(write_key(event.transactional_id), None)
    assert isinstance(event, TransactionSet), (
        f"{type(event).__name__} is a note: it is never logged"
    )
    transaction = event.transaction
    return JournalRecord(write_key(transaction.transactional_id), write_value(transaction))


def read_events(record: JournalRecord) -> tuple[Event, ...]:
    """The events a stored record stands for; none for an unknown version."""
    transactional_id = read_key(record.key)
    if transactional_id is None:
        return ()
    if record.value is None:
        return (TransactionalIdExpired(transactional_id),)
    transaction = read_value(transactional_id, record.value)
    return () if transaction is None else (TransactionSet(transaction),)


def write_value(transaction: Transaction) -> bytes:
    """The whole metadata, in the version that Kafka 4 writes."""
    return b"".join(
        (
            _VERSION.pack(_WRITTEN_VERSION),
            _HEAD.pack(
                transaction.producer_id,
                transaction.producer_epoch,
                transaction.timeout_ms,
                transaction.state,
            ),
            _packed_partitions(transaction),
            _TIMES.pack(transaction.updated_at, transaction.started_at),
            _packed_tags(transaction),
        )
    )


def _packed_partitions(transaction: Transaction) -> bytes:
    if transaction.state is TransactionState.EMPTY:
        return _NULL_ARRAY
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        by_topic.setdefault(topic, []).append(partition)
    packed = [unsigned_varint(len(by_topic) + 1)]
    for topic, partitions in by_topic.items():
        name = topic.encode()
        packed += (
            unsigned_varint(len(name) + 1),
            name,
            unsigned_varint(len(partitions) + 1),
            Struct(f">{len(partitions)}i").pack(*partitions),
            _NO_TAGS,
        )
    return b"".join(packed)


def _packed_tags(transaction: Transaction) -> bytes:
    """A tagged field that has its default is left out."""
    tags: list[tuple[int, bytes]] = []
    if transaction.previous_producer_id != NO_PRODUCER:
        tags.append((_PREVIOUS_PRODUCER_ID_TAG, _INT64.pack(transaction.previous_producer_id)))
    if transaction.next_producer_id != NO_PRODUCER:
        tags.append((_NEXT_PRODUCER_ID_TAG, _INT64.pack(transaction.next_producer_id)))
    if transaction.client_version != 0:
        tags.append((_CLIENT_VERSION_TAG, _VERSION.pack(transaction.client_version)))
    if transaction.last_producer_epoch != NO_PRODUCER_EPOCH:
        tags.append((_LAST_PRODUCER_EPOCH_TAG, _EPOCH.pack(transaction.last_producer_epoch)))
    packed = [unsigned_varint(len(tags))]
    for tag, value in tags:
        packed += (unsigned_varint(tag), unsigned_varint(len(value)), value)
    return b"".join(packed)


def read_value(transactional_id: str, value: bytes) -> Transaction | None:
    """The metadata a value holds; None for an unknown version."""
    try:
        (version,) = _VERSION.unpack_from(value)
        if version not in (0, 1):
            return None
        return _read_known_value(transactional_id, value, is_compact=version == 1)
    except (error, ValueError):
        raise Malformed(f"the record of {transactional_id!r} is corrupt", 0) from None


def _read_known_value(transactional_id: str, value: bytes, *, is_compact: bool) -> Transaction:
    producer_id, producer_epoch, timeout_ms, status = _HEAD.unpack_from(value, _VERSION.size)
    position = _VERSION.size + _HEAD.size
    read_partitions = _read_compact_partitions if is_compact else _read_classic_partitions
    partitions, position = read_partitions(value, position)
    updated_at, started_at = _TIMES.unpack_from(value, position)
    tags = _read_tags(value, position + _TIMES.size)[0] if is_compact else {}
    client_version = tags.get(_CLIENT_VERSION_TAG)
    last_epoch = tags.get(_LAST_PRODUCER_EPOCH_TAG)
    return Transaction(
        transactional_id,
        ProducerId(producer_id),
        ProducerEpoch(producer_epoch),
        Millis(timeout_ms),
        TransactionState(status),
        partitions,
        updated_at=Millis(updated_at),
        started_at=Millis(started_at) if started_at >= 0 else NO_TIMESTAMP,
        previous_producer_id=_producer_id(tags.get(_PREVIOUS_PRODUCER_ID_TAG)),
        next_producer_id=_producer_id(tags.get(_NEXT_PRODUCER_ID_TAG)),
        last_producer_epoch=(
            NO_PRODUCER_EPOCH if last_epoch is None else ProducerEpoch(*_EPOCH.unpack(last_epoch))
        ),
        client_version=0 if client_version is None else _VERSION.unpack(client_version)[0],
    )


def _producer_id(packed: bytes | None) -> ProducerId:
    return NO_PRODUCER if packed is None else ProducerId(_INT64.unpack(packed)[0])


def _read_compact_partitions(value: bytes, position: int) -> tuple[frozenset[TopicPartition], int]:
    end = len(value)
    partitions: set[TopicPartition] = set()
    topics_and_one, position = read_unsigned_varint(value, position, end)
    for _ in range(topics_and_one - 1):
        length_and_one, position = read_unsigned_varint(value, position, end)
        topic = _text(value, position, length_and_one - 1)
        position += length_and_one - 1
        count_and_one, position = read_unsigned_varint(value, position, end)
        for _ in range(count_and_one - 1):
            partitions.add(TopicPartition(topic, _INT32.unpack_from(value, position)[0]))
            position += _INT32.size
        _, position = _read_tags(value, position)
    return frozenset(partitions), position


def _read_classic_partitions(value: bytes, position: int) -> tuple[frozenset[TopicPartition], int]:
    partitions: set[TopicPartition] = set()
    (topics,) = _INT32.unpack_from(value, position)
    position += _INT32.size
    for _ in range(topics):
        (length,) = _VERSION.unpack_from(value, position)
        position += _VERSION.size
        topic = _text(value, position, length)
        position += length
        (count,) = _INT32.unpack_from(value, position)
        position += _INT32.size
        for _ in range(count):
            partitions.add(TopicPartition(topic, _INT32.unpack_from(value, position)[0]))
            position += _INT32.size
    return frozenset(partitions), position


def _read_tags(value: bytes, position: int) -> tuple[dict[int, bytes], int]:
    end = len(value)
    tags: dict[int, bytes] = {}
    count, position = read_unsigned_varint(value, position, end)
    for _ in range(count):
        tag, position = read_unsigned_varint(value, position, end)
        size, position = read_unsigned_varint(value, position, end)
        tags[tag] = value[position : position + size]
        position += size
    return tags, position


def _text(packed: bytes, position: int, length: int) -> str:
    if length < 0 or position + length > len(packed):
        raise Malformed("a name in a transaction record is truncated", position)
    try:
        return packed[position : position + length].decode()
    except UnicodeDecodeError:
        raise Malformed("a name in a transaction record is not UTF-8", position) from None
