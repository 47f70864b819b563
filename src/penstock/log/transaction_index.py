"""The aborted transactions of a segment, which a read-committed consumer skips.

An entry is added with each abort marker, in the segment of the marker; 34 bytes in Apache Kafka's
layout. Segments without aborts have no file. Recovery writes the entries again from the markers.
"""

import errno
import os
from struct import Struct
from typing import Final, NamedTuple

from penstock.model import Offset, ProducerId

ABORTED_ENTRY: Final = Struct(
    ">"
    "h"  # version  0
    "q"  # producer_id
    "q"  # first_offset        of the transaction in this partition
    "q"  # last_offset         of its abort marker
    "q"  # last_stable_offset  when the marker was written
)
assert ABORTED_ENTRY.size == 34
_VERSION: Final = 0


class AbortedEntry(NamedTuple):
    """One aborted transaction, from its first record to its marker, both inclusive."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


class TransactionIndex:
    """The `.txnindex` of one segment; opened for each use, because aborts are rare."""

    __slots__ = ("may_have_entries", "path")

    def __init__(self, path: str) -> None:
        self.path: str = path
        self.may_have_entries: bool = True  # until a read finds no file

    def append(self, aborted: AbortedEntry) -> None:
        """Add an entry, all or nothing, so that every entry is at a fixed position."""
        self.may_have_entries = True
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            size_bytes = os.fstat(descriptor).st_size
            position = (
                size_bytes - size_bytes % ABORTED_ENTRY.size
            )  # overwrites what a failed write left
            written = os.pwrite(descriptor, ABORTED_ENTRY.pack(_VERSION, *aborted), position)
        finally:
            os.close(descriptor)
        if written != ABORTED_ENTRY.size:
            raise OSError(errno.ENOSPC, f"{written} bytes of an entry were written", self.path)

    def entries(self) -> list[AbortedEntry]:
        if not self.may_have_entries:
            return []
        try:
            with open(self.path, "rb") as file:
                content = file.read()
        except FileNotFoundError:
            self.may_have_entries = False
            return []
        whole = len(content) - len(content) % ABORTED_ENTRY.size
        return [
            AbortedEntry(ProducerId(pid), Offset(first), Offset(last), Offset(stable))
            for _, pid, first, last, stable in ABORTED_ENTRY.iter_unpack(content[:whole])
        ]

    def cut(self, end_offset: Offset) -> None:
        """Remove aborts whose marker is at or after `end_offset`."""
        if not os.path.exists(self.path):
            return
        count = sum(1 for entry in self.entries() if entry.last_offset < end_offset)
        os.truncate(self.path, count * ABORTED_ENTRY.size)

    def collect(self, start: Offset, end: Offset, into: list[AbortedEntry]) -> bool:
        """Add the entries that overlap [start, end); True when later segments have no more.

        Every transaction that started before an entry's last stable offset had ended by then, so
        the search is complete when that reaches `end`.
        """
        for entry in self.entries():
            if entry.last_offset >= start and entry.first_offset < end:
                into.append(entry)
            if entry.last_stable_offset >= end:
                return True
        return False
