"""The sparse indexes of a segment: offset to position, timestamp to offset.

Both are files of fixed-size entries in Apache Kafka's layout. New entries are collected in memory
and written many at a time, because a lost index is rebuilt from the log. Both fields of the entries
only grow; offsets are relative to the segment's base offset.
"""

import os
import sys
from array import array
from bisect import bisect_right
from struct import Struct
from typing import Final, NamedTuple

from penstock.log.files import IndexCache, remove_files
from penstock.model import Millis, Offset

OFFSET_ENTRY: Final = Struct(
    ">"
    "i"  # last offset of a batch, relative
    "i"  # position of that batch in the log file
)
TIME_ENTRY: Final = Struct(
    ">"
    "q"  # the largest timestamp in the segment so far
    "i"  # last offset of the batch that holds it, relative
)
assert OFFSET_ENTRY.size == 8
assert TIME_ENTRY.size == 12

MISSING: Final = -2  # instead of a count: the file does not exist
DAMAGED: Final = -1  # instead of a count: the file does not end with a whole entry
_UNWRITTEN_MAX: Final = 1024  # then they are written together
_LOW: Final = (1 << 32) - 1
_MUST_SWAP: Final = sys.byteorder == "little"


class EntryFile:
    """A file of fixed-size entries; opened for each use, which is rare."""

    __slots__ = ("_entry_bytes", "count", "path")

    def __init__(self, path: str, *, entry_bytes: int, count: int) -> None:
        self.path: str = path
        self.count: int = count  # entries that are in the file
        self._entry_bytes = entry_bytes

    def extend(self, entries: bytes) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # At a fixed position: what a failed write left there is overwritten.
            position = self.count * self._entry_bytes
            written = os.pwrite(descriptor, entries, position)
            if written != len(entries):
                raise OSError(f"{written} of {len(entries)} index bytes were written")
        finally:
            os.close(descriptor)
        self.count += len(entries) // self._entry_bytes

    def remove(self) -> None:
        """Remove the file, so that it can be written again."""
        if self.count != MISSING:
            remove_files([self.path])
        self.count = 0

    def read(self) -> bytes:
        """All entries, or those that the file still has."""
        try:
            with open(self.path, "rb", buffering=0) as file:
                return file.read(self.count * self._entry_bytes) or b""
        except FileNotFoundError:
            return b""

    def read_last(self) -> bytes:
        """The last entry; empty when there is none."""
        if self.count == 0:
            return b""
        with open(self.path, "rb", buffering=0) as file:
            return os.pread(file.fileno(), self._entry_bytes, (self.count - 1) * self._entry_bytes)

    def cut(self, count: int) -> None:
        if os.path.exists(self.path):
            os.truncate(self.path, count * self._entry_bytes)
        self.count = count


class OffsetIndex:
    """The position of a batch at or shortly before an offset."""

    __slots__ = ("_base_offset", "_cache", "_loaded", "_unwritten", "file")

    def __init__(
        self, path: str, base_offset: Offset, cache: IndexCache, *, count: int = 0
    ) -> None:
        self.file: EntryFile = EntryFile(path, entry_bytes=OFFSET_ENTRY.size, count=count)
        self._base_offset = base_offset
        self._cache = cache
        # An entry is one number: the offset in the high 32 bits, the position in the low ones.
        self._unwritten: array[int] | None = None
        self._loaded: array[int] | None = None  # the file's content, while it is in the cache

    @property
    def count(self) -> int:
        return self.file.count + (len(self._unwritten) if self._unwritten else 0)

    def append(self, last_offset: Offset, position: int) -> None:
        entry = (last_offset - self._base_offset) << 32 | position
        if self._unwritten is None:
            self._unwritten = array("Q")
        self._unwritten.append(entry)
        if len(self._unwritten) % _UNWRITTEN_MAX == 0:
            try:
                self.write_out()
            except OSError:
                return  # the batch was written; the entries stay in memory

    def position_before(self, offset: Offset) -> int:
        """The position of a batch that contains `offset` or is before it."""
        return self._last_below(
            (max(offset - self._base_offset, 0) << 32) | _LOW, by_position=False
        )

    def boundary_before(self, position: int) -> int:
        """The largest known position of a batch that is not after `position`."""
        return self._last_below(position, by_position=True)

    def _last_below(self, bound: int, *, by_position: bool) -> int:
        recent = self._unwritten
        if not recent or (recent[0] & _LOW if by_position else recent[0]) > bound:
            recent = self._entries_on_disk()
        key = _position_of if by_position else None
        count = bisect_right(recent, bound, key=key)
        return recent[count - 1] & _LOW if count else 0

    def _entries_on_disk(self) -> "array[int]":
        if self.file.count == 0:
            return _NO_ENTRIES
        if self._loaded is None:
            self._loaded = _read_entries(self.file.read())
            self._cache.add(self, len(self._loaded) * OFFSET_ENTRY.size)
        else:
            self._cache.touch(self)
        return self._loaded

    def last_entry(self) -> tuple[Offset, int] | None:
        """The last offset in the index, and the position of its batch."""
        if self._unwritten:
            relative, position = self._unwritten[-1] >> 32, self._unwritten[-1] & _LOW
        elif self.file.count:
            relative, position = OFFSET_ENTRY.unpack(self.file.read_last())
        else:
            return None
        return Offset(self._base_offset + relative), position

    def write_out(self) -> None:
        if not self._unwritten:
            return
        self.file.extend(_write_entries(self._unwritten))
        self._unwritten = None
        self.drop()  # the loaded content lacks these entries

    def drop(self) -> None:
        self._loaded = None
        self._cache.remove(self)

    def start_over(self) -> None:
        """Remove all entries."""
        self.file.remove()
        self._unwritten = None
        self.drop()

    def cut(self, position: int) -> None:
        """Remove the entries of batches at and after `position`."""
        entries = array("Q", self._entries_on_disk())
        entries.extend(self._unwritten or ())
        count = sum(1 for entry in entries if entry & _LOW < position)
        on_disk = min(count, self.file.count)
        self.file.cut(on_disk)
        self._unwritten = entries[on_disk:count] or None
        self.drop()


