"""Answers to reads by id, kept until something happens that could change them.

What an id stands for never changes, but which version speaks for it may, and the last id of a
context moves with every new one. A new version takes down what is said of its own id and of last
ids; whatever removes or hides versions takes down everything.

Below ASGI: repeated requests are answered short, and connections are limited.

A request that came before, byte for byte, is answered without being parsed again.

A consumer asks for the same ids in the same words for ever, and parsing and scheduling cost many
times what the answer does. What is answered so, and for how long, is `Front`'s to say; this only
hands it what was received, and only when that is one whole request on a connection at rest.

A connection whose request is not there in time is closed: the head within `head_s`, from the
connection's start or the request's first byte; then the body within `body_s`. Beyond
`connections_max` connections, a new one takes the place of the one that has been without a whole
request for longest; where all are being answered, the new one is refused with 503.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from penstock.registry.http.responses import MEDIA
from penstock.registry.store.events import (
    ConfigSet,
    ContextMade,
    Event,
    Marked,
    ModeSet,
    VersionStored,
)
from penstock.registry.usage import Use

REQUEST: Final = "penstock.request"  # among a scope's extensions: the request as it was received
REQUEST_BYTES_MAX: Final = 2048
HEAD_BYTES_MAX: Final = 64 << 10
_HOT: Final = b"GET /schemas/ids/"
_STATUS: Final = b"HTTP/1.1 200 OK\r\n"


class Repeated(NamedTuple):
    """An answer with 200: its own headers up to the empty line, and its body."""

    head: bytes
    body: bytes


Repeat = Callable[[bytes], Repeated | None]


class Limits(NamedTuple):
    """What a connection may cost."""

    head_s: float = 10.0
    body_s: float = 60.0
    connections_max: int = 4_096


_LATE: Final = (408, "Request Timeout", "the request was not complete in time")
_LARGE: Final = (431, "Request Header Fields Too Large", "the head of the request is too large")
_FULL: Final = (503, "Service Unavailable", "too many connections; try again in a moment")


class RepeatingProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits, and a short way for what was asked before."""

    def __init__(
        self, repeat: Repeat, limits: Limits, ended: Counter[str], **arguments: Any
    ) -> None:
        super().__init__(**arguments)
        self._repeat = repeat
        self._limits = limits
        self._ended = ended
        self._timer: asyncio.TimerHandle | None = None  # while a request is not complete
        self._head_bytes = 0  # of a head that is not complete
        self._waits_from_s = 0.0  # without a whole request since then
        self._requests_begun = 0
        self._is_between = True  # not inside of a request
        self._is_in_head = False
        self._used_at_s = 0.0
        self._common: tuple[object, bytes] = (None, b"")

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """As asyncio calls it."""
        super().connection_made(transport)
        self._waits_from_s = self.loop.time()
        if len(self.connections) > self._limits.connections_max and not self._take_place():
            self._end(_FULL, "limit")
            return
        self._wait(self._limits.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """As asyncio calls it."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _take_place(self) -> bool:
        """Close the connection that has been without a whole request for longest, if there is one.

        It is forgotten at once: more connections may come before its transport has closed.
        """
        longest = min(self._waiting(), key=lambda one: one.waits_from_s, default=None)
        if longest is None:
            return False
        self._ended["limit"] += 1
        self.connections.discard(longest)
        longest.transport.abort()
        return True

    def _waiting(self) -> Iterator["RepeatingProtocol"]:
        for one in self.connections:
            if isinstance(one, RepeatingProtocol) and one is not self and one.is_waiting:
                yield one

    @property
    def is_waiting(self) -> bool:
        """Whether the client is to send something next, and nothing is being answered."""
        return not self.pipeline and not (self._is_between and self._is_answering)

    @property
    def _is_answering(self) -> bool:
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

    def _end(self, answer: tuple[int, str, str] | None, reason: str) -> None:
        """Close the connection, with an answer if nothing was answered to its request yet."""
        self._ended[reason] += 1
        has_begun = bool(self.pipeline) or (self._is_answering and self.cycle.response_started)
        if answer is not None and not has_begun:
            self.transport.write(_written(*answer))
        if self._is_answering:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        """As asyncio calls it."""
        if not data.startswith(_HOT) or not self._is_at_rest():
            self._receive(data)
            return
        known = self._repeat(data)
        if known is None:
            self._receive_new(data)
        else:
            self.transport.write(b"".join((self._common_head(), known.head, known.body)))
            self.server_state.total_requests += 1
            self._used_at_s = self.loop.time()
            self._stop_waiting()
            if self.timeout_keep_alive_task is None:  # the first request of its connection
                self.timeout_keep_alive_task = self.loop.call_later(
                    self.timeout_keep_alive, self.timeout_keep_alive_handler
                )

    def _receive(self, data: bytes) -> None:
        """Parse it; what is no whole request is waited for, but not for long."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.transport.is_closing() or self.parser is None:
            return
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._end(_LARGE, "large")
        elif self.is_waiting and self._timer is None and self.timeout_keep_alive_task is None:
            self._wait(self._limits.head_s)  # empty lines, which begin no request

    def _is_at_rest(self) -> bool:
        if not self._is_between or self.pipeline or self.flow.write_paused:
            return False
        return self._requests_begun == 0 or self.cycle.response_complete

    def _receive_new(self, data: bytes) -> None:
        """If it is one whole request and the connection stays, the application may remember it."""
        begun = self._requests_begun
        self._receive(data)
        if self.transport.is_closing():
            return
        if self._requests_begun != begun + 1 or not self._is_between:
            return
        stays = self.cycle.keep_alive and not self.parser.should_upgrade()
        if stays and len(data) <= REQUEST_BYTES_MAX:
            self.scope["extensions"] = {REQUEST: {"bytes": data}}

    def _common_head(self) -> bytes:
        """The status and what every answer has, anew when the server has a new date."""
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

    def on_headers_complete(self) -> None:
        """As the parser calls it."""
        self._is_in_head = False
        self._wait(self._limits.body_s)
        super().on_headers_complete()

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
        """Repeated requests do not move the timer; it asks when it goes off."""
        idle_s = self.loop.time() - self._used_at_s
        if idle_s >= self.timeout_keep_alive:
            super().timeout_keep_alive_handler()
        else:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive - idle_s, self.timeout_keep_alive_handler
            )


