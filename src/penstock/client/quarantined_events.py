"""The events in a topic's quarantine, and which of them were sent back. Pure.

A record in quarantine is never changed: markers behind it say that it was sent back.
"""

from collections.abc import Iterable
from typing import NamedTuple

from penstock.client.quarantine import (
    OriginalRecord,
    QuarantinedRecord,
    read_marker,
    read_quarantined,
)
from penstock.errors import Malformed
from penstock.model import Offset, TopicPartition
from penstock.serde.errors import Reason
from penstock.serde.frame import Headers


class QuarantinePosition(NamedTuple):
    """Where a record is in the quarantine topic."""

    partition: int
    offset: Offset


class QuarantinedEvent(NamedTuple):
    """A record in quarantine, and where it is there."""

    position: QuarantinePosition
    record: QuarantinedRecord
    is_redriven: bool


class StoredRecord(NamedTuple):
    """A record of a quarantine topic, as it is stored."""

    position: QuarantinePosition
    key: bytes | None
    value: bytes | None
    headers: Headers


def read_quarantine(
    topic: str, stored: Iterable[StoredRecord], reason: Reason | None = None
) -> list[QuarantinedEvent]:
    """The events among the records of a topic's quarantine, and which were sent back."""
    records: list[tuple[QuarantinePosition, QuarantinedRecord]] = []
    sent_to: dict[QuarantinePosition, str] = {}
    for position, key, value, headers in stored:
        marker = read_marker(headers)
        if marker is not None:
            marked = QuarantinePosition(position.partition, marker.offset)
            sent_to[marked] = marker.to or topic
            continue
        try:
            records.append((position, read_quarantined(key, value, headers)))
        except Malformed:
            continue  # written by another program
    redriven = {
        _redriven_for(record, sent_to[position])
        for position, record in records
        if position in sent_to
    }
    return [
        QuarantinedEvent(position, record, _is_redriven(record, redriven))
        for position, record in records
        if reason is None or record.failure.reason is reason
    ]


def position_of(origin: OriginalRecord) -> tuple[TopicPartition, Offset]:
    """Where a record was in its topic."""
    return TopicPartition(origin.topic, origin.partition), origin.offset


def origin_of(record: QuarantinedRecord) -> tuple[TopicPartition, Offset]:
    """Where a record in quarantine was in its topic."""
    return position_of(record.origin)


_Redriven = tuple[tuple[TopicPartition, Offset], str | None]  # origin, and group (None: all)


def _redriven_for(record: QuarantinedRecord, to: str) -> _Redriven:
    """Sent to its own topic, every group reads it again; to another, the group it was sent for."""
    return origin_of(record), None if to == record.origin.topic else record.failure.client


def _is_redriven(record: QuarantinedRecord, redriven: set[_Redriven]) -> bool:
    origin = origin_of(record)
    return (origin, None) in redriven or (origin, record.failure.client) in redriven
