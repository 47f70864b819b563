"""One Protobuf event with upb, from and to messages or dicts.

A schema is a file of messages; the message indexes of a frame say which one an event is. Old Python
clients wrote these as plain varints: if the zigzag reading leads to no message of the schema, the
plain one is tried.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import DecodeError as UpbDecodeError
from google.protobuf.message import EncodeError, Message

from penstock.schemas.model import InvalidSchemaError, ParsedSchema
from penstock.schemas.protobuf import ProtobufSchema
from penstock.serde.contract import Contract
from penstock.serde.errors import DecodeError, Reason
from penstock.serde.event_codec import (
    EventDecoder,
    EventEncoder,
    Indexes,
    InvalidValueError,
    Payload,
    ReadAs,
)
from penstock.serde.frame import BadFrameError, Frame
from penstock.serde.protobuf.message_check import MessageCheck, nests_freely
from penstock.serde.protobuf.required_fields import has_required_fields, missing_fields

EVENT_BYTES_MAX: Final = 64 << 20  # as in batches
DEPTH_MAX: Final = 100  # messages within the outermost one, as in upb
CLASSES_MAX: Final = 1000
_FIRST: Final = (0,)
UNFIT: Final = (TypeError, ValueError, AttributeError, KeyError, EncodeError)  # raised by upb


def event_encoder(schema: ParsedSchema, contract: Contract) -> EventEncoder:
    """Encodes messages of a schema."""
    return ProtobufEventEncoder(protobuf_schema(schema), contract.message_name)


def event_decoder(writer: ParsedSchema, read_as: ReadAs) -> EventDecoder:
    """Decodes what a schema wrote."""
    return ProtobufEventDecoder(protobuf_schema(writer), read_as)


def message_name(writer: ParsedSchema, frame: Frame, *, plain_indexes: bool) -> str:
    """The full name of the message that a frame names."""
    return named_message(protobuf_schema(writer), frame, plain_indexes=plain_indexes)[0]


class ProtobufEventEncoder:
    """Encodes messages, or dicts of the schema's first message or the one that is named."""

    def __init__(self, schema: ProtobufSchema, message_name: str | None = None) -> None:
        self._schema = schema
        self.indexes: Indexes = _FIRST if message_name is None else schema.indexes_of(message_name)
        self._message_type = MessageTypes(schema).at(self.indexes)
        self._encode = message_encoder(self._message_type.DESCRIPTOR)
        self._known: dict[type, tuple[Callable[[Any], bytes], Indexes]] = {}  # message classes

    def encode(self, value: Any) -> Payload:
        """The payload, or InvalidValueError."""
        if type(value) is not dict:
            return self._encode_other(value)
        try:
            return self._encode(self._message_type(**value)), self.indexes
        except UNFIT as error:
            raise InvalidValueError(str(error)) from None

    def _encode_other(self, value: Any) -> Payload:
        known = self._known.get(type(value))
        if known is None:
            if isinstance(value, Mapping):
                return self.encode(dict(value))
            if not isinstance(value, Message):
                raise InvalidValueError(f"{type(value).__name__} is neither a message nor a dict")
            known = self._known[type(value)] = self._of_class(value.DESCRIPTOR)
        try:
            return known[0](value), known[1]
        except EncodeError as error:
            raise InvalidValueError(str(error)) from None

    def _of_class(self, descriptor: Any) -> tuple[Callable[[Any], bytes], Indexes]:
        """As many as the schema has messages, unless one is generated again and again."""
        try:
            indexes = self._schema.indexes_of(descriptor.full_name)
        except InvalidSchemaError:
            raise InvalidValueError(f"the schema has no message {descriptor.full_name}") from None
        if len(self._known) >= CLASSES_MAX:
            self._known.clear()
        return message_encoder(descriptor), indexes


