"""One Avro event with fastavro, and what fastavro does not check for itself.

Nothing is written that the schema does not say: an int of 40 bits, a fraction for a whole number
or a field nobody declared is a Misfit. Nothing is read that is not all there: bytes left over are
as wrong as bytes missing.
"""

import io
import json
from typing import Any, cast

import fastavro
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.schema import SchemaParseException, UnknownType
from fastavro.validation import ValidationError, validate

from penstock.client.avro_walk import Walk
from penstock.client.codec import Misfit, ReadAs, Written
from penstock.client.errors import Reason, Undecodable
from penstock.client.frame import BadFrame, Frame
from penstock.schemas.avro import AvroSchema
from penstock.schemas.avro.tree import Kind
from penstock.schemas.model import InvalidSchema, ParsedSchema


class AvroEncoder:
    """Writes dicts (or whatever the schema's top is)."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = _compiled(schema)
        self._is_raw = schema.root.kind is Kind.BYTES  # as Java clients write plain bytes

    def encode(self, value: Any) -> Written:
        """The payload, or Misfit."""
        if self._is_raw:
            if not isinstance(value, bytes | bytearray | memoryview):
                raise Misfit(f"{type(value).__name__} where the schema says bytes")
            return Written(bytes(value))
        buffer = io.BytesIO()
        try:
            validate(value, self._schema)
            schemaless_writer(buffer, self._schema, value, strict_allow_default=True)
        except ValidationError as wrong:
            raise Misfit("; ".join(map(str, wrong.errors[:3]))) from None
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as wrong:
            raise Misfit(str(wrong)) from None
        return Written(buffer.getvalue())


class AvroDecoder:
    """Reads what one schema wrote, resolved to the reader's schema if there is one."""

    def __init__(self, writer: AvroSchema, wanted: ReadAs) -> None:
        self._walk = Walk(writer.root)
        self._writer = _compiled(writer)
        reader = wanted.schema
        if reader is not None and not isinstance(reader, AvroSchema):
            raise Undecodable(Reason.UNRESOLVABLE, f"written as AVRO, to be read as {reader.type}")
        is_same = reader is None or reader.formatted("resolved") == writer.formatted("resolved")
        self._reader = None if is_same or reader is None else _compiled(reader)
        self._is_raw = writer.root.kind is Kind.BYTES and self._reader is None

    def decode(self, frame: Frame) -> Any:
        """The value, all of it; raises Undecodable or BadFrame."""
        payload = frame.payload()
        if self._is_raw:
            return payload
        self._walk.check(payload)
        buffer = io.BytesIO(payload)
        try:
            value = schemaless_reader(buffer, self._writer, self._reader)
        except fastavro.read.SchemaResolutionError as wrong:
            raise Undecodable(Reason.UNRESOLVABLE, str(wrong)) from None
        except Exception as wrong:  # noqa: BLE001 - fastavro raises whatever the bytes made of it
            raise Undecodable(Reason.UNDECODABLE, f"{type(wrong).__name__}: {wrong}") from None
        if buffer.tell() != len(payload):
            left = len(payload) - buffer.tell()
            raise BadFrame(Reason.TRAILING_BYTES, f"{left} bytes after the value", buffer.tell())
        return value


def _compiled(schema: AvroSchema) -> Any:
    try:
        return parse_schema(cast(Any, json.loads(schema.formatted("resolved"))))
    except (SchemaParseException, UnknownType, ValueError, KeyError) as wrong:
        raise InvalidSchema(f"fastavro does not take it: {wrong}") from None


def own(schema: ParsedSchema) -> AvroSchema:
    """A schema of this language, seen as what it is."""
    assert isinstance(schema, AvroSchema), "a schema's type says which class it is"
    return schema
