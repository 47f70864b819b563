"""Where unreadable events go: `<topic>.quarantine`, and the headers that they have there.

A record in quarantine has the original key, value and headers, byte for byte, and headers that say
where it was, why it is here and which schema it names:

    penstock.quarantine.topic, .partition, .offset, .timestamp     where it was
    penstock.quarantine.reason, .detail, .side                     label, sentence, key or value
    penstock.quarantine.schema, .subject, .reader                  as far as they are known
    penstock.quarantine.client, .at, .attempts                     who, when, how often before

Consumers and pipelines write the same headers. A record in quarantine is never changed; when it was
sent back, a marker in the same partition says so (`penstock.quarantine.redriven` = offset,
`penstock.quarantine.redriven.to` = the topic it was sent to). Reads and writes headers: no I/O.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from penstock.errors import Malformed
from penstock.model import Millis, Offset
from penstock.serde.errors import DecodeError, Reason
from penstock.serde.frame import Headers, Side

SUFFIX: Final = ".quarantine"
PREFIX: Final = "penstock.quarantine."
REDRIVEN: Final = f"{PREFIX}redriven"
REDRIVEN_TO: Final = f"{REDRIVEN}.to"
DETAIL_CHARACTERS_MAX: Final = 1000
MESSAGE_BYTES_MAX: Final = 16 << 20  # the largest original with its headers
TOPIC_SETTINGS: Final = {
    "cleanup.policy": "delete",
    "retention.ms": str(30 * 24 * 3600 * 1000),  # time to look at them, with a limit
    "max.message.bytes": str(MESSAGE_BYTES_MAX),
}
_REASONS: Final = frozenset(Reason)


class OriginalRecord(NamedTuple):
    """A record as it was in its topic."""

    topic: str
    partition: int
    offset: Offset
    timestamp: Millis
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


class DecodeFailure(NamedTuple):
    """Why a record is in quarantine."""

    reason: Reason
    detail: str
    side: Side
    schema: str | None = None  # the writer's, as the frame names it: an id or a GUID
    subject: str | None = None
    reader: str | None = None  # the name and version of a declared reader
    client: str = ""
    at: Millis = Millis(-1)
    attempts: int = 0  # how often it was sent back before


class QuarantinedRecord(NamedTuple):
    """A record in quarantine."""

    origin: OriginalRecord
    failure: DecodeFailure


def quarantine_topic(topic: str) -> str:
    """The topic for unreadable events of a topic."""
    return f"{topic}{SUFFIX}"


def failure_of(
    error: DecodeError, side: Side, *, client: str, at: Millis, reader: str | None = None
) -> DecodeFailure:
    """The failure that an error describes."""
    return DecodeFailure(
        error.reason, error.detail, side, error.schema, error.subject, reader, client, at
    )


def write_envelope(
    origin: OriginalRecord, failure: DecodeFailure
) -> list[tuple[str, bytes | None]]:
    """The headers of the record in quarantine; its key and value are the original's."""
    attempts = failure.attempts + _attempts_before(origin.headers)
    fields = {
        "topic": origin.topic,
        "partition": str(origin.partition),
        "offset": str(origin.offset),
        "timestamp": str(origin.timestamp),
        "reason": str(failure.reason),
        "detail": failure.detail[:DETAIL_CHARACTERS_MAX],
        "side": str(failure.side),
        "schema": failure.schema,
        "subject": failure.subject,
        "reader": failure.reader,
        "client": failure.client,
        "at": str(failure.at),
        "attempts": str(attempts),
    }
    envelope: list[tuple[str, bytes | None]] = [
        (f"{PREFIX}{name}", value.encode("utf-8", "replace"))
        for name, value in fields.items()
        if value is not None
    ]
    return [*without_envelope(origin.headers), *envelope]


def read_quarantined(key: bytes | None, value: bytes | None, headers: Headers) -> QuarantinedRecord:
    """A record in quarantine; raises Malformed if its headers are missing or invalid."""
    fields = _fields(headers)
    try:
        origin = OriginalRecord(
            fields["topic"],
            int(fields["partition"]),
            Offset(int(fields["offset"])),
            Millis(int(fields["timestamp"])),
            key,
            value,
            without_envelope(headers),
        )
        reason = fields["reason"]
        failure = DecodeFailure(
            Reason(reason) if reason in _REASONS else Reason.UNDECODABLE,
            fields.get("detail", ""),
            Side(fields["side"]),
            fields.get("schema"),
            fields.get("subject"),
            fields.get("reader"),
            fields.get("client", ""),
            Millis(int(fields.get("at", "-1"))),
            int(fields.get("attempts", "0")),
        )
    except KeyError as missing:
        raise Malformed(
            f"not a record in quarantine: no header {PREFIX}{missing.args[0]}", 0
        ) from None
    except ValueError as invalid:
        raise Malformed(f"a quarantine header is invalid: {invalid}", 0) from None
    return QuarantinedRecord(origin, failure)


def without_envelope(headers: Headers) -> list[tuple[str, bytes | None]]:
    """The original's own headers."""
    return [(name, value) for name, value in headers if not name.startswith(PREFIX)]


class RedriveMarker(NamedTuple):
    """Says that a record in quarantine was sent back."""

    offset: Offset  # of that record, in the marker's partition
    to: str | None  # the topic; None in markers of earlier versions


def write_marker(offset: Offset, to: str) -> list[tuple[str, bytes | None]]:
    """The headers of a marker: the record at this offset of the same partition was sent back."""
    return [(REDRIVEN, str(offset).encode()), (REDRIVEN_TO, to.encode())]


def read_marker(headers: Headers) -> RedriveMarker | None:
    """A marker; None if this record is none."""
    fields = {name: value for name, value in headers if name in (REDRIVEN, REDRIVEN_TO)}
    offset, to = fields.get(REDRIVEN), fields.get(REDRIVEN_TO)
    if offset is None or not offset.isdigit():
        return None
    return RedriveMarker(Offset(int(offset)), None if to is None else to.decode("utf-8", "replace"))


def redriven_headers(record: QuarantinedRecord) -> list[tuple[str, bytes | None]]:
    """The headers of an event that is sent back: its own, and how often that happened."""
    attempts = str(record.failure.attempts + 1).encode()
    return [*record.origin.headers, (f"{PREFIX}attempts", attempts)]


def _fields(headers: Headers) -> dict[str, str]:
    return {
        name.removeprefix(PREFIX): value.decode("utf-8", "replace")
        for name, value in headers
        if name.startswith(PREFIX) and value is not None
    }


def _attempts_before(headers: Iterable[tuple[str, bytes | None]]) -> int:
    """How often an event was sent back before, by its own header."""
    for name, value in headers:
        if name == f"{PREFIX}attempts" and value is not None and value.isdigit():
            return int(value[:9])
    return 0
