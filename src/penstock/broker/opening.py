"""Opens batches in threads, within a budget of memory that all requests share.

A request waits until the budget has the memory that its batch can need, in the order of arrival.
Small batches have a part of the budget to themselves, so they never wait for large ones. A batch
that can need more than its whole part is opened alone.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.errors import Malformed
from penstock.protocol.batch import HEADER_BYTES, BatchHeader
from penstock.protocol.compression import decompressed_size_limit

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL_BATCH_BYTES_MAX: Final = 4 << 20  # of estimated memory; others are large batches
SMALL_BUDGET_BYTES: Final = 64 << 20
LARGE_BUDGET_BYTES: Final = 192 << 20
LARGE_AT_A_TIME_MAX: Final = 4  # the event loop's pool has at least five threads: one remains

COPIES_MAX: Final = 3  # of the decompressed bytes: the codec's window, the output, one copy of it
RECORD_FACTS_BYTES: Final = 96  # positions and sizes of a record and its fields
RECORD_BYTES_MIN: Final = 7  # a byte for each field, no key, no value, no header

ResultT = TypeVar("ResultT")


def memory_to_open(batch: bytearray | memoryview, header: BatchHeader, max_bytes: int) -> int:
    """The memory that opening a batch can need, by its headers; Malformed if it is impossible."""
    packed = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    size = decompressed_size_limit(header.codec, packed, max_bytes=max_bytes)
    if header.record_count * RECORD_BYTES_MIN > size:
        raise Malformed(f"{header.record_count} records do not fit {size} bytes", HEADER_BYTES)
    return COPIES_MAX * size + RECORD_FACTS_BYTES * header.record_count


class Opening:
    """The threads that open batches, and their budget."""

    def __init__(self) -> None:
        self._small = _Budget(SMALL_BUDGET_BYTES)
        self._large = _Budget(LARGE_BUDGET_BYTES)

    @property
    def borrowed_bytes(self) -> int:
        """The estimated memory in use."""
        return self._small.borrowed_bytes + self._large.borrowed_bytes

    async def run(self, memory_bytes: int, work: Callable[[], ResultT]) -> ResultT:
        """Run the work in a thread as soon as the budget has this much memory left."""
        if memory_bytes <= SMALL_BATCH_BYTES_MAX:
            budget = self._small
        else:
            budget = self._large
            memory_bytes = max(memory_bytes, LARGE_BUDGET_BYTES // LARGE_AT_A_TIME_MAX)
        borrowed_bytes = await budget.borrow(memory_bytes)
        done = asyncio.get_running_loop().run_in_executor(None, work)

        def give_back(done: asyncio.Future[ResultT]) -> None:
            budget.give_back(borrowed_bytes)
            if not done.cancelled():
                done.exception()  # retrieved, even if the client has disconnected

        done.add_done_callback(give_back)
        try:
            # Shielded: a thread cannot be stopped, and its memory stays borrowed until it ends.
            return await asyncio.shield(done)
        finally:
            del done  # its exception refers to this frame: together they would keep the buffers


class _Budget:
    """Bytes that may be borrowed at the same time; others wait in the order of arrival."""

    def __init__(self, total_bytes: int) -> None:
        self.borrowed_bytes = 0
        self._total_bytes = total_bytes
        self._waiting: dict[asyncio.Future[None], int] = {}  # in the order of arrival

    async def borrow(self, size_bytes: int) -> int:
        """Wait for this many bytes, or for all; returns what was taken."""
        size_bytes = min(size_bytes, self._total_bytes)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = size_bytes
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if self._waiting.pop(turn, None) is None:  # it was admitted
                self.borrowed_bytes -= size_bytes
            self._admit()
            raise
        return size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Return borrowed bytes."""
        self.borrowed_bytes -= size_bytes
        self._admit()

    def _admit(self) -> None:
        while self._waiting:
            turn, size_bytes = next(iter(self._waiting.items()))
            if self.borrowed_bytes + size_bytes > self._total_bytes:
                return
            del self._waiting[turn]
            self.borrowed_bytes += size_bytes
            if not turn.done():  # cancelled: its task returns the bytes when it runs
                turn.set_result(None)
