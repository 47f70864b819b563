"""The connection of one stream: what is in flight on it is counted and bounded.

In flight is what waits in the process and what the kernel has not had acknowledged. The kernel is
set to hold little that is unsent: by default it takes 4 MB for a client that does not read.

A client that vanished is dropped when it has acknowledged nothing for `VANISHED_S`; heartbeats make
sure that there is something to acknowledge. One that lives and does not read stays, however long:
its kernel acknowledges probes of its closed window. Linux sends those ever more rarely, up to 120 s
apart, but not later than TCP_USER_TIMEOUT, at which it closes the connection, living or not. So the
time-out is kept a little ahead of the time for which the client has taken nothing.
"""

import asyncio
import fcntl
import socket
import termios
from struct import Struct
from typing import Final

UNSENT_BYTES_MAX: Final = 64 << 10
VANISHED_S: Final = 30.0
_PROBES: Final = 3  # of a closed window, at least, before a client has vanished
_INT: Final = Struct("i")
_TCP_NOTSENT_LOWAT: Final = 25
_TCP_INFO: Final = Struct(
    "56x"
    "I"  # tcpi_last_ack_recv: milliseconds since the last acknowledgement of any kind
    "60x"
    "Q"  # tcpi_bytes_acked: how much was acknowledged in all
)
assert _TCP_INFO.size == 128


class StreamSocket:
    """Writes to a transport; `can_write` until more than `in_flight_bytes_max` are in flight."""

    def __init__(
        self,
        transport: asyncio.Transport,
        in_flight_bytes_max: int,
        vanished_s: float = VANISHED_S,
    ) -> None:
        self._transport = transport
        self._in_flight_bytes_max = in_flight_bytes_max
        self._at_most = 0  # in flight, if nothing was acknowledged since it was measured
        sock = transport.get_extra_info("socket")
        self._socket = sock
        self._descriptor: int = sock.fileno()
        self._vanished_s = vanished_s
        self._waiting_since_s: float | None = None  # something is in flight
        self._taken_s = 0.0  # when the client took something, as far as it was seen
        self._taken_bytes = -1
        self._is_tcp: bool = sock.family != socket.AF_UNIX
        if self._is_tcp:
            sock.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX)

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

    def drop_if_vanished(self, now_s: float) -> None:
        """Called every second: close if the client's machine does not respond."""
        if not self._is_tcp or not self.in_flight_bytes():
            self._waiting_since_s = None
            return
        if self._waiting_since_s is None:
            self._waiting_since_s = now_s
        info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        silent_ms, taken_bytes = _TCP_INFO.unpack(info)
        if min(silent_ms / 1000, now_s - self._waiting_since_s) >= self._vanished_s:
            self.abort()
        elif taken_bytes != self._taken_bytes:
            self._taken_bytes, self._taken_s = taken_bytes, now_s
        else:
            timeout_s = now_s - self._taken_s + self._vanished_s / _PROBES
            timeout_ms = int(timeout_s * 1000)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout_ms)

    def abort(self) -> None:
        """Close without sending what is buffered."""
        self._transport.abort()
