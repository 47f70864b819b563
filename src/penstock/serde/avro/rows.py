"""What kernels cannot do, row by row.

Columns of types that contain themselves: Arrow has no type for a tree, so such a column is the JSON
text of the value, as the reader's schema has it: bytes with a character per byte, as in Avro's own
JSON, and numbers that JSON lacks as strings.

Rows that Arrow has no type for, or that leave open which branch of a union they are: fastavro
encodes them. A row that it refuses is UNFIT; a null where there may be none is NULL, as in kernels.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.columns.avro.read_program import AvroFault
from penstock.columns.compiled import Bytes, Int64s
from penstock.schemas.avro import AvroSchema
from penstock.schemas.avro.tree import Node, Record
from penstock.serde.avro.event_reader import EventReader
from penstock.serde.avro.fastavro_writer import FastavroWriter, RefusedValueError
from penstock.serde.avro.types import NotExpressibleError, arrow_type
from penstock.serde.avro.varints import UnreadableError

_ONE_BYTE_EACH: Final = "latin-1"


class AvroRowDecoder:
    """Decodes single payloads, as single events are decoded."""

    def __init__(self, writer: AvroSchema, reader: AvroSchema) -> None:
        self._reader = EventReader(writer.root, reader.root, plain=True)

    def decode(self, payload: bytes) -> tuple[Any, AvroFault]:
        """The value, and its fault."""
        try:
            return self._reader.read(payload), AvroFault.OK
        except UnreadableError as error:
            return None, AvroFault[error.code]


def as_json(value: Any) -> str | None:
    """The text of a value; None for null, which is none in a column as well."""
    if value is None:
        return None
    return json.dumps(_jsonable(value), ensure_ascii=False)


def _jsonable(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(_ONE_BYTE_EACH)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, list):
        return [_jsonable(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _jsonable(item) for key, item in value.items()}
    return value


def payloads_of(source: memoryview, starts: Any, ends: Any) -> Iterator[bytes]:
    """Each payload by itself."""
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        yield bytes(source[start:end])


class AvroRowEncoder:
    """Encodes single values of one schema."""

    def __init__(self, schema: AvroSchema) -> None:
        root = schema.root
        self._writer = FastavroWriter(schema)
        self._names = frozenset(root.by_name) if isinstance(root, Record) else None
        self._required = _required(root)

    def encode(self, rows: Sequence[Any], prefix: bytes) -> tuple[Bytes, Int64s, Bytes]:
        """Payloads in one buffer, their offsets, and a fault per row."""
        output = bytearray()
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        faults = np.zeros(len(rows), dtype=np.uint8)
        for index, row in enumerate(rows):
            payload, faults[index] = self._encoded(row)
            if not faults[index]:
                output += prefix + payload
            offsets[index + 1] = len(output)
        return np.frombuffer(bytes(output), dtype=np.uint8), offsets, faults

    def _encoded(self, row: Any) -> tuple[bytes, AvroFault]:
        if isinstance(row, Mapping):
            if self._names is not None and not row.keys() <= self._names:
                return b"", AvroFault.UNFIT
            if any(row.get(name, ...) is None for name in self._required):
                return b"", AvroFault.NULL
        try:
            return self._writer.write(row), AvroFault.OK
        except RefusedValueError as error:
            return b"", AvroFault[error.code]


def _required(root: Node) -> tuple[str, ...]:
    if not isinstance(root, Record):
        return ()
    return tuple(field.name for field in root.fields if field.type.kind not in ("union", "null"))


def batch_rows(batch: pa.RecordBatch, root: Node) -> list[Any]:
    """A batch's rows as fastavro takes them; columns without an Arrow type are read from JSON."""
    columns = {}
    for name in batch.schema.names:
        values = batch.column(name).to_pylist()
        if _is_text_of_tree(root, name):
            values = [None if text is None else json.loads(text) for text in values]
        columns[name] = values
    if not isinstance(root, Record):
        return next(iter(columns.values()))
    return [
        {name: column[row] for name, column in columns.items()} for row in range(batch.num_rows)
    ]


def _is_text_of_tree(root: Node, name: str) -> bool:
    node = root
    if isinstance(root, Record):
        if name not in root.by_name:
            raise ValueError(f"the schema has no field {name!r}")
        node = root.by_name[name].type
    try:
        arrow_type(node)
    except NotExpressibleError:
        return True
    return False
