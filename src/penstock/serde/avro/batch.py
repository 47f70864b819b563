"""Many Avro payloads at once: bytes to an Arrow batch and back, with a fault per row.

A decoder is made once for a pair of schemas and used for every batch. Nothing is silently wrong: a
row that cannot be decoded is null in every column and has its reason in `faults`; other rows are
not affected. Columns have the types of `avro.types`; a column whose type contains itself is JSON
text, decoded row by row and so much slower.

    decoder = AvroBatchDecoder(writer, reader, columns=["id", "total"])
    batch, faults = decoder.decode(buffer, starts, ends)
    reasons = [AvroFault(code).reason for code in faults[faults > 0]]
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.columns.arrow_records import ArrowArray
from penstock.columns.avro.read_program import AvroFault
from penstock.columns.avro.run import decode, encode, encode_dicts
from penstock.columns.compiled import Bytes, Int64s, read_only
from penstock.columns.vm.payloads import USUAL_LIMITS, Decoded, Encoded, PayloadLimits
from penstock.protocol.varint import Buffer
from penstock.schemas.avro import AvroSchema
from penstock.schemas.avro.tree import Node, Record
from penstock.serde.avro.compile_dicts import compile_dicts
from penstock.serde.avro.compile_read import compile_decoder, requested_names
from penstock.serde.avro.compile_write import (
    columns_of,
    compile_encoder,
    has_wide_union,
    input_types,
)
from penstock.serde.avro.event_skipping import WriteLimits
from penstock.serde.avro.limits import ITEMS_MAX
from penstock.serde.avro.rows import (
    AvroRowDecoder,
    AvroRowEncoder,
    as_json,
    batch_rows,
    payloads_of,
)
from penstock.serde.avro.types import NotExpressibleError, arrow_type

if TYPE_CHECKING:
    from penstock.columns.avro.dict_program import AvroDictProgram

__all__ = ["AvroBatchDecoder", "AvroBatchEncoder", "AvroFault"]


class AvroBatchDecoder:
    """Reads what one schema wrote into the columns of another, or of the same one.

    Payloads are bare Avro: no frame around them. `columns` are names of the reader's fields, in the
    requested order; the others are skipped. Safe to share between threads.
    """

    def __init__(
        self,
        writer: AvroSchema,
        reader: AvroSchema | None = None,
        columns: Sequence[str] | None = None,
        limits: PayloadLimits = USUAL_LIMITS,
    ) -> None:
        self._limits = limits
        target = writer if reader is None else reader
        root = target.root
        self._is_record = isinstance(root, Record)
        names = requested_names(root, columns)
        trees = [name for name in names if not _is_expressible(_column_type(root, name))]
        self._names = names
        self._trees = frozenset(trees)
        self._rows = AvroRowDecoder(writer, target) if trees else None
        self._program = compile_decoder(
            writer.root, root, [name for name in names if name not in self._trees]
        )

    @property
    def schema(self) -> pa.Schema:
        """The columns of every batch. Loads no kernel: planning a read needs only this."""
        program = self._program
        kinds = {
            name: shape.type for name, shape in zip(program.names, program.shapes, strict=True)
        }
        return pa.schema([(name, kinds.get(name, pa.string())) for name in self._names])

    def decode(
        self, buffer: Buffer | Bytes, starts: Int64s, ends: Int64s
    ) -> tuple[pa.RecordBatch, Bytes]:
        """The payloads buffer[starts[i]:ends[i]] as columns, and a `AvroFault` per row.

        Raises OutputTooLarge when all rows together are beyond the limit: decode fewer at a time.
        """
        source = read_only(buffer)
        decoded = decode(
            self._program,
            source,
            np.ascontiguousarray(starts, dtype=np.int64),
            np.ascontiguousarray(ends, dtype=np.int64),
            self._limits,
        )
        if self._rows is None:
            return decoded.to_batch(), decoded.faults
        return self._with_trees(decoded, self._rows, source, starts, ends)

    def _with_trees(
        self, decoded: Decoded, rows: AvroRowDecoder, source: Bytes, starts: Int64s, ends: Int64s
    ) -> tuple[pa.RecordBatch, Bytes]:
        """The kernel's columns, and the trees, which it skipped: so rows decide on validity."""
        faults = decoded.faults.copy()
        texts: dict[str, list[str | None]] = {name: [None] * len(faults) for name in self._trees}
        payloads = payloads_of(source.data, starts, ends)
        for row, payload in enumerate(payloads):
            value, fault = rows.decode(payload)
            faults[row] = fault or faults[row]
            if not faults[row]:
                for name in self._trees:
                    texts[name][row] = as_json(value[name] if self._is_record else value)
        columns = dict(zip(decoded.names, decoded.columns, strict=True))
        if (faults != decoded.faults).any():
            valid = pa.array(faults == 0)
            columns = {name: _nulled(column, valid) for name, column in columns.items()}
        columns |= {name: pa.array(column, pa.string()) for name, column in texts.items()}
        ordered = tuple(columns[name] for name in self._names)
        positions = decoded.fault_positions
        return Decoded(self._names, ordered, faults, positions).to_batch(), faults


