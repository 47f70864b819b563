"""Where a connection's bytes land: frames are found in place and never copied when they come whole.

Between frames a connection owns no memory: it reads into one buffer that all connections share,
which is safe because a read and the handling of what it brought are one turn of the event loop.
Only what is left over (a frame that began, or frames that may not be handled yet) moves to a
buffer of the connection's own, which grows with the bytes that came, not with what was claimed. A
few large ones are kept for the next large frame: to get and clear one costs as much as to fill it.
"""

from __future__ import annotations

from typing import Final

from penstock.protocol.framing import REQUEST_BYTES_MIN, SIZE_BYTES, frame_end, read_size

GROWTH: Final = 8  # room made for a large frame, as a multiple of what came of it
ROOM_BYTES_MIN: Final = 4096
SPARE_BYTES_MIN: Final = 64 << 10  # smaller ones are quickly made
SPARE_BYTES_MAX: Final = 2 << 20
SPARES_MAX: Final = 4  # beyond, they are let go


class Rooms:
    """The buffers of all connections: the shared one, and large ones that nobody uses."""

    def __init__(self, shared_bytes: int) -> None:
        self.shared = memoryview(bytearray(shared_bytes))
        self.spares: list[memoryview] = []

    def take(self, size_bytes: int) -> memoryview:
        """A buffer for one connection alone, of this size at least."""
        if size_bytes >= SPARE_BYTES_MIN:
            for index, spare in enumerate(self.spares):
                if len(spare) >= size_bytes:
                    return self.spares.pop(index)
        return memoryview(bytearray(size_bytes))

    def give_back(self, room: memoryview) -> None:
        """Nobody refers to what is in it any more."""
        if len(self.spares) < SPARES_MAX and SPARE_BYTES_MIN <= len(room) <= SPARE_BYTES_MAX:
            self.spares.append(room)


class Receiver:
    """One connection's incoming bytes."""

    __slots__ = ("_end", "_frame_bytes_max", "_own", "_rooms", "_start", "_view")

    def __init__(self, rooms: Rooms, frame_bytes_max: int) -> None:
        self._rooms = rooms
        self._frame_bytes_max = frame_bytes_max
        self._own = False
        self._view = rooms.shared
        self._start = 0  # of what is not yet handled
        self._end = 0  # of what came

    @property
    def pending_bytes(self) -> int:
        """What came and is not handled."""
        return self._end - self._start

    def room(self) -> memoryview:
        """Where the next read goes; never empty."""
        return self._view[self._end :] if self._end else self._view

    def on_received(self, size: int) -> bool:
        """This many bytes were read into `room`; whether they filled it: there may be more."""
        self._end += size
        return self._end == len(self._view)

    def next_frame(self) -> memoryview | None:
        """The next whole frame, in place: valid until `settle`."""
        start, view = self._start, self._view
        body = start + SIZE_BYTES
        if body > self._end:
            return None
        (size,) = read_size(view, start)
        if not REQUEST_BYTES_MIN <= size <= self._frame_bytes_max:
            frame_end(view, start, self._end, bytes_max=self._frame_bytes_max)  # says what is wrong
        end = body + size
        if end > self._end:
            return None
        self._start = end
        return view[body:end]

    def settle(self) -> int:
        """Handling stops for now: leave the shared buffer and keep what is left; how much that is.

        There is space for the next read afterwards.
        """
        left = self._end - self._start
        if left == 0:
            if self._own:
                self.leave()
            self._start = self._end = 0
            return 0
        # While a whole frame waits nothing is read, so moving it can wait too: moving the rest of a
        # long pipeline after each of its turns would cost more than handling it.
        may_stay = self._start == 0 or (self._start < left and self._has_whole_frame())
        if self._own and self._end < len(self._view) and may_stay:
            return left
        size_bytes = self._room_bytes(left)
        view = self._view
        if not self._own or size_bytes > len(view):
            view = self._rooms.take(size_bytes)
        view[:left] = self._view[self._start : self._end]
        if view is not self._view:
            self.leave()
            self._own, self._view = True, view
        self._start, self._end = 0, left
        return left

    def leave(self) -> None:
        """Let go of what came: it was handled, or nobody will."""
        if self._own:
            self._rooms.give_back(self._view)
            self._own, self._view = False, self._rooms.shared
        self._start = self._end = 0

    def _has_whole_frame(self) -> bool:
        end = frame_end(self._view, self._start, self._end, bytes_max=self._frame_bytes_max)
        return end is not None and end <= self._end

    def _room_bytes(self, left: int) -> int:
        end = frame_end(self._view, self._start, self._end, bytes_max=self._frame_bytes_max)
        frame_bytes = ROOM_BYTES_MIN if end is None else end - self._start
        # One more than what is there: a read needs room, whatever the first frame's size says.
        return max(left + 1, min(frame_bytes, max(GROWTH * left, ROOM_BYTES_MIN)))
