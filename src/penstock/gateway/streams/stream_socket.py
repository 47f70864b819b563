"""The connection of one stream: what is in flight on it is counted and bounded.

In flight is what waits in the process and what the kernel has not had acknowledged. The kernel is
set to hold little that is unsent: by default it takes 4 MB for a client that does not read. One
that vanished is dropped when it has acknowledged nothing for `VANISHED_MS`; a heartbeat makes sure
that there is something to acknowledge.
"""

import asyncio
import fcntl
import socket
import termios
from struct import Struct
from typing import Final

UNSENT_BYTES_MAX: Final = 64 << 10
VANISHED_MS: Final = 30_000
_INT: Final = Struct("i")
_TCP_NOTSENT_LOWAT: Final = 25


class StreamSocket:
    """Writes to a transport; `can_write` until more than `in_flight_bytes_max` are in flight."""

    def __init__(self, transport: asyncio.Transport, in_flight_bytes_max: int) -> None:
        self._transport = transport
        self._in_flight_bytes_max = in_flight_bytes_max
        self._at_most = 0  # in flight, if nothing was acknowledged since it was measured
        sock = transport.get_extra_info("socket")
        self._descriptor: int = sock.fileno()
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, VANISHED_MS)

    def write(self, *parts: bytes) -> None:
        """Send this; the caller has checked `can_write` unless it is small."""
        if self._transport.is_closing():
            return
        self._transport.writelines(parts)
        self._at_most += sum(map(len, parts))

    def can_write(self) -> bool:
        """Whether one more chunk may be written."""
        if self._at_most >= self._in_flight_bytes_max:
            self._at_most = self.in_flight_bytes()
        return self._at_most < self._in_flight_bytes_max

    def in_flight_bytes(self) -> int:
        """What was written and is not acknowledged by the client's kernel."""
        if self._transport.is_closing():
            return 0
        waiting = self._transport.get_write_buffer_size()
        if waiting >= self._in_flight_bytes_max:
            return waiting
        queued = fcntl.ioctl(self._descriptor, termios.TIOCOUTQ, b"\0\0\0\0")
        return waiting + int(_INT.unpack(queued)[0])

    def abort(self) -> None:
        """Close without sending what is buffered."""
        self._transport.abort()
