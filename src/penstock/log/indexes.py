"""The sparse indexes of a segment: offset to position, timestamp to offset.

Both are files of fixed entries in Apache Kafka's layout. New entries gather in memory and reach the
file many at a time: an index is never the truth, it is rebuilt from the log when it was lost.
Entries only grow, in both of their fields; offsets are relative to the segment's first.
"""

import os
import sys
from array import array
from bisect import bisect_right
from struct import Struct
from typing import Final, NamedTuple

from penstock.log.files import InMemory, remove_files
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

MISSING: Final = -2  # in place of a count: there is no such file
DAMAGED: Final = -1  # it does not hold whole entries
_UNWRITTEN_MAX: Final = 1024  # then they go to the file in one write
_LOW: Final = (1 << 32) - 1
_MUST_SWAP: Final = sys.byteorder == "little"


class EntryFile:
    """A file of entries of one size. Opened for each use: uses are far apart."""

    __slots__ = ("_entry_bytes", "count", "path")

    def __init__(self, path: str, *, entry_bytes: int, count: int) -> None:
        self.path = path
        self.count = count  # entries that are in the file
        self._entry_bytes = entry_bytes

    def extend(self, entries: bytes) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # At its own place: what an earlier failed write left there is overwritten.
            position = self.count * self._entry_bytes
            written = os.pwrite(descriptor, entries, position)
            if written != len(entries):
                raise OSError(f"{written} of {len(entries)} index bytes were written")
        finally:
            os.close(descriptor)
        self.count += len(entries) // self._entry_bytes

    def remove(self) -> None:
        """So that it can be written anew."""
        if self.count != MISSING:
            remove_files([self.path])
        self.count = 0

    def read(self) -> bytes:
        """All entries, or what is left of them."""
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
    """Where to start looking for an offset: never past it, seldom far before."""

    __slots__ = ("_base_offset", "_in_memory", "_loaded", "_unwritten", "file")

    def __init__(
        self, path: str, base_offset: Offset, in_memory: InMemory, *, count: int = 0
    ) -> None:
        self.file = EntryFile(path, entry_bytes=OFFSET_ENTRY.size, count=count)
        self._base_offset = base_offset
        self._in_memory = in_memory
        self._unwritten: array[int] | None = (
            None  # each entry one number: offset high, position low
        )
        self._loaded: array[int] | None = None  # what the file holds, while someone reads it

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
                return  # the log itself was written; the entries wait in memory

    def position_before(self, offset: Offset) -> int:
        """Of a batch that is the one with `offset` or before it."""
        return self._last_below(
            (max(offset - self._base_offset, 0) << 32) | _LOW, by_position=False
        )

    def boundary_before(self, position: int) -> int:
        """The largest known start of a batch that is not after `position`."""
        return self._last_below(position, by_position=True)

    def _last_below(self, bound: int, *, by_position: bool) -> int:
        recent = self._unwritten
        if not recent or (recent[0] & _LOW if by_position else recent[0]) > bound:
            recent = self._entries_on_disk()
        key = _position_of if by_position else None
        place = bisect_right(recent, bound, key=key)
        return recent[place - 1] & _LOW if place else 0

    def _entries_on_disk(self) -> "array[int]":
        if self.file.count == 0:
            return _NO_ENTRIES
        if self._loaded is None:
            self._loaded = _read_entries(self.file.read())
            self._in_memory.keep(self, len(self._loaded) * OFFSET_ENTRY.size)
        else:
            self._in_memory.touch(self)
        return self._loaded

    def last_entry(self) -> tuple[Offset, int] | None:
        """The last offset known, and where its batch starts."""
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
        self.drop()  # what was loaded lacks these

    def drop(self) -> None:
        self._loaded = None
        self._in_memory.forget(self)

    def start_over(self) -> None:
        """Forget every entry."""
        self.file.remove()
        self._unwritten = None
        self.drop()

    def cut(self, position: int) -> None:
        """Forget the batches at and after `position`."""
        entries = array("Q", self._entries_on_disk())
        entries.extend(self._unwritten or ())
        kept = sum(1 for entry in entries if entry & _LOW < position)
        on_disk = min(kept, self.file.count)
        self.file.cut(on_disk)
        self._unwritten = entries[on_disk:kept] or None
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
    """No batch up to and including `offset`'s has a timestamp above this one."""

    timestamp: Millis
    offset: Offset


class TimeIndex:
    """Where to start looking for a timestamp; its last entry is the segment's largest."""

    __slots__ = ("_base_offset", "_last", "_unwritten", "file")

    def __init__(self, path: str, base_offset: Offset, *, count: int = 0) -> None:
        self.file = EntryFile(path, entry_bytes=TIME_ENTRY.size, count=count)
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
        """Kept only when it says something new."""
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
                return  # the log itself was written; the entries wait in memory

    def entry_before(self, timestamp: Millis) -> TimeEntry | None:
        """The last entry below `timestamp`: everything up to its offset is older."""
        found = None
        for entry_timestamp, relative in TIME_ENTRY.iter_unpack(self._all()):
            if entry_timestamp >= timestamp:
                break
            found = TimeEntry(entry_timestamp, Offset(self._base_offset + relative))
        return found

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
        """Forget every entry."""
        self.file.remove()
        self._unwritten = None
        self._last = None

    def cut(self, end_offset: Offset) -> None:
        """Forget entries of batches at and after `end_offset`."""
        everything = self._all()
        kept = self._count_below(everything, end_offset)
        on_disk = min(kept, self.file.count)
        self.file.cut(on_disk)
        rest = everything[on_disk * TIME_ENTRY.size : kept * TIME_ENTRY.size]
        self._unwritten = bytearray(rest) or None
        self._last = None
        if rest:
            timestamp, relative = TIME_ENTRY.unpack(rest[-TIME_ENTRY.size :])
            self._last = TimeEntry(timestamp, Offset(self._base_offset + relative))

    def _all(self) -> bytes:
        content = self.file.read() + bytes(self._unwritten or b"")
        return content[: len(content) - len(content) % TIME_ENTRY.size]
