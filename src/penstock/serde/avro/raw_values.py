"""Numbers, texts and bytes that are given in place of a date, a UUID or a decimal, before writing.

fastavro writes them as they are. What would not be read again is refused here: only fields whose
logical type restricts them are looked at. In a union of several kinds of values they are not.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from penstock.schemas.avro.tree import Array, AvroType, Map, Node, Record, Union
from penstock.schemas.avro.types import logical_type
from penstock.serde.avro.event_scalars import is_uuid
from penstock.serde.avro.logical_types import (
    decimal_of,
    is_restricted,
    is_uuid_text,
    number_meaning,
)

_Check: TypeAlias = Callable[[Any], str | None]


class RawValues:
    """The check for values of one schema."""

    def __init__(self, root: Node) -> None:
        self._records: dict[int, list[tuple[str, _Check]]] = {}
        self._check = self._of(root)

    def invalid(self, value: Any) -> str | None:
        """What is not a value of its logical type; None if there is nothing."""
        return None if self._check is None else self._check(value)

    def _of(self, node: Node) -> _Check | None:
        if isinstance(node, Record):
            return self._record(node)
        if isinstance(node, Array):
            item = self._of(node.items)
            return None if item is None else lambda value: _in_items(value, item)
        if isinstance(node, Map):
            entry = self._of(node.values)
            return None if entry is None else lambda value: _in_entries(value, entry)
        if isinstance(node, Union):
            values = [branch for branch in node.branches if branch.kind is not AvroType.NULL]
            return self._of(values[0]) if len(values) == 1 else None
        return _leaf(node)

    def _record(self, record: Record) -> _Check | None:
        checks = self._records.get(id(record))
        if checks is None:
            checks = self._records[id(record)] = []
            for field in record.fields:
                check = self._of(field.type)
                if check is not None:
                    checks.append((field.name, check))
            if not checks:
                return None
        return lambda value: _in_fields(value, checks)


def _in_fields(value: Any, checks: list[tuple[str, _Check]]) -> str | None:
    if isinstance(value, Mapping):
        for name, check in checks:
            given = value.get(name)
            if given is not None and (wrong := check(given)) is not None:
                return f"{name}: {wrong}"
    return None


def _in_items(value: Any, check: _Check) -> str | None:
    items = value if isinstance(value, list | tuple) else ()
    return next((wrong for item in items if (wrong := check(item)) is not None), None)


def _in_entries(value: Any, check: _Check) -> str | None:
    return _in_items(list(value.values()), check) if isinstance(value, Mapping) else None


def _leaf(node: Node) -> _Check | None:
    if is_uuid_text(node):
        return lambda value: (
            f"{value[:40]!r} is not a UUID"
            if isinstance(value, str) and not is_uuid(value)
            else None
        )
    decimal = decimal_of(node)
    if decimal is not None:
        end, digits = 10**decimal.precision, decimal.precision
        return lambda value: (
            f"a decimal of more than {digits} digits"
            if isinstance(value, bytes) and abs(int.from_bytes(value, "big", signed=True)) >= end
            else None
        )
    if not is_restricted(node):
        return None
    meaning, logical = number_meaning(node, node), logical_type(node)
    assert meaning is not None, "a type can read itself"
    assert logical is not None, "a logical type restricts it"
    least, greatest, name = meaning.least, meaning.greatest, logical.name
    return lambda value: (
        f"{value} is no {name}" if type(value) is int and not least <= value <= greatest else None
    )
