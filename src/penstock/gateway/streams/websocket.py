"""WebSocket streams: records against credit, acknowledgements, seek, pause.

A client's messages are handled in order; records go out between them. What is in flight is what was
sent and not acknowledged by the client's messages, and what the kernel has not had acknowledged:
both are bounded.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Final, assert_never

from starlette.websockets import WebSocket

from penstock.errors import Refused
from penstock.gateway.errors import GatewayError, as_gateway_error, bad_request
from penstock.gateway.streams.feed import Subscription
from penstock.gateway.streams.group_reading import (
    GroupReading,
    GroupStreams,
    OnProcessed,
    OnUnreadableRecords,
)
from penstock.gateway.streams.partition_fetcher import Gap
from penstock.gateway.streams.resume_id import ResumeIdWriter
from penstock.gateway.streams.stream_credit import SEND_NOTHING, SendLimit, StreamCredit
from penstock.gateway.streams.stream_frames import (
    StreamChunk,
    StreamForm,
    records_head,
    websocket_message,
)
from penstock.gateway.streams.stream_hub import Offsets, StreamEnd, StreamHub, StreamStart, retry_ms
from penstock.gateway.streams.stream_messages import (
    AcknowledgeRecords,
    GrantCredit,
    PartitionPosition,
    PauseStream,
    ResumeStream,
    SeekStream,
    ServerMessage,
    StreamAssigned,
    StreamClosing,
    StreamError,
    StreamGap,
    StreamMoved,
    StreamOpened,
    StreamRevoked,
    StreamSeeked,
    gap_fields,
    position_rows,
    read_client_message,
)
from penstock.gateway.streams.stream_request import (
    LATEST,
    GroupRequest,
    LogRange,
    StreamRequest,
    check_in_range,
)
from penstock.gateway.streams.stream_socket import StreamSocket
from penstock.http.http_protocol import TRANSPORT
from penstock.model import Millis, Offset, TopicPartition

SERVICE_RESTART: Final = 1012
INTERNAL_ERROR: Final = 1011
_FINISH_S: Final = 1.0


class WebSocketStream:
    """One client that is connected."""

    def __init__(
        self, socket: StreamSocket, in_flight_bytes_max: int, *, is_complete: bool
    ) -> None:
        self.is_complete: bool = is_complete
        self.subscription: Subscription = Subscription(StreamForm.WEBSOCKET, ())
        self.offsets: tuple[Offset, ...] = ()
        self.credit: Final = StreamCredit(in_flight_bytes_max)
        self.ended: asyncio.Future[StreamEnd] = asyncio.get_running_loop().create_future()
        self._socket = socket
        self._unsent_id: str | None = None

    def place(
        self, start: StreamStart, key: bytes | None, *, hides_unreadable: bool = False
    ) -> None:
        """Where the stream goes on."""
        form = StreamForm.WEBSOCKET
        self.subscription = Subscription(form, start.partitions, key, hides_unreadable)
        self.offsets = start.offsets
        self._unsent_id = None

    @property
    def id(self) -> str:
        """The resume id of the position."""
        return ResumeIdWriter(self.subscription.partitions, self.offsets).text()

    @property
    def positions(self) -> list[PartitionPosition]:
        """The position, as clients see it."""
        return position_rows(self.subscription.partitions, self.offsets)

    def send(self, message: ServerMessage) -> None:
        """Send a control message, which needs no credit."""
        self._socket.write(websocket_message(message))

    def send_limit(self) -> SendLimit:
        """What credit, acknowledgements and the connection allow."""
        return self.credit.send_limit() if self._socket.can_write() else SEND_NOTHING

    def write_chunk(self, chunk: StreamChunk) -> None:
        """Send records."""
        if not chunk.records:
            self._unsent_id = chunk.id
            return
        number = self.credit.send(chunk.records, chunk.size_bytes, chunk.after)
        self._socket.write(records_head(self.credit.epoch, number), chunk.payload)
        self._unsent_id = None

    def write_gap(self, gap: Gap, position_id: str) -> None:
        """Say that events are missing."""
        self.send(StreamGap(**gap_fields(gap), id=position_id))

    def fail(self, failure: Exception) -> None:
        """End the stream: it cannot go on."""
        error = as_gateway_error(failure)
        self.end(StreamEnd(error.code, error.message))

    def end(self, reason: StreamEnd) -> None:
        """Say goodbye; the connection is closed."""
        if not self.ended.done():
            self.send(StreamClosing(reason.code, reason.message, retry_ms()))
            self.ended.set_result(reason)

    def tick(self, now_s: float, /) -> None:
        """A position that moved without events; the connection has pings of its own."""
        self._socket.drop_if_vanished(now_s)
        if self._unsent_id is not None and self._socket.can_write():
            self.send(StreamMoved(self._unsent_id))
            self._unsent_id = None

    def in_flight_bytes(self) -> int:
        """Sent and not acknowledged by the client."""
        return self.credit.unacknowledged_bytes

    def abort(self) -> None:
        """Cut the connection."""
        self._socket.abort()


class WebSocketGroupStream(WebSocketStream):
    """One client that is connected as a member of a consumer group."""

    is_held: bool = False
    on_processed: OnProcessed | None = None
    on_unreadable: OnUnreadableRecords | None = None

    def send_limit(self) -> SendLimit:
        """Nothing while it is held."""
        return SEND_NOTHING if self.is_held else super().send_limit()

    def write_chunk(self, chunk: StreamChunk) -> None:
        """Send records; a position that moved without any is processed when all before it is."""
        super().write_chunk(chunk)
        if chunk.unreadable and self.on_unreadable is not None:
            self.on_unreadable(chunk.unreadable)
        if not chunk.records and self.on_processed is not None:
            offsets = self.credit.skip(chunk.after)
            if offsets is not None:
                self.on_processed(offsets)

    def assign(self, start: StreamStart, member: str, *, hides_unreadable: bool) -> None:
        """Say which partitions it reads from now on, in an epoch of their own."""
        self.place(start, None, hides_unreadable=hides_unreadable)
        self.send(StreamAssigned(self.credit.seek(), member, self.positions))

    def revoke(self) -> None:
        """Say that it reads none."""
        self.place(StreamStart((), ()), None)
        self.credit.seek()
        self.send(StreamRevoked())


class WebSocketSession(ABC):
    """Handles the messages of one client."""

    def __init__(self, hub: StreamHub, stream: WebSocketStream) -> None:
        self._hub = hub
        self._stream = stream

    @abstractmethod
    async def _seek(self, message: SeekStream) -> None:
        """Continue at another place, or refuse to."""

    @abstractmethod
    def _on_processed(self, offsets: Offsets) -> None:
        """Everything before this position is acknowledged."""

    async def on_message(self, text: str | bytes) -> None:
        """Handle one message; one that is refused is reported, and the stream goes on."""
        stream = self._stream
        try:
            message = read_client_message(text)
            match message:
                case GrantCredit(records, size_bytes):
                    stream.credit.grant(records, size_bytes)
                case AcknowledgeRecords(number):
                    offsets = stream.credit.acknowledge(number)
                    if offsets is not None:
                        self._on_processed(offsets)
                case SeekStream():
                    await self._seek(message)
                case PauseStream():
                    stream.credit.is_paused = True
                case ResumeStream():
                    stream.credit.is_paused = False
                case _:
                    assert_never(message)
        except (GatewayError, Refused, OSError) as failure:
            error = as_gateway_error(failure)
            stream.send(StreamError(error.code, error.message))
        self._hub.pump.wake(stream)


class GroupSession(WebSocketSession):
    """The messages of a client of a group's stream."""

    def __init__(self, hub: StreamHub, stream: WebSocketStream, on_processed: OnProcessed) -> None:
        super().__init__(hub, stream)
        self._report = on_processed

    async def _seek(self, _message: SeekStream) -> None:
        raise bad_request("a stream of a consumer group cannot seek: the group has the position")

    def _on_processed(self, offsets: Offsets) -> None:
        self._report(offsets)


