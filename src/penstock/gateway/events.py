"""Records as JSON events: the form that fetches, members and streams all return.

    {"topic": "orders", "partition": 0, "offset": 7, "timestamp": 1700000000000,
     "key": "berlin", "value": {"cents": 1250}, "headers": [["source", "shop"]]}

A value with a schema id is decoded by that schema, and `value_schema_id` names it; other values are
JSON if they are JSON, else `value_base64`. A key is decoded in the same way if it has a schema id,
else it is text, else `key_base64`. What cannot be decoded comes as base64 with `error`, which has
the client's quarantine reason as its code: one bad record never hides those behind it. Each event
is one line of JSON. Blocks only while the registry is asked for a schema: call it in a thread.
"""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from penstock.model import TopicPartition
from penstock.protocol.records import Record
from penstock.serde.errors import DecodeError
from penstock.serde.frame import ID_MAGIC, PREFIX_BYTES, Side
from penstock.serde.schema_source import SchemaSource
from penstock.serde.serializers import Deserializer

_TOPICS_MAX: Final = 1_000  # with deserializers of their own; then all are dropped
_LINE_ENDS: Final = (b"\n", b"\r")
_encode = msgspec.json.Encoder().encode
_check_json = msgspec.json.Decoder(msgspec.Raw).decode


class UnreadableRecord(NamedTuple):
    """A record that cannot be decoded, and why."""

    record: Record
    side: Side
    error: DecodeError


class RenderedEvent(NamedTuple):
    """One event as JSON on one line."""

    offset: int
    text: bytes
    unreadable: UnreadableRecord | None = None


def needs_schema(record: Record) -> bool:
    """Whether rendering it may ask the registry, and so may block."""
    return is_framed(record, Side.VALUE, record.value) or is_framed(record, Side.KEY, record.key)


class EventRenderer:
    """Renders records of any topic. Safe for threads."""

    def __init__(self, schemas: SchemaSource) -> None:
        self._schemas = schemas
        self._deserializers: dict[tuple[str, Side], Deserializer] = {}

    def render(
        self, partition: TopicPartition, records: Iterable[Record]
    ) -> Sequence[RenderedEvent]:
        """The events; raises RegistryUnavailableError, which is worth a retry."""
        return [self._render(partition, record) for record in records]

    def _render(self, partition: TopicPartition, record: Record) -> RenderedEvent:
        event: dict[str, Any] = {
            "topic": partition.topic,
            "partition": partition.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
        }
        key_error = self._add_side(event, partition.topic, Side.KEY, record)
        value_error = self._add_side(event, partition.topic, Side.VALUE, record)
        event["headers"] = [[name, header_value(value)] for name, value in record.headers]
        error, side = (key_error, Side.KEY) if key_error else (value_error, Side.VALUE)
        if error is None:
            return RenderedEvent(record.offset, _encode(event))
        event["error"] = {"code": str(error.reason), "message": error.detail, "side": str(side)}
        unreadable = UnreadableRecord(record, side, error)
        return RenderedEvent(record.offset, _encode(event), unreadable)

    def _add_side(
        self, event: dict[str, Any], topic: str, side: Side, record: Record
    ) -> DecodeError | None:
        content = record.key if side is Side.KEY else record.value
        if content is None:
            event[side] = None
            return None
        if is_framed(record, side, content):
            return self._add_framed(event, topic, side, content, record)
        plain = _text(content) if side is Side.KEY else _json(content)
        if plain is None:
            event[f"{side}_base64"] = b64encode(content).decode()
        else:
            event[side] = plain
        return None

    def _add_framed(
        self, event: dict[str, Any], topic: str, side: Side, content: bytes, record: Record
    ) -> DecodeError | None:
        try:
            value = self.deserializer(topic, side).deserialize(content, record.headers)
            event[side] = msgspec.Raw(_encode(value))
        except DecodeError as error:
            event[f"{side}_base64"] = b64encode(content).decode()
            return error
        if content[0] == ID_MAGIC and not _names_schema(record, side):
            event[f"{side}_schema_id"] = int.from_bytes(content[1:PREFIX_BYTES], "big")
        return None

    def deserializer(self, topic: str, side: Side) -> Deserializer:
        """What reads the keys or values of a topic as they were written."""
        known = self._deserializers.get((topic, side))
        if known is None:
            if len(self._deserializers) >= _TOPICS_MAX:
                self._deserializers = {}
            known = Deserializer(self._schemas, topic, side=side, as_dicts=True)
            self._deserializers[topic, side] = known
        return known


def header_value(value: bytes | None) -> Any:
    """A header's value: text if it is UTF-8, else `{"base64": …}`."""
    if value is None:
        return None
    text = _text(value)
    return {"base64": b64encode(value).decode()} if text is None else text


def is_framed(record: Record, side: Side, content: bytes | None) -> bool:
    """Whether a key or value names its schema, or looks so."""
    if content is None:
        return False
    has_prefix = len(content) >= PREFIX_BYTES and content[0] == ID_MAGIC
    return has_prefix or (bool(record.headers) and _names_schema(record, side))


def _names_schema(record: Record, side: Side) -> bool:
    return any(name == side.header_name for name, _ in record.headers)


def _text(content: bytes) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _json(content: bytes) -> msgspec.Raw | None:
    """The same JSON on one line; None if it is not JSON."""
    try:
        content.decode()
        _check_json(content)
        if any(end in content for end in _LINE_ENDS):
            content = msgspec.json.format(content, indent=-1)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return msgspec.Raw(content)
