"""When two trees are the same schema.

Three grades. The same definition: names, fields, defaults, order, properties; a name may be
defined twice that way. The same but for documentation: aliases and enum defaults as well.
Equivalent: everything; registering one while the other is there makes no new version. In all of
them properties may come in any order, and 1 is not 1.0.
"""

from collections.abc import Sequence
from enum import IntEnum

from penstock.schemas.avro.tree import (
    Absent,
    Array,
    Enum,
    Field,
    Fixed,
    JsonValue,
    Map,
    Named,
    Node,
    Pending,
    Record,
    Union,
)


class _Grade(IntEnum):
    DEFINITION = 0
    BUT_DOCUMENTATION = 1
    EQUIVALENT = 2


def same_definition(one: Node, other: Node) -> bool:
    """Whether a name may be given to both."""
    return _Comparison(_Grade.DEFINITION).same(one, other)


def same_but_documentation(one: Node, other: Node) -> bool:
    """Whether they differ in what people read only."""
    return _Comparison(_Grade.BUT_DOCUMENTATION).same(one, other)


def equivalent(one: Node, other: Node) -> bool:
    """Whether they are one schema to the registry."""
    return _Comparison(_Grade.EQUIVALENT).same(one, other)


class _Comparison:
    def __init__(self, grade: _Grade) -> None:
        self._has_aliases = grade >= _Grade.BUT_DOCUMENTATION
        self._has_docs = grade is _Grade.EQUIVALENT
        self._seen: set[tuple[int, int]] = set()  # record pairs taken as equal until proven unequal

    def same(self, one: Node, other: Node) -> bool:
        if one is other:
            return not isinstance(one, Pending)
        if one.kind is not other.kind or isinstance(one, Pending) or isinstance(other, Pending):
            return False
        if not same_json(one.properties, other.properties):
            return False
        if isinstance(one, Named) and isinstance(other, Named):
            return self._same_named(one, other)
        if isinstance(one, Array) and isinstance(other, Array):
            return self.same(one.items, other.items)
        if isinstance(one, Map) and isinstance(other, Map):
            return self.same(one.values, other.values)
        if isinstance(one, Union) and isinstance(other, Union):
            return self._same_all(one.branches, other.branches)
        return True

    def _same_named(self, one: Named, other: Named) -> bool:
        if one.full_name != other.full_name:
            return False
        if self._has_docs and one.doc != other.doc:
            return False
        if self._has_aliases and not _same_aliases(one, other):
            return False
        if isinstance(one, Record) and isinstance(other, Record):
            pair = (id(one), id(other))
            if pair in self._seen:
                return True
            self._seen.add(pair)
            if len(one.fields) != len(other.fields):
                return False
            return all(map(self._same_field, one.fields, other.fields))
        if isinstance(one, Enum) and isinstance(other, Enum):
            return one.symbols == other.symbols
        return isinstance(one, Fixed) and isinstance(other, Fixed) and one.size == other.size

    def _same_all(self, ones: Sequence[Node], others: Sequence[Node]) -> bool:
        return len(ones) == len(others) and all(map(self.same, ones, others))

    def _same_field(self, one: Field, other: Field) -> bool:
        if self._has_docs and one.doc != other.doc:
            return False
        if self._has_aliases and set(one.aliases) != set(other.aliases):
            return False
        return (
            one.name == other.name
            and one.order == other.order
            and _same_default(one.default, other.default)
            and same_json(one.properties, other.properties)
            and self.same(one.type, other.type)
        )


def _same_aliases(one: Named, other: Named) -> bool:
    if set(one.alias_names) != set(other.alias_names):
        return False
    if isinstance(one, Enum) and isinstance(other, Enum):
        return one.default == other.default
    return True


def _same_default(one: JsonValue | Absent, other: JsonValue | Absent) -> bool:
    if isinstance(one, Absent) or isinstance(other, Absent):
        return one is other
    return same_json(one, other)


def same_json(one: object, other: object) -> bool:
    """Equal as JSON values: an integer is not a double, nor a truth value."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            same_json(value, other[key]) for key, value in one.items()
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (one != one and other != other)
    return type(one) is type(other) and one == other
