"""The compiler for dicts: a schema -> a program that writes Python values as Avro.

For records without unions that have two kinds of values: of those somebody has to find out which
one a value is.
"""

import sys
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from penstock.client.avro_conversions import decimal_writer, moment_reader, uuid_bytes
from penstock.client.avro_encode_program import compile_encoder
from penstock.client.avro_program import compile_decoder
from penstock.client.avro_types import values_of
from penstock.columns.avro import dict_program as ops
from penstock.columns.avro.decoding import decode
from penstock.columns.avro.dict_program import NO_DEFAULT, DictProgram
from penstock.columns.avro.encoding import encode
from penstock.columns.avro.program import CODE_FIELDS, NO_SLOT
from penstock.columns.compiled import read_only
from penstock.columns.python_objects import addresses_of
from penstock.schemas.avro.meaning import (
    decimal_of,
    is_restricted,
    is_uuid_text,
    number_meaning,
)
from penstock.schemas.avro.tree import (
    Absent,
    Array,
    Enum,
    Field,
    Fixed,
    Kind,
    Map,
    Name,
    Node,
    Record,
    Union,
)

_ROW: Final = Name("Row", None)
_A, _B, _C = 2, 3, 4  # of an instruction
_NUMBERS: Final = {Kind.INT: ops.INT, Kind.LONG: ops.LONG}
_PLAIN: Final = {
    Kind.BOOLEAN: ops.BOOLEAN,
    Kind.FLOAT: ops.FLOAT,
    Kind.DOUBLE: ops.DOUBLE,
    Kind.STRING: ops.TEXT,
    Kind.BYTES: ops.SIZED,
    Kind.NULL: ops.NOTHING,
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
        nulls = [at for at, branch in enumerate(union.branches) if branch.kind is Kind.NULL]
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
