"""Looking into quarantine, and sending back what can be read by now.

A record is sent back to where it was (or to another topic) with its original bytes, once a reader
can read it; the record and a marker that says so are written in one transaction, so nothing is
sent back twice, however often this is run or dies on the way.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.client.errors import ClientError, Reason
from penstock.client.intake import offset_of, partition_of
from penstock.client.kafka_errors import KafkaFailed, connection_settings
from penstock.client.outbox import Outbox, Outgoing
from penstock.client.quarantine import (
    Quarantined,
    quarantine_topic,
    read_envelope,
    read_marker,
    redriven_headers,
    redriven_marker,
)
from penstock.client.reading import Reading, UndecodableSide
from penstock.client.transaction import Transaction
from penstock.errors import Malformed
from penstock.model import Offset, TopicPartition

WAIT_S: Final = 10.0
Settings = Mapping[str, Any]  # librdkafka's, beside the address: TLS, a login
TRANSACTION_RECORDS: Final = 500


class Place(NamedTuple):
    """Where a record is in the quarantine topic."""

    partition: int
    offset: Offset


class Found(NamedTuple):
    """A record in quarantine, and where it is there."""

    place: Place
    record: Quarantined
    is_redriven: bool


@dataclass(slots=True)
class Redriven:
    """What became of a pass over quarantine."""

    sent: list[Found] = field(default_factory=list)  # or would be, in a dry run
    unreadable: list[tuple[Found, str]] = field(default_factory=list)


def look(
    bootstrap: str, topic: str, reason: Reason | None = None, *, settings: Settings | None = None
) -> list[Found]:
    """All that is in a topic's quarantine now, oldest first by partition."""
    records: list[tuple[Place, Quarantined]] = []
    sent_back: set[Place] = set()
    for message in _all_of(bootstrap, settings, quarantine_topic(topic)):
        headers: Any = message.headers() or ()
        place = Place(partition_of(message).partition, offset_of(message))
        marked = read_marker(headers)
        if marked is not None:
            sent_back.add(Place(place.partition, marked))
            continue
        try:
            records.append((place, read_envelope(message.key(), message.value(), headers)))
        except Malformed:
            continue  # somebody else wrote it there
    return [
        Found(place, record, place in sent_back)
        for place, record in records
        if reason is None or record.verdict.reason is reason
    ]


def redrive(
    bootstrap: str,
    found: Iterable[Found],
    reading: Reading,
    *,
    dry_run: bool,
    to: str | None = None,
    settings: Settings | None = None,
) -> Redriven:
    """Send back what can be read; a dry run only says what would be."""
    outcome = Redriven()
    for one in found:
        if one.is_redriven:
            continue
        try:
            reading.event(one.record.origin)
        except UndecodableSide as still:
            outcome.unreadable.append((one, str(still)))
        else:
            outcome.sent.append(one)
    if outcome.sent and not dry_run:
        _send_back(bootstrap, settings, outcome.sent, to)
    return outcome


def _send_back(
    bootstrap: str, settings: Settings | None, found: list[Found], to: str | None
) -> None:
    topic = quarantine_topic(found[0].record.origin.topic)
    # One name per topic: a second run at the same time fences the first.
    name = f"penstock.redrive.{topic}"
    own = {"transactional.id": name, "message.max.bytes": 16 << 20}
    outbox = Outbox(bootstrap, {**(settings or {}), **own})
    transaction = Transaction(outbox, name)
    try:
        for start in range(0, len(found), TRANSACTION_RECORDS):
            with transaction:
                for one in found[start : start + TRANSACTION_RECORDS]:
                    for record in _records(one, topic, to):
                        outbox.send(record)
    finally:
        outbox.close()


def _records(found: Found, quarantine: str, to: str | None) -> Iterator[Outgoing]:
    origin = found.record.origin
    yield Outgoing(
        to or origin.topic,
        origin.key,
        origin.value,
        redriven_headers(found.record),
        None if to else origin.partition,
        origin.timestamp,
    )
    marker = redriven_marker(found.place.offset)
    yield Outgoing(quarantine, None, None, marker, found.place.partition)


def _all_of(bootstrap: str, settings: Settings | None, topic: str) -> Iterator[Message]:
    """Every committed record of a topic, up to its present end."""
    own = {"group.id": "penstock-quarantine", "enable.partition.eof": True}
    consumer = KafkaConsumer(connection_settings(bootstrap, {**(settings or {}), **own}))
    try:
        known = consumer.list_topics(topic, timeout=WAIT_S).topics[topic]
        if known.error is not None:
            raise ClientError(f"{topic} does not exist: nothing was ever put into quarantine")
        consumer.assign([KafkaPartition(topic, number, 0) for number in known.partitions])
        left = {TopicPartition(topic, number) for number in known.partitions}
        while left:
            message = consumer.poll(WAIT_S)
            if message is None:
                raise ClientError(f"{topic} could not be read to its end within {WAIT_S:.0f} s")
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name for it
                left.discard(partition_of(message))
            else:
                raise KafkaFailed(error, f"reading {topic}")
    except KafkaException as failure:
        raise KafkaFailed(failure.args[0], f"reading {topic}") from None
    finally:
        consumer.close()
