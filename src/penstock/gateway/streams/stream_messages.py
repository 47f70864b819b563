"""The messages of WebSocket streams, as types: the schema at /docs/websocket.json is made of these.

Fields that server-sent events have too (positions, gaps) are made here for both. Pure.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from penstock.errors import ErrorCode, Refused
from penstock.gateway.streams.partition_fetcher import Gap
from penstock.model import Offset, TopicPartition

_Count = Annotated[int, Meta(ge=0, le=2**53)]


class PartitionPosition(Struct, kw_only=True):
    """The next offset of one partition."""

    topic: str
    partition: _Count
    offset: _Count


class GrantCredit(Struct, tag_field="type", tag="credit"):
    """The client can take this much more. A stream starts without credit; grants add."""

    records: _Count
    bytes: _Count


class AcknowledgeRecords(Struct, tag_field="type", tag="ack"):
    """All records up to this number are processed: they are no longer in flight."""

    number: _Count


class SeekStream(Struct, tag_field="type", tag="seek"):
    """Go on from somewhere else: exactly one of the fields says where."""

    id: str | None = None
    offset: Literal["earliest", "latest"] | _Count | None = None
    timestamp: _Count | None = None
    positions: list[PartitionPosition] | None = None


class PauseStream(Struct, tag_field="type", tag="pause"):
    """Send no records until `resume`; credit stays."""


class ResumeStream(Struct, tag_field="type", tag="resume"):
    """Send records again."""


ClientMessage = GrantCredit | AcknowledgeRecords | SeekStream | PauseStream | ResumeStream


class StreamOpened(Struct, tag_field="type", tag="opened"):
    """The first message: from where records come."""

    id: str
    resumed: bool
    positions: list[PartitionPosition]


class StreamRecords(Struct, tag_field="type", tag="records"):
    """Events. `number` is that of the last one; `id` is the position after it."""

    epoch: int
    number: int
    id: str
    events: list[dict[str, Any]]


class StreamGap(Struct, tag_field="type", tag="gap"):
    """Events are missing: `offset` is not in the log, which goes on at `resumes_at`."""

    topic: str
    partition: int
    offset: int
    resumes_at: int
    latest: int
    id: str


class StreamMoved(Struct, tag_field="type", tag="position"):
    """The position moved past events that are not for this stream."""

    id: str


class StreamSeeked(Struct, tag_field="type", tag="seeked"):
    """Records after this message have this epoch; those before it do not count any more."""

    epoch: int
    id: str
    positions: list[PartitionPosition]


class StreamAssigned(Struct, tag_field="type", tag="assigned"):
    """The consumer group assigned these partitions to this member, in this epoch."""

    epoch: int
    member: str
    positions: list[PartitionPosition]


class StreamRevoked(Struct, tag_field="type", tag="revoked"):
    """The consumer group is assigning partitions again; records so far may come again."""


class StreamError(Struct, tag_field="type", tag="error"):
    """A message of the client was refused; the stream goes on."""

    code: str
    message: str


class StreamClosing(Struct, tag_field="type", tag="close"):
    """The last message: why the stream ends, and when to connect again."""

    code: str
    message: str
    retry_ms: int


ServerMessage = (
    StreamOpened
    | StreamRecords
    | StreamGap
    | StreamMoved
    | StreamSeeked
    | StreamAssigned
    | StreamRevoked
    | StreamError
    | StreamClosing
)
_decoder: Final[msgspec.json.Decoder[ClientMessage]] = msgspec.json.Decoder(ClientMessage)


def read_client_message(text: str | bytes) -> ClientMessage:
    """A message of a client; Refused if it is not one."""
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        message = f"this is not a message of a stream: {error}; see /docs/websocket.json"
        raise Refused(ErrorCode.invalid_request, message) from None


def websocket_schema() -> dict[str, Any]:
    """The JSON Schema of all messages."""
    (client, server), definitions = msgspec.json.schema_components(
        (ClientMessage, ServerMessage), ref_template="#/$defs/{name}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Messages of a WebSocket stream",
        "description": "A message of either side is one text message with one JSON object.",
        "anyOf": [{"title": "client", **client}, {"title": "server", **server}],
        "$defs": definitions,
    }


def position_rows(
    partitions: Iterable[TopicPartition], offsets: Iterable[Offset]
) -> list[PartitionPosition]:
    """Positions as clients see them."""
    return [
        PartitionPosition(topic=topic, partition=index, offset=offset)
        for (topic, index), offset in zip(partitions, offsets, strict=True)
    ]


def gap_fields(gap: Gap) -> dict[str, Any]:
    """A gap as clients see it."""
    return {
        "topic": gap.partition.topic,
        "partition": gap.partition.partition,
        "offset": gap.offset,
        "resumes_at": gap.resumes_at,
        "latest": gap.latest,
    }
