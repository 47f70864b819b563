"""Where a connection's bytes are received: frames are located in place, and rarely copied.

Between frames a connection owns no memory: it reads into one buffer that all connections share,
which is safe because a read and the handling of its frames are one turn of the event loop. Only
what remains (an incomplete frame, or frames that may not be handled yet) moves to a buffer of the
connection's own, which grows with the bytes that arrived, not with the stated size. A few large
buffers are kept for the next large frame: to allocate and clear one costs as much as to fill it.
"""

from __future__ import annotations

from typing import Final

from penstock.protocol.framing import REQUEST_BYTES_MIN, SIZE_BYTES, frame_end, read_size

GROWTH: Final = 8  # a buffer for a large frame is at most this many times what has arrived of it
OWN_BYTES_MIN: Final = 4096
SPARE_BYTES_MIN: Final = 64 << 10  # smaller ones are allocated quickly
SPARE_BYTES_MAX: Final = 2 << 20
SPARES_MAX: Final = 4  # beyond, they are freed


class BufferPool:
    """The buffers of all connections: the shared one, and large ones that are not in use."""

    def __init__(self, shared_bytes: int) -> None:
        self.shared: memoryview = memoryview(bytearray(shared_bytes))
        self.spares: list[memoryview] = []

    def take(self, size_bytes: int) -> memoryview:
        """A buffer for one connection alone, of at least this size."""
        if size_bytes >= SPARE_BYTES_MIN:
            for index, spare in enumerate(self.spares):
                if len(spare) >= size_bytes:
                    return self.spares.pop(index)
        return memoryview(bytearray(size_bytes))

    def give_back(self, buffer: memoryview) -> None:
        """Nothing refers to its content any more."""
        if len(self.spares) < SPARES_MAX and SPARE_BYTES_MIN <= len(buffer) <= SPARE_BYTES_MAX:
            self.spares.append(buffer)


class RequestReceiver:
    """The incoming bytes of one connection."""

    __slots__ = ("_buffer", "_end", "_frame_bytes_max", "_is_own", "_pool", "_start")

    def __init__(self, pool: BufferPool, frame_bytes_max: int) -> None:
        self._pool = pool
        self._frame_bytes_max = frame_bytes_max
        self._is_own = False
        self._buffer = pool.shared
        self._start = 0  # of the bytes that are not handled yet
        self._end = 0  # of the bytes that arrived

    @property
    def pending_bytes(self) -> int:
        """Bytes that arrived and are not handled."""
        return self._end - self._start

    def buffer(self) -> memoryview:
        """Where the next read goes; never empty."""
        return self._buffer[self._end :] if self._end else self._buffer

    def on_received(self, size: int) -> bool:
        """This many bytes were read into `buffer`; True if they filled it: there may be more."""
        self._end += size
        return self._end == len(self._buffer)

    def next_frame(self) -> memoryview | None:
        """The next whole frame, in place: valid until `finish_turn`."""
        start, buffer = self._start, self._buffer
        body = start + SIZE_BYTES
        if body > self._end:
            return None
        (size,) = read_size(buffer, start)
        if not REQUEST_BYTES_MIN <= size <= self._frame_bytes_max:
            frame_end(buffer, start, self._end, bytes_max=self._frame_bytes_max)  # raises
        end = body + size
        if end > self._end:
            return None
        self._start = end
        return buffer[body:end]

    def finish_turn(self) -> int:
        """Stop handling for now: leave the shared buffer and keep the rest; returns its size.

        There is space for the next read afterwards.
        """
        left = self._end - self._start
        if left == 0:
            if self._is_own:
                self.reset()
            self._start = self._end = 0
            return 0
        # While a whole frame waits nothing is read, so it need not be moved yet: moving the rest of
        # a long pipeline after each turn would cost more than handling it.
        may_stay = self._start == 0 or (self._start < left and self._has_whole_frame())
        if self._is_own and self._end < len(self._buffer) and may_stay:
            return left
        size_bytes = self._needed_bytes(left)
        buffer = self._buffer
        if not self._is_own or size_bytes > len(buffer):
            buffer = self._pool.take(size_bytes)
        buffer[:left] = self._buffer[self._start : self._end]
        if buffer is not self._buffer:
            self.reset()
            self._is_own, self._buffer = True, buffer
        self._start, self._end = 0, left
        return left

    def reset(self) -> None:
        """Drop what arrived: it was handled, or never will be."""
        if self._is_own:
            self._pool.give_back(self._buffer)
            self._is_own, self._buffer = False, self._pool.shared
        self._start = self._end = 0

    def _has_whole_frame(self) -> bool:
        end = frame_end(self._buffer, self._start, self._end, bytes_max=self._frame_bytes_max)
        return end is not None and end <= self._end

    def _needed_bytes(self, left: int) -> int:
        end = frame_end(self._buffer, self._start, self._end, bytes_max=self._frame_bytes_max)
        frame_bytes = OWN_BYTES_MIN if end is None else end - self._start
        # One byte more than what remains: a read needs space, whatever the stated size.
        return max(left + 1, min(frame_bytes, max(GROWTH * left, OWN_BYTES_MIN)))
