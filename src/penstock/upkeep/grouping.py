"""Which neighbouring segments become one cleaned segment. Pure.

Sizes are taken before cleaning, so a group never comes out larger than a segment may be (but for a
few bytes that delete horizons add); what shrinks is joined further in later rounds.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.model import Offset

_RELATIVE_OFFSET_MAX: Final = 2**31 - 1  # an index holds offsets as 32 bits from the segment's base


class SegmentSize(NamedTuple):
    """What a closed segment takes on disk, and the offsets it spans."""

    base_offset: Offset
    end_offset: Offset  # where the next one starts
    size_bytes: int
    index_bytes: int
    time_index_bytes: int


def group_segments(
    segments: Iterable[SegmentSize], *, segment_bytes: int, segment_index_bytes: int
) -> list[list[SegmentSize]]:
    """Cut the row of segments into groups that each fit one segment and its indexes."""
    groups: list[list[SegmentSize]] = []
    for segment in segments:
        if groups and _fits(groups[-1], segment, segment_bytes, segment_index_bytes):
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return groups


def _fits(
    group: list[SegmentSize], segment: SegmentSize, segment_bytes: int, segment_index_bytes: int
) -> bool:
    joined = [*group, segment]
    return (
        sum(one.size_bytes for one in joined) <= segment_bytes
        and sum(one.index_bytes for one in joined) <= segment_index_bytes
        and sum(one.time_index_bytes for one in joined) <= segment_index_bytes
        # An empty one adds no entry, so it may be joined from any distance.
        and (
            segment.size_bytes == 0
            or segment.end_offset - 1 - group[0].base_offset <= _RELATIVE_OFFSET_MAX
        )
    )
