"""Whether ints that fastavro read have the 32 bits that Avro gives them: it lets any varint pass.

Values are looked at where the writer wrote an int, in the terms of whoever reads them. Where a
value does not say what it was written as, in unions of more than null and one type, the payload has
to be walked instead (`avro_depth`).
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from penstock.client.avro_matching import matching_branch, written_fields
from penstock.schemas.avro.tree import Array, Kind, Map, Node, Record, Union

Check: TypeAlias = Callable[[Any], bool]

INT_MIN: Final = -(2**31)
INT_MAX: Final = 2**31 - 1


def hides_ints(node: Node) -> bool:
    """Whether an int is somewhere below a union that values do not tell apart. Not recursive."""
    if isinstance(node, Union):
        values = [branch for branch in node.branches if branch.kind is not Kind.NULL]
        if len(values) > 1:
            return any(map(_has_int, values))
        return any(map(hides_ints, values))
    return any(map(hides_ints, _parts(node)))


def _has_int(node: Node) -> bool:
    return node.kind is Kind.INT or any(map(_has_int, _parts(node)))


def _parts(node: Node) -> list[Node]:
    match node:
        case Record():
            return [field.type for field in node.fields]
        case Union():
            return list(node.branches)
        case Array():
            return [node.items]
        case Map():
            return [node.values]
        case _:
            return []


def range_check(writer: Node, reader: Node) -> Check | None:
    """Whether a value that was read is within range; None where there is no int to look at."""
    if isinstance(writer, Union):
        values = [branch for branch in writer.branches if branch.kind is not Kind.NULL]
        inner = range_check(values[0], reader) if len(values) == 1 else None
        return None if inner is None else lambda value: value is None or inner(value)
    if isinstance(reader, Union):
        branch = matching_branch(writer, reader)
        return None if branch is None else range_check(writer, branch)
    if isinstance(writer, Record) and isinstance(reader, Record):
        return _record_check(writer, reader)
    if isinstance(writer, Array) and isinstance(reader, Array):
        item = range_check(writer.items, reader.items)
        return None if item is None else lambda value: all(map(item, value))
    if isinstance(writer, Map) and isinstance(reader, Map):
        each = range_check(writer.values, reader.values)
        return None if each is None else lambda value: all(map(each, value.values()))
    return _is_int if writer.kind is Kind.INT else None


def _record_check(writer: Record, reader: Record) -> Check | None:
    checks = [
        (name, check)
        for name, written in written_fields(writer, reader).items()
        if (check := range_check(written.type, reader.by_name[name].type)) is not None
    ]
    if not checks:
        return None
    return lambda value: all(check(value[name]) for name, check in checks)


def _is_int(value: Any) -> bool:
    # Dates and times were made of an int that had to be in range for them.
    return not isinstance(value, int | float) or INT_MIN <= value <= INT_MAX
