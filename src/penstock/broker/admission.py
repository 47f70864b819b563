"""What a topic asks of a batch before it is appended. Reads headers; opens no record itself.

For most topics the header is enough. The few rules that need the records (keys on a compacted
topic, a lower bound on timestamps, another codec) go through the `RecordInspector` that the node
brings, in a thread: `Admission.check` says when.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from penstock.broker import opening
from penstock.broker.settings import AdmissionSettings, TimestampType
from penstock.errors import ErrorCode, Malformed, Refused
from penstock.model import Millis, Offset
from penstock.protocol.batch import CODEC_MASK, BatchHeader, CorruptBatch, check_client_batch

CODECS: Final = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
RECORD_ERRORS_MAX: Final = 100  # listed in one response
_UNBOUNDED_MS: Final = 1 << 62

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


class Admission:
    """What one topic asks of a client's batch, worked out once per change of its settings."""

    __slots__ = (
        "_codec",
        "_max_message_bytes",
        "_opens_all",
        "_timestamp_after_max_ms",
        "sets_append_time",
    )

    def __init__(self, accept: AdmissionSettings) -> None:
        has_create_time = accept.timestamp_type is TimestampType.CREATE_TIME
        self.sets_append_time = not has_create_time
        self._max_message_bytes = accept.max_message_bytes
        self._opens_all = accept.keys_required or (
            has_create_time and accept.timestamp_before_max_ms is not None
        )
        self._codec = None if accept.compression == "producer" else CODECS[accept.compression]
        self._timestamp_after_max_ms = (
            accept.timestamp_after_max_ms if has_create_time else _UNBOUNDED_MS
        )

    def check(self, batch: memoryview | bytearray, now: Millis) -> tuple[BatchHeader, bool]:
        """The header of a batch that may be appended, and whether its records must be opened."""
        if len(batch) > self._max_message_bytes:
            raise _too_large(batch, self._max_message_bytes)
        try:
            header = check_client_batch(batch)
        except CorruptBatch as error:
            raise Refused(ErrorCode.corrupt_message, str(error)) from error
        except Malformed as error:
            raise Refused(ErrorCode.invalid_record, str(error)) from error
        return header, (
            self._opens_all
            or header.max_timestamp > now + self._timestamp_after_max_ms
            or (self._codec is not None and self._codec != header.attributes & CODEC_MASK)
        )


def _too_large(batch: memoryview | bytearray, max_message_bytes: int) -> Refused:
    return Refused(
        ErrorCode.message_too_large,
        f"a batch of {len(batch)} bytes; max.message.bytes is {max_message_bytes}",
    )


def opened_bytes_max(accept: AdmissionSettings) -> int:
    """How large the opened records of one batch may be."""
    wanted = max(OPENED_PER_MESSAGE_BYTE * accept.max_message_bytes, OPENED_BYTES_FLOOR)
    return min(wanted, OPENED_BYTES_CEILING)


def memory_to_open(
    batch: bytearray | memoryview, header: BatchHeader, accept: AdmissionSettings
) -> int:
    """The memory that `open_and_check` can take; Refused where headers show that it would fail."""
    try:
        return opening.memory_to_open(batch, header, opened_bytes_max(accept))
    except Malformed as error:
        raise Refused(ErrorCode.invalid_record, str(error)) from error


def open_and_check(
    batch: bytearray,
    header: BatchHeader,
    accept: AdmissionSettings,
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
        raise _too_large(batch, accept.max_message_bytes)
    return batch


def _needs_other_codec(header: BatchHeader, accept: AdmissionSettings) -> bool:
    return accept.compression != "producer" and CODECS[accept.compression] != header.codec


def _check_facts(facts: RecordFacts, accept: AdmissionSettings) -> None:
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
