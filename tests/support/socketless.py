"""A connection of the broker without a socket: bytes in, responses counted and kept."""

import asyncio
from typing import Any, cast

from penstock.broker.client_connection import ClientConnection
from penstock.broker.listener import Listener


class Transport:
    """Takes what a connection writes, and counts it."""

    def __init__(self) -> None:
        self.sent_bytes = 0
        self.last: bytes = b""
        self.is_paused = False

    def write(self, response: bytes) -> None:
        self.sent_bytes += len(response)
        self.last = response

    def writelines(self, pieces: list[bytes]) -> None:
        self.sent_bytes += sum(map(len, pieces))
        self.last = pieces[0]

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else self

    def setsockopt(self, *_: int) -> None: ...
    def set_write_buffer_limits(self, **_: int) -> None: ...

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def close(self) -> None: ...
    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


class SocketlessConnection:
    """A client's connection and the one way to give it bytes."""

    def __init__(self, listener: Listener) -> None:
        self.transport = Transport()
        self.connection = ClientConnection(listener)
        self.connection.connection_made(cast("asyncio.Transport", self.transport))

    def receive(self, content: bytes) -> None:
        """As the event loop does: as much at a time as fits the buffer."""
        connection, position = self.connection, 0
        while position < len(content):
            buffer = connection.get_buffer(-1)
            size = min(len(buffer), len(content) - position)
            buffer[:size] = content[position : position + size]
            connection.buffer_updated(size)
            position += size

    async def drain(self) -> None:
        """Let the event loop turn until the connection reads again: it handled all that came."""
        while self.transport.is_paused:  # noqa: ASYNC110 - it takes a turn
            await asyncio.sleep(0)

    def close(self) -> None:
        """Leave the server as a client that disconnects."""
        self.connection.connection_lost(None)
