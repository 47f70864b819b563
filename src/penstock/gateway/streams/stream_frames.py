"""The bytes of streams: server-sent events in HTTP chunks, and WebSocket frames.

A chunk is framed once and its bytes are written to every stream at its position. A WebSocket
message has two fragments, a head of the stream's own (epoch, number) and the shared rest. Pure.
"""

from enum import Enum
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from penstock.gateway.events import UnreadableRecord
from penstock.model import Offset, TopicPartition

_FIN: Final = 0x80
_TEXT: Final = 0x01
_CONTINUATION: Final = 0x00
_SHORT_BYTES_MAX: Final = 125
_SHORT: Final = Struct(">BB")
_MEDIUM: Final = Struct(">BBH")
_MEDIUM_BYTES_MAX: Final = 0xFFFF
_LONG: Final = Struct(">BBQ")
_encode: Final = msgspec.json.Encoder().encode

COMMENT: Final = b"3\r\n:\n\n\r\n"  # keeps proxies from closing an idle stream


UnreadableRow: TypeAlias = tuple[TopicPartition, UnreadableRecord]


class StreamForm(Enum):
    """How a stream reaches its client."""

    SSE = "server-sent events"
    WEBSOCKET = "WebSocket"


class FramedEvent(NamedTuple):
    """An event and the position after it."""

    id: str
    text: bytes


class StreamChunk(NamedTuple):
    """Events for all streams at one position, framed."""

    payload: bytes  # empty: the position moved, and no event is for these streams
    records: int
    size_bytes: int  # of the events; what byte credit counts
    before: tuple[Offset, ...]
    after: tuple[Offset, ...]
    id: str  # of the position after it
    unreadable: tuple[UnreadableRow, ...] = ()  # hidden from the client


def frame_events(form: StreamForm, events: list[FramedEvent]) -> bytes:
    """Some events in one write; at least one."""
    if form is StreamForm.SSE:
        return http_chunk(
            b"".join(
                [
                    b"id: %b\ndata: %b\n\n" % (position_id.encode(), text)
                    for position_id, text in events
                ]
            )
        )
    texts = b",".join([event.text for event in events])
    return _frame(
        _CONTINUATION | _FIN, b'"id":"%b","events":[%b]}' % (events[-1].id.encode(), texts)
    )


def sse_message(
    *,
    event: str | None = None,
    position_id: str | None = None,
    fields: Any = None,
    retry_ms: int = 0,
) -> bytes:
    """A control event. With an id alone it moves the client's position and is not dispatched."""
    lines: list[bytes] = []
    if retry_ms:
        lines.append(b"retry: %d\n" % retry_ms)
    if event is not None:
        lines.append(b"event: %b\n" % event.encode())
    if position_id is not None:
        lines.append(b"id: %b\n" % position_id.encode())
    if fields is not None:
        lines.append(b"data: %b\n" % _encode(fields))
    return http_chunk(b"".join((*lines, b"\n")))


def http_chunk(content: bytes) -> bytes:
    """One chunk of a chunked response body."""
    return b"%x\r\n%b\r\n" % (len(content), content)


def records_head(epoch: int, number: int) -> bytes:
    """The first fragment of a message with records; the shared one follows."""
    return _frame(_TEXT, b'{"type":"records","epoch":%d,"number":%d,' % (epoch, number))


def websocket_message(fields: Any) -> bytes:
    """A control message."""
    return _frame(_TEXT | _FIN, _encode(fields))


def _frame(head: int, content: bytes) -> bytes:
    """A frame as servers send it: not masked."""
    size = len(content)
    if size <= _SHORT_BYTES_MAX:
        return _SHORT.pack(head, size) + content
    if size <= _MEDIUM_BYTES_MAX:
        return _MEDIUM.pack(head, 126, size) + content
    return _LONG.pack(head, 127, size) + content
