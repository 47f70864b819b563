"""Listing what is in quarantine, and sending back the events that can be read now.

An event is sent back to its topic (or to another one) with its original bytes, if the reader can
read it. It is sent once per origin, however many groups quarantined it and however often: the
record and a marker for each of its copies in quarantine are written in one transaction, and the
markers are read again after an earlier run was fenced. Events whose key has a newer value in the
topic are left out by default, so that tables do not go back in time.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.client.delivery import OutgoingRecord, RecordSender
from penstock.client.event import RecordReader, SideDecodeError
from penstock.client.kafka_errors import BrokerError, connect_client
from penstock.client.kafka_messages import offset_of, partition_of
from penstock.client.quarantine import (
    MESSAGE_BYTES_MAX,
    OriginalRecord,
    QuarantinedRecord,
    quarantine_topic,
    redriven_headers,
    write_marker,
)
from penstock.client.quarantined_events import (
    QuarantinedEvent,
    QuarantinePosition,
    StoredRecord,
    origin_of,
    position_of,
    read_quarantine,
)
from penstock.client.transaction import ProducerTransaction
from penstock.model import Offset, TopicPartition
from penstock.serde.errors import ClientError, Reason

WAIT_S: Final = 10.0
Settings = Mapping[str, Any]  # librdkafka's, beside the address: TLS, login
OnProgress = Callable[[int, int], None]  # sent, and of how many
TRANSACTION_RECORDS: Final = 500  # events in one transaction, each with its markers
_CONSUME_RECORDS: Final = 1000  # taken from librdkafka in one call


class RedrivableEvent(NamedTuple):
    """An event to be sent back, and the positions of its copies in quarantine."""

    record: QuarantinedRecord
    positions: tuple[QuarantinePosition, ...]


@dataclass(slots=True)
class RedriveResult:
    """The result of one run."""

    sent: list[RedrivableEvent] = field(default_factory=list)  # or would be, in a dry run
    superseded: list[RedrivableEvent] = field(default_factory=list)  # their keys have newer values
    unreadable: list[tuple[RedrivableEvent, str]] = field(default_factory=list)
    already_sent: int = 0  # records in quarantine that were sent back before


class RedriveSelection(NamedTuple):
    """Which events are sent back, and where to."""

    reason: Reason | None = None
    group: str | None = None  # that quarantined them
    to: str | None = None  # another topic
    include_superseded: bool = False


def list_quarantined(
    bootstrap: str, topic: str, reason: Reason | None = None, *, settings: Settings | None = None
) -> list[QuarantinedEvent]:
    """All that is in a topic's quarantine, oldest first by partition."""
    name = quarantine_topic(topic)
    stored = (_stored(message) for message in _records_of(bootstrap, settings, name))
    return read_quarantine(topic, stored, reason)


def _stored(message: Message) -> StoredRecord:
    headers: Any = message.headers() or ()
    position = QuarantinePosition(partition_of(message).partition, offset_of(message))
    return StoredRecord(position, message.key(), message.value(), headers)


def redrive(
    bootstrap: str,
    topic: str,
    reader: RecordReader,
    selection: RedriveSelection,
    *,
    dry_run: bool,
    settings: Settings | None = None,
    on_progress: OnProgress | None = None,
) -> RedriveResult:
    """Send back what can be read; a dry run only reports what would be sent.

    `on_progress` is called with how many events were sent, and of how many.
    """
    stored = list_quarantined(bootstrap, topic, settings=settings)
    result = RedriveResult(
        already_sent=sum(each.is_redriven and _matches(each.record, selection) for each in stored)
    )
    readable: list[RedrivableEvent] = []
    for event in _selected(stored, selection):
        try:
            reader.read(event.record.origin)
        except SideDecodeError as error:
            result.unreadable.append((event, str(error)))
        else:
            readable.append(event)
    superseded = set()
    if not selection.include_superseded:
        superseded = _superseded(bootstrap, settings, [event.record.origin for event in readable])
    for event in readable:
        is_old = origin_of(event.record) in superseded
        (result.superseded if is_old else result.sent).append(event)
    if result.sent and not dry_run:
        result.sent = _send_back(
            bootstrap, settings, topic, result.sent, selection, on_progress or _no_progress
        )
    return result


def _selected(
    events: Iterable[QuarantinedEvent], selection: RedriveSelection
) -> list[RedrivableEvent]:
    """One entry per origin, in the order of the origins, without what was sent back before."""
    by_origin: dict[tuple[TopicPartition, Offset], list[QuarantinedEvent]] = {}
    for event in events:
        if not event.is_redriven:
            by_origin.setdefault(origin_of(event.record), []).append(event)
    selected = []
    for (partition, _), copies in sorted(by_origin.items()):
        matches = [event for event in copies if _matches(event.record, selection)]
        if matches:
            # Sent back to its topic, all groups read it: no copy of any group is left to be sent.
            sent = copies if selection.to in (None, partition.topic) else matches
            positions = tuple(event.position for event in sent)
            selected.append(RedrivableEvent(matches[0].record, positions))
    return selected