def _nulled(column: ArrowArray, valid: ArrowArray) -> ArrowArray:
    kept: ArrowArray = column.filter(valid)
    positions = np.cumsum(np.asarray(valid)) - 1
    indices = pa.array(positions, mask=~np.asarray(valid))
    return kept.take(indices)


def _column_type(root: Node, name: str) -> Node:
    return root.by_name[name].type if isinstance(root, Record) else root


def _is_expressible(node: Node) -> bool:
    try:
        arrow_type(node)
    except NotExpressibleError:
        return False
    return True


class AvroBatchEncoder:
    """Writes rows in one schema. Safe to share between threads.

    Nothing is made up: a null in a field that has none is a fault of that row, never "" or 0.
    """

    def __init__(self, schema: AvroSchema, limits: PayloadLimits = USUAL_LIMITS) -> None:
        root = schema.root
        self._root = root
        self._limits = limits
        self._schema = schema
        self._limits_of_reading = WriteLimits(root)
        self._types: dict[str, pa.DataType] | None = None
        self._dicts: AvroDictProgram | None = None
        if _is_expressible(root):
            self._program, self._inputs = compile_encoder(root)
            self._types = input_types(root)
            if isinstance(root, Record) and not has_wide_union(root):
                self._dicts = compile_dicts(root)

    def encode(self, batch: pa.RecordBatch, prefix: bytes = b"") -> tuple[Bytes, Int64s, Bytes]:
        """The rows as payloads after `prefix`: a buffer, one more offset than rows, faults by row.

        An invalid row has an empty payload, without prefix.

        ValueError when the columns are not the schema's.
        """
        if self._types is None:
            return self._rows.encode(batch_rows(batch, self._root), prefix)
        columns = columns_of(batch, self._root, self._types)
        encoded = encode(
            self._program,
            list(zip(columns, self._inputs, strict=True)),
            batch.num_rows,
            prefix,
            self._limits,
        )
        return self._checked(encoded, len(prefix))

    def _checked(self, encoded: Encoded, prefix_bytes: int) -> tuple[Bytes, Int64s, Bytes]:
        """What was encoded, with a fault for each row beyond the limits of reading."""
        sizes = np.diff(encoded.offsets)
        if self._limits_of_reading.may_be_small:
            doubtful = np.flatnonzero(sizes)
        else:
            doubtful = np.flatnonzero(sizes > ITEMS_MAX)
        for row in doubtful.tolist():
            start, end = int(encoded.offsets[row]) + prefix_bytes, int(encoded.offsets[row + 1])
            exceeded = self._limits_of_reading.exceeded_by(encoded.buffer[start:end].tobytes())
            if exceeded is not None:
                encoded.faults[row] = AvroFault[exceeded.code]
        return encoded.buffer, encoded.offsets, encoded.faults

    @cached_property
    def _rows(self) -> AvroRowEncoder:
        return AvroRowEncoder(self._schema)

    def encode_rows(
        self, rows: Sequence[Mapping[str, Any]], prefix: bytes = b""
    ) -> tuple[Bytes, Int64s, Bytes]:
        """The same for dicts, which may leave out fields with defaults.

        One by one where a value is not exactly what the schema asks for, or where it is open which
        branch of a union a value is.
        """
        given = rows if type(rows) is list else list(rows)
        encoded = None
        if self._dicts is not None:
            encoded = encode_dicts(self._dicts, given, prefix, self._limits)
        if encoded is None:
            return self._rows.encode(given, prefix)
        return self._checked(encoded, len(prefix))