class TopicSession(WebSocketSession):
    """The messages of a client of a stream of topics."""

    def __init__(self, hub: StreamHub, stream: WebSocketStream, request: StreamRequest) -> None:
        super().__init__(hub, stream)
        self._request = request

    def _on_processed(self, offsets: Offsets) -> None:
        """Only the client knows its position, by the id."""

    async def _seek(self, message: SeekStream) -> None:
        stream, pump = self._stream, self._hub.pump
        pump.remove(stream)  # no record of the old position after this
        try:
            offsets = await self._offsets_of(message)
        except BaseException:
            pump.add(stream)
            raise
        stream.place(StreamStart(stream.subscription.partitions, offsets), self._request.key)
        epoch = stream.credit.seek()
        stream.send(StreamSeeked(epoch, stream.id, stream.positions))
        pump.add(stream)

    async def _offsets_of(self, message: SeekStream) -> tuple[Offset, ...]:
        given = [message.id, message.offset, message.timestamp, message.positions]
        if sum(each is not None for each in given) != 1:
            raise bad_request("seek needs exactly one of id, offset, timestamp and positions")
        partitions = self._stream.subscription.partitions
        if message.positions is not None:
            ranges = await self._hub.ranges(partitions)
            return self._moved(message.positions, ranges)
        request = StreamRequest(
            self._request.topics,
            self._request.partitions,
            offset=LATEST if message.offset is None else _offset(message.offset),
            timestamp=None if message.timestamp is None else Millis(message.timestamp),
            resume_id=message.id,
        )
        return await self._hub.offsets_of(request, partitions)

    def _moved(
        self, positions: Iterable[PartitionPosition], ranges: dict[TopicPartition, LogRange]
    ) -> tuple[Offset, ...]:
        """The stream's offsets with these; partitions that are not named stay."""
        partitions = self._stream.subscription.partitions
        offsets = dict(zip(partitions, self._stream.offsets, strict=True))
        for each in positions:
            partition = TopicPartition(each.topic, each.partition)
            if partition not in offsets:
                raise bad_request(f"{partition} is not part of this stream")
            check_in_range(partition, each.offset, ranges[partition])
            offsets[partition] = Offset(each.offset)
        return tuple(offsets.values())


