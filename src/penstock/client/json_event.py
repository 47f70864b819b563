"""One JSON event: UTF-8 text that the schema allows."""

import json
from typing import Any, NoReturn

from penstock.client.codec import Misfit, ReadAs, Written
from penstock.client.errors import Reason, Undecodable
from penstock.client.frame import Frame
from penstock.client.json_text import text_of
from penstock.schemas.json import JsonSchema, validate
from penstock.schemas.model import ParsedSchema


class JsonEncoder:
    """Writes what `json` can write, once the schema allows it."""

    def __init__(self, schema: JsonSchema) -> None:
        self._schema = schema

    def encode(self, value: Any) -> Written:
        """The payload, or Misfit."""
        payload = text_of(value)
        if payload is None:
            payload = _dumped(value)
        violated = validate(self._schema, value)
        if violated is not None:
            raise Misfit(violated)
        return Written(payload)


def _dumped(value: Any) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()
    except (TypeError, ValueError, RecursionError) as wrong:
        raise Misfit(str(wrong)) from None


class JsonDecoder:
    """Reads JSON text that the reader's schema allows; without one, the writer's."""

    def __init__(self, writer: JsonSchema, wanted: ReadAs) -> None:
        reader = wanted.schema
        if reader is not None and not isinstance(reader, JsonSchema):
            raise Undecodable(Reason.UNRESOLVABLE, f"written as JSON, to be read as {reader.type}")
        self._schema = own(writer if reader is None else reader, wanted.assert_formats)
        self._validate = wanted.validate

    def decode(self, frame: Frame) -> Any:
        """The value; raises Undecodable or BadFrame."""
        payload = frame.payload()
        try:
            value = json.loads(payload.decode(), parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as wrong:
            raise Undecodable(Reason.UNDECODABLE, f"not JSON: {wrong}") from None
        if self._validate:
            violated = validate(self._schema, value)
            if violated is not None:
                raise Undecodable(Reason.RULE_VIOLATED, violated)
        return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")


def own(schema: ParsedSchema, assert_formats: bool = False) -> JsonSchema:
    """A schema of this language, with the validator that is wanted."""
    assert isinstance(schema, JsonSchema), "a schema's type says which class it is"
    return schema.asserting_formats if assert_formats else schema