def _position_of(entry: int) -> int:
    return entry & _LOW


def _read_entries(content: bytes) -> "array[int]":
    entries = array("Q")
    entries.frombytes(content[: len(content) - len(content) % OFFSET_ENTRY.size])
    if _MUST_SWAP:
        entries.byteswap()
    return entries


def _write_entries(entries: "array[int]") -> bytes:
    swapped = array("Q", entries)
    if _MUST_SWAP:
        swapped.byteswap()
    return swapped.tobytes()


_NO_ENTRIES: Final = array("Q")


class TimeEntry(NamedTuple):
    """The largest timestamp of all batches up to the one that ends with `offset`."""

    timestamp: Millis
    offset: Offset


class TimeIndex:
    """The largest timestamp so far, for some offsets; the last entry is the segment's."""

    __slots__ = ("_base_offset", "_last", "_unwritten", "file")

    def __init__(self, path: str, base_offset: Offset, *, count: int = 0) -> None:
        self.file: EntryFile = EntryFile(path, entry_bytes=TIME_ENTRY.size, count=count)
        self._base_offset = base_offset
        self._unwritten: bytearray | None = None
        self._last: TimeEntry | None = None

    @property
    def count(self) -> int:
        return self.file.count + len(self._unwritten or b"") // TIME_ENTRY.size

    def last_entry(self) -> TimeEntry | None:
        if self._last is None and self.file.count:
            timestamp, relative = TIME_ENTRY.unpack(self.file.read_last())
            self._last = TimeEntry(timestamp, Offset(self._base_offset + relative))
        return self._last

    def append(self, entry: TimeEntry) -> None:
        """Added only if the timestamp is larger than the last one."""
        last = self.last_entry()
        if entry.timestamp < 0 or (last is not None and entry.timestamp <= last.timestamp):
            return
        if self._unwritten is None:
            self._unwritten = bytearray()
        self._unwritten += TIME_ENTRY.pack(entry.timestamp, entry.offset - self._base_offset)
        self._last = entry
        if len(self._unwritten) % (_UNWRITTEN_MAX * TIME_ENTRY.size) == 0:
            try:
                self.write_out()
            except OSError:
                return  # the batch was written; the entries stay in memory

    def entry_before(self, timestamp: Millis) -> TimeEntry | None:
        """The last entry below `timestamp`: all batches up to its offset are older."""
        last = None
        for entry_timestamp, relative in TIME_ENTRY.iter_unpack(self._all()):
            if entry_timestamp >= timestamp:
                break
            last = TimeEntry(entry_timestamp, Offset(self._base_offset + relative))
        return last

    def last_entry_below(self, end_offset: Offset) -> TimeEntry | None:
        """The last entry of a batch that ends at or before `end_offset`."""
        everything = self._all()
        count = self._count_below(everything, end_offset)
        if count == 0:
            return None
        timestamp, relative = TIME_ENTRY.unpack_from(everything, (count - 1) * TIME_ENTRY.size)
        return TimeEntry(timestamp, Offset(self._base_offset + relative))

    def _count_below(self, entries: bytes, end_offset: Offset) -> int:
        relative_end = end_offset - self._base_offset
        return sum(1 for _, relative in TIME_ENTRY.iter_unpack(entries) if relative < relative_end)

    def write_out(self) -> None:
        if self._unwritten:
            self.file.extend(bytes(self._unwritten))
            self._unwritten = None

    def start_over(self) -> None:
        """Remove all entries."""
        self.file.remove()
        self._unwritten = None
        self._last = None

    def cut(self, end_offset: Offset) -> None:
        """Remove the entries of batches at and after `end_offset`."""
        everything = self._all()
        count = self._count_below(everything, end_offset)
        on_disk = min(count, self.file.count)
        self.file.cut(on_disk)
        rest = everything[on_disk * TIME_ENTRY.size : count * TIME_ENTRY.size]
        self._unwritten = bytearray(rest) or None
        self._last = None
        if rest:
            timestamp, relative = TIME_ENTRY.unpack(rest[-TIME_ENTRY.size :])
            self._last = TimeEntry(timestamp, Offset(self._base_offset + relative))

    def _all(self) -> bytes:
        content = self.file.read() + bytes(self._unwritten or b"")
        return content[: len(content) - len(content) % TIME_ENTRY.size]
