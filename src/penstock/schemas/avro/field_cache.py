"""Fields of the outermost record that stand alike in many schemas, read once for all of them.

Versions of a subject differ in a few fields. The text is cut into its fields without looking inside
them; a field whose text is known comes with the node that was made of it before. Only a field that
uses no names can be shared so: it means the same wherever it stands.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from penstock.schemas.avro.tree import Field, JsonValue, Named

_TEXTS_MAX: Final = 8192  # known at a time; what was not met for longest is read again
_TEXT_BYTES_MAX: Final = 1024  # a longer one is not shared


class Understood(NamedTuple):
    """What a field's text means in a namespace, and the names it defines."""

    field: Field
    defined: Mapping[str, Named]
    space: str | None
    strict: bool  # then it is right for those as well who are not


class Member(dict[str, JsonValue]):
    """A field as JSON, and what was understood of it last."""

    __slots__ = ("understood",)

    def __init__(self, members: dict[str, JsonValue]) -> None:
        super().__init__(members)
        self.understood: Understood | None = None

    def known(self, space: str | None, *, strict: bool) -> Understood | None:
        """What it means there, if it was met there before."""
        found = self.understood
        if found is None or found.space != space or strict > found.strict:
            return None
        return found


def read_record(text: str) -> JsonValue:
    """A record as JSON, its fields as shared members; None if the text is not to be cut so."""
    try:
        parts = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        fields = msgspec.json.decode(parts.pop("fields"), type=list[msgspec.Raw])
        record = {key: _value(bytes(raw)) for key, raw in parts.items()}
        return {**record, "fields": [_read_member(bytes(raw)) for raw in fields]}
    except (msgspec.DecodeError, KeyError, ValueError, RecursionError):
        return None  # not a record, or not right: whoever reads it whole can say what is wrong


def _read_member(raw: bytes) -> JsonValue:
    return _member(raw) if len(raw) <= _TEXT_BYTES_MAX else _value(raw)


@lru_cache(maxsize=_TEXTS_MAX)
def _member(raw: bytes) -> JsonValue:
    value = _value(raw)
    return Member(value) if isinstance(value, dict) else value


def _value(raw: bytes) -> JsonValue:
    value: JsonValue = json.loads(raw.decode())
    return value
