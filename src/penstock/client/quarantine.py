"""Where events go that cannot be read: `<topic>.quarantine`, and the one envelope they wear there.

The record in quarantine has the original key, value and headers, byte for byte, and headers of its
own that say where it was, why it is here and which schema it names:

    penstock.quarantine.topic, .partition, .offset, .timestamp     where it was
    penstock.quarantine.reason, .detail, .side                     why: label, sentence, half
    penstock.quarantine.schema, .subject, .reader                  as far as they are known
    penstock.quarantine.client, .at, .attempts                     who, when, how often before

Consumers, the gateway and pipelines write it alike. A record in quarantine is never changed; once
it was sent back, a marker in the same partition says so (`penstock.quarantine.redriven` = offset,
`penstock.quarantine.redriven.to` = the topic it was sent to).
Reads and writes headers, and talks to nobody.
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
_LABELS: Final = frozenset(Reason)


class Origin(NamedTuple):
    """A record as it was in its topic."""

    topic: str
    partition: int
    offset: Offset
    timestamp: Millis
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


class Verdict(NamedTuple):
    """Why it is in quarantine."""

    reason: Reason
    detail: str
    side: Side
    schema: str | None = None  # the writer's, as the frame names it: an id or a GUID
    subject: str | None = None
    reader: str | None = None  # the name and version of one that is declared
    client: str = ""
    at: Millis = Millis(-1)
    attempts: int = 0  # how often it was sent back before


class Quarantined(NamedTuple):
    """A record in quarantine, understood."""

    origin: Origin
    verdict: Verdict


def quarantine_topic(topic: str) -> str:
    """Where a topic's unreadable events go."""
    return f"{topic}{SUFFIX}"


def verdict_on(
    wrong: DecodeError, side: Side, *, client: str, at: Millis, reader: str | None = None
) -> Verdict:
    """What a failed reading says."""
    return Verdict(
        wrong.reason, wrong.detail, side, wrong.schema, wrong.subject, reader, client, at
    )


def write_envelope(origin: Origin, verdict: Verdict) -> list[tuple[str, bytes | None]]:
    """The headers of the record in quarantine; its key and value are the original's."""
    attempts = verdict.attempts + _attempts_before(origin.headers)
    words = {
        "topic": origin.topic,
        "partition": str(origin.partition),
        "offset": str(origin.offset),
        "timestamp": str(origin.timestamp),
        "reason": str(verdict.reason),
        "detail": verdict.detail[:DETAIL_CHARACTERS_MAX],
        "side": str(verdict.side),
        "schema": verdict.schema,
        "subject": verdict.subject,
        "reader": verdict.reader,
        "client": verdict.client,
        "at": str(verdict.at),
        "attempts": str(attempts),
    }
    own: list[tuple[str, bytes | None]] = [
        (f"{PREFIX}{name}", word.encode("utf-8", "replace"))
        for name, word in words.items()
        if word is not None
    ]
    return [*without_envelope(origin.headers), *own]


def read_envelope(key: bytes | None, value: bytes | None, headers: Headers) -> Quarantined:
    """A record in quarantine; raises Malformed if it has no envelope or a torn one."""
    words = _words(headers)
    try:
        origin = Origin(
            words["topic"],
            int(words["partition"]),
            Offset(int(words["offset"])),
            Millis(int(words["timestamp"])),
            key,
            value,
            without_envelope(headers),
        )
        reason = words["reason"]
        verdict = Verdict(
            Reason(reason) if reason in _LABELS else Reason.UNDECODABLE,
            words.get("detail", ""),
            Side(words["side"]),
            words.get("schema"),
            words.get("subject"),
            words.get("reader"),
            words.get("client", ""),
            Millis(int(words.get("at", "-1"))),
            int(words.get("attempts", "0")),
        )
    except KeyError as missing:
        raise Malformed(
            f"not a record in quarantine: no header {PREFIX}{missing.args[0]}", 0
        ) from None
    except ValueError as wrong:
        raise Malformed(f"a header of the envelope is torn: {wrong}", 0) from None
    return Quarantined(origin, verdict)


def without_envelope(headers: Headers) -> list[tuple[str, bytes | None]]:
    """The original's own headers."""
    return [(name, value) for name, value in headers if not name.startswith(PREFIX)]


class Marker(NamedTuple):
    """Says that a record in quarantine was sent back."""

    offset: Offset  # of that record, in the marker's partition
    to: str | None  # the topic; None in markers of earlier versions


def redriven_marker(offset: Offset, to: str) -> list[tuple[str, bytes | None]]:
    """Headers of a marker: the record at this offset of the same partition was sent back."""
    return [(REDRIVEN, str(offset).encode()), (REDRIVEN_TO, to.encode())]


def read_marker(headers: Headers) -> Marker | None:
    """What a marker says; None if this is no marker."""
    words = {name: value for name, value in headers if name in (REDRIVEN, REDRIVEN_TO)}
    offset, to = words.get(REDRIVEN), words.get(REDRIVEN_TO)
    if offset is None or not offset.isdigit():
        return None
    return Marker(Offset(int(offset)), None if to is None else to.decode("utf-8", "replace"))


def redriven_headers(found: Quarantined) -> list[tuple[str, bytes | None]]:
    """Headers of an event that is sent back: its own, and how often that happened."""
    attempts = str(found.verdict.attempts + 1).encode()
    return [*found.origin.headers, (f"{PREFIX}attempts", attempts)]


def _words(headers: Headers) -> dict[str, str]:
    return {
        name.removeprefix(PREFIX): value.decode("utf-8", "replace")
        for name, value in headers
        if name.startswith(PREFIX) and value is not None
    }


def _attempts_before(headers: Iterable[tuple[str, bytes | None]]) -> int:
    """What an event that was sent back says of itself."""
    for name, value in headers:
        if name == f"{PREFIX}attempts" and value is not None and value.isdigit():
            return int(value[:9])
    return 0
