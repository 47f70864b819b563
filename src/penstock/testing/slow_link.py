"""A slow network for tests: a port that forwards everything to another port, later.

Bytes are never changed, dropped or reordered: they arrive after the delay, in both directions. The
link runs on its own thread. Each connection buffers a bounded amount and then stops reading.

It works on plain sockets, accepted by a callback of the loop: on CPython 3.11 an `asyncio.Server`
that is closed while clients connect leaves the last ones behind, open and without an owner.
"""

import asyncio
import socket
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, TypeAlias

BACKLOG: Final = 1024
CHUNK_BYTES: Final = 64 << 10
CHUNKS_MAX: Final = 256  # in flight in one direction; beyond that the sender waits
CALL_S: Final = 10.0

InFlight: TypeAlias = asyncio.Queue[tuple[float, bytes]]  # when it is due, and what; b"": the end


class SlowLink:
    """Listens on a loopback port; a changed `target` is used by connections made from then on."""

    def __init__(self, port: int, *, latency_ms: int) -> None:
        self.latency_ms = latency_ms
        self.target = 0
        self._listener = socket.create_server(("127.0.0.1", port), backlog=BACKLOG)
        self._listener.setblocking(False)
        self._connections: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._loop.add_reader(self._listener, self._accept)
        self._thread = threading.Thread(target=self._loop.run_forever, name="slow link")
        self._thread.start()

    def close(self) -> None:
        """Drop every connection and release the port."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(CALL_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        assert not self._connections, "a connection outlived its link"

    async def _close(self) -> None:
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self) -> None:
        with suppress(OSError):  # the client has left again
            near, _ = self._listener.accept()
            near.setblocking(False)
            task = self._loop.create_task(self._serve(near))
            self._connections.add(task)
            # Here, not in `_serve`: a task that is cancelled before its first step never runs.
            task.add_done_callback(lambda _: near.close())
            task.add_done_callback(self._connections.discard)

    async def _serve(self, near: socket.socket) -> None:
        with socket.socket() as far, suppress(OSError):
            far.setblocking(False)
            await self._loop.sock_connect(far, ("127.0.0.1", self.target))
            there: InFlight = asyncio.Queue(CHUNKS_MAX)
            back: InFlight = asyncio.Queue(CHUNKS_MAX)
            await _until_first_delivery_ends(
                deliveries=(self._deliver(there, far), self._deliver(back, near)),
                receivers=(self._receive(near, there), self._receive(far, back)),
            )

    async def _receive(self, source: socket.socket, in_flight: InFlight) -> None:
        chunk = b" "
        while chunk:
            try:
                chunk = await self._loop.sock_recv(source, CHUNK_BYTES)
            except OSError:
                chunk = b""  # a reset is the end of the stream for the other side
            await in_flight.put((self._loop.time() + self.latency_ms / 1000, chunk))

    async def _deliver(self, in_flight: InFlight, sink: socket.socket) -> None:
        while True:
            due_s, chunk = await in_flight.get()
            await asyncio.sleep(due_s - self._loop.time())
            if not chunk:
                return
            await self._loop.sock_sendall(sink, chunk)


async def _until_first_delivery_ends(
    deliveries: tuple[Coroutine[Any, Any, None], ...],
    receivers: tuple[Coroutine[Any, Any, None], ...],
) -> None:
    """Run all; the first delivery that ends, ends both directions."""
    ends = [asyncio.create_task(work) for work in deliveries]
    tasks = [*ends, *(asyncio.create_task(work) for work in receivers)]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
