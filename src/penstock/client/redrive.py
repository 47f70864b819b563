"""Looking into quarantine, and sending back what can be read by now.

An event is sent back to where it was (or to another topic) with its original bytes, once a reader
can read it. It is sent once per origin, however many groups put it aside and however often: the
record and a marker for each of its copies in quarantine are written in one transaction, and the
markers are read again after an earlier run was fenced. Events whose key has a newer value in the
topic are left out by default, so that tables do not go back in time.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.client.delivery import Outbox, Outgoing
from penstock.client.event import Reading, UndecodableSide
from penstock.client.kafka_errors import BrokerError, connected
from penstock.client.poll_thread import offset_of, partition_of
from penstock.client.quarantine import (
    Origin,
    Quarantined,
    quarantine_topic,
    read_envelope,
    read_marker,
    redriven_headers,
    redriven_marker,
)
from penstock.client.transaction import Transaction
from penstock.errors import Malformed
from penstock.model import Offset, TopicPartition
from penstock.serde.errors import ClientError, Reason

WAIT_S: Final = 10.0
Settings = Mapping[str, Any]  # librdkafka's, beside the address: TLS, a login
TRANSACTION_RECORDS: Final = 500  # events in one transaction, each with its markers
_AT_ONCE: Final = 1000  # records taken from librdkafka in one call


class Place(NamedTuple):
    """Where a record is in the quarantine topic."""

    partition: int
    offset: Offset


class Found(NamedTuple):
    """A record in quarantine, and where it is there."""

    place: Place
    record: Quarantined
    is_redriven: bool


class Returning(NamedTuple):
    """An event to be sent back, and its copies in quarantine that this settles."""

    record: Quarantined
    places: tuple[Place, ...]


@dataclass(slots=True)
class Redriven:
    """The result of a pass over quarantine."""

    sent: list[Returning] = field(default_factory=list)  # or would be, in a dry run
    superseded: list[Returning] = field(default_factory=list)  # their keys have newer values
    unreadable: list[tuple[Returning, str]] = field(default_factory=list)


class Selection(NamedTuple):
    """Which events are sent back, and where to."""

    reason: Reason | None = None
    group: str | None = None  # what put them aside, as the envelope names it
    to: str | None = None  # another topic
    include_superseded: bool = False


def look(
    bootstrap: str, topic: str, reason: Reason | None = None, *, settings: Settings | None = None
) -> list[Found]:
    """All that is in a topic's quarantine now, oldest first by partition."""
    records: list[tuple[Place, Quarantined]] = []
    sent_to: dict[Place, str] = {}
    name = quarantine_topic(topic)
    for message in _records_of(bootstrap, settings, name):
        headers: Any = message.headers() or ()
        place = Place(partition_of(message).partition, offset_of(message))
        marker = read_marker(headers)
        if marker is not None:
            sent_to[Place(place.partition, marker.offset)] = marker.to or topic
            continue
        try:
            records.append((place, read_envelope(message.key(), message.value(), headers)))
        except Malformed:
            continue  # written by another program
    settled = {_settled(record, sent_to[place]) for place, record in records if place in sent_to}
    return [
        Found(place, record, any((_place_of(record.origin), one) in settled for one in groups))
        for place, record in records
        if reason is None or record.verdict.reason is reason
        for groups in [(None, record.verdict.client)]
    ]


def redrive(
    bootstrap: str,
    topic: str,
    reading: Reading,
    selection: Selection,
    *,
    dry_run: bool,
    settings: Settings | None = None,
) -> Redriven:
    """Send back what can be read; a dry run only says what would be."""
    outcome = Redriven()
    readable: list[Returning] = []
    for one in _selected(look(bootstrap, topic, settings=settings), selection):
        try:
            reading.event(one.record.origin)
        except UndecodableSide as still:
            outcome.unreadable.append((one, str(still)))
        else:
            readable.append(one)
    superseded = set()
    if not selection.include_superseded:
        superseded = _superseded(bootstrap, settings, [one.record.origin for one in readable])
    for one in readable:
        is_old = _place_of(one.record.origin) in superseded
        (outcome.superseded if is_old else outcome.sent).append(one)
    if outcome.sent and not dry_run:
        outcome.sent = _send_back(bootstrap, settings, topic, outcome.sent, selection)
    return outcome


def _selected(found: Iterable[Found], selection: Selection) -> list[Returning]:
    """One entry per origin, in the order of the origins, without what was sent back before."""
    by_origin: dict[tuple[TopicPartition, Offset], list[Found]] = {}
    for one in found:
        if not one.is_redriven:
            by_origin.setdefault(_place_of(one.record.origin), []).append(one)
    chosen = []
    for (partition, _), copies in sorted(by_origin.items()):
        wanted = [one for one in copies if _is_wanted(one.record, selection)]
        if wanted:
            # Where all groups read it, no copy of any group is left to be sent.
            settles = copies if selection.to in (None, partition.topic) else wanted
            chosen.append(Returning(wanted[0].record, tuple(one.place for one in settles)))
    return chosen


