"""Tree to its normal form, as a JSON value that `parse` parses again.

Everything without a meaning is put in one order: aliases and properties are sorted, a logical type
and its parameters come first, and numbers in defaults get the form of their type (of the first
branch in a union). As Confluent does it, but without losing any meaning: Confluent drops a default
that is invalid for the first branch, and moves a type without a namespace into the outer one.
"""

import struct
from collections.abc import Mapping
from typing import Final, TypeVar

from penstock.schemas.avro.tree import (
    Absent,
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    JsonValue,
    Map,
    Named,
    Node,
    Properties,
    Record,
    Union,
)
from penstock.schemas.avro.types import LOGICAL_TYPE, logical_type

_Value = TypeVar("_Value")
_FLOAT_END: Final = 3.4028235677973366e38  # rounds to infinity
_FLOAT_DIGITS_MAX: Final = 9  # enough to distinguish any two floats


def normal_form(root: Node, known: set[str]) -> JsonValue:
    """The schema in normal form; types in `known` become names."""
    return _Normalizer(known).form(root)


class _Normalizer:
    def __init__(self, known: set[str]) -> None:
        self._known = known

    def form(self, node: Node) -> JsonValue:
        if isinstance(node, Union):
            return [self.form(branch) for branch in node.branches]
        if isinstance(node, Named):
            return self._named(node)
        members: dict[str, JsonValue] = {"type": node.kind.value}
        if isinstance(node, Array):
            members["items"] = self.form(node.items)
        elif isinstance(node, Map):
            members["values"] = self.form(node.values)
        elif not node.properties:
            return node.kind.value
        return members | _ordered_properties(node)

    def _named(self, node: Named) -> JsonValue:
        if node.full_name in self._known:
            return node.full_name
        self._known.add(node.full_name)
        # An empty namespace is explicit: without it the name would be in the outer namespace.
        members: dict[str, JsonValue] = {
            "name": node.name.simple,
            "namespace": node.name.namespace or "",
            "type": node.kind.value,
        }
        if isinstance(node, Record):
            members["fields"] = [self._field(field) for field in node.fields]
        elif isinstance(node, Enum):
            members["symbols"] = list(node.symbols)
            if node.default is not None:
                members["default"] = node.default
        elif isinstance(node, Fixed):
            members["size"] = node.size
        if node.doc:
            members["doc"] = node.doc
        if node.aliases:
            members["aliases"] = list(_sorted(dict.fromkeys(node.alias_names)))
        return members | _ordered_properties(node)

    def _field(self, field: Field) -> JsonValue:
        members: dict[str, JsonValue] = {
            "name": field.name,
            "type": self.form(field.type),
            "order": field.order,
        }
        if field.doc is not None:
            members["doc"] = field.doc
        if field.aliases:
            members["aliases"] = list(_sorted(dict.fromkeys(field.aliases)))
        if not isinstance(field.default, Absent):
            members["default"] = _default(field.default, field.type)
        return members | _sorted_deep(field.properties)


def _ordered_properties(node: Node) -> dict[str, JsonValue]:
    logical = logical_type(node)
    first: dict[str, JsonValue] = {}
    if logical is not None:
        first[LOGICAL_TYPE] = logical.name
        if logical.name == "decimal":
            first["precision"] = logical.precision
            if logical.scale:
                first["scale"] = logical.scale
    return first | _sorted_deep(node.properties)


def _sorted_deep(properties: Properties) -> dict[str, JsonValue]:
    return {key: _deep(value) for key, value in _sorted(properties).items()}


def _deep(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return _sorted_deep(value)
    if isinstance(value, list):
        return [_deep(item) for item in value]
    return value


def _sorted(members: Mapping[str, _Value]) -> dict[str, _Value]:
    # Java compares strings by UTF-16 units.
    return dict(sorted(members.items(), key=lambda member: member[0].encode("utf-16-be")))


def _default(value: JsonValue, node: Node | None) -> JsonValue:
    while isinstance(node, Union):
        node = node.branches[0] if node.branches else None
    match value:
        case bool() | None | str():
            return value
        case int() | float():
            return _number(value, node)
        case list():
            items = node.items if isinstance(node, Array) else None
            return [_default(item, items) for item in value]
        case dict():
            inner = {key: _default(member, _member(node, key)) for key, member in value.items()}
            return dict(_sorted(inner))


def _member(node: Node | None, key: str) -> Node | None:
    if isinstance(node, Map):
        return node.values
    if isinstance(node, Record) and key in node.by_name:
        return node.by_name[key].type
    return None


def _number(value: int | float, node: Node | None) -> JsonValue:
    if node is not None and node.kind is AvroType.DOUBLE:
        return float(value)
    if node is not None and node.kind is AvroType.FLOAT:
        return _shortest_float(float(value))
    return value


def _shortest_float(value: float) -> float:
    """The double with the fewest digits that rounds to the same single-precision number."""
    try:
        packed = struct.pack(">f", value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    for digits in range(1, _FLOAT_DIGITS_MAX + 1):
        candidate = float(f"{value:.{digits}g}")
        if abs(candidate) < _FLOAT_END and struct.pack(">f", candidate) == packed:
            return candidate
    return value
