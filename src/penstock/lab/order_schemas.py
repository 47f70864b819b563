"""The Order of the lab: one logical event, its versions and changes, in three schema languages.

A shape describes the event once; `avro`, `protobuf` and `json_schema` write it in a language. A
version of the Order is the version before it with one change. Field numbers are fixed: a renamed
field keeps its number.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from penstock.schemas.model import SchemaText, SchemaType
from penstock.serde.contract import Contract


class FieldKind(StrEnum):
    """The type of a field, in Avro's words where it has one."""

    STRING = "string"
    INT = "int"
    LONG = "long"
    BOOLEAN = "boolean"
    STATUS = "status"
    ITEMS = "items"


@dataclass(frozen=True, slots=True)
class OrderField:
    """One field. Optional: may be absent. `default` is for readers that find it absent."""

    name: str
    kind: FieldKind
    number: int
    is_optional: bool = False
    default: Any = None
    aliases: tuple[str, ...] = ()  # Avro only: names that writers used before


@dataclass(frozen=True, slots=True)
class OrderShape:
    """All that a version of the Order consists of."""

    fields: tuple[OrderField, ...]
    item_fields: tuple[OrderField, ...]
    statuses: tuple[str, ...]

    def with_field(self, field: OrderField) -> "OrderShape":
        """This shape and one more field, before the items."""
        *before, items = self.fields
        return replace(self, fields=(*before, field, items))

    def without(self, name: str) -> "OrderShape":
        """This shape without a field."""
        return replace(self, fields=tuple(one for one in self.fields if one.name != name))

    def changed(self, name: str, /, **values: Any) -> "OrderShape":
        """This shape with one field changed."""
        fields = tuple(replace(one, **values) if one.name == name else one for one in self.fields)
        return replace(self, fields=fields)


_S, _I, _L = FieldKind.STRING, FieldKind.INT, FieldKind.LONG
V1: Final = OrderShape(
    fields=(
        OrderField("order_id", _S, 1),
        OrderField("customer", _S, 2),
        OrderField("created_at", _L, 3),
        OrderField("status", FieldKind.STATUS, 4),
        OrderField("currency", _S, 5),
        OrderField("cents", _I, 6),
        OrderField("quantity", _I, 7),
        OrderField("email", _S, 8),
        OrderField("street", _S, 9),
        OrderField("express", FieldKind.BOOLEAN, 10),
        OrderField("note", _S, 11, is_optional=True),
        OrderField("items", FieldKind.ITEMS, 15),
    ),
    item_fields=(
        OrderField("sku", _S, 1),
        OrderField("title", _S, 2),
        OrderField("quantity", _I, 3),
        OrderField("cents", _I, 4),
    ),
    statuses=("NEW", "PAID", "SHIPPED", "CANCELLED"),
)
_COUPON: Final = OrderField("coupon", _S, 12, is_optional=True)
_DISCOUNT: Final = OrderField("discount", _I, 5, is_optional=True)


def _with_discount(shape: OrderShape) -> OrderShape:
    return replace(shape, item_fields=(*shape.item_fields, _DISCOUNT))


def _with_returned(shape: OrderShape) -> OrderShape:
    return replace(shape, statuses=(*shape.statuses, "RETURNED"))


V2: Final = V1.with_field(_COUPON)
V3: Final = V2.changed("cents", kind=_L)
V4: Final = V3.without("note")
V5: Final = _with_returned(V4)
V6: Final = _with_discount(V5)
VERSIONS: Final[Mapping[str, OrderShape]] = {
    "v1": V1, "v2": V2, "v3": V3, "v4": V4, "v5": V5, "v6": V6,
}  # fmt: skip
VERSION_CHANGES: Final = {
    "v1": "the first one",
    "v2": "adds the optional field `coupon`",
    "v3": "`cents` is a long, not an int",
    "v4": "removes the optional field `note`",
    "v5": "adds the status RETURNED",
    "v6": "line items have the optional field `discount`",
}

_PRIORITY: Final = OrderField("priority", _S, 13, default="normal")
# A change: the versions of a subject, oldest first; the last one is proposed.
CHANGES: Final[Mapping[str, tuple[OrderShape, ...]]] = {
    "add an optional field": (V1, V2),
    "add a required field": (V1, V1.with_field(OrderField("channel", _S, 13))),
    "remove an optional field": (V1, V1.without("note")),
    "remove a required field": (V1, V1.without("street")),
    "rename a field": (V1, V1.changed("email", name="contact")),
    "rename with an alias": (V1, V1.changed("email", name="contact", aliases=("email",))),
    "int to long": (V1, V1.changed("cents", kind=_L)),
    "int to string": (V1, V1.changed("quantity", kind=_S)),
    "add an enum symbol": (V1, _with_returned(V1)),
    "add a field to line items": (V1, _with_discount(V1)),
    "drop a default added before": (
        V1,
        V1.with_field(_PRIORITY),
        V1.with_field(replace(_PRIORITY, default=None)),
    ),
}

