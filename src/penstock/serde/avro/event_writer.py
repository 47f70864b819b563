"""Writes single Avro events of exactly the values that a schema asks for.

A schema becomes functions, one per type: each takes a value and the payload so far, and appends to
it. Any other type, or a value out of range, raises NotExactError: then fastavro decides whether it
can be written, or says why not. What is written here is what fastavro writes.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, Final, TypeAlias

from penstock.schemas.avro.tree import Array, AvroType, Enum, Fixed, Map, Node, Record, Union
from penstock.serde.avro.conversions import decimal_writer, moment_reader, uuid_bytes
from penstock.serde.avro.event_defaults import NoConstantError, constant
from penstock.serde.avro.logical_types import decimal_of, is_uuid_text, number_meaning
from penstock.serde.avro.varints import varint

Write: TypeAlias = Callable[[Any, bytearray], None]

_SHORT: Final = 64  # sizes and counts below are one byte
_FLOAT: Final = Struct("<f").pack
_DOUBLE: Final = Struct("<d").pack
_EXACT_INTS: Final = {
    AvroType.FLOAT: 1 << 24,
    AvroType.DOUBLE: 1 << 53,
}  # all up to here are floats


# Of which branches of a union a value of a type may be: for fastavro an int is a float, too, and
# bytes are an array of numbers.
_PYTHON_TYPES: Final[dict[AvroType, tuple[type, ...]]] = {
    AvroType.BOOLEAN: (bool,),
    AvroType.INT: (int,),
    AvroType.LONG: (int,),
    AvroType.FLOAT: (float, int),
    AvroType.DOUBLE: (float, int),
    AvroType.STRING: (str,),
    AvroType.ENUM: (str,),
    AvroType.BYTES: (bytes, bytearray),
    AvroType.FIXED: (bytes, bytearray),
    AvroType.ARRAY: (list, bytes, bytearray),
    AvroType.MAP: (dict,),
    AvroType.RECORD: (dict,),
}


class NotExactError(Exception):
    """A value that is not exactly what the schema asks for."""


class EventWriter:
    """Writes values of one schema; safe for threads."""

    def __init__(self, root: Node) -> None:
        self._write = _Writes().of(root)

    def write(self, value: Any) -> bytes:
        """The payload, or NotExactError."""
        payload = bytearray()
        try:
            self._write(value, payload)
        except (TypeError, ValueError, KeyError, ArithmeticError, RecursionError) as error:
            raise NotExactError from error
        return bytes(payload)


class _Writes:
    """The functions of a schema, one for each record however often it is used."""

    def __init__(self) -> None:
        self._records: dict[int, Write] = {}

    def of(self, node: Node) -> Write:
        if isinstance(node, Record):
            return self._record(node)
        if isinstance(node, Union):
            return self._union(node)
        if isinstance(node, Array):
            return _array(self.of(node.items))
        if isinstance(node, Map):
            return _map(self.of(node.values))
        return _scalar(node)

    def _record(self, record: Record) -> Write:
        known = self._records.get(id(record))
        if known is None:
            fields: list[tuple[str, Write, bytes | None]] = []
            known = self._records[id(record)] = _record(fields)
            for field in record.fields:
                write = self.of(field.type)
                try:
                    default = _payload(write, constant(field.type, field.default)())
                except (NoConstantError, NotExactError, ValueError, TypeError):
                    default = None
                fields.append((field.name, write, default))
        return known

    def _union(self, union: Union) -> Write:
        values = [branch for branch in union.branches if branch.kind is not AvroType.NULL]
        if len(values) > 1:
            return self._wide_union(union, values)
        prefixes = {
            branch.kind is AvroType.NULL: varint(index)
            for index, branch in enumerate(union.branches)
        }
        write = self.of(values[0]) if values else _refuse
        return _optional(prefixes.get(True), prefixes.get(False, b""), write)

    def _wide_union(self, union: Union, values: list[Node]) -> Write:
        """By the type of a value, where one branch alone may have it; else fastavro decides."""
        by_type: dict[type, list[Node]] = {}
        for branch in values:
            for kind in _PYTHON_TYPES.get(branch.kind, ()):
                by_type.setdefault(kind, []).append(branch)
        if any(branch.properties for branch in values if not isinstance(branch, Record)):
            return _refuse  # logical types have values of their own
        chosen = {
            kind: (varint(union.branches.index(branches[0])), self.of(branches[0]))
            for kind, branches in by_type.items()
            if len(branches) == 1 and not isinstance(branches[0], Map)
        }  # a dict in place of a map may name its branch for fastavro
        null = [at for at, branch in enumerate(union.branches) if branch.kind is AvroType.NULL]
        if null:
            chosen[type(None)] = (varint(null[0]), _null)
        return _by_type(chosen)


def _by_type(chosen: dict[type, tuple[bytes, Write]]) -> Write:
    def write(value: Any, payload: bytearray) -> None:
        branch = chosen.get(type(value))
        if branch is None:
            raise NotExactError
        payload += branch[0]
        branch[1](value, payload)

    return write


def _payload(write: Write, value: Any) -> bytes:
    payload = bytearray()
    write(value, payload)
    return bytes(payload)


def _refuse(_value: Any, _payload: bytearray) -> None:
    raise NotExactError


def _record(fields: list[tuple[str, Write, bytes | None]]) -> Write:
    def write(value: Any, payload: bytearray) -> None:
        if type(value) is not dict:
            raise NotExactError
        if len(value) == len(fields):  # all are there, or KeyError
            for name, of_field, _ in fields:
                of_field(value[name], payload)
            return
        missing = 0
        for name, of_field, default in fields:
            if name in value:
                of_field(value[name], payload)
            elif default is None:
                raise NotExactError
            else:
                payload += default
                missing += 1
        if len(value) + missing != len(fields):
            raise NotExactError

    return write


def _optional(null: bytes | None, prefix: bytes, write: Write) -> Write:
    def write_optional(value: Any, payload: bytearray) -> None:
        if value is not None:
            payload += prefix
            write(value, payload)
        elif null is None:
            raise NotExactError
        else:
            payload += null

    return write_optional


def _array(write_item: Write) -> Write:
    def write(value: Any, payload: bytearray) -> None:
        if type(value) is not list:
            raise NotExactError
        if value:
            payload += varint(len(value))
            for item in value:
                write_item(item, payload)
        payload.append(0)

    return write


def _map(write_item: Write) -> Write:
    def write(value: Any, payload: bytearray) -> None:
        if type(value) is not dict:
            raise NotExactError
        if value:
            payload += varint(len(value))
            for key, item in value.items():
                _text(key, payload)
                write_item(item, payload)
        payload.append(0)

    return write


def _scalar(node: Node) -> Write:
    if isinstance(node, Enum):
        return _enum(node)
    if decimal_of(node) is not None:
        return _converted(decimal_writer(node), has_size=not isinstance(node, Fixed))
    if isinstance(node, Fixed):
        return _fixed(node.size)
    if is_uuid_text(node):
        return _converted(uuid_bytes, has_size=True)
    if node.kind is AvroType.INT or node.kind is AvroType.LONG:
        return _number(node)
    return _LEAVES[node.kind]


def _null(value: Any, _payload: bytearray) -> None:
    if value is not None:
        raise NotExactError


def _boolean(value: Any, payload: bytearray) -> None:
    if type(value) is not bool:
        raise NotExactError
    payload.append(value)


def _text(value: Any, payload: bytearray) -> None:
    if type(value) is not str:
        raise NotExactError
    content = value.encode()
    size = len(content)
    if size < _SHORT:
        payload.append(size << 1)
    else:
        payload += varint(size)
    payload += content


def _bytes(value: Any, payload: bytearray) -> None:
    if type(value) is not bytes and type(value) is not bytearray:
        raise NotExactError
    payload += varint(len(value))
    payload += value


def _float(value: Any, payload: bytearray) -> None:
    if type(value) is not float and not _is_exact_int(value, AvroType.FLOAT):
        raise NotExactError
    payload += _FLOAT(value)


def _double(value: Any, payload: bytearray) -> None:
    if type(value) is not float and not _is_exact_int(value, AvroType.DOUBLE):
        raise NotExactError
    payload += _DOUBLE(value)


def _is_exact_int(value: Any, kind: AvroType) -> bool:
    return type(value) is int and -_EXACT_INTS[kind] <= value <= _EXACT_INTS[kind]


def _number(node: Node) -> Write:
    """An int or long, or Python's own value of its logical type."""
    meaning = number_meaning(node, node)
    assert meaning is not None, "a type can read itself"
    least, greatest = meaning.least, meaning.greatest
    convert = moment_reader(node)

    def write(value: Any, payload: bytearray) -> None:
        number = value
        if type(number) is not int:
            if convert is None:
                raise NotExactError
            number = convert(value)
        if not least <= number <= greatest:
            raise NotExactError
        if 0 <= number < _SHORT:
            payload.append(number << 1)
        else:
            payload += varint(number)

    return write


def _enum(node: Enum) -> Write:
    indexes = {symbol: varint(index) for index, symbol in enumerate(node.symbols)}

    def write(value: Any, payload: bytearray) -> None:
        index = indexes.get(value)
        if index is None:
            raise NotExactError
        payload += index

    return write


def _fixed(size: int) -> Write:
    def write(value: Any, payload: bytearray) -> None:
        if type(value) is not bytes or len(value) != size:
            raise NotExactError
        payload += value

    return write


def _converted(convert: Callable[[Any], bytes | None], *, has_size: bool) -> Write:
    def write(value: Any, payload: bytearray) -> None:
        content = convert(value)
        if content is None:
            raise NotExactError
        if has_size:
            payload += varint(len(content))
        payload += content

    return write


_LEAVES: Final[dict[AvroType, Write]] = {
    AvroType.NULL: _null,
    AvroType.BOOLEAN: _boolean,
    AvroType.FLOAT: _float,
    AvroType.DOUBLE: _double,
    AvroType.STRING: _text,
    AvroType.BYTES: _bytes,
}
