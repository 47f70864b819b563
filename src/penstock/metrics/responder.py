"""A small HTTP server for `/metrics` and the health paths, on the event loop of what it describes.

It serves GET and HEAD of a few paths and nothing else, and needs no web framework. A scrape gives
the loop back every 2 ms. A health path says nothing but its status, to anyone; the others refuse
what the owner's rule about hosts and pages of other sites refuses.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter
from typing import Final, NamedTuple, TypeAlias

from penstock.metrics.text_format import CONTENT_TYPE

TURN_S: Final = 0.002  # of one scrape, before others have their turn
CONNECTIONS_MAX: Final = 32  # one more is closed
HEAD_BYTES_MAX: Final = 16 << 10
IDLE_S: Final = 120.0  # then a connection is closed

# Turns of the event loop: the transport of an accepted socket, its protocol, the task that serves.
_TURNS_TO_BEGIN: Final = 3
_TURNS_TO_END: Final = 3  # the transport, the task that serves, its own end

_OK: Final = "200 OK"
_UNAVAILABLE: Final = "503 Service Unavailable"


# Method, path and headers: why a request is refused, or None.
Refusal: TypeAlias = Callable[[str, str, Iterable[tuple[bytes, bytes]]], str | None]


class ServedState(NamedTuple):
    """What the paths return, read on each request."""

    text: Callable[[], Iterable[str]]
    is_live: Callable[[], bool]
    is_ready: Callable[[], bool]
    refusal: Refusal


class MetricsResponder:
    """Serves from `listen` to `close`."""

    def __init__(self, state: ServedState) -> None:
        self._state = state
        self._server: asyncio.Server | None = None
        self._is_closing = False
        self.connections: set[asyncio.StreamWriter] = set()
        self.turn_max_s: float = 0.0  # the longest turn of any scrape

    async def listen(self, host: str, port: int) -> int:
        """Serve; returns the port, which is chosen if 0 was given. OSError if it is in use."""
        self._server = await asyncio.start_server(
            self._serve, host, port, limit=HEAD_BYTES_MAX, backlog=CONNECTIONS_MAX
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop accepting, let what was accepted begin, then close all of it.

        On the standard loop of CPython 3.11 a connection that begins after `Server.close` stays
        open, without an owner.
        """
        self._is_closing = True
        if self._server is not None:
            loop = asyncio.get_running_loop()
            for listener in self._server.sockets:
                loop.remove_reader(listener.fileno())
            for _ in range(_TURNS_TO_BEGIN):
                await asyncio.sleep(0)
            self._server.close()
        for writer in tuple(self.connections):
            writer.close()
        for _ in range(_TURNS_TO_END):
            await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_closing or len(self.connections) >= CONNECTIONS_MAX:
            writer.close()
            return
        self.connections.add(writer)
        is_open = True
        try:
            while is_open:
                is_open = await self._serve_one(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return  # a client that left, or that sends something else than HTTP
        finally:
            self.connections.discard(writer)
            with contextlib.suppress(OSError):
                writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; whether the connection stays open."""
        async with asyncio.timeout(IDLE_S):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        method, _, rest = head.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        status, body = await self._respond(method, path, head)
        keeps = "connection: close" not in head and "content-length:" not in head
        lines = [
            f"HTTP/1.1 {status}",
            f"Content-Type: {CONTENT_TYPE}",
            f"Content-Length: {len(body)}",
            f"Connection: {'keep-alive' if keeps else 'close'}",
        ]
        writer.write("\r\n".join((*lines, "\r\n")).encode())
        if method != "head":
            writer.write(body)
        async with asyncio.timeout(IDLE_S):
            await writer.drain()
        return keeps

    async def _respond(self, method: str, path: str, head: str) -> tuple[str, bytes]:
        state = self._state
        if method not in ("get", "head"):
            return "405 Method Not Allowed", b""
        if path == "/health/live":
            return (_OK if state.is_live() else _UNAVAILABLE), b""
        if path == "/health/ready":
            return (_OK if state.is_ready() else _UNAVAILABLE), b""
        reason = state.refusal(method.upper(), path, _headers(head))
        if reason is not None:
            return "403 Forbidden", f"{reason}\n".encode()
        if path == "/metrics":
            return _OK, await self._text()
        return "404 Not Found", b""

    async def _text(self) -> bytes:
        text, self_turn_max_s = await in_turns(self._state.text())
        self.turn_max_s = max(self.turn_max_s, self_turn_max_s)
        return text.encode()


def _headers(head: str) -> Iterator[tuple[bytes, bytes]]:
    for line in head.split("\r\n")[1:]:
        name, _, value = line.encode("latin-1").partition(b":")
        yield name.strip(), value.strip()


async def in_turns(pieces: Iterable[str]) -> tuple[str, float]:
    """Join the pieces, and give the loop back every 2 ms; the text and the longest turn."""
    text, turn_max_s = [], 0.0
    began_s = perf_counter()
    for piece in pieces:
        text.append(piece)
        now_s = perf_counter()
        if now_s - began_s > TURN_S:
            turn_max_s = max(turn_max_s, now_s - began_s)
            await asyncio.sleep(0)
            began_s = perf_counter()
    return "".join(text), max(turn_max_s, perf_counter() - began_s)