# Every shape that a producer can write, by name.
SHAPES: Final[Mapping[str, OrderShape]] = {
    **VERSIONS,
    **{change: shapes[-1] for change, shapes in CHANGES.items()},
}


def avro(shape: OrderShape) -> str:
    """The shape as an Avro schema. The enum has a default: readers map unknown symbols to it."""
    status = {
        "type": "enum", "name": "Status", "symbols": list(shape.statuses), "default": "NEW",
    }  # fmt: skip
    item = {
        "type": "record",
        "name": "Item",
        "fields": [_avro_field(field, {}) for field in shape.item_fields],
    }
    kinds = {FieldKind.STATUS: status, FieldKind.ITEMS: {"type": "array", "items": item}}
    fields = [_avro_field(field, kinds) for field in shape.fields]
    return json.dumps(
        {"type": "record", "name": "Order", "namespace": "lab", "fields": fields}, indent=1
    )


def _avro_field(field: OrderField, kinds: Mapping[FieldKind, Any]) -> dict[str, Any]:
    kind: Any = kinds.get(field.kind, str(field.kind))
    row: dict[str, Any] = {"name": field.name, "type": kind}
    if field.is_optional:
        row |= {"type": ["null", kind], "default": None}
    elif field.default is not None:
        row["default"] = field.default
    if field.aliases:
        row["aliases"] = list(field.aliases)
    return row


_PROTOBUF_KINDS: Final = {
    FieldKind.STRING: "string",
    FieldKind.INT: "int32",
    FieldKind.LONG: "int64",
    FieldKind.BOOLEAN: "bool",
    FieldKind.STATUS: "Status",
    FieldKind.ITEMS: "Item",
}


def protobuf(shape: OrderShape) -> str:
    """The shape as a .proto file; proto3 has no required fields."""
    lines = ['syntax = "proto3";', "package lab;", "message Order {"]
    symbols = " ".join(f"{name} = {at};" for at, name in enumerate(shape.statuses))
    lines.append(f"  enum Status {{ {symbols} }}")
    lines += ["  message Item {", *(f"  {_proto_line(one)}" for one in shape.item_fields), "  }"]
    lines += [_proto_line(field) for field in shape.fields]
    return "\n".join([*lines, "}", ""])


def _proto_line(field: OrderField) -> str:
    label = "optional " if field.is_optional else ""
    if field.kind is FieldKind.ITEMS:
        label = "repeated "
    return f"  {label}{_PROTOBUF_KINDS[field.kind]} {field.name} = {field.number};"


def json_schema(shape: OrderShape) -> str:
    """The shape as a JSON Schema with an open content model, as most are written."""
    kinds: dict[FieldKind, Any] = {
        FieldKind.STRING: {"type": "string"},
        FieldKind.INT: {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1},
        FieldKind.LONG: {"type": "integer"},
        FieldKind.BOOLEAN: {"type": "boolean"},
        FieldKind.STATUS: {"type": "string", "enum": list(shape.statuses)},
    }
    kinds[FieldKind.ITEMS] = {"type": "array", "items": _json_object(shape.item_fields, kinds)}
    return json.dumps({"title": "Order", **_json_object(shape.fields, kinds)}, indent=1)


def _json_object(fields: tuple[OrderField, ...], kinds: Mapping[FieldKind, Any]) -> dict[str, Any]:
    required = [one.name for one in fields if not one.is_optional and one.default is None]
    properties = {
        one.name: {**kinds[one.kind], **({"default": one.default} if one.default else {})}
        for one in fields
    }
    return {"type": "object", "properties": properties, "required": required}


LANGUAGE_WRITERS: Final[Mapping[SchemaType, Callable[[OrderShape], str]]] = {
    SchemaType.AVRO: avro,
    SchemaType.PROTOBUF: protobuf,
    SchemaType.JSON: json_schema,
}


def contract_of(shape: OrderShape, language: SchemaType, **more: Any) -> Contract:
    """The contract of a shape in a language."""
    return Contract(LANGUAGE_WRITERS[language](shape), language, **more)


def schema_text(shape: OrderShape, language: SchemaType) -> SchemaText:
    """The schema of a shape, as it is registered."""
    return SchemaText(language, LANGUAGE_WRITERS[language](shape))
