"""Server-sent events: a response that does not end.

The pump writes to the connection directly, because a chunk that is framed once serves all streams
at its position; the ASGI calls begin and end the response. Once it has begun, a cluster that cannot
be reached is waited for: browsers do not reconnect after an error status.
"""

import asyncio
from abc import ABC, abstractmethod
from typing import Final

from starlette.responses import Response

from penstock.errors import Refused
from penstock.gateway.errors import GatewayError, as_gateway_error
from penstock.gateway.streams.feed import CHUNK_LIMIT, Subscription
from penstock.gateway.streams.group_reading import (
    GroupReading,
    GroupStreams,
    OnProcessed,
    OnUnreadableRecords,
)
from penstock.gateway.streams.partition_fetcher import Gap
from penstock.gateway.streams.resume_id import ResumeIdWriter
from penstock.gateway.streams.stream_credit import SEND_NOTHING, SendLimit
from penstock.gateway.streams.stream_frames import COMMENT, StreamChunk, StreamForm, sse_message
from penstock.gateway.streams.stream_hub import Offsets, StreamEnd, StreamHub, StreamStart, retry_ms
from penstock.gateway.streams.stream_messages import gap_fields, position_rows
from penstock.gateway.streams.stream_request import GroupRequest, StreamRequest
from penstock.gateway.streams.stream_socket import StreamSocket
from penstock.http.http_protocol import TRANSPORT
from penstock.http.site import Receive, Scope, Send

HEARTBEAT_S: Final = 15.0
MEDIA: Final = "text/event-stream"
_UNAVAILABLE: Final = 503
_RETRY_S: Final = 1.0
_FINISH_S: Final = 1.0  # for the last bytes of a stream that ends
_HEADERS: Final = [
    (b"content-type", MEDIA.encode()),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
]


class SseStream:
    """One client that listens."""

    def __init__(self, socket: StreamSocket, now_s: float, *, is_complete: bool) -> None:
        self.is_complete: bool = is_complete
        self.subscription: Subscription = Subscription(StreamForm.SSE, ())
        self.offsets: Offsets = ()
        self.ended: asyncio.Future[StreamEnd] = asyncio.get_running_loop().create_future()
        self._socket = socket
        self._written_s = now_s
        self._has_written = False  # since the last tick
        self._unsent_id: str | None = None  # of a position that moved without events

    def open(self, start: StreamStart, key: bytes | None, *, resumed: bool) -> None:
        """Say from where the stream goes on."""
        self._place(start, key)
        fields = {"resumed": resumed, "positions": position_rows(*start)}
        position_id = ResumeIdWriter(*start).text()
        self._write(sse_message(event="opened", position_id=position_id, fields=fields))

    def _place(
        self, start: StreamStart, key: bytes | None = None, *, hides_unreadable: bool = False
    ) -> None:
        self.subscription = Subscription(StreamForm.SSE, start.partitions, key, hides_unreadable)
        self.offsets = start.offsets

    def _write(self, content: bytes) -> None:
        self._socket.write(content)
        self._has_written = True

    def send_limit(self) -> SendLimit:
        """A whole chunk, or nothing."""
        return CHUNK_LIMIT if self._socket.can_write() else SEND_NOTHING

    def write_chunk(self, chunk: StreamChunk) -> None:
        """Write events."""
        if chunk.records:
            self._write(chunk.payload)
            self._unsent_id = None
        else:
            self._unsent_id = chunk.id

    def write_gap(self, gap: Gap, position_id: str) -> None:
        """Say that events are missing."""
        self._write(sse_message(event="gap", position_id=position_id, fields=gap_fields(gap)))

    def fail(self, failure: Exception) -> None:
        """End the stream: it cannot go on."""
        error = as_gateway_error(failure)
        self.end(StreamEnd(error.code, error.message))

    def end(self, reason: StreamEnd) -> None:
        """Say goodbye; the response ends."""
        if not self.ended.done():
            fields = {"code": reason.code, "message": reason.message}
            self._write(sse_message(event="close", fields=fields, retry_ms=retry_ms()))
            self.ended.set_result(reason)

    def tick(self, now_s: float) -> None:
        """A position that moved without events, or a comment after a silence."""
        self._socket.drop_if_vanished(now_s)
        if self._unsent_id is not None and self._socket.can_write():
            self._write(sse_message(position_id=self._unsent_id))
            self._unsent_id = None
        if self._has_written:
            self._has_written, self._written_s = False, now_s
        elif now_s - self._written_s >= HEARTBEAT_S and self._socket.can_write():
            self._written_s = now_s
            self._socket.write(COMMENT)

    def in_flight_bytes(self) -> int:
        """Written and not acknowledged."""
        return self._socket.in_flight_bytes()


