"""Below ASGI: a request that came before, byte for byte, is answered without being parsed again.

A consumer asks for the same ids in the same words for ever, and parsing and scheduling cost many
times what the answer does. What is answered so, and for how long, is `Front`'s to say; this only
hands it what was received, and only when that is one whole request on a connection at rest.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

REQUEST: Final = "penstock.request"  # among a scope's extensions: the request as it was received
REQUEST_BYTES_MAX: Final = 2048
_HOT: Final = b"GET /schemas/ids/"
_STATUS: Final = b"HTTP/1.1 200 OK\r\n"


class Repeated(NamedTuple):
    """An answer with 200: its own headers up to the empty line, and its body."""

    head: bytes
    body: bytes


Repeat = Callable[[bytes], Repeated | None]


class RepeatingProtocol(HttpToolsProtocol):
    """uvicorn's protocol with a short way for what was asked before."""

    def __init__(self, repeat: Repeat, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._repeat = repeat
        self._requests_begun = 0
        self._is_between = True  # not inside of a request
        self._used_at_s = 0.0
        self._common: tuple[object, bytes] = (None, b"")

    def data_received(self, data: bytes) -> None:
        """As asyncio calls it."""
        if not data.startswith(_HOT) or not self._is_at_rest():
            super().data_received(data)
            return
        known = self._repeat(data)
        if known is None:
            self._receive_new(data)
        else:
            self.transport.write(b"".join((self._common_head(), known.head, known.body)))
            self.server_state.total_requests += 1
            self._used_at_s = self.loop.time()

    def _is_at_rest(self) -> bool:
        if not self._is_between or self.pipeline or self.flow.write_paused:
            return False
        return self._requests_begun == 0 or self.cycle.response_complete

    def _receive_new(self, data: bytes) -> None:
        """If it is one whole request and the connection stays, the application may remember it."""
        begun = self._requests_begun
        super().data_received(data)
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
        super().on_message_begin()

    def on_message_complete(self) -> None:
        """As the parser calls it."""
        self._is_between = True
        super().on_message_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Repeated requests do not move the timer; it asks when it goes off."""
        idle_s = self.loop.time() - self._used_at_s
        if idle_s >= self.timeout_keep_alive:
            super().timeout_keep_alive_handler()
        else:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive - idle_s, self.timeout_keep_alive_handler
            )
