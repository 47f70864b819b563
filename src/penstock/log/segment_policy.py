"""When a new segment is started, and which segments retention removes. Decides only.

A segment is closed when it is full or old, or its indexes are full: `must_roll` is the rule, and
`headroom_in` is what certainly fits without applying it. Retention removes whole segments at the
log's start that are too old or make it too large, and never above the high watermark.
"""

import zlib
from collections.abc import Sequence
from typing import Final

from penstock.log.segment import NO_HEADROOM, Headroom, Segment
from penstock.log.settings import LogSettings, RetentionSettings
from penstock.model import Millis, Offset
from penstock.protocol.batch import BatchHeader

RELATIVE_OFFSET_MAX: Final = (1 << 31) - 1
_ENTRY_BYTES_MAX: Final = 12  # the larger of the two indexes' entries


def must_roll(
    active: Segment,
    settings: LogSettings,
    size_bytes: int,
    end_offset: Offset,
    newest: Millis,
    now: Millis,
) -> bool:
    """Whether batches of this size, up to this offset and time, start a new segment."""
    used_bytes = active.log.size_bytes
    if end_offset - 1 - active.base_offset > RELATIVE_OFFSET_MAX:
        return True
    if used_bytes == 0:
        return False
    if used_bytes + size_bytes > settings.segment_bytes:
        return True
    # By timestamps where there are any, so that a replica that is late rolls as the leader did.
    first = active.first_timestamp
    age_ms = newest - first if first >= 0 and newest >= 0 else now - active.created_at
    jitter_ms = _jitter_ms(active, settings) if settings.segment_jitter_ms else 0
    if age_ms > settings.segment_ms - jitter_ms:
        return True
    # There is at most one entry per interval, so that counting is rarely needed.
    may_be_full = (
        used_bytes * _ENTRY_BYTES_MAX
        >= settings.segment_index_bytes * settings.index_interval_bytes
    )
    return may_be_full and active.is_full(settings.segment_index_bytes)


def headroom_in(active: Segment, settings: LogSettings) -> Headroom:
    """What `must_roll` certainly accepts; nothing while the age of the segment is unknown."""
    first = active.first_timestamp
    if first < 0:
        return NO_HEADROOM
    index_bytes = settings.segment_index_bytes
    not_full_bytes = index_bytes * settings.index_interval_bytes // _ENTRY_BYTES_MAX
    jitter_ms = _jitter_ms(active, settings) if settings.segment_jitter_ms else 0
    return Headroom(
        min(settings.segment_bytes, not_full_bytes),
        Offset(active.base_offset + RELATIVE_OFFSET_MAX + 1),
        Millis(first + settings.segment_ms - jitter_ms),
    )


def fitting_batches(active: Segment, headers: Sequence[BatchHeader]) -> tuple[int, int]:
    """How many of these batches fit for certain, and their size; at least the first."""
    end_position, last_end, last_timestamp = active.headroom
    size_bytes = headers[0].size_bytes
    for count, header in enumerate(headers[1:], 1):
        if (
            active.log.size_bytes + size_bytes + header.size_bytes > end_position
            or header.end_offset > last_end
            or not 0 <= header.max_timestamp <= last_timestamp
        ):
            return count, size_bytes
        size_bytes += header.size_bytes
    return len(headers), size_bytes


def _jitter_ms(active: Segment, settings: LogSettings) -> int:
    """Always the same for one segment, and different among partitions."""
    return zlib.crc32(active.log.path.encode()) % settings.segment_jitter_ms


def expired_count(
    segments: Sequence[Segment],
    retention: RetentionSettings,
    *,
    now: Millis,
    high_watermark: Offset,
    end_offset: Offset,
) -> int:
    """How many segments, from the oldest on; all of them if even the active one is too old."""
    if not retention.delete:
        return 0
    ends = [*(segment.base_offset for segment in segments[1:]), end_offset]
    committed = 0
    for segment, end in zip(segments, ends, strict=True):
        is_empty_active = segment is segments[-1] and segment.size_bytes == 0
        if end > high_watermark or is_empty_active:
            break
        committed += 1
    by_time = _too_old(segments[:committed], retention.retention_ms, now)
    by_size = _too_many(segments, retention.retention_bytes)
    return max(by_time, min(by_size, committed))


def _too_old(segments: Sequence[Segment], retention_ms: Millis | None, now: Millis) -> int:
    if retention_ms is None:
        return 0
    for count, segment in enumerate(segments):
        if now - segment.last_changed_at() <= retention_ms:
            return count
    return len(segments)


def _too_many(segments: Sequence[Segment], retention_bytes: int | None) -> int:
    if retention_bytes is None:
        return 0
    surplus_bytes = sum(segment.size_bytes for segment in segments) - retention_bytes
    for count, segment in enumerate(segments):
        surplus_bytes -= segment.size_bytes
        if surplus_bytes < 0:
            return count
    return len(segments)
