"""A slow wire for tests: a port that sends everything on to another, later.

It never changes, drops or reorders bytes: what goes in comes out after the delay, in both
directions. It runs on a thread of its own; each connection holds a bounded amount of what is on
its way, and reads no more until that has left.
"""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, TypeAlias

CHUNK_BYTES: Final = 64 << 10
CHUNKS_MAX: Final = 256  # on the way in one direction; beyond that the sender waits
START_S: Final = 10.0
SETTLING_TURNS: Final = 5  # of the loop, from an accepted socket to the task that serves it

OnTheWay: TypeAlias = asyncio.Queue[tuple[float, bytes]]  # when it is due, and what; b"": the end


class SlowLink:
    """Listens on a port of loopback; `target` may change, for connections made from then on."""

    def __init__(self, port: int, *, latency_ms: int) -> None:
        self.latency_ms = latency_ms
        self.target = 0
        self._port = port
        self._pumps: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="slow link")
        self._thread.start()
        self._server = self._call(self._listen())

    def close(self) -> None:
        """Drop every connection and give the port back."""
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(START_S)

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._on_client, "127.0.0.1", self._port)

    async def _close(self) -> None:
        self._server.close()
        await self._settle()  # who was let in at the last moment begins, so that it can be ended
        for pump in tuple(self._pumps):
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        await self._settle()  # what was aborted is closed in a turn of its own

    async def _settle(self) -> None:
        for _ in range(SETTLING_TURNS):
            await asyncio.sleep(0)

    async def _on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pumps.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):
                await self._join(reader, writer)
        finally:
            self._pumps.discard(task)
            writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        there: OnTheWay = asyncio.Queue(CHUNKS_MAX)
        back: OnTheWay = asyncio.Queue(CHUNKS_MAX)
        ways = [
            asyncio.create_task(work)
            for work in (
                self._take(reader, there), self._deliver(there, far_writer),
                self._take(far_reader, back), self._deliver(back, writer),
            )
        ]  # fmt: skip
        try:  # the first delivery to end is the end of both directions
            await asyncio.wait([ways[1], ways[3]], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            far_writer.transport.abort()

    async def _take(self, source: asyncio.StreamReader, on_the_way: OnTheWay) -> None:
        chunk = b" "
        while chunk:
            try:
                chunk = await source.read(CHUNK_BYTES)
            except OSError:
                chunk = b""  # torn off: for the other side it has ended
            await on_the_way.put((self._loop.time() + self.latency_ms / 1000, chunk))

    async def _deliver(self, on_the_way: OnTheWay, sink: asyncio.StreamWriter) -> None:
        while True:
            due_s, chunk = await on_the_way.get()
            await asyncio.sleep(due_s - self._loop.time())
            if not chunk:
                return
            sink.write(chunk)
            await sink.drain()
