"""Which segments may go: those at the log's start that are too old, or that make it too large.

Decides only. A segment goes whole or not at all, and never before the high watermark has passed it.
"""

from collections.abc import Sequence

from penstock.config.views import RetentionSettings
from penstock.log.segment import Segment
from penstock.model import Millis, Offset


def expired_count(
    segments: Sequence[Segment],
    retention: RetentionSettings,
    *,
    now: Millis,
    high_watermark: Offset,
    end_offset: Offset,
) -> int:
    """How many segments, from the oldest on. All of them when even the active one is too old."""
    if not retention.delete:
        return 0
    ends = [*(segment.base_offset for segment in segments[1:]), end_offset]
    replicated = 0
    for segment, end in zip(segments, ends, strict=True):
        is_empty_active = segment is segments[-1] and segment.size_bytes == 0
        if end > high_watermark or is_empty_active:
            break
        replicated += 1
    by_time = _too_old(segments[:replicated], retention.retention_ms, now)
    by_size = _too_many(segments, retention.retention_bytes)
    return max(by_time, min(by_size, replicated))


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
