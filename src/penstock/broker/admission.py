"""The checks of a produced batch before it is appended. Reads headers; opens no record itself.

For most topics the header is enough. The few rules that need the records (keys on a compacted
topic, a lower bound on timestamps, another codec) are checked by the node's `RecordInspector`, in a
thread: `Admission.check` says when.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from penstock.broker import opening
from penstock.broker.settings import AdmissionSettings, TimestampType
from penstock.errors import ErrorCode, Malformed, Refused
from penstock.model import Millis, Offset
from penstock.protocol.batch import CODEC_MASK, BatchHeader, CorruptBatch, check_client_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

CODECS: Final = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
RECORD_ERRORS_MAX: Final = 100  # in one response
_UNBOUNDED_MS: Final = 1 << 62

# How large the decompressed records of a batch may be.
OPENED_PER_MESSAGE_BYTE: Final = 32  # for each byte of max.message.bytes
OPENED_BYTES_FLOOR: Final = 1 << 20  # allowed in every topic
OPENED_BYTES_CEILING: Final = 256 << 20  # of any topic: compaction opens no larger batch


class RecordFacts(NamedTuple):
    """Records of one batch that break a rule, by their index in the batch."""

    unkeyed: Sequence[int] = ()
    out_of_range: Sequence[int] = ()  # by timestamp: before the earliest or after the latest


class RecordInspector(Protocol):
    """Opens batches as columns. Called in a thread; raises Malformed for invalid records."""

    def inspect(
        self,
        batch: bytearray,
        *,
        earliest: Millis | None,
        latest: Millis | None,
        opened_bytes_max: int,
    ) -> RecordFacts:
        """Which records have no key, and which have a timestamp out of range."""

    def recompress(
        self, batch: bytearray, codec: int, level: int | None, *, opened_bytes_max: int
    ) -> bytearray:
        """The same batch with another codec, sealed."""

    def find_time(
        self, batch: memoryview, timestamp: Millis, start_offset: Offset, end_offset: Offset
    ) -> tuple[Offset, Millis] | None:
        """The first record in [start_offset, end_offset) with this timestamp or a later one."""


class RefusedRecords(Refused):
    """A batch that is refused because of some of its records."""

    def __init__(self, code: ErrorCode, message: str, indexes: Sequence[int]) -> None:
        super().__init__(code, message)
        self.indexes = indexes


class Admission:
    """The checks of one topic, derived from its settings once per change."""

    __slots__ = (
        "_codec",
        "_max_message_bytes",
        "_opens_all",
        "_timestamp_after_max_ms",
        "sets_append_time",
    )

    def __init__(self, settings: AdmissionSettings) -> None:
        has_create_time = settings.timestamp_type is TimestampType.CREATE_TIME
        self.sets_append_time: bool = not has_create_time
        self._max_message_bytes = settings.max_message_bytes
        self._opens_all = settings.keys_required or (
            has_create_time and settings.timestamp_before_max_ms is not None
        )
        self._codec = None if settings.compression == "producer" else CODECS[settings.compression]
        self._timestamp_after_max_ms = (
            settings.timestamp_after_max_ms if has_create_time else _UNBOUNDED_MS
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


def opened_bytes_max(settings: AdmissionSettings) -> int:
    """How large the decompressed records of one batch may be."""
    limit = max(OPENED_PER_MESSAGE_BYTE * settings.max_message_bytes, OPENED_BYTES_FLOOR)
    return min(limit, OPENED_BYTES_CEILING)


def memory_to_open(
    batch: bytearray | memoryview, header: BatchHeader, settings: AdmissionSettings
) -> int:
    """The memory that `open_and_check` can need; Refused if headers show that it would fail."""
    try:
        return opening.memory_to_open(batch, header, opened_bytes_max(settings))
    except Malformed as error:
        raise Refused(ErrorCode.invalid_record, str(error)) from error


def open_and_check(
    batch: bytearray,
    header: BatchHeader,
    settings: AdmissionSettings,
    now: Millis,
    inspector: RecordInspector,
) -> bytearray:
    """In a thread: the batch to append, which may be a recompressed one; or Refused."""
    earliest = latest = None
    if settings.timestamp_type is TimestampType.CREATE_TIME:
        latest = Millis(now + settings.timestamp_after_max_ms)
        if settings.timestamp_before_max_ms is not None:
            earliest = Millis(now - settings.timestamp_before_max_ms)
    bytes_max = opened_bytes_max(settings)
    try:
        facts = inspector.inspect(
            batch, earliest=earliest, latest=latest, opened_bytes_max=bytes_max
        )
        _check_facts(facts, settings)
        if _needs_other_codec(header, settings):
            codec = CODECS[settings.compression]
            batch = inspector.recompress(
                batch, codec, settings.compression_level, opened_bytes_max=bytes_max
            )
    except Malformed as error:
        raise Refused(ErrorCode.invalid_record, str(error)) from error
    if len(batch) > settings.max_message_bytes:  # after it was recompressed
        raise _too_large(batch, settings.max_message_bytes)
    return batch


def _needs_other_codec(header: BatchHeader, settings: AdmissionSettings) -> bool:
    return settings.compression != "producer" and CODECS[settings.compression] != header.codec


def _check_facts(facts: RecordFacts, settings: AdmissionSettings) -> None:
    if settings.keys_required and len(facts.unkeyed):
        raise RefusedRecords(
            ErrorCode.invalid_record,
            "records of a compacted topic need a key",
            list(facts.unkeyed[:RECORD_ERRORS_MAX]),
        )
    if len(facts.out_of_range):
        before_ms = settings.timestamp_before_max_ms
        raise RefusedRecords(
            ErrorCode.invalid_timestamp,
            "the timestamp is too far from the broker's clock: message.timestamp.before.max.ms is "
            f"{'unbounded' if before_ms is None else before_ms}, "
            f"message.timestamp.after.max.ms is {settings.timestamp_after_max_ms}",
            list(facts.out_of_range[:RECORD_ERRORS_MAX]),
        )
