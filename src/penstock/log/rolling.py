"""When the active segment is closed and another begun: it is full, old, or its indexes are.

Decides only. `must_roll` is the rule; `room_in` tells what surely needs no asking.
"""

import zlib
from typing import Final

from penstock.config.views import LogSettings
from penstock.log.segment import NO_ROOM, Room, Segment
from penstock.model import Millis, Offset

RELATIVE_OFFSET_MAX: Final = (1 << 31) - 1
_ENTRY_BYTES_MAX: Final = 12  # of the two indexes' entries


def must_roll(
    active: Segment,
    settings: LogSettings,
    size_bytes: int,
    end_offset: Offset,
    newest: Millis,
    now: Millis,
) -> bool:
    """Whether batches of this size, up to this offset and time, belong into a new segment."""
    used_bytes = active.log.size_bytes
    if end_offset - 1 - active.base_offset > RELATIVE_OFFSET_MAX:
        return True
    if used_bytes == 0:
        return False
    if used_bytes + size_bytes > settings.segment_bytes:
        return True
    # By the records' own time when they have one, so that a late copy rolls as the first did.
    first = active.first_timestamp
    age_ms = newest - first if first >= 0 and newest >= 0 else now - active.created_at
    jitter_ms = _jitter_ms(active, settings) if settings.segment_jitter_ms else 0
    if age_ms > settings.segment_ms - jitter_ms:
        return True
    # There is at most an entry per interval, so most of the time counting is not needed.
    may_be_full = (
        used_bytes * _ENTRY_BYTES_MAX
        >= settings.segment_index_bytes * settings.index_interval_bytes
    )
    return may_be_full and active.is_full(settings.segment_index_bytes)


def room_in(active: Segment, settings: LogSettings) -> Room:
    """What `must_roll` lets in whatever else is asked; none while nothing tells the age."""
    first = active.first_timestamp
    if first < 0:
        return NO_ROOM
    index_bytes = settings.segment_index_bytes
    not_full_bytes = index_bytes * settings.index_interval_bytes // _ENTRY_BYTES_MAX
    jitter_ms = _jitter_ms(active, settings) if settings.segment_jitter_ms else 0
    return Room(
        min(settings.segment_bytes, not_full_bytes),
        Offset(active.base_offset + RELATIVE_OFFSET_MAX + 1),
        Millis(first + settings.segment_ms - jitter_ms),
    )


def _jitter_ms(active: Segment, settings: LogSettings) -> int:
    """The same for one segment whenever it is asked, and different among partitions."""
    return zlib.crc32(active.log.path.encode()) % settings.segment_jitter_ms
