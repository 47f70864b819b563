"""The segments of one partition, in offset order; only the last one, the active one, grows.

Finds offsets and reads batches; adds segments at the end and removes them at either end. Knows no
epochs and no high watermark. Removed files are renamed first and unlinked later; views of them stay
valid.
"""

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

from penstock.log.files import OpenFiles, create_file, remove_files, replace_file
from penstock.log.producer_state import ProducerTable
from penstock.log.segment import NOTHING, Segment
from penstock.log.segment_swap import (
    Replacement,
    accept_cleaned,
    install,
    record_cleaned_end,
    retire,
)
from penstock.log.truncation import Cut
from penstock.model import NO_OFFSET, Millis, Offset

_Position: TypeAlias = tuple[Offset, Segment | None, int]
_UNKNOWN: Final[_Position] = (NO_OFFSET, None, 0)


class LogSlice(NamedTuple):
    """Whole batches of one segment. The first may start before the requested offset."""

    view: memoryview
    segment_base_offset: Offset
    position: int


class Segments:
    """At least one segment; each starts at the end of the one before it or later."""

    __slots__ = (
        "_appended_at",
        "_bases",
        "_list",
        "_read_to",
        "_to_unlink",
        "active",
        "files",
        "folder",
    )

    def __init__(self, folder: str, files: OpenFiles, segments: list[Segment]) -> None:
        self.folder: str = folder
        self.files: OpenFiles = files
        self._list = segments
        self.active: Segment = segments[-1]
        self._bases = [segment.base_offset for segment in segments]
        self._to_unlink: list[tuple[Millis, str]] = []
        # Likely to be requested next: where the last read ended, and the newest batches.
        self._read_to: _Position = _UNKNOWN
        self._appended_at: _Position = _UNKNOWN

    @property
    def all(self) -> Sequence[Segment]:
        return self._list

    def appended(self, base_offset: Offset, position: int) -> None:
        """Remember the position of the newest batches, which waiting readers request next."""
        self._appended_at = (base_offset, self.active, position)

    def read(
        self,
        offset: Offset,
        limit: Offset,
        end_offset: Offset,
        *,
        max_bytes: int,
        whole_first: bool,
    ) -> LogSlice:
        """Batches from the one that contains `offset`, all below `limit`."""
        number = bisect_right(self._bases, offset) - 1
        while number < len(self._list) and self._bases[number] < limit:
            segment = self._list[number]
            position = self._position_of(segment, offset)
            is_all_below = limit >= end_offset or (
                number + 1 < len(self._bases) and self._bases[number + 1] <= limit
            )
            end = segment.size_bytes if is_all_below else self._position_of(segment, limit)
            if position < end:
                view, following = segment.slice_from(
                    position, end, max_bytes=max_bytes, whole_first=whole_first
                )
                read_to = position + len(view)
                if following >= 0 or segment is self.active:
                    self._read_to = (limit if read_to == end else following, segment, read_to)
                return LogSlice(view, segment.base_offset, position)
            number += 1
            if number < len(self._bases) and position >= segment.size_bytes:
                segment.check_end(self._bases[number])
        return LogSlice(NOTHING, self._bases[-1], 0)

    def offset_after(self, read: LogSlice) -> Offset:
        """The base offset of the next batch in the slice's segment; -1: there is none."""
        segment = self._list[self.index_of(read.segment_base_offset)]
        position = read.position + len(read.view)
        if position >= segment.size_bytes:
            return NO_OFFSET
        return Offset(segment.header_at(position).base_offset)

    def _position_of(self, segment: Segment, offset: Offset) -> int:
        for known_offset, known_segment, position in (self._read_to, self._appended_at):
            if known_offset == offset and known_segment is segment:
                return position
        return segment.position_of(offset)

    def index_of(self, offset: Offset) -> int:
        """The index of the segment whose range contains `offset`; 0 when it is before them."""
        return max(0, bisect_right(self._bases, offset) - 1)

    def check_ends(self, count: int) -> None:
        """Malformed when one of the first `count` segments, all closed, has lost batches."""
        for segment, following in zip(self._list[:count], self._bases[1:], strict=False):
            segment.check_end(following)

    def record_ends(self, count_max: int) -> None:
        """Write the `.end` files of segments that an older version closed."""
        for segment, following in zip(self._list, self._bases[1:], strict=False):
            if count_max > 0 and not segment.has_end():
                segment.record_end(following)
                count_max -= 1

    def end_of(self, number: int, end_offset: Offset) -> Offset:
        """The end of the segment's range: the base offset of the next one, or the log's end."""
        return self._bases[number + 1] if number + 1 < len(self._bases) else end_offset

    def roll(self, base_offset: Offset, now: Millis) -> None:
        if self.active.size_bytes == 0:
            create_file(
                self.active.log.path
            )  # it is created when it is written to, and must exist now
        self.active.write_indexes()
        self.active.record_end(base_offset)
        segment = Segment.create(self.folder, base_offset, self.files, now=now)
        self._list.append(segment)
        self._bases.append(base_offset)
        self.active = segment
        self._clear_positions()

    def remove_first(self, count: int, *, unlink_at: Millis) -> None:
        """Remove the oldest segments; the active one stays."""
        assert count < len(self._list)
        self._retire([segment.base_offset for segment in self._list[:count]], unlink_at=unlink_at)
        del self._list[:count], self._bases[:count]
        self._clear_positions()

    def remove_last(self, *, unlink_at: Millis) -> Offset:
        """Remove the active segment; the one before it is active again. Where the log ends now."""
        assert len(self._list) > 1
        base_offset = self.active.base_offset
        self._retire([base_offset], unlink_at=unlink_at)
        del self._list[-1], self._bases[-1]
        self.active = self._list[-1]
        self._clear_positions()
        return base_offset

    def plan_cut(self, offset: Offset) -> Cut:
        """Where to cut off every batch that ends after `offset`."""
        number = self.index_of(offset)
        segment = self._list[number]
        position = segment.position_of(offset)
        end_offset = offset
        if position < segment.size_bytes:
            end_offset = min(offset, Offset(segment.header_at(position).base_offset))
        return Cut(self._list[: number + 1], position, end_offset)

    def cut(self, cut: Cut) -> tuple[ProducerTable, Offset]:
        """Cut the active segment; the producers that remain, and how far they are in snapshots."""
        assert cut.segment is self.active
        assert cut.prepared is not None
        producers, snapshot_offset, largest, prefix = cut.prepared
        self.active.cut(cut.position, cut.end_offset, largest=largest, prefix=prefix)
        self._clear_positions()
        return producers, snapshot_offset

    def reset(self, offset: Offset, now: Millis, *, unlink_at: Millis) -> None:
        """Remove everything; the log is empty and begins at `offset`."""
        self._retire(self._bases, unlink_at=unlink_at)
        self._begin_with(Segment(self.folder, offset, self.files, created_at=now))
        with suppress(OSError):  # a full disk: the first append creates it
            create_file(self.active.log.path)

    def begin_with(self, base_offset: Offset, batches: bytes, now: Millis) -> None:
        """Replace the only segment, which is empty, by one that starts earlier, with these batches.

        They are on disk before the segment has its name: the log never ends before it did.
        """
        (empty,) = self._list
        assert empty.size_bytes == 0
        empty.close()
        remove_files(empty.paths())
        segment = Segment(
            self.folder, base_offset, self.files, size_bytes=len(batches), created_at=now
        )
        replace_file(segment.log.path, batches, sync=True)
        self._begin_with(segment)

    def _begin_with(self, segment: Segment) -> None:
        self.active = segment
        self._list[:] = [segment]
        self._bases[:] = [segment.base_offset]
        self._clear_positions()

    def swap(self, replacement: Replacement, *, unlink_at: Millis) -> None:
        """Replace segments by the cleaned ones that were made from them."""
        first = self._bases.index(replacement.replaced[0])
        end = first + len(replacement.replaced)
        assert tuple(self._bases[first:end]) == replacement.replaced, "neighbouring segments"
        assert end < len(self._list), "the active segment is never replaced"
        next_bases = (*replacement.cleaned[1:], self._bases[end])
        for base, next_base in zip(replacement.cleaned, next_bases, strict=True):
            record_cleaned_end(self.folder, base, next_base)
        accept_cleaned(self.folder, replacement.cleaned)
        self._retire(replacement.replaced, unlink_at=unlink_at)
        install(self.folder, replacement.cleaned)
        cleaned = [
            Segment.from_files(self.folder, base, self.files) for base in replacement.cleaned
        ]
        self._list[first:end] = cleaned
        self._clear_positions()
        self._bases[first:end] = replacement.cleaned

    def _retire(self, base_offsets: Sequence[Offset], *, unlink_at: Millis) -> None:
        for segment in self._list:
            if segment.base_offset in base_offsets:
                segment.close()
        retired = retire(self.folder, base_offsets)
        self._to_unlink += [(unlink_at, path) for path in retired]

    def _clear_positions(self) -> None:
        self._read_to = self._appended_at = _UNKNOWN

    def take_due(self, now: Millis) -> list[str]:
        """Retired files whose delay has passed, for the caller to unlink."""
        if not self._to_unlink:
            return []
        due = [path for at, path in self._to_unlink if at <= now]
        self._to_unlink = [row for row in self._to_unlink if row[0] > now]
        return due

    def close(self) -> None:
        for segment in self._list:
            segment.close()
