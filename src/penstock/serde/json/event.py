"""One JSON event: UTF-8 text that the schema allows, with numbers that fit its columns.

Text is decoded by msgspec, as in batches: what it refuses (half a surrogate pair, a number beyond
the doubles) is not an event. It is also encoded by msgspec, which is many times as fast as `json`,
but encodes what `json` refuses: dates and decimals as strings, sets as lists, NaN as null. So its
text is decoded again and used if that gives the same value; if not, `json` encodes it or refuses.
"""

import json
from typing import Any, Final

import msgspec

from penstock.schemas.json import JsonSchema, validate
from penstock.schemas.model import ParsedSchema
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
from penstock.serde.frame import Frame
from penstock.serde.json.number_check import NumberCheck

ENCODER: Final = msgspec.json.Encoder()
DECODER: Final = msgspec.json.Decoder()
UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
UNENCODABLE: Final = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)


def text_of(value: Any) -> bytes | None:
    """A value's text; None if msgspec does not encode it as `json` does."""
    try:
        text = ENCODER.encode(value)
        return text if DECODER.decode(text) == value else None
    except UNENCODABLE:
        return None


def event_encoder(schema: ParsedSchema, contract: Contract) -> EventEncoder:
    """Encodes values of a schema."""
    return JsonEventEncoder(json_schema(schema, contract.assert_formats))


def event_decoder(writer: ParsedSchema, read_as: ReadAs) -> EventDecoder:
    """Decodes what a schema wrote."""
    return JsonEventDecoder(json_schema(writer), read_as)


message_name: Final = no_message


class JsonEventEncoder:
    """Encodes what `json` can encode, if the schema allows it."""

    def __init__(self, schema: JsonSchema) -> None:
        self._schema = schema
        self._numbers = NumberCheck(schema)

    def encode(self, value: Any) -> Payload:
        """The payload, or InvalidValueError."""
        payload = text_of(value)
        if payload is None:
            payload = _dumped(value)
        invalid = validate(self._schema, value) or self._numbers.invalid(payload, value)
        if invalid is not None:
            raise InvalidValueError(invalid)
        return payload, None


def _dumped(value: Any) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValueError(str(error)) from None


class JsonEventDecoder:
    """Decodes JSON text that the reader's schema allows; without one, the writer's."""

    def __init__(self, writer: JsonSchema, read_as: ReadAs) -> None:
        reader = read_as.schema
        if reader is not None and not isinstance(reader, JsonSchema):
            raise DecodeError(Reason.UNRESOLVABLE, f"written as JSON, to be read as {reader.type}")
        self._schema = json_schema(writer if reader is None else reader, read_as.assert_formats)
        self._numbers = NumberCheck(self._schema)
        self._validate = read_as.validate

    def decode(self, frame: Frame) -> Any:
        """The value; raises DecodeError or BadFrameError."""
        payload = frame.payload()
        try:
            value = DECODER.decode(payload)
        except UNREADABLE as error:
            raise DecodeError(Reason.UNDECODABLE, f"not JSON: {error}") from None
        if self._validate:
            violated = validate(self._schema, value)
            if violated is not None:
                raise DecodeError(Reason.RULE_VIOLATED, violated)
            invalid = self._numbers.invalid(payload, value)
            if invalid is not None:
                raise DecodeError(Reason.UNDECODABLE, invalid)
        return value


def json_schema(schema: ParsedSchema, assert_formats: bool = False) -> JsonSchema:
    """A schema of this language, with a validator that checks `format` or not."""
    assert isinstance(schema, JsonSchema), "a schema's type says which class it is"
    return schema.asserting_formats if assert_formats else schema