def _offset(given: str | int) -> str | Offset:
    return given if isinstance(given, str) else Offset(given)


async def serve_websocket(
    hub: StreamHub, request: StreamRequest, start: StreamStart, websocket: WebSocket, client: str
) -> None:
    """Accept a client and serve it until it or the gateway leaves."""
    with hub.admitted(client):
        await websocket.accept()
        transport = websocket.scope["extensions"][TRANSPORT]["transport"]
        socket = StreamSocket(transport, hub.in_flight_bytes_max)
        is_complete = request.partitions is None
        stream = WebSocketStream(socket, hub.in_flight_bytes_max, is_complete=is_complete)
        stream.place(start, request.key)
        with hub.attached(stream):
            resumed = request.resume_id is not None
            stream.send(StreamOpened(stream.id, resumed, stream.positions))
            hub.pump.add(stream)
            session = TopicSession(hub, stream, request)
            await serve_messages(session, stream, websocket)


async def serve_group(
    groups: GroupStreams, request: GroupRequest, websocket: WebSocket, client: str
) -> None:
    """Accept a client as a member of a group, and serve it until it or the gateway leaves."""
    hub = groups.hub
    with hub.admitted(client):
        await websocket.accept()
        transport = websocket.scope["extensions"][TRANSPORT]["transport"]
        socket = StreamSocket(transport, hub.in_flight_bytes_max)
        stream = WebSocketGroupStream(socket, hub.in_flight_bytes_max, is_complete=False)
        reading = GroupReading(groups, request.reads, stream)
        stream.on_processed, stream.on_unreadable = reading.on_processed, reading.on_unreadable
        with hub.attached(stream):
            async with reading.running():
                session = GroupSession(hub, stream, reading.on_processed)
                await serve_messages(session, stream, websocket)


async def serve_messages(
    session: WebSocketSession, stream: WebSocketStream, websocket: WebSocket
) -> None:
    """Until the client leaves or the stream ends."""
    receiving = asyncio.create_task(_receive(session, websocket))
    try:
        await asyncio.wait((receiving, stream.ended), return_when=asyncio.FIRST_COMPLETED)
    finally:
        receiving.cancel()
    if receiving.done() and not receiving.cancelled():
        receiving.result()  # a bug is raised
        return
    code = SERVICE_RESTART if stream.ended.result().code == "stopping" else INTERNAL_ERROR
    try:
        async with asyncio.timeout(_FINISH_S):
            await websocket.close(code, stream.ended.result().code)
    except TimeoutError:
        stream.abort()


async def _receive(session: WebSocketSession, websocket: WebSocket) -> None:
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return
        await session.on_message(message.get("text") or message.get("bytes") or b"")
