"""One JSON event: UTF-8 text that the schema allows, with numbers that fit its columns.

Text is read by msgspec, one by one as in batches: what it refuses (half a surrogate pair, a number
beyond the doubles) is no event.

JSON text by msgspec, many times as fast as `json`, of a value that `json` can write as well.

msgspec also writes what `json` refuses: dates and decimals as strings, sets as lists, NaN as null.
So what it wrote is read again, and counts if it says what was given. A value of which it does not
is not written here (None): that is for `json` to do or to refuse. Loads no kernel.
"""

import json
from typing import Any, Final

import msgspec

from penstock.schemas.json import JsonSchema, validate
from penstock.schemas.model import ParsedSchema
from penstock.serde.errors import DecodeError, Reason
from penstock.serde.event_codec import Misfit, ReadAs, Written
from penstock.serde.frame import Frame
from penstock.serde.json.number_check import NumberCheck

ENCODER: Final = msgspec.json.Encoder()
DECODER: Final = msgspec.json.Decoder()
UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
UNSAYABLE: Final = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)


def text_of(value: Any) -> bytes | None:
    """A value's text."""
    try:
        text = ENCODER.encode(value)
        return text if DECODER.decode(text) == value else None
    except UNSAYABLE:
        return None


class JsonEventEncoder:
    """Writes what `json` can write, once the schema allows it."""

    def __init__(self, schema: JsonSchema) -> None:
        self._schema = schema
        self._numbers = NumberCheck(schema)

    def encode(self, value: Any) -> Written:
        """The payload, or Misfit."""
        payload = text_of(value)
        if payload is None:
            payload = _dumped(value)
        wrong = validate(self._schema, value) or self._numbers.misfit(payload, value)
        if wrong is not None:
            raise Misfit(wrong)
        return Written(payload)


def _dumped(value: Any) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()
    except (TypeError, ValueError, RecursionError) as wrong:
        raise Misfit(str(wrong)) from None


class JsonEventDecoder:
    """Reads JSON text that the reader's schema allows; without one, the writer's."""

    def __init__(self, writer: JsonSchema, wanted: ReadAs) -> None:
        reader = wanted.schema
        if reader is not None and not isinstance(reader, JsonSchema):
            raise DecodeError(Reason.UNRESOLVABLE, f"written as JSON, to be read as {reader.type}")
        self._schema = own(writer if reader is None else reader, wanted.assert_formats)
        self._numbers = NumberCheck(self._schema)
        self._validate = wanted.validate

    def decode(self, frame: Frame) -> Any:
        """The value; raises DecodeError or BadFrame."""
        payload = frame.payload()
        try:
            value = DECODER.decode(payload)
        except UNREADABLE as wrong:
            raise DecodeError(Reason.UNDECODABLE, f"not JSON: {wrong}") from None
        if self._validate:
            violated = validate(self._schema, value)
            if violated is not None:
                raise DecodeError(Reason.RULE_VIOLATED, violated)
            misfit = self._numbers.misfit(payload, value)
            if misfit is not None:
                raise DecodeError(Reason.UNDECODABLE, misfit)
        return value


def own(schema: ParsedSchema, assert_formats: bool = False) -> JsonSchema:
    """A schema of this language, with the validator that is wanted."""
    assert isinstance(schema, JsonSchema), "a schema's type says which class it is"
    return schema.asserting_formats if assert_formats else schema
