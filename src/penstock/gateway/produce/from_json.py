"""JSON values as the values that encoders take: the reverse of how events are rendered. Pure.

Bytes are base64 text, decimals are text or numbers, dates and times are ISO 8601 text or numbers as
Avro stores them. In a union, a value may be named by its branch, as Avro's own JSON encoding does:
{"string": "x"}. What does not fit is left as it is: the encoder refuses it with the reason.
"""

import binascii
from base64 import b64decode
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from penstock.schemas.avro.tree import Array, AvroType, Map, Node, Record, Union

_TEXT_KINDS: Final = (AvroType.STRING, AvroType.ENUM)


def _instant(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


_LOGICAL: Final[Mapping[str, Callable[[str], Any]]] = {
    "decimal": Decimal,
    "date": date.fromisoformat,
    "time-millis": time.fromisoformat,
    "time-micros": time.fromisoformat,
    "timestamp-millis": _instant,
    "timestamp-micros": _instant,
    "local-timestamp-millis": datetime.fromisoformat,
    "local-timestamp-micros": datetime.fromisoformat,
}


def avro_value(value: Any, node: Node) -> Any:
    """A JSON value as Avro's encoder takes it."""
    match node:
        case Record() if isinstance(value, dict):
            types = {field.name: field.type for field in node.fields}
            return {
                name: avro_value(each, types[name]) if name in types else each
                for name, each in value.items()
            }
        case Array() if isinstance(value, list):
            return [avro_value(each, node.items) for each in value]
        case Map() if isinstance(value, dict):
            return {name: avro_value(each, node.values) for name, each in value.items()}
        case Union():
            return _union_value(value, node)
    return _leaf_value(value, node)


def _union_value(value: Any, union: Union) -> Any:
    if isinstance(value, dict) and len(value) == 1:
        ((name, inner),) = value.items()
        for branch in union.branches:
            if name == branch.full_name:
                return avro_value(inner, branch)
    branches = [branch for branch in union.branches if _may_be(value, branch)]
    for branch in branches:
        converted = avro_value(value, branch)
        if converted is not value or len(branches) == 1:
            return converted
    return value


def _may_be(value: Any, node: Node) -> bool:
    """Whether a JSON value of this type may be meant for this type."""
    kinds: dict[type, tuple[AvroType, ...]] = {
        type(None): (AvroType.NULL,),
        bool: (AvroType.BOOLEAN,),
        dict: (AvroType.RECORD, AvroType.MAP),
        list: (AvroType.ARRAY,),
    }
    if isinstance(value, str):
        is_text = any(branch is node.kind for branch in _TEXT_KINDS)
        return is_text or node.kind in (AvroType.BYTES, AvroType.FIXED) or _logical(node) != ""
    numbers = (AvroType.INT, AvroType.LONG, AvroType.FLOAT, AvroType.DOUBLE, AvroType.BYTES)
    return node.kind in kinds.get(type(value), numbers)


def _logical(node: Node) -> str:
    name = node.properties.get("logicalType")
    return name if isinstance(name, str) and name in _LOGICAL else ""


def _leaf_value(value: Any, node: Node) -> Any:
    logical = _logical(node)
    try:
        if logical == "decimal" and isinstance(value, str | int | float):
            return Decimal(str(value))
        if not isinstance(value, str):
            return value
        if logical:
            return _LOGICAL[logical](value)
        if node.kind in (AvroType.BYTES, AvroType.FIXED):
            return b64decode(value, validate=True)
    except (ValueError, InvalidOperation, binascii.Error):
        return value
    return value


def protobuf_value(value: Any, descriptor: Any) -> Any:
    """A JSON object as Protobuf's encoder takes it: bytes fields from base64."""
    if not isinstance(value, dict):
        return value
    fields = descriptor.fields_by_name
    return {
        name: _protobuf_field(each, fields[name]) if name in fields else each
        for name, each in value.items()
    }


def _protobuf_field(value: Any, field: Any) -> Any:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry and isinstance(value, dict):
        of_key, of_value = entry.fields_by_name["key"], entry.fields_by_name["value"]
        is_text = of_key.cpp_type == of_key.CPPTYPE_STRING
        return {
            name if is_text else _number(name): _protobuf_one(each, of_value)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [_protobuf_one(each, field) for each in value]
    return _protobuf_one(value, field)


def _protobuf_one(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        return protobuf_value(value, field.message_type)
    if field.type == field.TYPE_BYTES and isinstance(value, str):
        try:
            return b64decode(value, validate=True)
        except (ValueError, binascii.Error):
            return value
    return value


def _number(text: str) -> Any:
    """The key of a map, which JSON has only as text."""
    known = {"true": True, "false": False}
    if text in known:
        return known[text]
    return int(text) if text.lstrip("-").isdecimal() else text
