"""A segment: one log file, its indexes, and the offsets they cover.

Knows positions and batches, not producers or high watermarks. Offsets of its batches are at least
`base_offset`, grow, and exceed it by less than 2**31.
"""

import os
from struct import Struct
from typing import Final, Literal, NamedTuple

from penstock.errors import Malformed
from penstock.log.files import LogFile, OpenFiles, create_file, remove_files
from penstock.log.indexes import OFFSET_ENTRY, TIME_ENTRY, OffsetIndex, TimeEntry, TimeIndex
from penstock.log.scan import scan_headers
from penstock.log.segment_end import SUFFIX as END_SUFFIX
from penstock.log.segment_end import SegmentEnd, check_end, read_end, write_end
from penstock.log.transaction_index import TransactionIndex
from penstock.model import NO_OFFSET, NO_TIMESTAMP, Millis, Offset
from penstock.protocol.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchHeader, read_header

SUFFIXES: Final = (
    ".end",
    ".index",
    ".timeindex",
    ".txnindex",
    ".log",
)  # the log last: without it the others count as absent
NOTHING: Final = memoryview(b"")

_WINDOW_BYTES: Final = 16 << 10
_NAME_DIGITS: Final = 20
_OFFSET_MAX: Final = (1 << 63) - 1
_OFFSETS: Final = Struct(
    ">"
    "q"  # base_offset
    "i"  # length
    "11x"  # leader_epoch, magic, crc, attributes
    "i"  # last_offset_delta
)
_LENGTH_MIN: Final = HEADER_BYTES - LOG_OVERHEAD_BYTES
_NO_TIME: Final = TimeEntry(NO_TIMESTAMP, NO_OFFSET)


def base_offset_of(stem: str) -> Offset | None:
    """The base offset in a file name; None when it is not the name of a segment's file."""
    if len(stem) != _NAME_DIGITS or not (stem.isascii() and stem.isdigit()):
        return None
    offset = int(stem)
    return Offset(offset) if offset <= _OFFSET_MAX else None


class Headroom(NamedTuple):
    """What certainly fits into a segment, by the rules of `segment_policy`."""

    end_position: int
    end_offset: Offset
    last_timestamp: Millis


NO_HEADROOM: Final = Headroom(0, Offset(0), NO_TIMESTAMP)


