"""What a program cannot express, row by row: columns of types that contain themselves, as JSON.

Arrow has no type for a tree, so such a column is the text of the value, in the reader's terms:
bytes as text with a character per byte, as in Avro's own JSON, numbers that JSON lacks as strings.

Rows written one by one with fastavro: what Arrow cannot hold, or cannot tell apart.

A row that fastavro refuses, or that has a field the schema does not, is UNFIT; a null where there
may be none is NULL, as the kernel says it.
"""

import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import fastavro
import numpy as np
import pyarrow as pa
from fastavro.validation import ValidationError, validate

from penstock.columns.avro.read_program import AvroFault
from penstock.columns.compiled import Bytes, Int64s
from penstock.schemas.avro import AvroSchema
from penstock.schemas.avro.tree import Node, Record
from penstock.serde.avro.event_reader import EventReader
from penstock.serde.avro.event_skipping import WriteLimits
from penstock.serde.avro.raw_values import RawValues
from penstock.serde.avro.types import NotExpressible, arrow_type
from penstock.serde.avro.varints import Unreadable

_ONE_BYTE_EACH: Final = "latin-1"


class AvroRowDecoder:
    """Reads single payloads, by the rules of one who reads a single event."""

    def __init__(self, writer: AvroSchema, reader: AvroSchema) -> None:
        self._reader = EventReader(writer.root, reader.root, plain=True)

    def read(self, payload: bytes) -> tuple[Any, AvroFault]:
        """The value, and what is wrong with it."""
        try:
            return self._reader.read(payload), AvroFault.OK
        except Unreadable as wrong:
            return None, AvroFault[wrong.code]


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
        return [_jsonable(one) for one in value]
    if isinstance(value, Mapping):
        return {key: _jsonable(one) for key, one in value.items()}
    return value


def payloads_of(source: memoryview, starts: Any, ends: Any) -> Iterator[bytes]:
    """Each payload by itself."""
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        yield bytes(source[start:end])


class AvroRowEncoder:
    """Writes single values of one schema."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = fastavro.parse_schema(json.loads(schema.formatted("resolved")))
        root = schema.root
        self._names = frozenset(root.by_name) if isinstance(root, Record) else None
        self._required = _required(root)
        self._limits = WriteLimits(root)
        self._raw_values = RawValues(root)

    def write(self, rows: Sequence[Any], prefix: bytes) -> tuple[Bytes, Int64s, Bytes]:
        """Payloads in one buffer, their offsets, and a AvroFault per row."""
        output = bytearray()
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        faults = np.zeros(len(rows), dtype=np.uint8)
        for index, row in enumerate(rows):
            payload, faults[index] = self._written(row)
            if not faults[index]:
                output += prefix + payload
            offsets[index + 1] = len(output)
        return np.frombuffer(bytes(output), dtype=np.uint8), offsets, faults

    def _written(self, row: Any) -> tuple[bytes, AvroFault]:
        if isinstance(row, Mapping):
            if self._names is not None and not row.keys() <= self._names:
                return b"", AvroFault.UNFIT
            if any(row.get(name, ...) is None for name in self._required):
                return b"", AvroFault.NULL
        buffer = io.BytesIO()
        try:
            validate(row, self._schema)
            if self._raw_values.wrong(row) is not None:
                return b"", AvroFault.UNFIT
            fastavro.schemaless_writer(buffer, self._schema, row, strict_allow_default=True)
        except ValidationError:
            return b"", AvroFault.UNFIT
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, ArithmeticError):
            return b"", AvroFault.UNFIT
        except RecursionError:
            return b"", AvroFault.NESTING
        payload = buffer.getvalue()
        broken = self._limits.broken_by(payload)
        return (payload, AvroFault.OK) if broken is None else (b"", AvroFault[broken.code])


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
    except NotExpressible:
        return True
    return False