@lru_cache(maxsize=256)
def message_encoder(descriptor: Any) -> Callable[[Any], bytes]:
    """Encodes messages of one type; EncodeError if one would not be decoded again.

    Only what upb does not check is checked here: required fields, how large an event is, and the
    nesting of types that contain themselves.
    """
    has_required, can_nest = has_required_fields(descriptor), nests_freely(descriptor)

    def encode(message: Any) -> bytes:
        if has_required and not message.IsInitialized():
            missing = missing_fields(message)
            name = descriptor.full_name
            raise EncodeError(f"Message {name} is missing required fields: {','.join(missing)}")
        payload: bytes = message.SerializePartialToString()
        if len(payload) > EVENT_BYTES_MAX:
            raise EncodeError(f"{len(payload)} bytes, and an event has {EVENT_BYTES_MAX} at most")
        if can_nest and not is_decoded_again(type(message), payload):
            raise EncodeError(f"messages are nested more than {DEPTH_MAX} deep")
        return payload

    return encode


def payload_of(message: Any) -> bytes:
    """A message's bytes, or EncodeError."""
    return message_encoder(message.DESCRIPTOR)(message)


def is_decoded_again(message_type: Any, payload: bytes) -> bool:
    """Whether upb decodes what it encoded: it encodes messages that it finds nested too deep."""
    try:
        message_type.FromString(payload)
    except UpbDecodeError:
        return False
    return True


class ProtobufEventDecoder:
    """Decodes messages of one schema."""

    def __init__(self, writer: ProtobufSchema, read_as: ReadAs) -> None:
        reader = read_as.schema
        if reader is not None and not isinstance(reader, ProtobufSchema):
            raise DecodeError(
                Reason.UNRESOLVABLE, f"written as PROTOBUF, to be read as {reader.type}"
            )
        self._writer = writer
        self._read_as = read_as
        self._reader = reader
        self._types = MessageTypes(writer if reader is None else reader)
        self._checks: dict[str, MessageCheck] = {}

    def decode(self, frame: Frame) -> Any:
        """A message, or a dict if the program reads dicts; raises DecodeError or BadFrameError."""
        name, payload = named_message(
            self._writer, frame, plain_indexes=self._read_as.plain_indexes
        )
        message_type = self._type_of(name)
        if len(payload) > EVENT_BYTES_MAX:
            raise DecodeError(Reason.UNDECODABLE, f"more than {EVENT_BYTES_MAX} bytes")
        try:
            message = message_type.FromString(payload)
        except UpbDecodeError as error:
            raise DecodeError(Reason.UNDECODABLE, f"not a {name}: {error}") from None
        invalid = self._check_of(message_type).invalid(message)
        if invalid is not None:
            raise DecodeError(Reason.UNDECODABLE, f"not a {name}: {invalid}")
        return as_dict(message) if self._read_as.as_dicts else message

    def _check_of(self, message_type: Any) -> MessageCheck:
        descriptor = message_type.DESCRIPTOR
        known = self._checks.get(descriptor.full_name)
        if known is None:
            known = self._checks[descriptor.full_name] = MessageCheck()
        return known

    def _type_of(self, name: str) -> Any:
        given = self._read_as.message_type
        only = self._read_as.message_name if given is None else given.DESCRIPTOR.full_name
        if only is not None and only != name:
            raise DecodeError(Reason.UNRESOLVABLE, f"written as {name}, to be read as {only}")
        if given is not None:
            return given
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
    failure: BadFrameError | None = None
    for plain in (True,) if plain_indexes else (False, True):
        try:
            indexes, payload = frame.message(plain=plain)
            return writer.message_at(indexes), payload
        except BadFrameError as error:
            failure = failure or error
        except InvalidSchemaError as error:
            bad = BadFrameError(Reason.BAD_INDEXES, str(error), frame.position)
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
        self.named: Callable[[str], Any] = lru_cache(maxsize=256)(self._named)

    def at(self, indexes: tuple[int, ...]) -> Any:
        """The class at a path of indexes."""
        return self.named(self._schema.message_at(indexes))

    def _named(self, full_name: str) -> Any:
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(full_name))


def as_dict(message: Any) -> dict[str, Any]:
    """A message as plain values: enums by name, bytes as bytes, nothing for what is not set.

    Fields without presence (proto3's plain ones) always have a value, their default if none is set.
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


def protobuf_schema(schema: ParsedSchema) -> ProtobufSchema:
    """A schema of this language, typed as such."""
    assert isinstance(schema, ProtobufSchema), "a schema's type says which class it is"
    return schema
