"""The compiler for dicts: a schema -> a program that writes Python values as Avro.

For records without unions that have two types of values: there it is open which one a value is.
"""

import sys
from typing import Final

from penstock.columns.avro import dict_program as ops
from penstock.columns.avro.dict_program import NO_DEFAULT, AvroDictProgram
from penstock.columns.avro.read_program import CODE_FIELDS, A, B, C
from penstock.columns.vm.assembler import NOTHING, Assembler
from penstock.schemas.avro.tree import (
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    Node,
    Record,
    Union,
)
from penstock.serde.avro.conversions import decimal_writer, moment_reader, uuid_bytes
from penstock.serde.avro.event_defaults import NoConstantError, constant
from penstock.serde.avro.event_writer import EventWriter, NotExactError
from penstock.serde.avro.logical_types import (
    decimal_of,
    is_restricted,
    is_uuid_text,
    number_meaning,
)
from penstock.serde.avro.types import values_of

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
    """What is written for a field that a dict leaves out; None if it must not."""
    try:
        return EventWriter(each.type).write(constant(each.type, each.default)())
    except (NoConstantError, NotExactError):
        return None