class SseGroupStream(SseStream):
    """One client that listens as a member of a consumer group."""

    def __init__(self, socket: StreamSocket, now_s: float) -> None:
        super().__init__(socket, now_s, is_complete=False)
        self.is_held: bool = False
        self.on_sent: OnProcessed | None = None
        self.on_unreadable: OnUnreadableRecords | None = None

    def send_limit(self) -> SendLimit:
        """Nothing while it is held."""
        return SEND_NOTHING if self.is_held else super().send_limit()

    def assign(self, start: StreamStart, member: str, *, hides_unreadable: bool) -> None:
        """Say which partitions it reads from now on."""
        self._place(start, hides_unreadable=hides_unreadable)
        fields = {"member": member, "positions": position_rows(*start)}
        self._write(sse_message(event="assigned", fields=fields))

    def revoke(self) -> None:
        """Say that it reads none."""
        self._place(StreamStart((), ()))
        self._write(sse_message(event="revoked", fields={}))

    def write_chunk(self, chunk: StreamChunk) -> None:
        """Write events; they count as processed where the client chose that."""
        super().write_chunk(chunk)
        if chunk.unreadable and self.on_unreadable is not None:
            self.on_unreadable(chunk.unreadable)
        if self.on_sent is not None:
            self.on_sent(chunk.after)


class SseResponse(Response, ABC):
    """A response that streams to one client until it leaves or the stream ends."""

    def __init__(self, hub: StreamHub, client: str) -> None:
        super().__init__()
        self._hub = hub
        self._client = client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI calls it."""
        hub = self._hub
        transport = scope["extensions"][TRANSPORT]["transport"]
        with hub.admitted(self._client):
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            socket = StreamSocket(transport, hub.in_flight_bytes_max)
            socket.write(sse_message(retry_ms=retry_ms()))
            serving = asyncio.create_task(self._serve(socket))
            disconnected = asyncio.create_task(until_disconnect(receive))
            try:
                await asyncio.wait((serving, disconnected), return_when=asyncio.FIRST_COMPLETED)
            finally:
                serving.cancel()
                disconnected.cancel()
                await asyncio.wait((serving, disconnected))
        await finish_response(send, socket)

    @abstractmethod
    async def _serve(self, socket: StreamSocket) -> None:
        """Serve until the stream ends."""


class SseTopicResponse(SseResponse):
    """The response to a request for a stream of topics."""

    def __init__(
        self, hub: StreamHub, request: StreamRequest, start: StreamStart | None, client: str
    ) -> None:
        """Without a start, the response begins and the cluster is waited for."""
        super().__init__(hub, client)
        self._request = request
        self._start = start

    async def _serve(self, socket: StreamSocket) -> None:
        now_s = asyncio.get_running_loop().time()
        stream = SseStream(socket, now_s, is_complete=self._request.partitions is None)
        with self._hub.attached(stream):
            start = await self._start_of(stream)
            if start is not None:
                resumed = self._request.resume_id is not None
                stream.open(start, self._request.key, resumed=resumed)
                self._hub.pump.add(stream)
            await stream.ended

    async def _start_of(self, stream: SseStream) -> StreamStart | None:
        start = self._start
        while start is None:
            try:
                start = await self._hub.start_of(self._request)
            except (GatewayError, Refused, OSError) as failure:
                if as_gateway_error(failure).status != _UNAVAILABLE:
                    stream.fail(failure)
                    return None
                await asyncio.sleep(_RETRY_S)
        return start


class SseGroupResponse(SseResponse):
    """The response to a request for a stream of a consumer group."""

    def __init__(self, groups: GroupStreams, request: GroupRequest, client: str) -> None:
        super().__init__(groups.hub, client)
        self._groups = groups
        self._request = request

    async def _serve(self, socket: StreamSocket) -> None:
        stream = SseGroupStream(socket, asyncio.get_running_loop().time())
        reading = GroupReading(self._groups, self._request.reads, stream)
        stream.on_unreadable = reading.on_unreadable
        if self._request.commits_sent:
            stream.on_sent = reading.on_processed
        with self._hub.attached(stream):
            async with reading.running():
                await stream.ended


async def until_disconnect(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def finish_response(send: Send, socket: StreamSocket) -> None:
    """End a response; a client that does not take the last bytes is cut off."""
    try:
        async with asyncio.timeout(_FINISH_S):
            await send({"type": "http.response.body", "body": b"", "more_body": False})
    except TimeoutError:
        socket.abort()
