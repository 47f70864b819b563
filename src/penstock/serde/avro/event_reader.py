"""Reads single Avro events as a reader's schema sees them.

A pair of schemas becomes functions, one per pair of types: each takes the payload, a position and
the budget, and returns the value and the position after it. What the reader has and the writer has
not is a constant, what the reader does not want is stepped over. A pair that cannot be resolved
fails when a payload gets there, not before: an empty array of such items can be read.

These are the rules of the kernels for whole batches (`columns.avro`), in the same order: both read
the same values and refuse the same payloads for the same reason.
"""

from typing import Any, NoReturn

from penstock.schemas.avro.tree import Array, Field, Map, Node, Record, Union
from penstock.serde.avro.event_defaults import NoConstantError, constant
from penstock.serde.avro.event_scalars import Read, scalar_reader
from penstock.serde.avro.event_skipping import Skip, Skips
from penstock.serde.avro.limits import EVENT_BYTES_MAX
from penstock.serde.avro.logical_types import described
from penstock.serde.avro.matching import matching_branch, same_name, written_fields
from penstock.serde.avro.sizes import bytes_min, self_containing
from penstock.serde.avro.varints import Budget, UnreadableError, read_count, read_size, read_varint


class EventReader:
    """Reads what one schema wrote as another one sees it; safe for threads.

    `plain` gives numbers and bytes where a logical type would have Python's own value.
    """

    def __init__(self, writer: Node, reader: Node | None = None, *, plain: bool = False) -> None:
        self._read = _Reads(writer, plain=plain).top(writer, writer if reader is None else reader)

    def read(self, payload: bytes) -> Any:
        """The value, if the payload is one and nothing else; or UnreadableError."""
        if len(payload) > EVENT_BYTES_MAX:
            raise UnreadableError("TOO_LARGE", f"more than {EVENT_BYTES_MAX} bytes", 0)
        try:
            value, end = self._read(payload, 0, Budget())
        except IndexError:
            raise UnreadableError("TRUNCATED", "ends too soon", len(payload)) from None
        except RecursionError:
            raise UnreadableError("NESTING", "values are nested too deep", 0) from None
        if end != len(payload):
            raise UnreadableError("TRAILING", f"{len(payload) - end} bytes after the value", end)
        return value


class _Reads:
    def __init__(self, writer: Node, *, plain: bool) -> None:
        self._plain = plain
        self._skips = Skips(writer)
        self._pairs: dict[tuple[int, int, bool], Read] = {}

    def top(self, writer: Node, reader: Node) -> Read:
        """The whole event: the fields of a record are columns, and only below them are levels."""
        if not isinstance(reader, Record):
            return self.read(writer, reader, is_tree=_is_tree(reader))
        if isinstance(writer, Union):
            return _union([self.top(branch, reader) for branch in writer.branches])
        if isinstance(writer, Record) and same_name(writer, reader):
            return self._fields(
                writer, reader, {field.name: _is_tree(field.type) for field in reader.fields}
            )
        return _fails(writer, reader)

    def read(self, writer: Node, reader: Node, *, is_tree: bool) -> Read:
        """One value; in a tree, records that contain themselves count as levels."""
        if isinstance(writer, Union):
            return _union(
                [self.read(branch, reader, is_tree=is_tree) for branch in writer.branches]
            )
        if isinstance(reader, Union):
            branch = matching_branch(writer, reader)
            if branch is None:
                return _fails(writer, reader)
            return self.read(writer, branch, is_tree=is_tree)
        if isinstance(writer, Record) and isinstance(reader, Record):
            return self._record(writer, reader, is_tree=is_tree)
        if isinstance(writer, Array) and isinstance(reader, Array):
            item = self.read(writer.items, reader.items, is_tree=is_tree)
            return _list(item, bytes_min(writer.items))
        if isinstance(writer, Map) and isinstance(reader, Map):
            value = self.read(writer.values, reader.values, is_tree=is_tree)
            return _map(value, 1 + bytes_min(writer.values))
        if isinstance(reader, Record | Array | Map) or isinstance(writer, Record | Array | Map):
            return _fails(writer, reader)
        return self._scalar(writer, reader)

    def _scalar(self, writer: Node, reader: Node) -> Read:
        """One reader per pair of types: many fields may use the same large enum."""
        key = (id(writer), id(reader), False)
        known = self._pairs.get(key)
        if known is None:
            known = scalar_reader(writer, reader, plain=self._plain) or _fails(writer, reader)
            self._pairs[key] = known
        return known

    def _record(self, writer: Record, reader: Record, *, is_tree: bool) -> Read:
        if not same_name(writer, reader):
            return _fails(writer, reader)
        key = (id(writer), id(reader), is_tree)
        known = self._pairs.get(key)
        if known is not None:
            return known
        made: list[Read] = []
        self._pairs[key] = lambda payload, at, budget: made[0](payload, at, budget)
        inner = self._fields(writer, reader, {field.name: is_tree for field in reader.fields})
        made.append(_level(inner) if is_tree and self._skips.is_endless(writer) else inner)
        self._pairs[key] = made[0]
        return made[0]

    def _fields(self, writer: Record, reader: Record, is_tree: dict[str, bool]) -> Read:
        sources = written_fields(writer, reader)
        readers = {id(written): reader.by_name[name] for name, written in sources.items()}
        steps: list[tuple[str, Read] | Skip] = []
        for written in writer.fields:
            field = readers.get(id(written))
            if field is None:
                steps.append(self._skips.skip(written.type))
            else:
                read = self.read(written.type, field.type, is_tree=is_tree[field.name])
                steps.append((field.name, read))
        missing = [field for field in reader.fields if field.name not in sources]
        if not missing and all(isinstance(step, tuple) for step in steps):
            return _record([step for step in steps if isinstance(step, tuple)], reader)
        steps += [(field.name, self._constant(field, reader)) for field in missing]
        return _resolved_record(steps, reader)

    def _constant(self, field: Field, reader: Record) -> Read:
        try:
            make = constant(field.type, field.default, plain=self._plain)
        except NoConstantError:
            lacking = "a default that does not fit" if field.has_default else "no default"
            return _raises(f"{reader.full_name}.{field.name} was not written, and has {lacking}")
        return lambda _payload, at, _budget: (make(), at)


