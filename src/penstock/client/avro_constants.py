"""Defaults of fields that were not written, as instructions: the same value for every row."""

import struct
from typing import Final

from penstock.client.avro_targets import Target
from penstock.client.avro_types import decimal_bytes, values_of
from penstock.columns.avro import program as ops
from penstock.columns.avro.program import NO_SLOT, Assembler, Wrong
from penstock.schemas.avro.constants import NoConstant, constant
from penstock.schemas.avro.defaults import fits
from penstock.schemas.avro.meaning import decimal_of
from penstock.schemas.avro.tree import (
    Absent,
    Array,
    Enum,
    Fixed,
    JsonValue,
    Kind,
    Map,
    Node,
    Record,
    Union,
)

_LAYOUTS: Final = {
    Kind.BOOLEAN: "<?",
    Kind.INT: "<i",
    Kind.LONG: "<q",
    Kind.FLOAT: "<f",
    Kind.DOUBLE: "<d",
}
_ONE_BYTE_EACH: Final = "latin-1"  # how a default writes bytes


def put_constant(
    assembler: Assembler, node: Node, value: JsonValue | Absent, target: Target
) -> None:
    """Put `value`, a default of type `node`, into the target. What does not fit fails the row."""
    try:
        constant(node, value)
    except NoConstant:
        assembler.put(ops.FAIL, NO_SLOT, Wrong.UNRESOLVABLE)
    else:
        _put(assembler, node, value, target)


def _put(assembler: Assembler, node: Node, value: JsonValue | Absent, target: Target) -> None:
    assert not isinstance(value, Absent), "there is a constant"
    if isinstance(node, Union):
        _put_union(assembler, node, value, target)
    elif isinstance(node, Record):
        assert isinstance(value, dict)
        if target.slot != NO_SLOT:
            assembler.put(ops.VALID, target.slot)
        for field, child in zip(node.fields, target.children, strict=True):
            _put(assembler, field.type, value.get(field.name, field.default), child)
    elif isinstance(node, Array):
        assert isinstance(value, list)
        for item in value:
            _put(assembler, node.items, item, target.children[0])
        assembler.put(ops.CONSTANT_LIST, target.slot, len(value))
    elif isinstance(node, Map):
        assert isinstance(value, dict)
        for key, item in value.items():
            _put_sized(assembler, key.encode(), target.children[0].slot)
            _put(assembler, node.values, item, target.children[1])
        assembler.put(ops.CONSTANT_LIST, target.slot, len(value))
    else:
        _put_scalar(assembler, node, value, target.slot)


def _put_union(assembler: Assembler, union: Union, value: JsonValue, target: Target) -> None:
    """Avro takes the first branch that the default fits."""
    branch = next(branch for branch in union.branches if fits(branch, value))
    values = values_of(union)
    if branch.kind is Kind.NULL:
        _put_nulls(assembler, target)
    elif len(values) == 1:
        _put(assembler, branch, value, target)
    else:
        if target.slot != NO_SLOT:
            assembler.put(ops.VALID, target.slot)
        for one, member in zip(values, target.children, strict=True):
            if one is branch:
                _put(assembler, one, value, member)
            else:
                _put_nulls(assembler, member)


def _put_nulls(assembler: Assembler, target: Target) -> None:
    assembler.put(ops.NULLS, NO_SLOT, 0, 0, *assembler.stretch(list(target.aligned())))


def _put_sized(assembler: Assembler, content: bytes, slot: int) -> None:
    assembler.put(ops.CONSTANT_SIZED, slot, assembler.constant(content), len(content))


def _put_scalar(assembler: Assembler, node: Node, value: JsonValue, slot: int) -> None:
    if node.kind is Kind.NULL:
        assembler.put(ops.NULLS, NO_SLOT, 0, 0, *assembler.stretch([slot]))
    elif node.kind in _LAYOUTS:
        place = assembler.constant(struct.pack(_LAYOUTS[node.kind], value))
        assembler.put(ops.CONSTANT, slot, place)
    else:
        assert isinstance(value, str)
        _put_text(assembler, node, value, slot)


def _put_text(assembler: Assembler, node: Node, text: str, slot: int) -> None:
    if node.kind is Kind.STRING or isinstance(node, Enum):
        _put_sized(assembler, text.encode(), slot)
        return
    content = text.encode(_ONE_BYTE_EACH)
    decimal = decimal_of(node)
    if decimal is not None:
        number = int.from_bytes(content, "big", signed=True)
        width = decimal_bytes(decimal.precision)
        place = assembler.constant(number.to_bytes(width, "little", signed=True))
        assembler.put(ops.CONSTANT, slot, place)
    elif isinstance(node, Fixed):
        assembler.put(ops.CONSTANT, slot, assembler.constant(content))
    else:
        _put_sized(assembler, content, slot)
