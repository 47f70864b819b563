"""Whether two trees are the same schema, by three degrees of equality.

Same definition: names, fields, defaults, order and properties are equal; a name may be defined
twice this way. Same except documentation: aliases and enum defaults are equal too. Equivalent:
everything is equal; the registry treats both as one version. Properties may be in any order, and
1 is not equal to 1.0.
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


class _Degree(IntEnum):
    DEFINITION = 0
    EXCEPT_DOCUMENTATION = 1
    EQUIVALENT = 2


def same_definition(first: Node, second: Node) -> bool:
    """Whether both may define the same name."""
    return _Comparison(_Degree.DEFINITION).same(first, second)


def same_except_documentation(first: Node, second: Node) -> bool:
    """Whether they differ in documentation at most."""
    return _Comparison(_Degree.EXCEPT_DOCUMENTATION).same(first, second)


def equivalent(first: Node, second: Node) -> bool:
    """Whether the registry treats them as first version."""
    return _Comparison(_Degree.EQUIVALENT).same(first, second)


class _Comparison:
    def __init__(self, degree: _Degree) -> None:
        self._compares_aliases = degree >= _Degree.EXCEPT_DOCUMENTATION
        self._compares_docs = degree is _Degree.EQUIVALENT
        self._seen: set[tuple[int, int]] = (
            set()
        )  # record pairs, assumed equal while they are compared

    def same(self, first: Node, second: Node) -> bool:
        if first is second:
            return not isinstance(first, Pending)
        if (
            first.kind is not second.kind
            or isinstance(first, Pending)
            or isinstance(second, Pending)
        ):
            return False
        if not same_json(first.properties, second.properties):
            return False
        if isinstance(first, Named) and isinstance(second, Named):
            return self._same_named(first, second)
        if isinstance(first, Array) and isinstance(second, Array):
            return self.same(first.items, second.items)
        if isinstance(first, Map) and isinstance(second, Map):
            return self.same(first.values, second.values)
        if isinstance(first, Union) and isinstance(second, Union):
            return self._same_all(first.branches, second.branches)
        return True

    def _same_named(self, first: Named, second: Named) -> bool:
        if first.full_name != second.full_name:
            return False
        if self._compares_docs and first.doc != second.doc:
            return False
        if self._compares_aliases and not _same_aliases(first, second):
            return False
        if isinstance(first, Record) and isinstance(second, Record):
            pair = (id(first), id(second))
            if pair in self._seen:
                return True
            self._seen.add(pair)
            if len(first.fields) != len(second.fields):
                return False
            return all(map(self._same_field, first.fields, second.fields))
        if isinstance(first, Enum) and isinstance(second, Enum):
            return first.symbols == second.symbols
        return isinstance(first, Fixed) and isinstance(second, Fixed) and first.size == second.size

    def _same_all(self, first: Sequence[Node], second: Sequence[Node]) -> bool:
        return len(first) == len(second) and all(map(self.same, first, second))

    def _same_field(self, first: Field, second: Field) -> bool:
        if self._compares_docs and first.doc != second.doc:
            return False
        if self._compares_aliases and set(first.aliases) != set(second.aliases):
            return False
        return (
            first.name == second.name
            and first.order == second.order
            and _same_default(first.default, second.default)
            and same_json(first.properties, second.properties)
            and self.same(first.type, second.type)
        )


def _same_aliases(first: Named, second: Named) -> bool:
    if set(first.alias_names) != set(second.alias_names):
        return False
    if isinstance(first, Enum) and isinstance(second, Enum):
        return first.default == second.default
    return True


def _same_default(first: JsonValue | Absent, second: JsonValue | Absent) -> bool:
    if isinstance(first, Absent) or isinstance(second, Absent):
        return first is second
    return same_json(first, second)


def same_json(first: object, second: object) -> bool:
    """Equal as JSON values: an integer equals neither a double nor a boolean."""
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(
            same_json(value, second[key]) for key, value in first.items()
        )
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(same_json, first, second))
    if isinstance(first, float) and isinstance(second, float):
        return first == second or (first != first and second != second)
    return type(first) is type(second) and first == second
