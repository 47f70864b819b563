"""Fields of the outermost record, parsed once for all schemas that contain the same text.

Versions of a subject differ in a few fields. The text is split into its fields without parsing
them; a field with a known text comes with the node that was made of it before. Only a field that
uses no names is shared: its meaning does not depend on its surroundings.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from penstock.schemas.avro.tree import Field, JsonValue, Named

_TEXTS_MAX: Final = 8192  # cached at a time
_TEXT_BYTES_MAX: Final = 1024  # a longer text is not cached


class ParsedField(NamedTuple):
    """A field parsed inside a namespace, and the types it defines by name."""

    field: Field
    defined: Mapping[str, Named]
    namespace: str | None
    strict: bool  # what passed the strict checks passes the others as well


class FieldText(dict[str, JsonValue]):
    """A field as JSON, with its last parse result."""

    __slots__ = ("parsed",)

    def __init__(self, members: dict[str, JsonValue]) -> None:
        super().__init__(members)
        self.parsed: ParsedField | None = None

    def parsed_in(self, namespace: str | None, *, strict: bool) -> ParsedField | None:
        """The result in that namespace, if the field was parsed there before."""
        parsed = self.parsed
        if parsed is None or parsed.namespace != namespace or strict > parsed.strict:
            return None
        return parsed


def read_record(text: str) -> JsonValue:
    """A record as JSON whose fields are `FieldText`; None if the text cannot be split into fields.

    None says nothing about the text: parsing it as a whole gives the result or the error.
    """
    try:
        members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        fields = msgspec.json.decode(members.pop("fields"), type=list[msgspec.Raw])
        record = {key: _value(bytes(raw)) for key, raw in members.items()}
        return {**record, "fields": [_read_field(bytes(raw)) for raw in fields]}
    except (msgspec.DecodeError, KeyError, ValueError, RecursionError):
        return None


def _read_field(raw: bytes) -> JsonValue:
    return _cached_field(raw) if len(raw) <= _TEXT_BYTES_MAX else _value(raw)


@lru_cache(maxsize=_TEXTS_MAX)
def _cached_field(raw: bytes) -> JsonValue:
    value = _value(raw)
    return FieldText(value) if isinstance(value, dict) else value


def _value(raw: bytes) -> JsonValue:
    value: JsonValue = json.loads(raw.decode())
    return value