class Segment:
    """Batches from `base_offset` up to the next segment's."""

    __slots__ = (
        "_end",
        "_first_timestamp",
        "_largest",
        "_since_entry_bytes",
        "base_offset",
        "created_at",
        "headroom",
        "log",
        "offset_index",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        folder: str,
        base_offset: Offset,
        files: OpenFiles,
        *,
        size_bytes: int = 0,
        offset_entries: int = 0,
        time_entries: int = 0,
        may_have_aborts: bool = True,
        created_at: Millis = NO_TIMESTAMP,
    ) -> None:
        stem = f"{folder}/{base_offset:020d}"
        self.base_offset: Offset = base_offset
        self.log: LogFile = LogFile(stem + ".log", files, size_bytes)
        self.offset_index: OffsetIndex = OffsetIndex(
            stem + ".index", base_offset, files.indexes, count=offset_entries
        )
        self.time_index: TimeIndex = TimeIndex(stem + ".timeindex", base_offset, count=time_entries)
        self.transaction_index: TransactionIndex = TransactionIndex(stem + ".txnindex")
        self.transaction_index.may_have_entries = may_have_aborts
        self.created_at: Millis = created_at
        self._largest: TimeEntry | None = None
        self._first_timestamp: Millis | None = None
        self._since_entry_bytes = 0
        self._end: SegmentEnd | Literal["unread"] | None = "unread"
        self.headroom: Headroom = NO_HEADROOM  # used by appends only

    @classmethod
    def create(
        cls, folder: str, base_offset: Offset, files: OpenFiles, *, now: Millis
    ) -> "Segment":
        create_file(f"{folder}/{base_offset:020d}.log")
        return cls(folder, base_offset, files, created_at=now)

    @classmethod
    def from_files(cls, folder: str, base_offset: Offset, files: OpenFiles) -> "Segment":
        """A closed segment whose files were written by compaction."""
        stem = f"{folder}/{base_offset:020d}"
        return cls(
            folder,
            base_offset,
            files,
            size_bytes=os.path.getsize(stem + ".log"),
            offset_entries=os.path.getsize(stem + ".index") // OFFSET_ENTRY.size,
            time_entries=os.path.getsize(stem + ".timeindex") // TIME_ENTRY.size,
        )

    @property
    def size_bytes(self) -> int:
        return self.log.size_bytes

    @property
    def largest(self) -> TimeEntry:
        """The largest timestamp, and the last offset of the first batch that has it."""
        if self._largest is None:
            self._largest = self.time_index.last_entry() or _NO_TIME
        return self._largest

    @property
    def max_timestamp(self) -> Millis:
        return self.largest.timestamp

    @property
    def first_timestamp(self) -> Millis:
        """The timestamp of the first batch, from which the age is counted; -1 without one."""
        if self._first_timestamp is None:
            if self.log.size_bytes == 0:
                return NO_TIMESTAMP
            self._first_timestamp = self._find_first_timestamp()
        return self._first_timestamp

    def _find_first_timestamp(self) -> Millis:
        try:
            first = next(scan_headers(self.log), None)
        except Malformed:  # corrupt first batch: no timestamp
            return NO_TIMESTAMP
        return NO_TIMESTAMP if first is None else Millis(first.header.max_timestamp)

    @property
    def has_index_files(self) -> bool:
        """Whether there are index files, which a clean start relies on to be complete."""
        return self.offset_index.file.count > 0 or self.time_index.file.count > 0

    @property
    def folder(self) -> str:
        return self.log.path.rpartition("/")[0]

    def last_changed_at(self) -> Millis:
        """For retention: the newest timestamp, or that of the file when records have none."""
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return Millis(int(os.stat(self.log.path).st_mtime * 1000))

    def paths(self) -> tuple[str, ...]:
        """The files that a segment may have; the log last."""
        stem = self.log.path.removesuffix(".log")
        return tuple(stem + suffix for suffix in SUFFIXES)

    def note_batch(
        self, position: int, header: BatchHeader, base_offset: Offset, interval_bytes: int
    ) -> None:
        """Add a batch that was written at this position to the indexes where they are due."""
        largest = self._largest
        if largest is None:
            largest = self.largest
        if header.max_timestamp > largest.timestamp:
            last_offset = Offset(base_offset + header.last_offset_delta)
            newest = Millis(header.max_timestamp)
            largest = self._largest = tuple.__new__(TimeEntry, (newest, last_offset))
        if position == 0:
            self._first_timestamp = Millis(header.max_timestamp)
        if self._since_entry_bytes > interval_bytes:
            self.offset_index.append(Offset(base_offset + header.last_offset_delta), position)
            self.time_index.append(largest)
            self._since_entry_bytes = 0
        self._since_entry_bytes += header.length + LOG_OVERHEAD_BYTES

    def position_of(self, offset: Offset) -> int:
        """The position of the first batch that ends after `offset`, or the file's end."""
        size_bytes = self.log.size_bytes
        position = self.offset_index.position_before(offset)
        while position < size_bytes:
            window = self.log.read(position, min(position + _WINDOW_BYTES, size_bytes))
            at = 0
            while at + _OFFSETS.size <= len(window):
                base_offset, length, last_offset_delta = _OFFSETS.unpack_from(window, at)
                if base_offset + last_offset_delta >= offset:
                    return position + at
                if length < _LENGTH_MIN:
                    raise self._corrupt(position + at)
                at += length + LOG_OVERHEAD_BYTES
            if at == 0:  # less than a header is left
                break
            position += at
        if position != size_bytes:
            raise self._corrupt(position)
        return size_bytes

    def record_end(self, next_base_offset: Offset) -> None:
        """The segment is closed: write what it must contain from now on."""
        self._end = write_end(self._end_path, self.log.path, next_base_offset)

    def check_end(self, next_base_offset: Offset) -> None:
        """Malformed when batches are missing between this closed segment and the next."""
        if self.has_end() and isinstance(self._end, SegmentEnd):
            check_end(self.log.path, self._end, self.log.size_bytes, next_base_offset)

    def has_end(self) -> bool:
        """Whether this closed segment has an `.end` file."""
        if self._end == "unread":
            self._end = read_end(self._end_path, self.log.path)
        return self._end is not None

    @property
    def _end_path(self) -> str:
        return self.log.path.removesuffix(".log") + END_SUFFIX

    def slice_from(
        self, position: int, end: int, *, max_bytes: int, whole_first: bool
    ) -> tuple[memoryview, Offset]:
        """Whole batches from `position`, at most `max_bytes` of them; see ReadableLog.read.

        Also the offset after them if it was read on the way, else -1.
        """
        if end - position <= max_bytes:
            view = self.log.read(position, end)
            self._check_first(view, position, end)
            return view, NO_OFFSET
        if max_bytes > 0:
            view = self.log.read(position, position + max_bytes)
            size_bytes, following = self._whole_batches(view, position)
            if size_bytes:
                self._check_first(view, position, end)
                return view[:size_bytes], following
        if not whole_first:
            return NOTHING, NO_OFFSET
        header = self.log.read(position, min(position + _OFFSETS.size, end))
        first_bytes, following = self._check_first(header, position, end)
        view = self.log.read(position, min(position + first_bytes + _OFFSETS.size, end))
        self._check_first(view, position, end)
        return view[:first_bytes], following

    def _check_first(self, view: memoryview, position: int, end: int) -> tuple[int, Offset]:
        """The size of the view's first batch, and the offset after it. Malformed if it is corrupt.

        A client treats a batch that is longer than the response as cut off by its own limit, and
        requests it again without end. So a length must fit the file, and lead to the next batch.
        """
        if len(view) < _OFFSETS.size:
            raise self._corrupt(position)
        base_offset, length, last_offset_delta = _OFFSETS.unpack_from(view)
        size_bytes = length + LOG_OVERHEAD_BYTES
        following = base_offset + last_offset_delta + 1
        if length < _LENGTH_MIN or position + size_bytes > end:
            raise self._corrupt(position)
        if size_bytes + _OFFSETS.size <= len(view):
            next_base, next_length, _ = _OFFSETS.unpack_from(view, size_bytes)
            # The very next offset: this length is right, even if the next batch is corrupt.
            is_next = next_base == following or (
                next_base > following and next_length >= _LENGTH_MIN
            )
            if not is_next:
                raise self._corrupt(position)
        return size_bytes, Offset(following)

    def _whole_batches(self, view: memoryview, position: int) -> tuple[int, Offset]:
        """The size of the whole batches in a view from `position` on; the offset after them."""
        size_bytes = len(view)
        at = max(self.offset_index.boundary_before(position + size_bytes), position) - position
        following = -1
        while at + _OFFSETS.size <= size_bytes:
            base_offset, length, last_offset_delta = _OFFSETS.unpack_from(view, at)
            if at + length + LOG_OVERHEAD_BYTES > size_bytes:
                break
            if length < _LENGTH_MIN:
                if at == 0:
                    raise self._corrupt(position)
                break  # those before it can be read
            at += length + LOG_OVERHEAD_BYTES
            following = base_offset + last_offset_delta + 1
        return at, Offset(following)

    def _corrupt(self, position: int) -> Malformed:
        return Malformed(f"{self.log.path} has no valid batch where one is expected", position)

    def end_offset(self) -> Offset:
        """One past the last offset, read from the last index entry on.

        Malformed when the file does not end with a whole batch.
        """
        entry = self.offset_index.last_entry()
        position = entry[1] if entry is not None else 0
        end = self.base_offset
        for scanned in scan_headers(self.log, position):
            end = scanned.header.end_offset
            position = scanned.position + scanned.header.size_bytes
        if position != self.log.size_bytes:
            raise self._corrupt(position)
        return end

    def is_full(self, index_bytes: int) -> bool:
        """Whether one of the indexes is full."""
        return (self.offset_index.count + 1) * OFFSET_ENTRY.size > index_bytes or (
            self.time_index.count + 1
        ) * TIME_ENTRY.size > index_bytes

    def write_indexes(self) -> None:
        """Complete the index files for a clean start; both exist once there are batches."""
        if self.log.size_bytes == 0:
            return
        self.time_index.append(self.largest)
        for index in (self.offset_index, self.time_index):
            index.write_out()
            if not index.count and not os.path.exists(index.file.path):
                create_file(index.file.path)

    def cut(
        self, position: int, end_offset: Offset, *, largest: TimeEntry, prefix: str | None
    ) -> None:
        """Keep the batches before `position`, which end at `end_offset`; the segment grows again.

        `prefix` is a copy of what is kept; without it the file is cut, and must have no live view.
        """
        remove_files([self._end_path])
        self._end = None
        if prefix is not None:
            self.log.install_prefix(prefix, position)
        else:
            self.log.cut(position)
        self.offset_index.cut(position)
        self.time_index.cut(end_offset)
        self.transaction_index.cut(end_offset)
        self._since_entry_bytes = 0
        self.headroom = NO_HEADROOM
        self._largest = largest
        if position == 0:
            self._first_timestamp = None

    def start_over(self) -> None:
        """Remove all index entries; the caller adds the batches and aborts again."""
        self.offset_index.start_over()
        self.time_index.start_over()
        if self.transaction_index.may_have_entries:
            remove_files([self.transaction_index.path])
        self._largest = _NO_TIME
        self._first_timestamp = None
        self._since_entry_bytes = 0

    def largest_before(self, end_offset: Offset) -> tuple[TimeEntry, int]:
        """The last time index entry below `end_offset`, and where the batches after it start.

        `largest_from` completes it from the batches, which takes longer.
        """
        entry = self.time_index.last_entry_below(end_offset)
        return (
            (_NO_TIME, 0) if entry is None else (entry, self.position_of(Offset(entry.offset + 1)))
        )

    def largest_from(self, largest: TimeEntry, position: int) -> TimeEntry:
        """The largest timestamp, given that of the batches before `position`."""
        for scanned in scan_headers(self.log, position):
            if scanned.header.max_timestamp > largest.timestamp:
                largest = TimeEntry(
                    Millis(scanned.header.max_timestamp), scanned.header.last_offset
                )
        return largest

    def header_at(self, position: int) -> BatchHeader:
        end = min(position + HEADER_BYTES, self.log.size_bytes)
        return read_header(self.log.read(position, end))

    def close(self) -> None:
        self.log.close()
        self.offset_index.drop()
