"""A connection: bytes in, answers out, within its limits. Knows frames, not what they mean.

Requests of one connection take effect in the order they came, and their replies leave in that
order. A connection stops reading while too many of its replies are outstanding, while its client
does not read, while a request that must finish first is held, and while a quota mutes it. So every
client is bounded by what it does itself, and whatever it does costs only its own connection.

In one turn of the event loop a connection has a share of requests, time and bytes. One that sends
more continues in the next turn, after every other connection had its own.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

from penstock.broker.handler import Client, Context, Disconnect, Held
from penstock.broker.receive_buffer import Receiver
from penstock.errors import Malformed
from penstock.machine import Deferred
from penstock.protocol.varint import Buffer

if TYPE_CHECKING:
    from penstock.broker.listener import Server

logger = logging.getLogger(__name__)

JOINED_BYTES_MAX: Final = 16 << 10  # small replies leave as one piece
SEND_BUFFER_BYTES: Final = 256 << 10  # of the kernel's, for one connection
FRAME_BYTES_PER_S: Final = 64 << 10  # beyond its first grace, a request must come at this pace

# The share of one connection in one turn of the event loop.
TURN_REQUESTS_MAX: Final = 64
TURN_S: Final = 0.0005  # checked after each request: one request may take longer
TURN_BYTES_MAX: Final = 1 << 20  # libuv reads up to 32 times while reads fill their buffer

# What keeps a connection from starting its next request: bits, so that one look tells all.
_HELD: Final = 1  # a request must finish before the next may start
_MUTED: Final = 2  # by a quota
_UNREAD: Final = 4  # the client does not read its replies
_FULL: Final = 8  # too many requests wait for their reply
_STOPPING: Final = 16
_GONE: Final = 32  # there is no connection yet, or no more
_YIELDED: Final = 64  # its share of this turn is used


class _Pending:
    """A request whose response has not left."""

    __slots__ = ("context", "deferred", "response")

    def __init__(self, context: Context, deferred: Deferred[Any] | None) -> None:
        self.context = context
        self.deferred = deferred
        self.response: list[Buffer] | None = None  # None: not known yet; empty: nothing to send


class Connection(asyncio.BufferedProtocol):
    """One client. The transport calls; handlers are called."""

    __slots__ = (
        "_dispatcher",
        "_heard",
        "_is_sending_due",
        "_limits",
        "_obstacles",
        "_outgoing",
        "_outgoing_bytes",
        "_paused",
        "_pending",
        "_receiver",
        "_server",
        "_stats",
        "_turn_bytes",
        "_working",
        "active_at",
        "client",
        "frame_began_at",
        "transport",
    )

    def __init__(self, server: Server) -> None:
        self._server = server
        self._dispatcher = server.dispatcher
        self._limits = server.settings
        self._stats = server.stats
        self._receiver = Receiver(server.rooms, server.settings.request_bytes_max)
        self._pending: deque[_Pending] = deque()
        self._outgoing: list[Buffer] = []
        self._outgoing_bytes = 0
        self._obstacles = _GONE
        self._paused = False  # reading is, because of an obstacle
        self._is_sending_due = False  # deferred responses leave at the end of this loop turn
        self._turn_bytes = 0  # read without a pause
        self._working = False  # frames are being handled up the stack: write once, at the end
        self.transport: asyncio.Transport | None = None
        self._heard = False  # since the last sweep, which tells the time of it
        self.client = Client("", 0)
        self.active_at = 0.0
        self.frame_began_at: float | None = None

    @property
    def is_quiet(self) -> bool:
        """Nothing is owed to the client."""
        transport = self.transport
        return not self._pending and (transport is None or not transport.get_write_buffer_size())

    # What the transport calls.

    def connection_made(self, made: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, made)  # uvloop's own has its methods, not its class
        host, port, *_ = transport.get_extra_info("peername") or ("", 0)
        self.client = Client(host, port, listener=self._server.listener)
        self.active_at = self._server.loop.time()
        if not self._server.admit(self):
            transport.abort()
            return
        self.transport = transport
        self._obstacles &= ~_GONE
        # Left to itself the kernel lets a slow reader's buffer grow to megabytes.
        transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES
        )
        transport.set_write_buffer_limits(high=self._limits.unsent_bytes_max)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self._obstacles |= _GONE
        self._server.forget(self)
        self._receiver.leave()
        pending, self._pending = self._pending, deque()
        for request in pending:
            if request.deferred is not None:
                request.deferred.cancel()

    def get_buffer(self, size_hint: int) -> memoryview:
        return self._receiver.room()

    def buffer_updated(self, size: int) -> None:
        self._heard = True
        is_full = self._receiver.on_received(size)
        # A read that did not fill its buffer is the last of this turn.
        self._turn_bytes = self._turn_bytes + size if is_full else 0
        self._handle_frames()

    def pause_writing(self) -> None:
        self._obstacles |= _UNREAD

    def resume_writing(self) -> None:
        self._obstacles &= ~_UNREAD
        self._heard = True
        self._resume()

    # Requests in.

    def _handle_frames(self) -> None:
        receiver, left = self._receiver, 0
        self._working = True
        requests_left, until_s = TURN_REQUESTS_MAX, perf_counter() + TURN_S
        try:
            while not self._obstacles and (frame := receiver.next_frame()) is not None:
                self._start(frame)
                requests_left -= 1
                if requests_left == 0 or perf_counter() > until_s:
                    self._yield_turn()
            left = receiver.settle()
        except Exception as error:  # noqa: BLE001 - a request costs its connection, not the broker
            self._fail(error)
        finally:
            self._working = False
        if self._obstacles & _GONE:
            return
        if self._turn_bytes >= TURN_BYTES_MAX:
            self._yield_turn()
        # Remember since when an unfinished frame is on its way.
        if left == 0:
            self.frame_began_at = None
        elif self.frame_began_at is None:
            self.frame_began_at = self._server.loop.time()
        if self._outgoing:
            self._flush()
        if self._obstacles or self._paused:
            self._pause_or_resume()

    def _yield_turn(self) -> None:
        """Go on in the loop's next turn, when the others had theirs."""
        if not self._obstacles & _YIELDED:
            self._obstacles |= _YIELDED
            self._turn_bytes = 0
            self._server.loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._obstacles &= ~_YIELDED
        self._resume()

    def _start(self, frame: memoryview) -> None:
        self.frame_began_at = None
        self._stats.requests += 1
        context, answer = self._dispatcher.begin(self.client, frame)
        if context.throttle_ms:
            self._mute(context.throttle_ms)
        if isinstance(answer, Deferred):
            self._defer(context, answer)
            return
        response = self._dispatcher.encode(context, answer)
        if self._pending:
            pending = _Pending(context, None)
            pending.response = response
            self._await_turn(pending)
        else:
            self._queue(response)

    def _defer(self, context: Context, deferred: Deferred[Any]) -> None:
        pending = _Pending(context, deferred)
        self._await_turn(pending)
        if isinstance(deferred, Held):
            self._obstacles |= _HELD
            deferred.on_release(self._release)
        deferred.listen(partial(self._on_resolved, pending))

    def _fail(self, error: Exception) -> None:
        """End the connection for what its request was, or did."""
        if isinstance(error, Malformed):
            self.close(f"malformed: {error}")
        elif isinstance(error, Disconnect):
            self.close(str(error))
        else:
            logger.error("a handler failed; closing %s", self.client, exc_info=error)
            self.close(None)

    def _await_turn(self, pending: _Pending) -> None:
        self._pending.append(pending)
        if len(self._pending) >= self._limits.in_flight_max:
            self._obstacles |= _FULL

    def _queue(self, response: list[Buffer]) -> None:
        for piece in response:
            self._outgoing.append(piece)
            self._outgoing_bytes += len(piece)
        if self._outgoing_bytes > self._limits.unsent_bytes_max:
            self._flush()  # so that a client that does not read is noticed at once

    def _pause_or_resume(self) -> None:
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        if not self._obstacles:
            if self._paused:
                self._paused = False
                self.frame_began_at = None
                transport.resume_reading()
        elif not self._paused:
            self._paused = True
            transport.pause_reading()

    def _resume(self) -> None:
        """Something that kept requests from starting has passed."""
        if self._paused and not self._working and not self._obstacles:
            self._handle_frames()

    # Replies out.

    def _on_resolved(self, pending: _Pending, result: Any) -> None:
        """A deferred response is known: it leaves in its turn, several with one write."""
        if self.transport is None:
            return
        context = pending.context
        try:
            if isinstance(result, Exception):
                raise result
            pending.response = self._dispatcher.encode(context, result)
        except Exception as error:  # noqa: BLE001 - a request costs its connection, not the broker
            self._fail(error)
            return
        if context.throttle_ms and not self._obstacles & _MUTED:
            self._mute(context.throttle_ms)
        if len(self._pending) == 1 and not self._working:
            self._send_resolved()
        elif not self._is_sending_due:
            self._is_sending_due = True
            self._server.loop.call_soon(self._send_resolved)

    def _send_resolved(self) -> None:
        """Everything from the front of the line whose response is known."""
        self._is_sending_due = False
        pending = self._pending
        while pending and (response := pending[0].response) is not None:
            pending.popleft()
            self._queue(response)
        if len(pending) < self._limits.in_flight_max:
            self._obstacles &= ~_FULL
        self._flush()
        if self._paused:  # not here: this may be the stack of an append
            self._server.loop.call_soon(self._resume)

    def _flush(self) -> None:
        outgoing, transport = self._outgoing, self.transport
        if not outgoing or transport is None:
            return
        size = self._outgoing_bytes
        self._outgoing, self._outgoing_bytes = [], 0
        self._stats.sent_bytes += size
        if size <= JOINED_BYTES_MAX:
            transport.write(b"".join(outgoing))
        else:
            transport.writelines(outgoing)

    # Holding, muting, closing.

    def _release(self) -> None:
        self._obstacles &= ~_HELD
        self._server.loop.call_soon(self._resume)

    def _mute(self, throttle_ms: int) -> None:
        self._obstacles |= _MUTED
        self._server.loop.call_later(throttle_ms / 1000, self._unmute)

    def _unmute(self) -> None:
        self._obstacles &= ~_MUTED
        self._heard = True
        self._resume()

    def close_if_overdue(self, now: float) -> None:
        """End the connection if a request is late, or if it has been of no use for long."""
        if self._heard:
            self._heard, self.active_at = False, now
        if self._obstacles & (_MUTED | _HELD):
            return
        began_at = self.frame_began_at
        if began_at is not None and not self._paused:
            grace_s = self._limits.frame_ms / 1000
            if now - began_at > grace_s + self._receiver.pending_bytes / FRAME_BYTES_PER_S:
                self.close("a request did not arrive in time")
            return
        if self._pending and not self._obstacles & _UNREAD:
            return
        if now - self.active_at > self._limits.idle_ms / 1000:
            # Whoever only has nothing to say does nothing wrong: no line in the log.
            self.close("its client does not read" if self._obstacles & _UNREAD else None)

    def stop(self) -> None:
        """Start nothing more; what has started is still answered."""
        self._obstacles |= _STOPPING
        self._pause_or_resume()

    def close(self, reason: str | None) -> None:
        """End the connection. A reason is a line in the log."""
        transport = self.transport
        if transport is None:
            return
        if reason is not None:
            logger.warning("closing %s: %s", self.client, reason)
        self._flush()
        self.transport = None
        self._obstacles |= _GONE
        transport.close() if transport.get_write_buffer_size() == 0 else transport.abort()
