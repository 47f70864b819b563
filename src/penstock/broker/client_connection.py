"""The connection of a client: bytes in, responses out, within its limits. Knows frames only.

Requests of one connection take effect in the order of their arrival, and their responses are sent
in that order. A connection stops reading while too many of its responses are pending, while its
client does not read, while a request is held, and while a quota throttles it. So each client is
limited by what it does itself, and what it does costs only its own connection.

In one turn of the event loop a connection has a share of requests, time and bytes. One that sends
more continues in the next turn, after every other connection had its turn.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from bisect import bisect_left
from collections import deque
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

from penstock.broker.handler import Client, Context, Disconnect, Held
from penstock.broker.receive_buffer import RequestReceiver
from penstock.errors import Malformed
from penstock.machine import Deferred
from penstock.metrics.row import SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.broker.listener import Listener
    from penstock.metrics.histogram import Histogram
    from penstock.protocol.varint import Buffer

logger: Final = logging.getLogger(__name__)

JOINED_BYTES_MAX: Final = 16 << 10  # small responses are sent as one buffer
SEND_BUFFER_BYTES: Final = 256 << 10  # of the kernel's, for one connection
FRAME_BYTES_PER_S: Final = 64 << 10  # a request must arrive at this rate, after a grace period

# The share of one connection in one turn of the event loop.
TURN_REQUESTS_MAX: Final = 64
TURN_S: Final = 0.0005  # checked after each request: one request may take longer
TURN_BYTES_MAX: Final = 1 << 20  # libuv reads up to 32 times while reads fill their buffer

# Why a connection does not start its next request: bits, so that one test covers all.
_HELD: Final = 1  # a request must take effect before the next may start
_THROTTLED: Final = 2  # by a quota
_UNREAD: Final = 4  # the client does not read its responses
_FULL: Final = 8  # too many requests wait for their response
_STOPPING: Final = 16
_CLOSED: Final = 32  # not connected yet, or closed
_YIELDED: Final = 64  # its share of this turn is used


class _Pending:
    """A request whose response has not been sent."""

    __slots__ = ("began_s", "context", "deferred", "response")

    def __init__(self, context: Context, deferred: Deferred[Any] | None) -> None:
        self.context = context
        self.deferred = deferred
        self.began_s = perf_counter()
        self.response: list[Buffer] | None = None  # None: not known yet; empty: none to send


class ClientConnection(asyncio.BufferedProtocol):
    """One client: called by the transport, calls handlers."""

    __slots__ = (
        "_dispatcher",
        "_is_sending_due",
        "_limits",
        "_listener",
        "_outgoing",
        "_outgoing_bytes",
        "_pause_reasons",
        "_paused",
        "_pending",
        "_receiver",
        "_turn_bytes",
        "_was_active",
        "_working",
        "active_at",
        "client",
        "frame_began_at",
        "transport",
    )

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._dispatcher = listener.dispatcher
        self._limits = listener.settings
        self._receiver = RequestReceiver(listener.buffers, listener.settings.request_bytes_max)
        self._pending: deque[_Pending] = deque()
        self._outgoing: list[Buffer] = []
        self._outgoing_bytes = 0
        self._pause_reasons = _CLOSED
        self._paused = False  # whether reading is
        self._is_sending_due = False  # deferred responses are sent in the next turn of the loop
        self._turn_bytes = 0  # read without a pause
        self._working = False  # frames are being handled up the stack: send once, at the end
        self.transport: asyncio.Transport | None = None
        self._was_active = False  # since the last sweep, which knows the time
        self.client: Client = Client("", 0)
        self.active_at: float = 0.0
        self.frame_began_at: float | None = None

    @property
    def unsent_bytes(self) -> int:
        """Of responses that the client has not read yet."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    @property
    def waiting_apis(self) -> Iterator[int]:
        """The APIs of requests without a response yet."""
        return (pending.context.message.api for pending in self._pending)

    @property
    def is_quiet(self) -> bool:
        """No response is pending or unsent."""
        transport = self.transport
        return not self._pending and (transport is None or not transport.get_write_buffer_size())

    # What the transport calls.

    def connection_made(self, made: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", made)  # uvloop's has the methods, not the class
        host, port, *_ = transport.get_extra_info("peername") or ("", 0)
        self.client = Client(host, port, listener=self._listener.name)
        self.active_at = self._listener.loop.time()
        if not self._listener.admit(self):
            transport.abort()
            return
        self.transport = transport
        self._pause_reasons &= ~_CLOSED
        # By default the kernel lets the buffer of a slow reader grow to megabytes.
        transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES
        )
        transport.set_write_buffer_limits(high=self._limits.unsent_bytes_max)

    def connection_lost(self, _error: Exception | None) -> None:
        self.transport = None
        self._pause_reasons |= _CLOSED
        self._listener.remove(self)
        self._receiver.reset()
        pending, self._pending = self._pending, deque()
        for request in pending:
            if request.deferred is not None:
                request.deferred.cancel()
        if self.client.on_closed is not None:
            self.client.on_closed()

    def get_buffer(self, _size_hint: int) -> memoryview:
        return self._receiver.buffer()

    def buffer_updated(self, size: int) -> None:
        self._was_active = True
        is_full = self._receiver.on_received(size)
        # A read that did not fill its buffer is the last of this turn.
        self._turn_bytes = self._turn_bytes + size if is_full else 0
        self._handle_frames()

    def pause_writing(self) -> None:
        self._pause_reasons |= _UNREAD

    def resume_writing(self) -> None:
        self._pause_reasons &= ~_UNREAD
        self._was_active = True
        self._resume()

    # Requests in.

    def _handle_frames(self) -> None:
        receiver, left = self._receiver, 0
        self._working = True
        requests_left, now_s = TURN_REQUESTS_MAX, perf_counter()
        until_s = now_s + TURN_S
        try:
            while not self._pause_reasons and (frame := receiver.next_frame()) is not None:
                began_s, seconds = now_s, self._start(frame)
                now_s = perf_counter()
                spent_s = now_s - began_s
                seconds.counts[bisect_left(SECONDS, spent_s)] += 1
                seconds.total += spent_s
                requests_left -= 1
                if requests_left == 0 or now_s > until_s:
                    self._yield_turn()
            left = receiver.finish_turn()
        except Exception as error:  # noqa: BLE001 - a failure ends its connection, not the broker
            self._fail(error)
        finally:
            self._working = False
        if self._pause_reasons & _CLOSED:
            return
        if self._turn_bytes >= TURN_BYTES_MAX:
            self._yield_turn()
        # Note since when a frame has been incomplete.
        if left == 0:
            self.frame_began_at = None
        elif self.frame_began_at is None:
            self.frame_began_at = self._listener.loop.time()
        if self._outgoing:
            self._flush()
        if self._pause_reasons or self._paused:
            self._pause_or_resume()

    def _yield_turn(self) -> None:
        """Continue in the next turn of the loop, after the others had theirs."""
        if not self._pause_reasons & _YIELDED:
            self._pause_reasons |= _YIELDED
            self._turn_bytes = 0
            self._listener.loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._pause_reasons &= ~_YIELDED
        self._resume()

    def _start(self, frame: memoryview) -> Histogram:
        """Let one request take effect; returns what counts the time that this took."""
        self.frame_began_at = None
        context, answer = self._dispatcher.begin(self.client, frame)
        if context.throttle_ms:
            self._throttle(context.throttle_ms)
        if isinstance(answer, Deferred):
            self._defer(context, answer)
            return context.counts.seconds
        response = self._dispatcher.encode(context, answer)
        if self._pending:
            pending = _Pending(context, None)
            pending.response = response
            self._await_turn(pending)
        else:
            self._queue(response)
        return context.counts.seconds

    def _defer(self, context: Context, deferred: Deferred[Any]) -> None:
        pending = _Pending(context, deferred)
        self._await_turn(pending)
        if isinstance(deferred, Held):
            self._pause_reasons |= _HELD
            deferred.on_release(self._release)
        deferred.listen(partial(self._on_resolved, pending))

    def _fail(self, error: Exception) -> None:
        """Close the connection because of its request, or because of a bug."""
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
            self._pause_reasons |= _FULL

    def _queue(self, response: list[Buffer]) -> None:
        for piece in response:
            self._outgoing.append(piece)
            self._outgoing_bytes += len(piece)
        if self._outgoing_bytes > self._limits.unsent_bytes_max:
            self._flush()  # so that a client that does not read is noticed immediately

    def _pause_or_resume(self) -> None:
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        if not self._pause_reasons:
            if self._paused:
                self._paused = False
                self.frame_began_at = None
                transport.resume_reading()
        elif not self._paused:
            self._paused = True
            transport.pause_reading()

    def _resume(self) -> None:
        """A reason to pause has ended."""
        if self._paused and not self._working and not self._pause_reasons:
            self._handle_frames()

    # Responses out.

    def _on_resolved(self, pending: _Pending, result: Any) -> None:
        """A deferred response is known: it is sent in its order, several with one write."""
        if self.transport is None:
            return
        context = pending.context
        try:
            if isinstance(result, Exception):
                raise result
            pending.response = self._dispatcher.encode(context, result)
            waited_s = perf_counter() - pending.began_s
            context.counts.waits.observe(waited_s)
        except Exception as error:  # noqa: BLE001 - a failure ends its connection, not the broker
            self._fail(error)
            return
        if context.throttle_ms and not self._pause_reasons & _THROTTLED:
            self._throttle(context.throttle_ms)
        if len(self._pending) == 1 and not self._working:
            self._send_resolved()
        elif not self._is_sending_due:
            self._is_sending_due = True
            self._listener.loop.call_soon(self._send_resolved)

    def _send_resolved(self) -> None:
        """Send all responses that are known, up to the first that is not."""
        self._is_sending_due = False
        pending = self._pending
        while pending and (response := pending[0].response) is not None:
            pending.popleft()
            self._queue(response)
        if len(pending) < self._limits.in_flight_max:
            self._pause_reasons &= ~_FULL
        self._flush()
        if self._paused:  # later: this may be the stack of an append
            self._listener.loop.call_soon(self._resume)

    def _flush(self) -> None:
        outgoing, transport = self._outgoing, self.transport
        if not outgoing or transport is None:
            return
        size = self._outgoing_bytes
        self._outgoing, self._outgoing_bytes = [], 0
        if size <= JOINED_BYTES_MAX:
            transport.write(b"".join(outgoing))
        else:
            transport.writelines(outgoing)

    # Holding, throttling, closing.

    def _release(self) -> None:
        self._pause_reasons &= ~_HELD
        self._listener.loop.call_soon(self._resume)

    def _throttle(self, throttle_ms: int) -> None:
        self._pause_reasons |= _THROTTLED
        self._listener.loop.call_later(throttle_ms / 1000, self._unthrottle)

    def _unthrottle(self) -> None:
        self._pause_reasons &= ~_THROTTLED
        self._was_active = True
        self._resume()

    def close_if_overdue(self, now: float) -> None:
        """Close the connection if a request is late, or if it was idle for too long."""
        if self._was_active:
            self._was_active, self.active_at = False, now
        if self._pause_reasons & (_THROTTLED | _HELD):
            return
        began_at = self.frame_began_at
        if began_at is not None and not self._paused:
            grace_s = self._limits.frame_ms / 1000
            if now - began_at > grace_s + self._receiver.pending_bytes / FRAME_BYTES_PER_S:
                self.close("a request did not arrive in time")
            return
        if self._pending and not self._pause_reasons & _UNREAD:
            return
        if now - self.active_at > self._limits.idle_ms / 1000:
            # Idle is normal: close without logging.
            self.close("its client does not read" if self._pause_reasons & _UNREAD else None)

    def stop(self) -> None:
        """Start no more requests; those that have started still get their response."""
        self._pause_reasons |= _STOPPING
        self._pause_or_resume()

    def close(self, reason: str | None) -> None:
        """Close the connection. A reason is logged."""
        transport = self.transport
        if transport is None:
            return
        if reason is not None:
            logger.warning("closing %s: %s", self.client, reason)
        self._flush()
        self.transport = None
        self._pause_reasons |= _CLOSED
        transport.close() if transport.get_write_buffer_size() == 0 else transport.abort()