def _is_tree(node: Node) -> bool:
    return bool(self_containing(node))


def _raises(detail: str) -> Read:
    def fail(_payload: bytes, at: int, _: Budget) -> NoReturn:
        raise UnreadableError("UNRESOLVABLE", detail, at)

    return fail


def _fails(writer: Node, reader: Node) -> Read:
    return _raises(f"{described(writer)} cannot be read as {described(reader)}")


def _level(inner: Read) -> Read:
    def read(payload: bytes, at: int, budget: Budget) -> tuple[Any, int]:
        budget.enter(at)
        value, at = inner(payload, at, budget)
        budget.levels += 1
        return value, at

    return read


def _record(fields: list[tuple[str, Read]], reader: Record) -> Read:
    """All fields were written, and all of them are wanted."""
    names = [field.name for field in reader.fields]
    in_order = [name for name, _ in fields] == names

    def read(payload: bytes, at: int, budget: Budget) -> tuple[dict[str, Any], int]:
        value: dict[str, Any] = {} if in_order else dict.fromkeys(names)
        for name, field in fields:
            value[name], at = field(payload, at, budget)
        return value, at

    return read


def _resolved_record(steps: "list[tuple[str, Read] | Skip]", reader: Record) -> Read:
    names = [field.name for field in reader.fields]

    def read(payload: bytes, at: int, budget: Budget) -> tuple[dict[str, Any], int]:
        value: dict[str, Any] = dict.fromkeys(names)
        for step in steps:
            if isinstance(step, tuple):
                value[step[0]], at = step[1](payload, at, budget)
            else:
                at = step(payload, at, budget)
        return value, at

    return read


def _union(branches: list[Read]) -> Read:
    count = len(branches)

    def read(payload: bytes, at: int, budget: Budget) -> tuple[Any, int]:
        index, after = read_varint(payload, at)
        if not 0 <= index < count:
            raise UnreadableError("UNION", f"a union has no branch {index}", at)
        return branches[index](payload, after, budget)

    return read


def _list(item: Read, item_bytes_min: int) -> Read:
    def read(payload: bytes, at: int, budget: Budget) -> tuple[list[Any], int]:
        budget.enter(at)
        items: list[Any] = []
        while True:
            count, at = read_count(payload, at, item_bytes_min, budget)
            if not count:
                budget.levels += 1
                return items, at
            for _ in range(count):
                value, at = item(payload, at, budget)
                items.append(value)

    return read


def _map(item: Read, item_bytes_min: int) -> Read:
    def read(payload: bytes, at: int, budget: Budget) -> tuple[dict[str, Any], int]:
        budget.enter(at)
        entries: dict[str, Any] = {}
        while True:
            count, at = read_count(payload, at, item_bytes_min, budget)
            if not count:
                budget.levels += 1
                return entries, at
            for _ in range(count):
                start, end = read_size(payload, at)
                try:
                    key = payload[start:end].decode()
                except UnicodeDecodeError:
                    raise UnreadableError("UTF8", "a key that is not UTF-8", at) from None
                entries[key], at = item(payload, end, budget)

    return read
