"""One Avro event: written with fastavro, read by `schemas.avro.events`.

Nothing is written that the schema does not say: an int of 40 bits, a fraction for a whole number
or a field nobody declared is a Misfit, and so is an event beyond the limits of what is read.
Nothing is read that is not all there: bytes left over are as wrong as bytes missing.
"""

import io
import json
from typing import Any, Final, cast

from fastavro import parse_schema, schemaless_writer
from fastavro.schema import SchemaParseException, UnknownType
from fastavro.validation import ValidationError, validate

from penstock.schemas.avro import AvroSchema
from penstock.schemas.avro.tree import AvroType
from penstock.schemas.model import InvalidSchemaError, ParsedSchema
from penstock.serde.avro.event_defaults import varint
from penstock.serde.avro.event_reader import EventReader
from penstock.serde.avro.event_skipping import WriteLimits
from penstock.serde.avro.limits import NESTING_MAX
from penstock.serde.avro.raw_values import RawValues
from penstock.serde.avro.varints import Unreadable
from penstock.serde.errors import DecodeError, Reason
from penstock.serde.event_codec import Misfit, ReadAs, Written
from penstock.serde.frame import BadFrame, Frame

REASONS: Final = {  # of the codes that are not Reason.UNDECODABLE
    "TRAILING": Reason.TRAILING_BYTES,
    "SYMBOL": Reason.UNRESOLVABLE,
    "UNRESOLVABLE": Reason.UNRESOLVABLE,
}


class AvroEventEncoder:
    """Writes dicts (or whatever the schema's top is)."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = _compiled(schema)
        self._is_raw = schema.root.kind is AvroType.BYTES  # as Java clients write plain bytes
        self._limits = WriteLimits(schema.root)
        self._raw_values = RawValues(schema.root)

    def encode(self, value: Any) -> Written:
        """The payload, or Misfit."""
        if self._is_raw:
            if not isinstance(value, bytes | bytearray | memoryview):
                raise Misfit(f"{type(value).__name__} where the schema says bytes")
            return Written(bytes(value))
        buffer = io.BytesIO()
        try:
            validate(value, self._schema)
            raw = self._raw_values.wrong(value)
            if raw is not None:
                raise Misfit(raw)
            schemaless_writer(buffer, self._schema, value, strict_allow_default=True)
        except ValidationError as wrong:
            raise Misfit("; ".join(map(str, wrong.errors[:3]))) from None
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as wrong:
            raise Misfit(str(wrong)) from None
        except RecursionError:
            raise Misfit(f"values are nested more than {NESTING_MAX} deep") from None
        payload = buffer.getvalue()
        broken = self._limits.broken_by(payload)
        if broken is not None:
            raise Misfit(broken.detail)
        return Written(payload)


class AvroEventDecoder:
    """Reads what one schema wrote, resolved to the reader's schema if there is one."""

    def __init__(self, writer: AvroSchema, wanted: ReadAs) -> None:
        reader = wanted.schema
        if reader is not None and not isinstance(reader, AvroSchema):
            raise DecodeError(Reason.UNRESOLVABLE, f"written as AVRO, to be read as {reader.type}")
        self._reader = EventReader(writer.root, None if reader is None else reader.root)
        self._is_raw = writer.root.kind is AvroType.BYTES

    def decode(self, frame: Frame) -> Any:
        """The value, all of it; raises BadFrame."""
        payload = frame.payload()
        try:
            return self._reader.read(sized(payload) if self._is_raw else payload)
        except Unreadable as wrong:
            reason = REASONS.get(wrong.code, Reason.UNDECODABLE)
            raise BadFrame(reason, wrong.detail, wrong.position) from None


def sized(payload: bytes) -> bytes:
    """An event that is bytes and nothing else, which is written without its length, with it."""
    return varint(len(payload)) + payload


def _compiled(schema: AvroSchema) -> Any:
    try:
        return parse_schema(cast(Any, json.loads(schema.formatted("resolved"))))
    except (SchemaParseException, UnknownType, ValueError, KeyError) as wrong:
        raise InvalidSchemaError(f"fastavro does not take it: {wrong}") from None


def own(schema: ParsedSchema) -> AvroSchema:
    """A schema of this language, seen as what it is."""
    assert isinstance(schema, AvroSchema), "a schema's type says which class it is"
    return schema
