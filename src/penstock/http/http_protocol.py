"""Below ASGI: repeated requests are served without parsing, and connections are limited.

Consumers send the same requests for ids again and again, and parsing and scheduling cost many times
what the response does. Which responses are cached, and for how long, is decided by the service;
this only gives it the bytes received, and only when they are one whole request on an idle
connection.

A connection whose request is not complete in time is closed: the head within `head_s`, from the
connection's start or the request's first byte; then the body within `body_s`. Where the response
has begun before the body ended, as for a stream of records, each part of the body renews that time.
Beyond `connections_max` connections, a new one replaces the one that has been without a whole
request for longest; where all have a response in progress, the new one is refused with 503.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

REQUEST: Final = "penstock.request"  # among a scope's extensions: the request as it was received
TRANSPORT: Final = "penstock.transport"  # among a scope's extensions: the connection's transport
REQUEST_BYTES_MAX: Final = 2048
HEAD_BYTES_MAX: Final = 64 << 10
MEDIA: Final = "application/json"
REPEATED: Final = b"/schemas/ids/"  # the path of requests that are repeated
_HOT: Final = b"GET " + REPEATED
_STATUS: Final = b"HTTP/1.1 200 OK\r\n"


class ResponseBytes(NamedTuple):
    """A response with status 200: its own headers up to the empty line, and its body."""

    head: bytes
    body: bytes


Repeat = Callable[[bytes], ResponseBytes | None]


class ConnectionLimits(NamedTuple):
    """What a connection may cost."""

    head_s: float = 10.0
    body_s: float = 60.0
    connections_max: int = 4_096


_LATE: Final = (408, "Request Timeout", "the request was not complete in time")
_LARGE: Final = (431, "Request Header Fields Too Large", "the head of the request is too large")
_FULL: Final = (503, "Service Unavailable", "too many connections; try again in a moment")


class RepeatingProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits, and a shortcut for repeated requests."""

    timeout_keep_alive_task: asyncio.TimerHandle | None  # of uvicorn

    def __init__(
        self, repeat: Repeat, limits: ConnectionLimits, closed: Counter[str], **arguments: Any
    ) -> None:
        super().__init__(**arguments)
        self._repeat = repeat
        self._limits = limits
        self._closed = closed
        self._timer: asyncio.TimerHandle | None = None  # while a request is not complete
        self._head_bytes = 0  # of a head that is not complete
        self._waits_from_s = 0.0  # without a whole request since then
        self._requests_begun = 0
        self._is_between = True  # not inside a request
        self._is_in_head = False
        self._used_at_s = 0.0
        self._common: tuple[object, bytes] = (None, b"")

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """As asyncio calls it."""
        super().connection_made(transport)
        self._waits_from_s = self.loop.time()
        if len(self.connections) > self._limits.connections_max and not self._evict_idle():
            self._end(_FULL, "limit")
            return
        self._wait(self._limits.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """As asyncio calls it."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _evict_idle(self) -> bool:
        """Close the connection that has been without a whole request for longest, if there is one.

        It is removed immediately: more connections may come before its transport has closed.
        """
        longest = min(self._waiting(), key=lambda each: each.waits_from_s, default=None)
        if longest is None:
            return False
        self._closed["limit"] += 1
        self.connections.discard(longest)
        longest.transport.abort()
        return True

    def _waiting(self) -> Iterator["RepeatingProtocol"]:
        for each in self.connections:
            if isinstance(each, RepeatingProtocol) and each is not self and each.is_waiting:
                yield each

    @property
    def is_waiting(self) -> bool:
        """Whether the client must send something next, and no response is in progress."""
        return not self.pipeline and not (self._is_between and self._is_responding)

    @property
    def _is_responding(self) -> bool:
        cycle: Any = self.cycle  # None before the first head
        return cycle is not None and not cycle.response_complete

    @property
    def waits_from_s(self) -> float:
        """Since when there was no whole request."""
        return max(self._waits_from_s, self._used_at_s)

    def _wait(self, within_s: float) -> None:
        self._stop_waiting()
        self._timer = self.loop.call_later(within_s, self._on_late, within_s)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_late(self, within_s: float) -> None:
        self._timer = None
        if self.flow.read_paused:  # the client may not send at this moment
            self._wait(within_s)
        else:
            self._end(None if self._is_between else _LATE, "late")

    def _end(self, error: tuple[int, str, str] | None, reason: str) -> None:
        """Close the connection, with an error if no response to its request has begun."""
        self._closed[reason] += 1
        has_begun = bool(self.pipeline) or (self._is_responding and self.cycle.response_started)
        if error is not None and not has_begun:
            self.transport.write(_error_bytes(*error))
        if self._is_responding:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        """As asyncio calls it."""
        if not data.startswith(_HOT) or not self._is_at_rest():
            self._receive(data)
            return
        response = self._repeat(data)
        if response is None:
            self._receive_new(data)
        else:
            self.transport.write(b"".join((self._common_head(), response.head, response.body)))
            self.server_state.total_requests += 1
            self._used_at_s = self.loop.time()
            self._stop_waiting()
            if self.timeout_keep_alive_task is None:  # the first request of its connection
                self.timeout_keep_alive_task = self.loop.call_later(
                    self.timeout_keep_alive, self.timeout_keep_alive_handler
                )

    def _receive(self, data: bytes) -> None:
        """Parse it; the rest of an incomplete request must follow in time."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.transport.is_closing() or self.parser is None:
            return
        if self.transport.get_protocol() is not self:
            return  # it is a WebSocket now, which may be idle for any time
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._end(_LARGE, "large")
        elif self.is_waiting and self._timer is None and self.timeout_keep_alive_task is None:
            self._wait(self._limits.head_s)  # empty lines, which are not the start of a request

    def _is_at_rest(self) -> bool:
        if not self._is_between or self.pipeline or self.flow.write_paused:
            return False
        return self._requests_begun == 0 or self.cycle.response_complete

    def _receive_new(self, data: bytes) -> None:
        """If it is one whole request and the connection stays open, the response may be cached."""
        begun = self._requests_begun
        self._receive(data)
        if self.transport.is_closing():
            return
        if self._requests_begun != begun + 1 or not self._is_between:
            return
        stays = self.cycle.keep_alive and not self.parser.should_upgrade()
        if stays and len(data) <= REQUEST_BYTES_MAX:
            self.scope["extensions"][REQUEST] = {"bytes": data}

    def _common_head(self) -> bytes:
        """The status and the headers of every response, updated with the server's date."""
        headers = self.server_state.default_headers
        if self._common[0] is not headers:
            lines = [b"%b: %b\r\n" % header for header in headers]
            self._common = (headers, b"".join((_STATUS, *lines)))
        return self._common[1]

    def on_message_begin(self) -> None:
        """As the parser calls it."""
        self._requests_begun += 1
        self._is_between = False
        self._is_in_head = True
        self._head_bytes = 0
        if self._timer is None:
            self._wait(self._limits.head_s)
        super().on_message_begin()
        self.scope["extensions"] = {TRANSPORT: {"transport": self.transport}}

    def on_headers_complete(self) -> None:
        """As the parser calls it."""
        self._is_in_head = False
        self._wait(self._limits.body_s)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """As the parser calls it."""
        super().on_body(body)
        if self._is_responding and self.cycle.response_started:
            self._wait(self._limits.body_s)

    def on_message_complete(self) -> None:
        """As the parser calls it."""
        self._is_between = True
        self._stop_waiting()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """As uvicorn calls it."""
        self._waits_from_s = self.loop.time()
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Repeated requests do not move the timer; it checks when it fires."""
        idle_s = self.loop.time() - self._used_at_s
        if idle_s >= self.timeout_keep_alive:
            super().timeout_keep_alive_handler()
        else:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive - idle_s, self.timeout_keep_alive_handler
            )


def _error_bytes(status: int, phrase: str, reason: str) -> bytes:
    """A whole response, after which the connection is closed."""
    body = b'{"error_code":%d,"message":"HTTP %d %s"}' % (status, status, reason.encode())
    return b"".join(
        (
            b"HTTP/1.1 %d %s\r\n" % (status, phrase.encode()),
            b"content-type: %s\r\n" % MEDIA.encode(),
            b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body),
            body,
        )
    )
