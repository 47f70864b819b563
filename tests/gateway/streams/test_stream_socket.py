"""A client that does not read and lives: it stays, although its window is closed."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.gateway.streams.stream_socket import StreamSocket

VANISHED_S = 1.8  # a kernel responds to probes of a closed window every 0.5 s at most
STALLED_S = 4.0
CHUNK = bytes(64 << 10)
CHUNKS = 20


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[StreamSocket, socket.socket, asyncio.Transport]]:
    """A stream's connection over TCP, and the client's end of it."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
        client.connect(server.getsockname())
        accepted, _ = server.accept()
        transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, accepted)
        yield StreamSocket(transport, 1 << 20, vanished_s=VANISHED_S), client, transport
        transport.abort()


async def stall(stream: StreamSocket, duration_s: float) -> None:
    """Tick as the hub does, several times in the time after which a client has vanished."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + duration_s
    while loop.time() < end_s:
        stream.drop_if_vanished(loop.time())
        await asyncio.sleep(0.02)


def test_a_client_that_does_not_read_stays_and_gets_everything_when_it_reads_again() -> None:
    async def run() -> int:
        async with connected() as (stream, client, transport):
            for _ in range(CHUNKS):
                stream.write(CHUNK)
            await stall(stream, STALLED_S)
            assert not transport.is_closing(), "a client that lives was dropped"
            assert stream.in_flight_bytes() > 0
            client.setblocking(False)
            loop, size = asyncio.get_running_loop(), 0
            while size < CHUNKS * len(CHUNK):
                content = await loop.sock_recv(client, 1 << 20)
                assert content, "the connection was closed"
                size += len(content)
            return size

    assert asyncio.run(run()) == CHUNKS * len(CHUNK)
