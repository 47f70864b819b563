"""What a topic asks of a batch before it is appended. Reads headers; opens no record itself.

Most topics ask only what the header answers. The few rules that need the records (keys on a
compacted topic, a lower bound on timestamps, another codec) go through the `RecordInspector` that
the node brings, in a thread: `must_open` says when.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from penstock.broker import opening
from penstock.config.views import AcceptSettings, TimestampType
from penstock.errors import ErrorCode, Malformed, Refused
from penstock.model import Millis, Offset
from penstock.protocol.batch import (
    BatchHeader,
    CorruptBatch,
    check_produced,
    read_plain,
    stamp_append_time,
)

CODECS: Final = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
RECORD_ERRORS_MAX: Final = 100  # listed in one answer

# How large the records of a batch may be once they are opened.
OPENED_PER_MESSAGE_BYTE: Final = 32  # for each byte of max.message.bytes
OPENED_BYTES_FLOOR: Final = 1 << 20  # allowed in every topic
OPENED_BYTES_CEILING: Final = 256 << 20  # in no topic more: compaction opens no larger batch


class RecordFacts(NamedTuple):
    """What the records of one batch say, by their index in the batch."""

    unkeyed: Sequence[int] = ()
    outside: Sequence[int] = ()  # their timestamp is before the earliest or after the latest


class RecordInspector(Protocol):
    """Opens batches, as vectors. Called in a thread; raises Malformed on bytes that lie."""

    def inspect(
        self,
        batch: bytearray,
        *,
        earliest: Millis | None,
        latest: Millis | None,
        opened_bytes_max: int,
    ) -> RecordFacts:
        """Which records have no key, and which lie outside the bounds."""

    def recompress(
        self, batch: bytearray, codec: int, level: int | None, *, opened_bytes_max: int
    ) -> bytearray:
        """The same batch in another codec, sealed."""

    def find_time(
        self, batch: memoryview, timestamp: Millis, start_offset: Offset, end_offset: Offset
    ) -> tuple[Offset, Millis] | None:
        """The first record in [start_offset, end_offset) of that time or later."""


class RefusedRecords(Refused):
    """A batch declined because of some of its records."""

    def __init__(self, code: ErrorCode, message: str, indexes: Sequence[int]) -> None:
        super().__init__(code, message)
        self.indexes = indexes


def check(batch: memoryview | bytearray, accept: AcceptSettings) -> BatchHeader:
    """The header of a batch that may be appended as far as headers tell; or Refused."""
    if len(batch) > accept.max_message_bytes:
        raise _too_large(batch, accept)
    try:
        return read_plain(batch) or check_produced(batch, 0, len(batch))
    except CorruptBatch as error:
        raise Refused(ErrorCode.corrupt_message, str(error)) from error
    except Malformed as error:
        raise Refused(ErrorCode.invalid_record, str(error)) from error


def _too_large(batch: memoryview | bytearray, accept: AcceptSettings) -> Refused:
    return Refused(
        ErrorCode.message_too_large,
        f"a batch of {len(batch)} bytes; max.message.bytes is {accept.max_message_bytes}",
    )


def opened_bytes_max(accept: AcceptSettings) -> int:
    """How large the opened records of one batch may be."""
    wanted = max(OPENED_PER_MESSAGE_BYTE * accept.max_message_bytes, OPENED_BYTES_FLOOR)
    return min(wanted, OPENED_BYTES_CEILING)


def memory_to_open(
    batch: bytearray | memoryview, header: BatchHeader, accept: AcceptSettings
) -> int:
    """The memory that `open_and_check` can take; Refused where headers show that it would fail."""
    try:
        return opening.memory_to_open(batch, header, opened_bytes_max(accept))
    except Malformed as error:
        raise Refused(ErrorCode.invalid_record, str(error)) from error


def takes_as_is(accept: AcceptSettings) -> bool:
    """Whether batches are written as they came, once size and newest timestamp are within bounds.

    `must_open` and `stamp_times` have nothing to do then.
    """
    return (
        not accept.keys_required
        and accept.compression == "producer"
        and accept.timestamp_type is TimestampType.CREATE_TIME
        and accept.timestamp_before_max_ms is None
    )


def must_open(header: BatchHeader, accept: AcceptSettings, now: Millis) -> bool:
    """Whether the header is not enough to accept this batch."""
    return (
        accept.keys_required
        or _needs_other_codec(header, accept)
        or (
            accept.timestamp_type is TimestampType.CREATE_TIME
            and (
                accept.timestamp_before_max_ms is not None
                or header.max_timestamp > now + accept.timestamp_after_max_ms
            )
        )
    )


def open_and_check(
    batch: bytearray,
    header: BatchHeader,
    accept: AcceptSettings,
    now: Millis,
    inspector: RecordInspector,
) -> bytearray:
    """In a thread: the batch to append, which may be another than the one given; or Refused."""
    earliest = latest = None
    if accept.timestamp_type is TimestampType.CREATE_TIME:
        latest = Millis(now + accept.timestamp_after_max_ms)
        if accept.timestamp_before_max_ms is not None:
            earliest = Millis(now - accept.timestamp_before_max_ms)
    bytes_max = opened_bytes_max(accept)
    try:
        facts = inspector.inspect(
            batch, earliest=earliest, latest=latest, opened_bytes_max=bytes_max
        )
        _check_facts(facts, accept)
        if _needs_other_codec(header, accept):
            codec = CODECS[accept.compression]
            batch = inspector.recompress(
                batch, codec, accept.compression_level, opened_bytes_max=bytes_max
            )
    except Malformed as error:
        raise Refused(ErrorCode.invalid_record, str(error)) from error
    if len(batch) > accept.max_message_bytes:  # as it came it was not
        raise _too_large(batch, accept)
    return batch


def stamp_times(batch: memoryview | bytearray, accept: AcceptSettings, now: Millis) -> bool:
    """Write the broker's time into the batch if the topic wants it so; whether it did."""
    if accept.timestamp_type is TimestampType.CREATE_TIME:
        return False
    stamp_append_time(batch, 0, now)
    return True


def _needs_other_codec(header: BatchHeader, accept: AcceptSettings) -> bool:
    return accept.compression != "producer" and CODECS[accept.compression] != header.codec


def _check_facts(facts: RecordFacts, accept: AcceptSettings) -> None:
    if accept.keys_required and len(facts.unkeyed):
        raise RefusedRecords(
            ErrorCode.invalid_record,
            "a compacted topic takes no record without a key",
            list(facts.unkeyed[:RECORD_ERRORS_MAX]),
        )
    if len(facts.outside):
        before_ms = accept.timestamp_before_max_ms
        raise RefusedRecords(
            ErrorCode.invalid_timestamp,
            "the timestamp is too far from the broker's clock: message.timestamp.before.max.ms is "
            f"{'unbounded' if before_ms is None else before_ms}, "
            f"message.timestamp.after.max.ms is {accept.timestamp_after_max_ms}",
            list(facts.outside[:RECORD_ERRORS_MAX]),
        )
