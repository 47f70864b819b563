"""Many JSON payloads at once: text to an Arrow batch and back, validated, with a reason per row.

The fast way reads, validates and converts whole batches by compiled libraries: msgspec, which
refuses what is not JSON and never rounds an integer; jsonschema-rs; Arrow's own conversion, which
the schema has made safe. Where one of them refuses, the rows are gone through one by one, to find
the ones that are wrong.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from penstock.columns.compiled import Bytes, Int64s
from penstock.schemas.json import JsonSchema
from penstock.schemas.json.validator import validation_error
from penstock.serde.column_codec import requested_columns
from penstock.serde.errors import Reason
from penstock.serde.json.event import DECODER, UNREADABLE
from penstock.serde.json.types import arrow_type
from penstock.serde.json.value_types import VALUE, JsonColumns, columns_of

_UNFIT: Final = (pa.ArrowException, OverflowError, UnicodeEncodeError, TypeError, ValueError)


class JsonBatchDecoder:
    """Reads text that one schema allows."""

    def __init__(
        self,
        schema: JsonSchema,
        columns: Sequence[str] | None = None,
        *,
        validate: bool = True,
    ) -> None:
        known = columns_of(schema)
        self._schema = schema
        self._validates = validate
        self._is_object = known.is_object
        by_name = {column.name: column for column in known.columns}
        names = requested_columns(list(by_name), columns, "the schema")
        self._columns = [by_name[name] for name in names]
        typed = [(column.name, column.type) for column in self._columns if column.type is not None]
        self._struct = pa.struct([pa.field(name, arrow_type(kind)) for name, kind in typed])
        self._read: Callable[[Any], Any] = DECODER.decode

    def decode(
        self, source: Bytes, starts: Int64s, ends: Int64s
    ) -> tuple[pa.RecordBatch, dict[int, tuple[Reason, str]]]:
        """The payloads source[starts[i]:ends[i]] as columns, and what is wrong with some rows."""
        errors: dict[int, tuple[Reason, str]] = {}
        view = source.data
        payloads = [
            view[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]
        values = self._values(payloads, errors)
        if self._validates:
            self._validate(values, errors)
        for row in errors:
            values[row] = None
        while True:
            try:
                return self._batch(values), errors
            except _UNFIT:
                self._find_unfit(values, errors)

    def _values(self, payloads: list[Any], errors: dict[int, tuple[Reason, str]]) -> list[Any]:
        try:
            return list(map(self._read, payloads))
        except UNREADABLE:
            values: list[Any] = [None] * len(payloads)
            for row, payload in enumerate(payloads):
                try:
                    values[row] = self._read(payload)
                except UNREADABLE as wrong:
                    errors[row] = (Reason.UNDECODABLE, f"not JSON: {wrong}")
            return values

    def _validate(self, values: list[Any], errors: dict[int, tuple[Reason, str]]) -> None:
        validator = self._schema.validator
        try:
            if not errors and all(map(validator.is_valid, values)):
                return
        except ValueError:  # what the validator cannot look at; found below
            pass
        for row, value in enumerate(values):
            if row not in errors and (violated := validation_error(validator, value)) is not None:
                errors[row] = (Reason.RULE_VIOLATED, violated)

    def _batch(self, values: list[Any]) -> pa.RecordBatch:
        arrays: dict[str, Any] = {}
        if not self._is_object and self._struct.num_fields:
            arrays = {VALUE: pa.array(values, self._struct.field(0).type)}
        elif self._struct.num_fields:
            struct: Any = pa.array(values, self._struct)
            arrays = dict(
                zip([field.name for field in self._struct], struct.flatten(), strict=True)
            )
        for column in self._columns:
            if column.type is None:
                texts = [self._text(value, column.name) for value in values]
                arrays[column.name] = pa.array(texts, pa.string())
        if not arrays:
            nothing: Any = pa.Array.from_buffers(pa.struct([]), len(values), [None], children=[])
            return pa.RecordBatch.from_struct_array(nothing)
        ordered = {column.name: arrays[column.name] for column in self._columns}
        return pa.RecordBatch.from_arrays(list(ordered.values()), names=list(ordered))

    def _text(self, value: Any, name: str) -> str | None:
        if not self._is_object:
            return None if value is None else _dumps(value)
        given = None if value is None else value.get(name)
        return None if given is None else _dumps(given)

    def _find_unfit(self, values: list[Any], errors: dict[int, tuple[Reason, str]]) -> None:
        before = len(errors)
        for row, value in enumerate(values):
            if value is None:
                continue
            try:
                self._batch([value])
            except _UNFIT as wrong:
                errors[row] = (Reason.UNDECODABLE, f"a value that no column can hold: {wrong}")
                values[row] = None
        assert len(errors) > before, "what all rows together cannot, one of them cannot"


_dumps: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def rows_of(batch: pa.RecordBatch, known: JsonColumns) -> list[Any]:
    """A batch's rows as values of a schema with these columns; ValueError for one it has not.

    Text columns are the JSON they hold. A null is left out unless the property must be there.
    """
    by_name = {column.name: column for column in known.columns}
    columns = {}
    for name in batch.schema.names:
        if name not in by_name:
            raise ValueError(f"the schema has no property {name!r}")
        cells = batch.column(name).to_pylist(maps_as_pydicts="strict")
        if by_name[name].type is None:
            columns[name] = [None if text is None else json.loads(text) for text in cells]
        else:
            columns[name] = list(map(_without_nulls, cells))
    if not known.is_object:
        return columns.get(VALUE, [])
    return [
        {
            name: cells[row]
            for name, cells in columns.items()
            if cells[row] is not None or name in known.required
        }
        for row in range(batch.num_rows)
    ]


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
