"""What a stream writes when there are no events."""

import asyncio
import socket

from penstock.gateway.streams.feed import Subscription
from penstock.gateway.streams.sse import HEARTBEAT_S, SseStream
from penstock.gateway.streams.stream_frames import COMMENT, StreamChunk, StreamForm
from penstock.gateway.streams.stream_hub import StreamStart
from penstock.gateway.streams.stream_socket import StreamSocket
from penstock.model import Offset, TopicPartition

ORDERS = TopicPartition("orders", 0)


async def written_after(*ticks_s: float, chunk: StreamChunk | None = None) -> list[bytes]:
    """What a stream that was opened at 0 s writes at each tick."""
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, ours)
    stream = SseStream(StreamSocket(transport, 1 << 20), 0.0, is_complete=True)
    stream.open(StreamStart((ORDERS,), (Offset(0),)), None, resumed=False)
    assert stream.subscription == Subscription(StreamForm.SSE, (ORDERS,))
    theirs.setblocking(False)
    await loop.sock_recv(theirs, 1 << 16)
    if chunk is not None:
        stream.write_chunk(chunk)
    written = []
    for tick_s in ticks_s:
        stream.tick(tick_s)
        await asyncio.sleep(0)
        try:
            written.append(theirs.recv(1 << 16))
        except BlockingIOError:
            written.append(b"")
    transport.close()
    theirs.close()
    return written


def test_a_comment_comes_after_a_silence_of_fifteen_seconds() -> None:
    assert HEARTBEAT_S == 15
    ticks = asyncio.run(written_after(1, 15, 16, 17, 30, 31))
    assert ticks == [b"", b"", COMMENT, b"", b"", COMMENT]


def test_an_id_without_data_comes_when_the_position_moved_without_events() -> None:
    chunk = StreamChunk(b"", 0, 0, (Offset(0),), (Offset(9),), "id-9")
    first, second = asyncio.run(written_after(1, 2, chunk=chunk))
    assert first == b"a\r\nid: id-9\n\n\r\n"
    assert second == b""
