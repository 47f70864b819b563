"""Lag in seconds: how old the oldest record is that a group has not read. Pure.

Timestamps of records are unreliable: a producer may set any. So the end offset of a partition
is sampled, and the time at which it passed an offset is interpolated between two samples. Only for
an offset below all samples the timestamp of its batch is used.
"""

from bisect import bisect_right
from typing import Final

from penstock.model import Millis, Offset

SAMPLES_MAX: Final = 240  # 20 minutes of one every 5 s; then the older half is thinned out


class OffsetSamples:
    """Samples of one partition's end, oldest first. Offsets never decrease."""

    __slots__ = ("_offsets", "_times")

    def __init__(self) -> None:
        self._offsets: list[Offset] = []
        self._times: list[Millis] = []

    def add(self, end_offset: Offset, now: Millis) -> None:
        """The partition ends here now. An end that moved back starts over: another log."""
        offsets, times = self._offsets, self._times
        if offsets and end_offset < offsets[-1]:
            offsets.clear()
            times.clear()
        if offsets[-2:] == [end_offset, end_offset]:
            times[-1] = now  # of a time without writes, the begin and the end are kept
            return
        offsets.append(end_offset)
        times.append(now)
        if len(offsets) > SAMPLES_MAX:
            half = SAMPLES_MAX // 2
            offsets[:half], times[:half] = offsets[:half:2], times[:half:2]

    @property
    def oldest_at(self) -> Millis:
        """When the oldest sample was taken: what is below it was appended before."""
        return self._times[0]

    def written_at(self, offset: Offset) -> Millis | None:
        """About when the record of this offset was appended; None if before all samples."""
        following = bisect_right(self._offsets, offset)
        if following == 0:
            return None
        if following == len(self._offsets):
            return self._times[-1]
        before, after = self._offsets[following - 1], self._offsets[following]
        share = (offset - before + 1) / (after - before)
        began, ended = self._times[following - 1], self._times[following]
        return Millis(round(began + share * (ended - began)))


def age_s(written_at: Millis, now: Millis) -> float:
    """The age of a record in seconds; never negative."""
    return max(now - written_at, 0) / 1000
