"""One Protobuf event with upb, from and to messages or dicts.

A schema has a file of messages; which one an event is, its frame says by message indexes. Old
Python clients wrote these as plain varints: where the zigzag reading leads to no message of the
schema, the plain one is tried.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError, Message

from penstock.client.codec import Misfit, ReadAs, Written
from penstock.client.errors import Reason, Undecodable
from penstock.client.frame import BadFrame, Frame
from penstock.schemas.model import InvalidSchema, ParsedSchema
from penstock.schemas.protobuf import ProtobufSchema
from penstock.schemas.protobuf.required import missing_fields

_FIRST = (0,)
UNFIT: Final = (TypeError, ValueError, AttributeError, KeyError, EncodeError)  # raised by upb


class ProtobufEncoder:
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
        except InvalidSchema:
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
    return payload


class ProtobufDecoder:
    """Reads messages of one schema."""

    def __init__(self, writer: ProtobufSchema, wanted: ReadAs) -> None:
        reader = wanted.schema
        if reader is not None and not isinstance(reader, ProtobufSchema):
            raise Undecodable(
                Reason.UNRESOLVABLE, f"written as PROTOBUF, to be read as {reader.type}"
            )
        self._writer = writer
        self._wanted = wanted
        self._reader = reader
        self._types = MessageTypes(writer if reader is None else reader)

    def decode(self, frame: Frame) -> Any:
        """A message, or a dict if that is wanted; raises Undecodable or BadFrame."""
        name, payload = self._named(frame)
        message_type = self._type_of(name)
        try:
            message = message_type.FromString(payload)
        except DecodeError as wrong:
            raise Undecodable(Reason.UNDECODABLE, f"not a {name}: {wrong}") from None
        if not self._wanted.as_dicts:
            return message
        try:
            return as_dict(message)
        except UnicodeError as wrong:
            raise Undecodable(Reason.UNDECODABLE, f"not a {name}: {wrong}") from None

    def _named(self, frame: Frame) -> tuple[str, bytes]:
        """The message's full name by the writer's schema, and its bytes."""
        forms = (True,) if self._wanted.plain_indexes else (False, True)
        failure: BadFrame | None = None
        for plain in forms:
            try:
                indexes, payload = frame.message(plain=plain)
                return self._writer.message_at(indexes), payload
            except BadFrame as wrong:
                failure = failure or wrong
            except InvalidSchema as wrong:
                bad = BadFrame(Reason.BAD_INDEXES, str(wrong), frame.position)
                failure = failure or bad
        assert failure is not None
        raise failure

    def _type_of(self, name: str) -> Any:
        wanted = self._wanted.message_type
        if wanted is not None:
            if wanted.DESCRIPTOR.full_name != name:
                raise Undecodable(
                    Reason.UNRESOLVABLE,
                    f"written as {name}, to be read as {wanted.DESCRIPTOR.full_name}",
                )
            return wanted
        try:
            return self._types.named(name)
        except KeyError:
            raise Undecodable(
                Reason.UNRESOLVABLE, f"the reader's schema has no message {name}"
            ) from None


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
    UnicodeError for a string that is no text, which upb lets pass in proto2.
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
    if type(value) is bytes and field.type == FieldDescriptor.TYPE_STRING:
        raise UnicodeError(f"the string {field.name} is not UTF-8")
    return value


def own(schema: ParsedSchema) -> ProtobufSchema:
    """A schema of this language, seen as what it is."""
    assert isinstance(schema, ProtobufSchema), "a schema's type says which class it is"
    return schema