def _written(status: int, phrase: str, reason: str) -> bytes:
    """A whole answer, after which the connection is closed."""
    body = b'{"error_code":%d,"message":"HTTP %d %s"}' % (status, status, reason.encode())
    return b"".join(
        (
            b"HTTP/1.1 %d %s\r\n" % (status, phrase.encode()),
            b"content-type: %s\r\n" % MEDIA.encode(),
            b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body),
            body,
        )
    )


ANSWERS_MAX: Final = 10_000
BODIES_BYTES_MAX: Final = 64 << 20
_HARMLESS: Final = (Marked, ConfigSet, ModeSet, ContextMade)

Key = tuple[bytes, bytes]  # path and query


class Ready(NamedTuple):
    """An answer, but for its type."""

    body: bytes
    context: str
    id: int
    tells_last_id: bool

    def start(self, media: str) -> dict[str, Any]:
        """The beginning of the answer, in one of its types."""
        headers = [
            (b"content-type", media.encode()),
            (b"content-length", str(len(self.body)).encode()),
        ]
        return {"type": "http.response.start", "status": 200, "headers": headers}


class Known(NamedTuple):
    """The answer to a request in just these words, and who uses what by it."""

    answer: Repeated
    use: Use


class Shelf:
    """Bounded: when it is full it is emptied, and fills again with what is asked for now."""

    def __init__(self) -> None:
        self._ready: dict[Key, Ready] = {}
        self._known: dict[bytes, Known] = {}  # by the whole request; bodies are those of `_ready`
        self._of_id: dict[int, list[Key | bytes]] = {}
        self._of_last_ids: list[Key | bytes] = []
        self._bodies_bytes = 0

    def find(self, key: Key) -> Ready | None:
        """The answer to a path and query."""
        return self._ready.get(key)

    def repeat(self, request: bytes) -> Known | None:
        """The answer to a request that came before."""
        return self._known.get(request)

    def keep(self, key: Key, ready: Ready) -> None:
        """Put up an answer."""
        if len(self._ready) >= ANSWERS_MAX or self._bodies_bytes >= BODIES_BYTES_MAX:
            self.clear()
        self._ready[key] = ready
        self._bodies_bytes += len(ready.body)
        self._index(key, ready)

    def remember(self, request: bytes, ready: Ready, known: Known) -> None:
        """Put up an answer under the whole request."""
        if len(self._known) >= ANSWERS_MAX:
            self.clear()
        self._known[request] = known
        self._index(request, ready)

    def _index(self, key: Key | bytes, ready: Ready) -> None:
        self._of_id.setdefault(ready.id, []).append(key)
        if ready.tells_last_id:
            self._of_last_ids.append(key)

    def on_event(self, event: Event) -> None:
        """Take down what is perhaps no longer so."""
        if isinstance(event, VersionStored):
            self._drop(self._of_id.pop(event.version.id, []))
            dropped, self._of_last_ids = self._of_last_ids, []
            self._drop(dropped)
        elif not isinstance(event, _HARMLESS):
            self.clear()

    def _drop(self, keys: list[Key | bytes]) -> None:
        for key in keys:
            if isinstance(key, bytes):
                self._known.pop(key, None)
            elif (gone := self._ready.pop(key, None)) is not None:
                self._bodies_bytes -= len(gone.body)

    def clear(self) -> None:
        """Take down everything."""
        self._ready.clear()
        self._known.clear()
        self._of_id.clear()
        self._of_last_ids.clear()
        self._bodies_bytes = 0
