"""Bytes off a socket -> whole frames, each in memory of its own.

What a frame holds may be handed on as views and outlive the connection: a frame's memory is never
used again. A large frame is received straight into its place; small ones are copied out of one
shared scratch area.
"""

from typing import Final

from penstock.protocol.framing import RESPONSE_BYTES_MIN, SIZE_BYTES, frame_end

_SCRATCH_BYTES: Final = 64 << 10


class Receiver:
    """Gives room to receive into, and takes count of what came."""

    __slots__ = ("_bytes_max", "_filled", "_frame", "_scratch")

    def __init__(self, *, frame_bytes_max: int) -> None:
        self._bytes_max = frame_bytes_max
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._frame: memoryview | None = None  # a frame whose size is known, not yet all there
        self._filled = 0  # bytes in the frame, or in the scratch area while there is none

    def room(self) -> memoryview:
        """Where the next bytes go; never empty."""
        place = self._scratch if self._frame is None else self._frame
        return place[self._filled :]

    def received(self, size: int) -> list[memoryview]:
        """The frames that are complete now that so many bytes were put into `room`.

        A size no broker would send raises Malformed.
        """
        self._filled += size
        if self._frame is None:
            return self._cut()
        if self._filled < len(self._frame):
            return []
        frame, self._frame, self._filled = self._frame, None, 0
        return [frame]

    def _cut(self) -> list[memoryview]:
        frames = []
        start, end, scratch = 0, self._filled, self._scratch
        while True:
            following = frame_end(
                scratch, start, end, bytes_min=RESPONSE_BYTES_MIN, bytes_max=self._bytes_max
            )
            if following is None or following > end:
                break
            frames.append(memoryview(bytes(scratch[start + SIZE_BYTES : following])))
            start = following
        if following is None:
            self._filled = end - start
            scratch[: self._filled] = bytes(scratch[start:end])
        else:
            start += SIZE_BYTES
            self._frame = memoryview(bytearray(following - start))
            self._filled = end - start
            self._frame[: self._filled] = scratch[start:end]
        return frames
