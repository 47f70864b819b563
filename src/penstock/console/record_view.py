"""Records as pages and filters see them: decoded by their schemas, when it is needed.

Blocks only while the registry is asked for a schema: use it in a thread. What cannot be decoded is
shown as bytes with the reason: one bad record never hides those behind it.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from penstock.console.page_values import DecodedSide, page_value, plain_side
from penstock.gateway.events import EventRenderer, is_framed
from penstock.model import TopicPartition
from penstock.protocol.records import Record
from penstock.serde.errors import DecodeError
from penstock.serde.frame import Side, read_frame
from penstock.serde.schema_source import SchemaSource


class RecordDecoder:
    """Decodes keys and values of any topic. Safe for threads."""

    def __init__(self, schemas: SchemaSource, renderer: EventRenderer) -> None:
        self._schemas = schemas
        self._renderer = renderer

    def decode(self, topic: str, side: Side, record: Record) -> DecodedSide | None:
        """A record's key or value; None if it is null."""
        content = record.key if side is Side.KEY else record.value
        if content is None:
            return None
        if not is_framed(record, side, content):
            return plain_side(content, is_key=side is Side.KEY)
        try:
            value = self._renderer.deserializer(topic, side).deserialize(content, record.headers)
        except DecodeError as error:
            return DecodedSide("bytes", content, error=f"{error.reason}: {error.detail}")
        known = self._schemas.schema(read_frame(content, record.headers, side).schema)
        return DecodedSide(str(known.parsed.type).lower(), value, known.id)


class RecordView:
    """One record of a partition."""

    def __init__(self, decoder: RecordDecoder, place: TopicPartition, record: Record) -> None:
        self.place = place
        self.record = record
        self._decoder = decoder

    @property
    def partition(self) -> int:
        return self.place.partition

    @property
    def offset(self) -> int:
        return self.record.offset

    @property
    def timestamp(self) -> int:
        return self.record.timestamp

    @property
    def key(self) -> Any:
        """The decoded key; None if it is null or cannot be decoded."""
        return _value(self.key_side)

    @property
    def value(self) -> Any:
        """The decoded value; None if it is null or cannot be decoded."""
        return _value(self.value_side)

    @cached_property
    def headers(self) -> Mapping[str, bytes | None]:
        """By name; the last one counts."""
        return dict(self.record.headers)

    @cached_property
    def key_side(self) -> DecodedSide | None:
        return self._decoder.decode(self.place.topic, Side.KEY, self.record)

    @cached_property
    def value_side(self) -> DecodedSide | None:
        return self._decoder.decode(self.place.topic, Side.VALUE, self.record)

    @property
    def size_bytes(self) -> int:
        """Of key, value and headers."""
        record = self.record
        of_headers = sum(len(name) + len(value or b"") for name, value in record.headers)
        return len(record.key or b"") + len(record.value or b"") + of_headers

    def document(self) -> dict[str, Any]:
        """As pages get it."""
        key, value = self.key_side, self.value_side
        return {
            "topic": self.place.topic,
            "partition": self.place.partition,
            "offset": str(self.record.offset),
            "timestamp": str(self.record.timestamp),
            "key": None if key is None else key.document(),
            "value": None if value is None else value.document(),
            "headers": [[name, _header(value)] for name, value in self.record.headers],
            "size": str(self.size_bytes),
            "key_schema_id": None if key is None else key.schema_id,
            "value_schema_id": None if value is None else value.schema_id,
        }


def _value(side: DecodedSide | None) -> Any:
    return None if side is None or side.error is not None else side.value


def _header(value: bytes | None) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        return {"format": "text", "data": value.decode()}
    except UnicodeDecodeError:
        return {"format": "bytes", "data": page_value(value)}