def _matches(record: QuarantinedRecord, selection: RedriveSelection) -> bool:
    failure = record.failure
    return (selection.reason is None or failure.reason is selection.reason) and (
        selection.group is None or failure.client == selection.group
    )


def _superseded(
    bootstrap: str, settings: Settings | None, origins: Sequence[OriginalRecord]
) -> set[tuple[TopicPartition, Offset]]:
    """Which of these events have a later record of the same key that is not one of them.

    Reads each partition once, from the oldest of these events to its end.
    """
    positions = {position_of(origin) for origin in origins}
    keys = {(position_of(origin)[0], origin.key) for origin in origins if origin.key is not None}
    starts: dict[TopicPartition, Offset] = {}
    for partition, offset in positions:
        starts[partition] = min(starts.get(partition, offset), offset)
    newest: dict[tuple[TopicPartition, bytes | None], Offset] = {}
    for topic in {partition.topic for partition, _ in keys}:
        try:
            for message in _records_of(bootstrap, settings, topic, starts):
                key = (partition_of(message), message.key())
                if key in keys and (key[0], offset_of(message)) not in positions:
                    newest[key] = offset_of(message)
        except UnknownTopicError:
            continue
    return {
        position_of(origin)
        for origin in origins
        if newest.get((position_of(origin)[0], origin.key), -1) > origin.offset
    }


def _send_back(
    bootstrap: str,
    settings: Settings | None,
    topic: str,
    events: list[RedrivableEvent],
    selection: RedriveSelection,
    on_progress: OnProgress,
) -> list[RedrivableEvent]:
    """Send those of the events that no other run has sent meanwhile."""
    quarantine = quarantine_topic(topic)
    # One id per topic: a second run at the same time fences the first.
    name = f"penstock.redrive.{quarantine}"
    own = {"transactional.id": name, "message.max.bytes": MESSAGE_BYTES_MAX}
    sender = RecordSender(bootstrap, {**(settings or {}), **own})
    transaction = ProducerTransaction(sender, name)
    try:
        with transaction:  # from here on no other run writes: all its markers can be read
            left = _selected(list_quarantined(bootstrap, topic, settings=settings), selection)
        unsent = {origin_of(event.record): event for event in left}
        sent = [unsent[origin] for event in events if (origin := origin_of(event.record)) in unsent]
        for start in range(0, len(sent), TRANSACTION_RECORDS):
            on_progress(start, len(sent))
            with transaction:
                for event in sent[start : start + TRANSACTION_RECORDS]:
                    for record in _records(event, quarantine, selection.to):
                        sender.send(record)
        on_progress(len(sent), len(sent))
        return sent
    finally:
        sender.close()


def _no_progress(_sent: int, _total: int) -> None:
    """The caller waits for the result."""


def _records(event: RedrivableEvent, quarantine: str, to: str | None) -> Iterator[OutgoingRecord]:
    origin = event.record.origin
    yield OutgoingRecord(
        to or origin.topic,
        origin.key,
        origin.value,
        redriven_headers(event.record),
        None if to else origin.partition,
        origin.timestamp,
    )
    for position in event.positions:
        marker = write_marker(position.offset, to or origin.topic)
        yield OutgoingRecord(quarantine, None, None, marker, position.partition)


class UnknownTopicError(ClientError):
    """The topic to read does not exist."""


def _records_of(
    bootstrap: str,
    settings: Settings | None,
    topic: str,
    starts: Mapping[TopicPartition, Offset] | None = None,
) -> Iterator[Message]:
    """Every committed record of a topic up to its current end.

    With `starts`, only of those partitions, from those offsets.
    """
    own = {
        "group.id": "penstock-quarantine",
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",  # where retention removed the start
    }
    consumer = connect_client(KafkaConsumer, bootstrap, {**(settings or {}), **own})
    try:
        known = consumer.list_topics(topic, timeout=WAIT_S).topics[topic]
        if known.error is not None:
            raise UnknownTopicError(f"{topic} does not exist: nothing was quarantined")
        left = {TopicPartition(topic, number) for number in known.partitions}
        if starts is not None:
            left &= starts.keys()
        consumer.assign(
            [
                KafkaPartition(topic, event.partition, 0 if starts is None else starts[event])
                for event in left
            ]
        )
        while left:
            first = consumer.poll(WAIT_S)
            if first is None:
                raise ClientError(f"cannot read {topic} to its end within {WAIT_S:.0f} s")
            for message in (first, *consumer.consume(_CONSUME_RECORDS, 0)):
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name for it
                    left.discard(partition_of(message))
                else:
                    raise BrokerError(error, f"reading {topic}")
    except KafkaException as failure:
        raise BrokerError(failure.args[0], f"reading {topic}") from None
    finally:
        consumer.close()
