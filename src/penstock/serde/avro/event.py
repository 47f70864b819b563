"""One Avro event, to and from Python's values.

Values that are exactly what the schema asks for are written by `event_writer`; any other value by
fastavro, or refused with its reason. Events are read by `event_reader`. Bytes left over after a
value are as invalid as bytes missing.
"""

from typing import Any, Final

from penstock.schemas.avro import AvroSchema
from penstock.schemas.avro.tree import AvroType
from penstock.schemas.model import ParsedSchema
from penstock.serde.avro.event_reader import EventReader
from penstock.serde.avro.event_writer import EventWriter, NotExactError
from penstock.serde.avro.fastavro_writer import FastavroWriter, RefusedValueError
from penstock.serde.avro.varints import UnreadableError, varint
from penstock.serde.contract import Contract
from penstock.serde.errors import DecodeError, Reason
from penstock.serde.event_codec import (
    EventDecoder,
    EventEncoder,
    InvalidValueError,
    Payload,
    ReadAs,
    no_message,
)
from penstock.serde.frame import BadFrameError, Frame

REASONS: Final = {  # of the faults that are not Reason.UNDECODABLE
    "TRAILING": Reason.TRAILING_BYTES,
    "SYMBOL": Reason.UNRESOLVABLE,
    "UNRESOLVABLE": Reason.UNRESOLVABLE,
}


def event_encoder(schema: ParsedSchema, _contract: Contract) -> EventEncoder:
    """Encodes values of a schema."""
    avro = avro_schema(schema)
    return RawBytesEncoder() if avro.root.kind is AvroType.BYTES else AvroEventEncoder(avro)


def event_decoder(writer: ParsedSchema, read_as: ReadAs) -> EventDecoder:
    """Decodes what a schema wrote."""
    return AvroEventDecoder(avro_schema(writer), read_as)


message_name: Final = no_message


class AvroEventEncoder:
    """Encodes dicts, or whatever values the schema's top type has."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._exact = EventWriter(schema.root)
        self._fastavro = FastavroWriter(schema)

    def encode(self, value: Any) -> Payload:
        """The payload, or InvalidValueError."""
        try:
            try:
                payload = self._exact.write(value)
            except NotExactError:
                return self._fastavro.write(value), None
            return self._fastavro.check_limits(payload), None
        except RefusedValueError as error:
            raise InvalidValueError(str(error)) from None


class RawBytesEncoder:
    """Encodes a schema of bytes and nothing else: without their length, as Java clients do."""

    def encode(self, value: Any) -> Payload:
        """The bytes, or InvalidValueError."""
        if not isinstance(value, bytes | bytearray | memoryview):
            raise InvalidValueError(f"{type(value).__name__} where the schema says bytes")
        return bytes(value), None


class AvroEventDecoder:
    """Decodes what one schema wrote, resolved to the reader's schema if there is one."""

    def __init__(self, writer: AvroSchema, read_as: ReadAs) -> None:
        reader = read_as.schema
        if reader is not None and not isinstance(reader, AvroSchema):
            raise DecodeError(Reason.UNRESOLVABLE, f"written as AVRO, to be read as {reader.type}")
        self._reader = EventReader(writer.root, None if reader is None else reader.root)
        self._is_raw = writer.root.kind is AvroType.BYTES

    def decode(self, frame: Frame) -> Any:
        """The value, all of it; raises BadFrameError."""
        payload = frame.payload()
        try:
            return self._reader.read(with_length(payload) if self._is_raw else payload)
        except UnreadableError as error:
            reason = REASONS.get(error.code, Reason.UNDECODABLE)
            raise BadFrameError(reason, error.detail, error.position) from None


def with_length(payload: bytes) -> bytes:
    """An event that is bytes and nothing else, which is written without its length, with it."""
    return varint(len(payload)) + payload


def avro_schema(schema: ParsedSchema) -> AvroSchema:
    """A schema of this language, typed as such."""
    assert isinstance(schema, AvroSchema), "a schema's type says which class it is"
    return schema
