"""The compiler for dicts: a schema -> a program that writes Python values as Avro.

For records without unions that have two kinds of values: of those somebody has to find out which
one a value is.

Python's decimals, dates and times as the numbers and bytes that Avro writes.

Each conversion takes values of exactly one type and raises ValueError for any other: those are
asked of fastavro.
"""

import datetime
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Context, Decimal
from functools import partial
from typing import Any, Final
from uuid import UUID

import numpy as np

from penstock.columns.avro import dict_program as ops
from penstock.columns.avro.dict_program import NO_DEFAULT, DictProgram
from penstock.columns.avro.read_program import CODE_FIELDS, NO_SLOT
from penstock.columns.avro.run import decode, encode
from penstock.columns.compiled import read_only
from penstock.columns.vm.python_objects import addresses_of
from penstock.schemas.avro.tree import (
    Absent,
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    Name,
    Node,
    Record,
    Union,
)
from penstock.schemas.avro.types import logical_type
from penstock.serde.avro.compile_read import compile_decoder
from penstock.serde.avro.compile_write import compile_encoder
from penstock.serde.avro.event_scalars import is_uuid
from penstock.serde.avro.logical_types import (
    DECIMAL_DIGITS_MAX,
    decimal_of,
    is_restricted,
    is_uuid_text,
    number_meaning,
)
from penstock.serde.avro.types import values_of

_EXACT: Final = Context(prec=4 * DECIMAL_DIGITS_MAX)  # never rounds what has a chance to fit
_EPOCH_DAY: Final = datetime.date(1970, 1, 1).toordinal()
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LOCAL_EPOCH: Final = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - a local time has no zone
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_PER_MILLI: Final = 1000
_UNITS: Final = {"millis": (1, _PER_MILLI), "micros": (1, 1), "nanos": (1000, 1)}


def decimal_writer(node: Node) -> Callable[[Any], bytes | None]:
    """The unscaled number, big-endian: as few bytes as do, or all of a fixed. None: no room."""
    decimal = decimal_of(node)
    assert decimal is not None
    size = node.size if isinstance(node, Fixed) else None
    return partial(_unscaled, scale=decimal.scale, end=10**decimal.precision, size=size)


def _unscaled(value: Any, *, scale: int, end: int, size: int | None) -> bytes | None:
    if type(value) is not Decimal:
        raise ValueError("no decimal")
    scaled = value.scaleb(scale, _EXACT)
    number = int(scaled)  # raises for what is no number
    if number != scaled or not -end < number < end:
        return None
    least = ((number if number >= 0 else ~number).bit_length() >> 3) + 1
    if size is not None and size < least:
        return None
    return number.to_bytes(least if size is None else size, "big", signed=True)


def uuid_bytes(value: Any) -> bytes:
    """The text of a UUID, or of what is one already."""
    if type(value) is str and is_uuid(value):
        return value.encode()
    if type(value) is not UUID:
        raise ValueError("no UUID")
    return str(value).encode()


def moment_reader(node: Node) -> Callable[[Any], int] | None:
    """What makes a number of Python's own value of a logical type; None if there is none such."""
    logical = logical_type(node)
    name = "" if logical is None else logical.name
    if name == "date":
        return _days
    head, _, unit = name.rpartition("-")
    if unit not in _UNITS:
        return None
    factor, divisor = _UNITS[unit]
    if head == "time":
        return partial(_time_of_day, divisor=divisor)
    is_local = head.startswith("local")
    return partial(_since_epoch, is_local=is_local, factor=factor, divisor=divisor)


def _days(value: Any) -> int:
    if type(value) is not datetime.date:
        raise ValueError("no date")
    return value.toordinal() - _EPOCH_DAY


def _time_of_day(value: Any, *, divisor: int) -> int:
    if type(value) is not datetime.time:
        raise ValueError("no time of day")
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return (seconds * 1_000_000 + value.microsecond) // divisor


def _since_epoch(value: Any, *, is_local: bool, factor: int, divisor: int) -> int:
    """A local time has no zone and the others have one: anything else would be a guess."""
    if type(value) is not datetime.datetime or (value.tzinfo is None) != is_local:
        raise ValueError("no such moment")
    since: datetime.timedelta = value - (_LOCAL_EPOCH if is_local else _EPOCH)
    return since // _MICROSECOND * factor // divisor


_ROW: Final = Name("Row", None)
_A, _B, _C = 2, 3, 4  # of an instruction
_NUMBERS: Final = {AvroType.INT: ops.INT, AvroType.LONG: ops.LONG}
_PLAIN: Final = {
    AvroType.BOOLEAN: ops.BOOLEAN,
    AvroType.FLOAT: ops.FLOAT,
    AvroType.DOUBLE: ops.DOUBLE,
    AvroType.STRING: ops.TEXT,
    AvroType.BYTES: ops.SIZED,
    AvroType.NULL: ops.NOTHING,
}


