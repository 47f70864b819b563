"""Programs by hand: what the kernels do with the tables alone, without any schema."""

import numpy as np
import pyarrow as pa

from penstock.columns.compiled import read_only
from penstock.columns.protobuf import read_program as ops
from penstock.columns.protobuf import write_program as writing
from penstock.columns.protobuf.read_program import (
    NONE,
    ProtobufReadAssembler,
    ProtobufReadProgram,
)
from penstock.columns.protobuf.read_program import (
    ProtobufFault as Fault,
)
from penstock.columns.protobuf.run import decode, encode
from penstock.columns.protobuf.write_program import ProtobufWriteProgram
from penstock.columns.vm.arrow_inputs import Input
from penstock.columns.vm.slots import Shape, SlotKind


def reading(number: int) -> ProtobufReadProgram:
    """One nullable long under a field number, and a list of texts under the next."""
    assembler = ProtobufReadAssembler()
    scope, node = assembler.scope(), assembler.node()
    longs = assembler.slot(SlotKind.FIXED, scope, 8, nullable=True)
    assembler.put(node, number, wire=ops.VARINT, op=ops.SINT64, slot=longs)
    lists = assembler.slot(SlotKind.LIST, scope)
    items = assembler.scope(lists)
    assembler.own_list(lists, items)
    texts = assembler.slot(SlotKind.SIZED, items)
    assembler.put(
        node, number + 1, wire=ops.SIZED, op=ops.TEXT, slot=texts, list_slot=lists, scope=items
    )
    assembler.end_scope(items)
    assembler.end_scope(scope)
    text = Shape(pa.string(), texts)
    shapes = (Shape(pa.int64(), longs), Shape(pa.list_(pa.string()), lists, (text,)))
    return assembler.assemble(("n", "t"), shapes)


def test_fields_are_found_by_number_near_and_far() -> None:
    payload = b"\x08\x03\x12\x01a\x12\x02bc"
    far = b"\xf0\xff\xff\xff\x0f\x03\xfa\xff\xff\xff\x0f\x01a\x08\x07"
    for number, source in ((1, payload), (2**29 - 2, far)):
        starts = np.array([0, 0, 0], dtype=np.int64)
        ends = np.array([len(source), 0, 1], dtype=np.int64)
        done = decode(reading(number), read_only(source), starts, ends)
        assert done.faults.tolist() == [Fault.OK, Fault.OK, Fault.TRUNCATED]
        batch = done.to_batch()
        batch.validate(full=True)
        assert batch["n"].to_pylist() == [-2, None, None]
        assert batch["t"].to_pylist() == [["a", "bc"] if number == 1 else ["a"], [], None]
    assert reading(1).tables.sparse.size == 0
    assert len(reading(2**29 - 2).tables.sparse) == 2


def test_what_is_written_backwards_reads_forwards() -> None:
    code = np.array(
        [
            [writing.LIST_END, 1, 0, 0, 3, 0, 0],
            [writing.INT32, 2, 0, writing.REQUIRED, 0, 0, 0],
            [writing.LIST_NEXT, 1, 0x12, 0, 1, 0, 0],
            [writing.SINT64, 0, 0x08, writing.IMPLICIT, 0, 0, 0],
            [writing.END, NONE, 0, 0, 0, 0, 0],
        ],
        dtype=np.int64,
    )
    nothing = np.zeros(0, dtype=np.int64)
    program = ProtobufWriteProgram(code, nothing, nothing.reshape(-1, 3), read_only(b""), inputs=3)
    columns = [
        (pa.array([-2, 0, 5]), Input(0)),
        (pa.array([[1, 300], [], [-1]], pa.list_(pa.int32())), Input(1, (Input(2),))),
    ]
    done = encode(program, columns, 3, b"--")
    payloads = [
        done.buffer[start:end].tobytes()
        for start, end in zip(done.offsets, done.offsets[1:], strict=False)
    ]
    assert payloads == [
        b"--\x08\x03\x12\x03\x01\xac\x02",
        b"--",
        b"--\x08\x0a\x12\x0a" + b"\xff" * 9 + b"\x01",
    ]
