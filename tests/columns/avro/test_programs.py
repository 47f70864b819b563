"""The kernels by themselves: programs put together by hand, without any schema."""

import numpy as np
import pyarrow as pa

from penstock.columns.avro import read_program as ops
from penstock.columns.avro import write_program as write_ops
from penstock.columns.avro.read_program import AvroFault, AvroReadAssembler
from penstock.columns.avro.run import decode, encode
from penstock.columns.avro.write_program import AvroWriteProgram
from penstock.columns.compiled import read_only
from penstock.columns.vm.arrow_inputs import Input
from penstock.columns.vm.slots import NO_SLOT, Shape, SlotKind


def longs(*values: int) -> "np.ndarray[tuple[int, ...], np.dtype[np.int64]]":
    return np.array(values, dtype=np.int64)


def test_a_program_fills_its_slots_from_each_payload() -> None:
    assembler = AvroReadAssembler()
    number = assembler.slot(SlotKind.FIXED, 4)
    text = assembler.slot(SlotKind.SIZED, nullable=True)
    assembler.put(ops.INT, number, -(2**31), 2**31 - 1)
    start, end = assembler.slot_list([text])
    choice = assembler.put(ops.NULLABLE, NO_SLOT, 0, 0, start, end)
    assembler.put(ops.STRING, text)
    assembler.patch(choice, ops.B, assembler.here)
    assembler.put(ops.END)
    shapes = (Shape(pa.int32(), number), Shape(pa.string(), text))
    program = assembler.assemble(("number", "text"), shapes, [number, text])
    source = read_only(b"\x02\x00" + b"\x04\x02\x02a" + b"\x06\x04" + b"\x08\x02\x08four")
    decoded = decode(program, source, longs(0, 2, 6, 8), longs(2, 6, 8, 15))
    assert decoded.faults.tolist() == [0, 0, AvroFault.UNION, 0]
    assert decoded.fault_positions[2] == 1
    assert decoded.to_batch().to_pydict() == {
        "number": [1, 2, None, 4],
        "text": [None, "a", None, "four"],
    }


def test_a_row_larger_than_any_estimate_is_read_again_with_more_memory() -> None:
    assembler = AvroReadAssembler()
    items = assembler.slot(SlotKind.LIST)
    text = assembler.slot(SlotKind.SIZED)
    begin = assembler.put(ops.LIST_BEGIN)
    assembler.put(ops.CONSTANT_SIZED, text, assembler.constant(b"twelve bytes"), 12)
    assembler.patch(begin, ops.A, assembler.put(ops.LIST_NEXT, items, begin + 1, 0))
    assembler.put(ops.END)
    shape = Shape(pa.list_(pa.string()), items, (Shape(pa.string(), text),))
    program = assembler.assemble(("texts",), (shape,), [items])
    source = read_only(b"\x80\x89\x7a\x00")  # a million items of no bytes
    decoded = decode(program, source, longs(0), longs(4))
    (column,) = decoded.columns
    column.validate(full=True)
    assert decoded.faults.tolist() == [0]
    assert column.to_pylist() == [["twelve bytes"] * 1_000_000]


def test_a_program_writes_a_payload_for_each_row() -> None:
    code = [(write_ops.LONG, 0, 0, 0, 0, 0), (write_ops.END, -1, 0, 0, 0, 0)]
    none = np.zeros((0, 3), dtype=np.int64)
    program = AvroWriteProgram(
        np.array(code, dtype=np.int64), none, none[:, :2], read_only(b""), inputs=1
    )
    array = pa.array([9, 1, None, -(2**63)], pa.int64()).slice(1)
    encoded = encode(program, [(array, Input(0))], rows=3, prefix=b"<")
    assert encoded.faults.tolist() == [0, AvroFault.NULL, 0]
    assert encoded.offsets.tolist() == [0, 2, 2, 13]
    assert encoded.buffer.tobytes() == b"<\x02<" + b"\xff" * 9 + b"\x01"
