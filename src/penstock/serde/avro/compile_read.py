"""The compiler: (writer's schema, reader's schema, wanted columns) -> a program for the kernel.

Avro's schema resolution happens here, once: what the reader has and the writer has not becomes a
constant, what the reader does not want is stepped over, promotions and renames are a matter of
which instruction fills which slot. A pair that cannot be resolved fails when a payload gets there,
not before: the other branches of a union are still readable, as in Avro's Java library.

Values stepped over are checked in so far as finding their end takes; their content is not.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from penstock.columns.avro import read_program as ops
from penstock.columns.avro.read_program import (
    AvroFault,
    AvroReadAssembler,
    AvroReadProgram,
    precision_or,
)
from penstock.columns.vm.slots import NO_SLOT
from penstock.schemas.avro.tree import (
    Array,
    AvroType,
    Enum,
    Fixed,
    Map,
    Node,
    Record,
    Union,
)
from penstock.serde.avro.compile_read_parts import (
    Skipping,
    Target,
    put_branches,
    put_constant,
    target_for,
)
from penstock.serde.avro.logical_types import (
    DecimalMeaning,
    decimal_meaning,
    decimal_of,
    is_uuid_text,
    keeps_meaning,
    number_meaning,
)
from penstock.serde.avro.matching import matching_branch, same_name, written_fields
from penstock.serde.avro.sizes import bytes_min
from penstock.serde.avro.types import (
    NotExpressibleError,
    arrow_type,
    decimal_bytes,
    is_nullable,
    values_of,
)
from penstock.serde.column_codec import requested_columns

VALUE: Final = "value"  # the one column of a schema that is not a record
CODE_MAX: Final = 1 << 16  # instructions; a schema that takes more is left to row-by-row reading

_LONGS: Final = (-(2**63), 2**63 - 1)
_INTEGRAL: Final = (AvroType.INT, AvroType.LONG)
_TEXTUAL: Final = (AvroType.STRING, AvroType.BYTES)


def compile_decoder(
    writer: Node, reader: Node, columns: Sequence[str] | None = None
) -> AvroReadProgram:
    """The program that reads what `writer` wrote as `reader` wants it, these columns of it.

    NotExpressibleError if a requested column contains itself, or if the program would be too long.
    """
    compiler = _Compiler(AvroReadAssembler(), writer)
    if isinstance(reader, Record):
        names = requested_names(reader, columns)
        return compiler.record(writer, reader, names)
    if columns is not None and not columns:
        return compiler.nothing(writer)
    return compiler.value(writer, reader)


def requested_names(reader: Node, columns: Sequence[str] | None) -> tuple[str, ...]:
    """The columns to fill, in the requested order; ValueError if the reader has no such column."""
    names = [field.name for field in reader.fields] if isinstance(reader, Record) else [VALUE]
    return requested_columns(names, columns, reader.full_name)


class _Compiler:
    def __init__(self, assembler: AvroReadAssembler, writer: Node) -> None:
        self._asm = assembler
        self._skipping = Skipping(assembler, writer)

    def record(self, writer: Node, reader: Record, names: tuple[str, ...]) -> AvroReadProgram:
        """A column for each of these fields."""
        for name in names:
            arrow_type(reader.by_name[name].type)
        targets = {name: target_for(reader.by_name[name].type, self._asm) for name in names}
        if isinstance(writer, Union):
            put_branches(self._asm, writer, lambda branch: self._top(branch, reader, targets))
        else:
            self._top(writer, reader, targets)
        return self._finished(names, tuple(targets[name] for name in names))

    def value(self, writer: Node, reader: Node) -> AvroReadProgram:
        """One column for a schema that is no record."""
        arrow_type(reader)
        target = target_for(reader, self._asm)
        self._resolve(writer, reader, target)
        return self._finished((VALUE,), (target,))

    def nothing(self, writer: Node) -> AvroReadProgram:
        """No column: only finds out what is wrong with the payloads."""
        self._skipping.put(writer)
        return self._finished((), ())

    def _finished(self, names: tuple[str, ...], targets: tuple[Target, ...]) -> AvroReadProgram:
        self._asm.put(ops.END)
        self._skipping.put_subroutines()
        row_slots = [slot for target in targets for slot in target.row_slots()]
        return self._asm.assemble(names, tuple(target.shape for target in targets), row_slots)

    def _top(self, writer: Node, reader: Record, targets: dict[str, Target]) -> None:
        if isinstance(writer, Record) and same_name(writer, reader):
            self._fields(writer, reader, targets)
        else:
            self._fail()

    def _fail(self) -> None:
        self._asm.put(ops.FAIL, NO_SLOT, AvroFault.UNRESOLVABLE)

    def _resolve(self, writer: Node, reader: Node, target: Target) -> None:
        """Instructions that read one value of `writer` into `target`, made for `reader`."""
        if self._asm.here > CODE_MAX:
            raise NotExpressibleError(f"the program has more than {CODE_MAX} instructions")
        if isinstance(writer, Union):
            self._resolve_written_union(writer, reader, target)
        elif isinstance(reader, Union):
            self._resolve_into_union(writer, reader, target)
        elif isinstance(writer, Record) and isinstance(reader, Record):
            self._resolve_record(writer, reader, target)
        elif isinstance(writer, Array) and isinstance(reader, Array):
            body = self._asm.put(ops.LIST_BEGIN)
            self._resolve(writer.items, reader.items, target.children[0])
            self._close_list(body, target.slot, bytes_min(writer.items))
        elif isinstance(writer, Map) and isinstance(reader, Map):
            body = self._asm.put(ops.LIST_BEGIN)
            self._asm.put(ops.STRING, target.children[0].slot)
            self._resolve(writer.values, reader.values, target.children[1])
            self._close_list(body, target.slot, 1 + bytes_min(writer.values))
        elif not self._put_scalar(writer, reader, target.slot):
            self._fail()

    def _close_list(self, begin: int, slot: int, item_bytes_min: int) -> None:
        end = self._asm.put(ops.LIST_NEXT, slot, begin + 1, item_bytes_min)
        self._asm.patch(begin, ops.A, end)

    def _resolve_written_union(self, writer: Union, reader: Node, target: Target) -> None:
        values = values_of(writer)
        is_optional = len(writer.branches) == 2 and len(values) == 1
        if is_optional and is_nullable(reader) and target.type != pa.null():
            null = writer.branches.index(values[0]) ^ 1
            start, end = self._asm.slot_list(list(target.row_slots()))
            choice = self._asm.put(ops.NULLABLE, NO_SLOT, null, 0, start, end)
            self._resolve(values[0], reader, target)
            self._asm.patch(choice, ops.B, self._asm.here)
        elif len(writer.branches) > 0:
            put_branches(self._asm, writer, lambda branch: self._resolve(branch, reader, target))
        else:
            self._fail()

    def _resolve_into_union(self, writer: Node, reader: Union, target: Target) -> None:
        branch = matching_branch(writer, reader)
        if branch is None:
            self._fail()
        elif branch.kind is AvroType.NULL:
            self._put_nulls(list(target.row_slots()))
        elif len(values_of(reader)) == 1:
            self._resolve(writer, branch, target)
        else:
            if target.slot != NO_SLOT:
                self._asm.put(ops.VALID, target.slot)
            members = zip(values_of(reader), target.children, strict=True)
            for value, member in members:
                if value is branch:
                    self._resolve(writer, branch, member)
                else:
                    self._put_nulls(list(member.row_slots()))

    def _put_nulls(self, slots: list[int]) -> None:
        if slots:
            self._asm.put(ops.NULLS, NO_SLOT, 0, 0, *self._asm.slot_list(slots))

    def _resolve_record(self, writer: Record, reader: Record, target: Target) -> None:
        if not same_name(writer, reader):
            self._fail()
            return
        if target.slot != NO_SLOT:
            self._asm.put(ops.VALID, target.slot)
        names = (field.name for field in reader.fields)
        self._fields(writer, reader, dict(zip(names, target.children, strict=True)))

    def _fields(self, writer: Record, reader: Record, targets: dict[str, Target]) -> None:
        """The fields that have a target, from what was written or from their defaults."""
        sources = written_fields(writer, reader)
        missing = [field for field in reader.fields if field.name not in sources]
        readers = {id(written): reader.by_name[name] for name, written in sources.items()}
        for written in writer.fields:
            field = readers.get(id(written))
            if field is not None and field.name in targets:
                self._resolve(written.type, field.type, targets[field.name])
            else:
                self._skipping.put(written.type)
        for field in missing:
            if not field.has_default:
                self._fail()
            elif field.name in targets:
                put_constant(self._asm, field.type, field.default, targets[field.name])

    def _put_scalar(self, writer: Node, reader: Node, slot: int) -> bool:
        """An instruction for a value without parts; False if the two do not match."""
        if isinstance(reader, Enum):
            return isinstance(writer, Enum) and self._put_enum(writer, reader, slot)
        if isinstance(reader, Fixed):
            return isinstance(writer, Fixed) and self._put_fixed(writer, reader, slot)
        if reader.kind in _TEXTUAL:
            return writer.kind in _TEXTUAL and self._put_textual(writer, reader, slot)
        if reader.kind in _INTEGRAL:
            return self._put_integral(writer, reader, slot)
        if reader.kind is AvroType.FLOAT or reader.kind is AvroType.DOUBLE:
            return self._put_floating(writer, reader, slot)
        if reader.kind is not writer.kind:
            return False
        if reader.kind is AvroType.NULL:
            self._put_nulls([slot])
        else:
            self._asm.put(ops.BOOLEAN, slot)
        return True

    def _put_enum(self, writer: Enum, reader: Enum, slot: int) -> bool:
        if not same_name(writer, reader):
            return False
        known = set(reader.symbols)
        first = len(self._asm.symbols)
        for symbol in writer.symbols:
            read = symbol if symbol in known else reader.default
            if read is None:
                self._asm.symbols.append((-1, 0))
            else:
                text = read.encode()
                self._asm.symbols.append((self._asm.constant(text), len(text)))
        self._asm.put(ops.ENUM, slot, first, len(writer.symbols))
        return True

    def _put_fixed(self, writer: Fixed, reader: Fixed, slot: int) -> bool:
        if not same_name(writer, reader) or writer.size != reader.size:
            return False
        if decimal_of(reader) is None:
            if not keeps_meaning(writer, reader):
                return False
            self._asm.put(ops.FIXED, slot, reader.size)
            return True
        meaning = decimal_meaning(writer, reader)
        if meaning is not None:
            self._put_decimal(ops.FIXED_DECIMAL, slot, meaning, reader.size)
        return meaning is not None

    def _put_textual(self, writer: Node, reader: Node, slot: int) -> bool:
        if decimal_of(reader) is not None:
            meaning = decimal_meaning(writer, reader)
            if meaning is not None:
                self._put_decimal(ops.DECIMAL, slot, meaning, 0)
            return meaning is not None
        if not keeps_meaning(writer, reader):
            return False
        # What was written or is read as text must be text.
        is_text = AvroType.STRING in (writer.kind, reader.kind)
        self._asm.put(ops.STRING if is_text else ops.BYTES, slot, int(is_uuid_text(reader)))
        return True

    def _put_decimal(self, op: int, slot: int, meaning: DecimalMeaning, size: int) -> None:
        fault = AvroFault.UNRESOLVABLE if meaning.is_converted else AvroFault.DECIMAL_RANGE
        width, precision = decimal_bytes(meaning.precision), precision_or(meaning.precision, fault)
        self._asm.put(op, slot, width, precision, size, meaning.shift)

    def _put_integral(self, writer: Node, reader: Node, slot: int) -> bool:
        meaning = number_meaning(writer, reader)
        if meaning is None:
            return False
        name, *bounds, factor, divisor = meaning
        if name == "time-millis":
            self._asm.put(ops.TIME, slot, meaning.greatest + 1, 4, 1)
        elif name == "time-micros":
            self._asm.put(ops.TIME, slot, meaning.greatest + 1, 8, factor)
        elif reader.kind is AvroType.INT:
            self._asm.put(ops.INT, slot, *bounds)
        elif (*bounds, factor, divisor) == (*_LONGS, 1, 1):
            self._asm.put(ops.LONG, slot)
        else:
            self._asm.put(ops.SCALED, slot, *bounds, factor, divisor)
        return True

    def _put_floating(self, writer: Node, reader: Node, slot: int) -> bool:
        is_float = reader.kind is AvroType.FLOAT
        if writer.kind in _INTEGRAL:
            op = ops.TO_FLOAT if is_float else ops.TO_DOUBLE
            self._asm.put(op, slot, int(writer.kind is AvroType.INT))
        elif writer.kind is reader.kind:
            self._asm.put(ops.FLOAT if is_float else ops.DOUBLE, slot)
        elif writer.kind is AvroType.FLOAT:
            self._asm.put(ops.FLOAT_TO_DOUBLE, slot)
        else:
            return False
        return True
