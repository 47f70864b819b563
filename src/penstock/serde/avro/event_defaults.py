"""Defaults of fields that were not written, as values of the reader's type."""

import copy
import struct
from collections.abc import Callable
from typing import Any, Final

from penstock.schemas.avro.tree import (
    Absent,
    Array,
    AvroType,
    Enum,
    Fixed,
    JsonValue,
    Map,
    Node,
    Record,
    Union,
)
from penstock.schemas.avro.types import is_valid_default
from penstock.serde.avro.event_scalars import scalar_reader
from penstock.serde.avro.varints import Budget, UnreadableError, varint

_LAYOUTS: Final = {AvroType.BOOLEAN: "<?", AvroType.FLOAT: "<f", AvroType.DOUBLE: "<d"}


class NoConstantError(Exception):
    """The default is no value of its type: what lacks the field cannot be read."""


def constant(node: Node, value: JsonValue | Absent, *, plain: bool = False) -> Callable[[], Any]:
    """Makes the value, a fresh one each time; or NoConstantError."""
    made = _made(node, value, plain=plain)
    if isinstance(made, list | dict):
        return lambda: copy.deepcopy(made)
    return lambda: made


def _made(node: Node, value: JsonValue | Absent, *, plain: bool) -> Any:
    if isinstance(value, Absent) or not is_valid_default(node, value):
        raise NoConstantError
    if isinstance(node, Union):  # Avro takes the first branch that the default fits
        branch = next(branch for branch in node.branches if is_valid_default(branch, value))
        return _made(branch, value, plain=plain)
    if isinstance(node, Record):
        assert isinstance(value, dict)
        return {
            field.name: _made(field.type, value.get(field.name, field.default), plain=plain)
            for field in node.fields
        }
    if isinstance(node, Array):
        assert isinstance(value, list)
        return [_made(node.items, item, plain=plain) for item in value]
    if isinstance(node, Map):
        assert isinstance(value, dict)
        return {key: _made(node.values, item, plain=plain) for key, item in value.items()}
    return _scalar(node, value, plain=plain)


def _scalar(node: Node, value: JsonValue, *, plain: bool) -> Any:
    """Written as Avro, and read as everything else is: the same bounds, the same meaning."""
    if isinstance(node, Enum):
        return value  # whatever it is: the check of defaults does not look so closely
    read = scalar_reader(node, node, plain=plain)
    assert read is not None, "a type can read itself"
    try:
        payload = _payload(node, value)
        if isinstance(node, Fixed) and len(payload) != node.size:
            raise NoConstantError
        return read(payload, 0, Budget())[0]
    except (UnreadableError, UnicodeEncodeError, OverflowError):
        raise NoConstantError from None


def _payload(node: Node, value: JsonValue) -> bytes:
    if node.kind is AvroType.NULL:
        return b""
    if node.kind in _LAYOUTS:
        return struct.pack(_LAYOUTS[node.kind], value)
    if isinstance(value, int):
        return varint(value)
    assert isinstance(value, str)
    content = value.encode() if node.kind is AvroType.STRING else value.encode("latin-1")
    return content if isinstance(node, Fixed) else varint(len(content)) + content