def compile_dicts(root: Record) -> DictProgram:
    """The program for a record whose Arrow type can be expressed."""
    compiler = _Compiler()
    compiler.put(root, 0)
    return compiler.finished()


@dataclass(slots=True)
class _Compiler:
    code: list[list[int]] = field(default_factory=list)
    pool: bytearray = field(default_factory=bytearray)
    objects: list[object] = field(default_factory=list)
    depth: int = 0

    def finished(self) -> DictProgram:
        """Everything put so far."""
        self._emit(ops.END)
        objects = tuple(self.objects)
        return DictProgram(
            code=np.array(self.code, dtype=np.int64).reshape(-1, CODE_FIELDS),
            pool=np.frombuffer(bytes(self.pool), dtype=np.uint8),
            objects=objects,
            addresses=addresses_of(objects),
            depth=self.depth,
        )

    def put(self, node: Node, depth: int) -> None:
        """Instructions for the value at hand, inside so many others."""
        if isinstance(node, Union):
            self._put_union(node, depth)
        elif isinstance(node, Record):
            self._put_record(node, self._deeper(depth))
        elif isinstance(node, Array):
            self._put_items(ops.LIST_BEGIN, node.items, ops.LIST_NEXT, self._deeper(depth))
        elif isinstance(node, Map):
            self._put_items(ops.MAP_BEGIN, node.values, ops.MAP_NEXT, self._deeper(depth))
        else:
            self._put_scalar(node)

    def _deeper(self, depth: int) -> int:
        self.depth = max(self.depth, depth + 1)
        return depth + 1

    def _emit(self, op: int, item: int = NO_SLOT, *operands: int) -> int:
        self.code.append([op, item, *(*operands, 0, 0, 0, 0)[: CODE_FIELDS - 2]])
        return len(self.code) - 1

    def _object(self, item: object) -> int:
        self.objects.append(item)
        return len(self.objects) - 1

    def _put_record(self, record: Record, depth: int) -> None:
        self._emit(ops.RECORD_BEGIN)
        for each in record.fields:
            name = self._object(sys.intern(each.name))  # the one that dicts written out have
            default = default_payload(each)
            if default is None:
                self._emit(ops.FIELD, name, NO_DEFAULT)
                self.put(each.type, depth)
            else:
                place = self._emit(ops.FIELD, name, len(self.pool), len(default))
                self.pool += default
                self.put(each.type, depth)
                self.code[place][_C] = len(self.code)
        self._emit(ops.RECORD_END)

    def _put_items(self, begin: int, item: Node, following: int, depth: int) -> None:
        place = self._emit(begin)
        self.put(item, depth)
        self.code[place][_A] = self._emit(following, NO_SLOT, place + 1)

    def _put_union(self, union: Union, depth: int) -> None:
        values = values_of(union)
        assert len(values) <= 1, "one kind of value"
        nulls = [at for at, branch in enumerate(union.branches) if branch.kind is AvroType.NULL]
        if not values or not nulls:
            self._emit(ops.BRANCH, NO_SLOT, 0)
            self.put(union.branches[0], depth)
            return
        choice = self._emit(ops.NULLABLE, NO_SLOT, nulls[0])
        self.put(values[0], depth)
        self.code[choice][_B] = len(self.code)

    def _put_scalar(self, node: Node) -> None:
        if isinstance(node, Enum):
            symbols = {symbol: number for number, symbol in enumerate(node.symbols)}
            self._emit(ops.ENUM, self._object(symbols))
        elif decimal_of(node) is not None:
            with_size = 0 if isinstance(node, Fixed) else 1
            self._emit(ops.CONVERTED, self._object(decimal_writer(node)), with_size)
        elif is_uuid_text(node):
            self._emit(ops.CONVERTED, self._object(uuid_bytes), 1)
        elif isinstance(node, Fixed):
            self._emit(ops.FIXED, NO_SLOT, node.size)
        elif node.kind in _NUMBERS:
            self._put_number(node)
        else:
            self._emit(_PLAIN[node.kind])

    def _put_number(self, node: Node) -> None:
        reader = moment_reader(node)
        converter = NO_SLOT if reader is None else self._object(reader)
        if is_restricted(node):
            meaning = number_meaning(node, node)
            assert meaning is not None, "a type can read itself"
            self._emit(ops.TIME, converter, meaning.least, meaning.greatest)
        else:
            self._emit(_NUMBERS[node.kind], converter)


def default_payload(each: Field) -> bytes | None:
    """What is written for a field that a dict leaves out; None if it may not."""
    if isinstance(each.default, Absent):
        return None
    bare = Record(_ROW, None, (), {}, [], is_error=False)
    only = Record(_ROW, None, (), {}, [each], is_error=False)
    nowhere = np.zeros(1, dtype=np.int64)
    decoded = decode(compile_decoder(bare, only), read_only(b""), nowhere, nowhere)
    program, inputs = compile_encoder(only)
    encoded = encode(program, [(decoded.columns[0], inputs[0])], 1)
    return None if encoded.errors.any() else encoded.buffer.tobytes()