def _is_wanted(record: Quarantined, selection: Selection) -> bool:
    verdict = record.verdict
    return (selection.reason is None or verdict.reason is selection.reason) and (
        selection.group is None or verdict.client == selection.group
    )


def _superseded(
    bootstrap: str, settings: Settings | None, origins: Sequence[Origin]
) -> set[tuple[TopicPartition, Offset]]:
    """Which of these events have a later record of the same key that is not one of them.

    Reads each partition once, from the oldest of these events to its end.
    """
    places = {_place_of(origin) for origin in origins}
    keys = {(_place_of(origin)[0], origin.key) for origin in origins if origin.key is not None}
    starts: dict[TopicPartition, Offset] = {}
    for partition, offset in places:
        starts[partition] = min(starts.get(partition, offset), offset)
    newest: dict[tuple[TopicPartition, bytes | None], Offset] = {}
    for topic in {partition.topic for partition, _ in keys}:
        try:
            for message in _records_of(bootstrap, settings, topic, starts):
                key = (partition_of(message), message.key())
                if key in keys and (key[0], offset_of(message)) not in places:
                    newest[key] = offset_of(message)
        except UnknownTopicError:
            continue
    return {
        _place_of(origin)
        for origin in origins
        if newest.get((_place_of(origin)[0], origin.key), -1) > origin.offset
    }


def _place_of(origin: Origin) -> tuple[TopicPartition, Offset]:
    return TopicPartition(origin.topic, origin.partition), origin.offset


def _settled(record: Quarantined, to: str) -> tuple[tuple[TopicPartition, Offset], str | None]:
    """What a marker settles: the origin for every group (None), or for the one that put it aside.

    In its own topic every group reads it again; elsewhere it was sent for one of them.
    """
    group = None if to == record.origin.topic else record.verdict.client
    return _place_of(record.origin), group


def _send_back(
    bootstrap: str,
    settings: Settings | None,
    topic: str,
    events: list[Returning],
    selection: Selection,
) -> list[Returning]:
    """Those of the events that no other run has sent meanwhile."""
    quarantine = quarantine_topic(topic)
    # One name per topic: a second run at the same time fences the first.
    name = f"penstock.redrive.{quarantine}"
    own = {"transactional.id": name, "message.max.bytes": 16 << 20}
    outbox = Outbox(bootstrap, {**(settings or {}), **own})
    transaction = Transaction(outbox, name)
    try:
        with transaction:  # from here on no other run writes: its markers are all there
            left = _selected(look(bootstrap, topic, settings=settings), selection)
        unsent = {_place_of(one.record.origin): one for one in left}
        sent = [
            unsent[place] for one in events if (place := _place_of(one.record.origin)) in unsent
        ]
        for start in range(0, len(sent), TRANSACTION_RECORDS):
            with transaction:
                for one in sent[start : start + TRANSACTION_RECORDS]:
                    for record in _records(one, quarantine, selection.to):
                        outbox.send(record)
        return sent
    finally:
        outbox.close()


def _records(event: Returning, quarantine: str, to: str | None) -> Iterator[Outgoing]:
    origin = event.record.origin
    yield Outgoing(
        to or origin.topic,
        origin.key,
        origin.value,
        redriven_headers(event.record),
        None if to else origin.partition,
        origin.timestamp,
    )
    for place in event.places:
        marker = redriven_marker(place.offset, to or origin.topic)
        yield Outgoing(quarantine, None, None, marker, place.partition)


class UnknownTopicError(ClientError):
    """A topic that is to be read does not exist."""


def _records_of(
    bootstrap: str,
    settings: Settings | None,
    topic: str,
    starts: Mapping[TopicPartition, Offset] | None = None,
) -> Iterator[Message]:
    """Every committed record of a topic up to its present end.

    With `starts` only of those partitions, from there on.
    """
    own = {
        "group.id": "penstock-quarantine",
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",  # where retention has removed the start
    }
    consumer = connected(KafkaConsumer, bootstrap, {**(settings or {}), **own})
    try:
        known = consumer.list_topics(topic, timeout=WAIT_S).topics[topic]
        if known.error is not None:
            raise UnknownTopicError(f"{topic} does not exist: nothing was ever put into quarantine")
        left = {TopicPartition(topic, number) for number in known.partitions}
        if starts is not None:
            left &= starts.keys()
        consumer.assign(
            [
                KafkaPartition(topic, one.partition, 0 if starts is None else starts[one])
                for one in left
            ]
        )
        while left:
            first = consumer.poll(WAIT_S)
            if first is None:
                raise ClientError(f"{topic} could not be read to its end within {WAIT_S:.0f} s")
            for message in (first, *consumer.consume(_AT_ONCE, 0)):
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
