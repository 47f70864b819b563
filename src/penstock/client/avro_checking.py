"""Whether Arrow takes Python values for what they are, a column at a time.

`pa.array` makes 1 of 1.5, bytes of text, a list of letters of a word, and passes over keys that the
type does not have. Values that are not exactly of the types below go another way, one by one.
Nulls are let through: whether they may be there is the kernel's to say.
"""

import datetime
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import chain
from operator import itemgetter
from types import NoneType
from typing import Any, Final

from penstock.client.avro_types import decimal_of, values_of
from penstock.schemas.avro.logical import LOGICAL_TYPE, logical_type
from penstock.schemas.avro.tree import Array, Kind, Map, Node, Record, Union

_BYTES: Final = frozenset((bytes, bytearray))
_TAKEN: Final[Mapping[Kind, frozenset[type]]] = {
    Kind.BOOLEAN: frozenset((bool,)),
    Kind.INT: frozenset((int,)),
    Kind.LONG: frozenset((int,)),
    Kind.FLOAT: frozenset((int, float)),
    Kind.DOUBLE: frozenset((int, float)),
    Kind.STRING: frozenset((str,)),
    Kind.ENUM: frozenset((str,)),
    Kind.BYTES: _BYTES,
    Kind.FIXED: _BYTES,
    Kind.NULL: frozenset(),
}
_TAKEN_DECIMAL: Final = frozenset((Decimal,))
_TAKEN_LOGICAL: Final[Mapping[str, frozenset[type]]] = {
    "date": frozenset((int, datetime.date)),
    "time-millis": frozenset((int, datetime.time)),
    "time-micros": frozenset((int, datetime.time)),
}
_TAKEN_TIMESTAMP: Final = frozenset((int, datetime.datetime))


def are_taken(node: Node, values: Sequence[Any]) -> bool:
    """Whether these are values of `node` that Arrow does not change."""
    kinds = set(map(type, values))
    if NoneType in kinds:
        kinds.discard(NoneType)
        values = [value for value in values if value is not None]
    if isinstance(node, Union):
        inner = values_of(node)
        return not kinds if not inner else len(inner) == 1 and are_taken(inner[0], values)
    if isinstance(node, Record):
        return kinds <= {dict} and _are_records(node, values)
    if isinstance(node, Array):
        return kinds <= {list, tuple} and are_taken(node.items, list(chain.from_iterable(values)))
    if isinstance(node, Map):
        if not kinds <= {dict} or not set(map(type, chain.from_iterable(values))) <= {str}:
            return False
        return are_taken(node.values, [one for value in values for one in value.values()])
    return _are_scalars(node, kinds, values)


def _are_records(record: Record, values: Sequence[dict[str, Any]]) -> bool:
    names = record.by_name.keys()
    is_whole = set(map(len, values)) <= {len(names)}
    if not is_whole and not all(value.keys() <= names for value in values):
        return False
    for field in record.fields:
        name = field.name
        try:
            if is_whole and _are_plain(field.type, set(map(type, map(itemgetter(name), values)))):
                continue
            column = list(map(itemgetter(name), values)) if is_whole else _column(values, name)
        except KeyError:  # as many keys as fields, but not the same ones
            return False
        if not are_taken(field.type, column):
            return False
    return True


def _are_plain(node: Node, kinds: set[type]) -> bool:
    """Whether the types alone say that values are taken, as they do of nearly all fields."""
    if isinstance(node, Union) and len(inner := values_of(node)) == 1:
        node = inner[0]
    kinds.discard(NoneType)
    taken = _TAKEN.get(node.kind)
    return taken is not None and LOGICAL_TYPE not in node.properties and kinds <= taken


def _column(values: Sequence[dict[str, Any]], name: str) -> list[Any]:
    return [value.get(name) for value in values]


def _are_scalars(node: Node, kinds: set[type], values: Sequence[Any]) -> bool:
    if decimal_of(node) is not None:
        return kinds <= _TAKEN_DECIMAL
    logical = logical_type(node)
    name = "" if logical is None else logical.name
    head, _, _ = name.rpartition("-")
    if head.endswith("timestamp"):
        # A local one has no zone and the others have one: anything else would be a guess.
        is_local = head.startswith("local")
        return kinds <= _TAKEN_TIMESTAMP and all(
            (value.tzinfo is None) == is_local
            for value in values
            if type(value) is datetime.datetime
        )
    return kinds <= _TAKEN_LOGICAL.get(name, _TAKEN[node.kind])
