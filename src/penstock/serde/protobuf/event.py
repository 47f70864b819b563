"""One Protobuf event with upb, from and to messages or dicts.

A schema has a file of messages; which one an event is, its frame says by message indexes. Old
Python clients wrote these as plain varints: where the zigzag reading leads to no message of the
schema, the plain one is tried.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import DecodeError as UpbDecodeError
from google.protobuf.message import EncodeError, Message

from penstock.schemas.model import InvalidSchemaError, ParsedSchema
from penstock.schemas.protobuf import ProtobufSchema
from penstock.serde.errors import DecodeError, Reason
from penstock.serde.event_codec import Misfit, ReadAs, Written
from penstock.serde.frame import BadFrame, Frame
from penstock.serde.protobuf.payload_check import Soundness, nests_freely
from penstock.serde.protobuf.required_fields import missing_fields

EVENT_BYTES_MAX: Final = 64 << 20  # as batches have it
DEPTH_MAX: Final = 100  # messages within the outermost one, as upb reads them
_FIRST = (0,)
UNFIT: Final = (TypeError, ValueError, AttributeError, KeyError, EncodeError)  # raised by upb


class ProtobufEventEncoder:
    """Writes messages, or dicts of the schema's first message or the one that is named."""

    def __init__(self, schema: ProtobufSchema, message_name: str | None = None) -> None:
        self._schema = schema
        self._types = MessageTypes(schema)
        self.indexes = _FIRST if message_name is None else schema.indexes_of(message_name)

    def encode(self, value: Any) -> Written:
        """The payload, or Misfit."""
        if isinstance(value, Message):
            return self._encode_message(value)
        if not isinstance(value, Mapping):
            raise Misfit(f"{type(value).__name__}, which is neither a message nor a dict")
        try:
            message = self._types.at(self.indexes)(**value)
            return Written(payload_of(message), self.indexes)
        except UNFIT as wrong:
            raise Misfit(str(wrong)) from None

    def _encode_message(self, value: Message) -> Written:
        name = value.DESCRIPTOR.full_name
        try:
            indexes = self._schema.indexes_of(name)
        except InvalidSchemaError:
            raise Misfit(f"the schema has no message {name}") from None
        try:
            return Written(payload_of(value), indexes)
        except EncodeError as wrong:
            raise Misfit(str(wrong)) from None


def payload_of(message: Any) -> bytes:
    """A message's bytes; EncodeError names the required fields that are missing."""
    missing = missing_fields(message)
    if missing:
        name = message.DESCRIPTOR.full_name
        raise EncodeError(f"Message {name} is missing required fields: {','.join(missing)}")
    payload: bytes = message.SerializePartialToString()
    if len(payload) > EVENT_BYTES_MAX:
        raise EncodeError(f"{len(payload)} bytes, and an event has {EVENT_BYTES_MAX} at most")
    if nests_freely(message.DESCRIPTOR) and not is_read_again(type(message), payload):
        raise EncodeError(f"messages are nested more than {DEPTH_MAX} deep")
    return payload


def is_read_again(message_type: Any, payload: bytes) -> bool:
    """Whether upb reads what it wrote: it writes messages that are nested too deep for it."""
    try:
        message_type.FromString(payload)
    except UpbDecodeError:
        return False
    return True


class ProtobufEventDecoder:
    """Reads messages of one schema."""

    def __init__(self, writer: ProtobufSchema, wanted: ReadAs) -> None:
        reader = wanted.schema
        if reader is not None and not isinstance(reader, ProtobufSchema):
            raise DecodeError(
                Reason.UNRESOLVABLE, f"written as PROTOBUF, to be read as {reader.type}"
            )
        self._writer = writer
        self._wanted = wanted
        self._reader = reader
        self._types = MessageTypes(writer if reader is None else reader)
        self._soundness: dict[str, Soundness] = {}

    def decode(self, frame: Frame) -> Any:
        """A message, or a dict if that is wanted; raises DecodeError or BadFrame."""
        name, payload = named_message(self._writer, frame, plain_indexes=self._wanted.plain_indexes)
        message_type = self._type_of(name)
        if len(payload) > EVENT_BYTES_MAX:
            raise DecodeError(Reason.UNDECODABLE, f"more than {EVENT_BYTES_MAX} bytes")
        try:
            message = message_type.FromString(payload)
        except UpbDecodeError as wrong:
            raise DecodeError(Reason.UNDECODABLE, f"not a {name}: {wrong}") from None
        unsound = self._soundness_of(message_type).wrong(message)
        if unsound is not None:
            raise DecodeError(Reason.UNDECODABLE, f"not a {name}: {unsound}")
        return as_dict(message) if self._wanted.as_dicts else message

    def _soundness_of(self, message_type: Any) -> Soundness:
        descriptor = message_type.DESCRIPTOR
        known = self._soundness.get(descriptor.full_name)
        if known is None:
            known = self._soundness[descriptor.full_name] = Soundness()
        return known

    def _type_of(self, name: str) -> Any:
        wanted = self._wanted.message_type
        only = self._wanted.message_name if wanted is None else wanted.DESCRIPTOR.full_name
        if only is not None and only != name:
            raise DecodeError(Reason.UNRESOLVABLE, f"written as {name}, to be read as {only}")
        if wanted is not None:
            return wanted
        try:
            return self._types.named(name)
        except KeyError:
            raise DecodeError(
                Reason.UNRESOLVABLE, f"the reader's schema has no message {name}"
            ) from None


def named_message(
    writer: ProtobufSchema, frame: Frame, *, plain_indexes: bool = False
) -> tuple[str, bytes]:
    """The full name of the message that a frame names, by the writer's schema, and its bytes."""
    failure: BadFrame | None = None
    for plain in (True,) if plain_indexes else (False, True):
        try:
            indexes, payload = frame.message(plain=plain)
            return writer.message_at(indexes), payload
        except BadFrame as wrong:
            failure = failure or wrong
        except InvalidSchemaError as wrong:
            bad = BadFrame(Reason.BAD_INDEXES, str(wrong), frame.position)
            failure = failure or bad
    assert failure is not None
    raise failure


class MessageTypes:
    """The message classes of a schema, in a pool of their own."""

    def __init__(self, schema: ProtobufSchema) -> None:
        self._schema = schema
        self._pool = descriptor_pool.DescriptorPool()
        for file in schema.descriptors:
            self._pool.AddSerializedFile(file.SerializeToString())
        self.named = lru_cache(maxsize=256)(self._named)

    def at(self, indexes: tuple[int, ...]) -> Any:
        """The class at a path of positions."""
        return self.named(self._schema.message_at(indexes))

    def _named(self, full_name: str) -> Any:
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(full_name))


def as_dict(message: Any) -> dict[str, Any]:
    """A message as plain values: enums by name, bytes as bytes, nothing for what is not set.

    Fields without presence (proto3's plain ones) are always there, with their default if need be.
    """
    return {
        field.name: _value_of(field, getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or message.HasField(field.name)
    }


def _value_of(field: Any, value: Any) -> Any:
    if not field.is_repeated:
        return _one(field, value)
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        of_value = entry.fields_by_name["value"]
        return {key: _one(of_value, value[key]) for key in value}
    return [_one(field, item) for item in value]


def _one(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return as_dict(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value


def own(schema: ParsedSchema) -> ProtobufSchema:
    """A schema of this language, seen as what it is."""
    assert isinstance(schema, ProtobufSchema), "a schema's type says which class it is"
    return schema
