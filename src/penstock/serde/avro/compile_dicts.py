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
from decimal import Context, Decimal
from functools import partial
from typing import Any, Final
from uuid import UUID

import numpy as np

from penstock.columns.avro import dict_program as ops
from penstock.columns.avro.dict_program import NO_DEFAULT, AvroDictProgram
from penstock.columns.avro.read_program import CODE_FIELDS, A, B, C
from penstock.columns.avro.run import decode, encode
from penstock.columns.compiled import read_only
from penstock.columns.vm.assembler import NOTHING, Assembler
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
_NUMBERS: Final = {AvroType.INT: ops.INT, AvroType.LONG: ops.LONG}
_PLAIN: Final = {
    AvroType.BOOLEAN: ops.BOOLEAN,
    AvroType.FLOAT: ops.FLOAT,
    AvroType.DOUBLE: ops.DOUBLE,
    AvroType.STRING: ops.TEXT,
    AvroType.BYTES: ops.SIZED,
    AvroType.NULL: ops.NULL,
}


def compile_dicts(root: Record) -> AvroDictProgram:
    """The program for a record whose Arrow type can be expressed."""
    compiler = _Compiler()
    compiler.put(root, 0)
    return compiler.finished()


class _Compiler:
    def __init__(self) -> None:
        self._asm = Assembler(CODE_FIELDS)

    def finished(self) -> AvroDictProgram:
        """The program of everything put so far."""
        self._asm.put(ops.END)
        objects, addresses = self._asm.objects()
        return AvroDictProgram(
            code=self._asm.code(),
            pool=self._asm.pool(),
            objects=objects,
            addresses=addresses,
            depth=self._asm.depth,
        )

    def put(self, node: Node, depth: int) -> None:
        """Instructions for the value at hand, inside so many others."""
        if isinstance(node, Union):
            self._put_union(node, depth)
        elif isinstance(node, Record):
            self._put_record(node, self._asm.deeper(depth))
        elif isinstance(node, Array):
            self._put_items(ops.LIST_BEGIN, node.items, ops.LIST_NEXT, self._asm.deeper(depth))
        elif isinstance(node, Map):
            self._put_items(ops.MAP_BEGIN, node.values, ops.MAP_NEXT, self._asm.deeper(depth))
        else:
            self._put_scalar(node)

    def _put_record(self, record: Record, depth: int) -> None:
        self._asm.put(ops.RECORD_BEGIN)
        for each in record.fields:
            name = self._asm.add_object(
                sys.intern(each.name)
            )  # the one that dicts written out have
            default = default_payload(each)
            if default is None:
                self._asm.put(ops.FIELD, name, NO_DEFAULT)
                self.put(each.type, depth)
            else:
                given = self._asm.constant(default)
                index = self._asm.put(ops.FIELD, name, given, len(default))
                self.put(each.type, depth)
                self._asm.patch(index, C, self._asm.here)
        self._asm.put(ops.RECORD_END)

    def _put_items(self, begin: int, item: Node, following: int, depth: int) -> None:
        index = self._asm.put(begin)
        self.put(item, depth)
        self._asm.patch(index, A, self._asm.put(following, NOTHING, index + 1))

    def _put_union(self, union: Union, depth: int) -> None:
        values = values_of(union)
        assert len(values) <= 1, "one kind of value"
        nulls = [at for at, branch in enumerate(union.branches) if branch.kind is AvroType.NULL]
        if not values or not nulls:
            self._asm.put(ops.BRANCH, NOTHING, 0)
            self.put(union.branches[0], depth)
            return
        choice = self._asm.put(ops.NULLABLE, NOTHING, nulls[0])
        self.put(values[0], depth)
        self._asm.patch(choice, B, self._asm.here)

    def _put_scalar(self, node: Node) -> None:
        if isinstance(node, Enum):
            symbols = {symbol: number for number, symbol in enumerate(node.symbols)}
            self._asm.put(ops.ENUM, self._asm.add_object(symbols))
        elif decimal_of(node) is not None:
            with_size = 0 if isinstance(node, Fixed) else 1
            self._asm.put(ops.CONVERTED, self._asm.add_object(decimal_writer(node)), with_size)
        elif is_uuid_text(node):
            self._asm.put(ops.CONVERTED, self._asm.add_object(uuid_bytes), 1)
        elif isinstance(node, Fixed):
            self._asm.put(ops.FIXED, NOTHING, node.size)
        elif node.kind in _NUMBERS:
            self._put_number(node)
        else:
            self._asm.put(_PLAIN[node.kind])

    def _put_number(self, node: Node) -> None:
        reader = moment_reader(node)
        converter = NOTHING if reader is None else self._asm.add_object(reader)
        if is_restricted(node):
            meaning = number_meaning(node, node)
            assert meaning is not None, "a type can read itself"
            self._asm.put(ops.TIME, converter, meaning.least, meaning.greatest)
        else:
            self._asm.put(_NUMBERS[node.kind], converter)


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
    return None if encoded.faults.any() else encoded.buffer.tobytes()
