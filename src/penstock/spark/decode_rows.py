"""Opened records of one topic -> batches with exactly the columns that Spark expects.

Only requested fields are decoded. A record that cannot be decoded becomes a row with `_error` and
the original bytes, a row of nulls, or the end of the task, as the plan says. A registry that cannot
be reached is retried, because nothing is known about the records then. Imports no pyspark.
"""

import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.columns.arrow_records import ArrowArray, bytes_to_arrow, headers_to_arrow
from penstock.columns.compiled import Bools
from penstock.columns.open_batches import RecordParts
from penstock.columns.record_columns import BytesColumn, BytesSpans, RecordColumns
from penstock.model import TopicPartition
from penstock.protocol.batch import LOG_APPEND_TIME
from penstock.serde.batch_serializers import BatchDeserializer, ReadBatch
from penstock.serde.contract import Contract
from penstock.serde.errors import ClientError, Reason, RegistryUnavailableError
from penstock.serde.frame import ID_MAGIC, PREFIX_BYTES, Side
from penstock.spark import source_columns as columns
from penstock.spark.connections import registry_client
from penstock.spark.fit_arrow import all_null, fit_rows, null_unless, numbers, repeated
from penstock.spark.read_options import OnError, PayloadFormat
from penstock.spark.read_plan import DecodePlan
from penstock.spark.reader_schemas import reader_of

_DESERIALIZERS_MAX: Final = 64
_PAUSE_FIRST_S: Final = 0.5
_PAUSE_LAST_S: Final = 5.0


class UnreadableRecordError(ClientError):
    """A record that cannot be decoded, where that ends the query."""


def opened_parts(plan: DecodePlan) -> RecordParts:
    """Which parts of a record must be opened."""
    requested, decodes = plan.record_columns, plan.decodes_value or plan.decodes_key
    is_raw, has_value = plan.value is PayloadFormat.RAW, columns.VALUE in requested
    return RecordParts(
        keys=plan.decodes_key or bool(requested & {columns.KEY, columns.KEY_BYTES}),
        values=is_raw and has_value,
        headers=decodes or columns.HEADERS in requested,
        value_spans=plan.decodes_value
        or columns.SCHEMA_ID in requested
        or (has_value and not is_raw),
    )


@lru_cache(maxsize=_DESERIALIZERS_MAX)
def cached_deserializer(
    registry_url: str, topic: str, reader: Contract, fields: tuple[str, ...] | None, side: Side
) -> BatchDeserializer:
    """Kept by the process: its programs are compiled once for each pair of schemas."""
    client = registry_client(registry_url)
    return BatchDeserializer(client, topic, reader=reader, columns=fields, side=side)


class _RowErrors:
    """Why rows could not be decoded: the first reason of each."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[str, str, str]] = {}

    def add(self, row: int, reason: Reason, detail: str, side: Side) -> None:
        self._rows.setdefault(row, (str(reason), detail, str(side)))

    def __bool__(self) -> bool:
        return bool(self._rows)

    def first(self) -> tuple[int, tuple[str, str, str]]:
        row = min(self._rows)
        return row, self._rows[row]

    def mask(self, rows: int) -> Bools:
        mask = np.zeros(rows, dtype=np.bool_)
        mask[list(self._rows)] = True
        return mask

    def column(self, rows: int) -> ArrowArray:
        if not self._rows:
            return all_null(rows, columns.ERROR_TYPE)
        names = [field.name for field in columns.ERROR_TYPE]
        errors: list[dict[str, str] | None] = [None] * rows
        for row, values in self._rows.items():
            errors[row] = dict(zip(names, values, strict=True))
        return pa.array(errors, columns.ERROR_TYPE)

    def originals(self, column: BytesSpans | BytesColumn | None, rows: int) -> ArrowArray:
        """The bytes of what could not be decoded, and null in all other rows."""
        if not self._rows:
            return all_null(rows, pa.binary())
        assert column is not None, "opened because it is decoded"
        originals: list[bytes | None] = [None] * rows
        for row in self._rows:
            originals[row] = column.row(row)
        return pa.array(originals, pa.binary())


class RowMaker:
    """Makes the batches of one partition."""

    def __init__(self, plan: DecodePlan, partition: TopicPartition) -> None:
        self._plan = plan
        self._partition = partition

    def rows(self, records: RecordColumns) -> pa.RecordBatch:
        """A row per record, in their order."""
        plan = self._plan
        errors = _RowErrors()
        arrays: dict[str, ArrowArray] = {}
        headers = _headers_if_any(records)
        if plan.decodes_value:
            self._decode_value(records, headers, arrays, errors)
        if plan.decodes_key:
            arrays[columns.KEY] = self._decoded_key(records, headers, errors)
        if errors and plan.on_error is OnError.FAIL:
            row, (reason, detail, side) = errors.first()
            raise UnreadableRecordError(
                f"{self._partition} at offset {records.offsets[row]}: cannot decode the {side}"
                f" ({reason}: {detail}); with onError=quarantine it would be a row with _error"
            )
        for name in plan.schema.names:
            record_column = columns.record_column(name, plan.value)
            if record_column is not None and record_column not in arrays:
                arrays[record_column] = self._record_column(record_column, records, errors)
        ordered = [
            arrays[columns.record_column(name, plan.value) or name] for name in plan.schema.names
        ]
        return pa.RecordBatch.from_arrays(ordered, schema=plan.schema)

    def _decode_value(
        self,
        records: RecordColumns,
        headers: "ArrowArray | None",
        arrays: dict[str, ArrowArray],
        errors: _RowErrors,
    ) -> None:
        plan = self._plan
        assert records.value_spans is not None, "opened because it is decoded"
        read = self._read(records, records.value_spans, headers, Side.VALUE, plan.fields)
        for error in read.errors:
            errors.add(error.row, error.reason, error.detail, Side.VALUE)
        for name in plan.fields:
            arrow_type = plan.schema.field(name).type
            column = read.batch.column(name)
            arrays[name] = self._fitted(column, arrow_type, name, errors, Side.VALUE)
        if errors:
            self._clear_rows_with_errors(arrays, errors, len(records))

    def _decoded_key(
        self, records: RecordColumns, headers: "ArrowArray | None", errors: _RowErrors
    ) -> ArrowArray:
        assert records.keys is not None, "opened because it is decoded"
        read = self._read(records, bytes_to_arrow(records.keys), headers, Side.KEY, None)
        for error in read.errors:
            errors.add(error.row, error.reason, error.detail, Side.KEY)
        is_null = np.zeros(len(records), dtype=np.bool_)
        is_null[[error.row for error in read.errors]] = True
        if records.keys.valid is not None:
            is_null |= ~records.keys.valid
        key = single_column(read.batch, is_null)
        plan = self._plan
        for name in plan.schema.names:
            if columns.record_column(name, plan.value) == columns.KEY:
                return self._fitted(key, plan.schema.field(name).type, name, errors, Side.KEY)
        return key

    def _read(
        self,
        records: RecordColumns,
        values: "BytesSpans | ArrowArray",
        headers: "ArrowArray | None",
        side: Side,
        fields: tuple[str, ...] | None,
    ) -> ReadBatch:
        plan, topic = self._plan, self._partition.topic
        assert plan.registry is not None, "decoding needs a registry"
        readers = plan.value_readers if side is Side.VALUE else plan.key_readers
        deserializer = cached_deserializer(
            plan.registry, topic, reader_of(readers, topic), fields, side
        )
        try:
            return with_registry_retries(
                lambda: deserializer.deserialize_many(values, headers), plan.registry_wait_ms
            )
        except RegistryUnavailableError as error:
            raise UnreadableRecordError(
                f"{self._partition} from offset {records.offsets[0]} on: {error} Retried for"
                f" {plan.registry_wait_ms} ms (option registryWaitMs)."
            ) from error

    def _fitted(
        self,
        column: ArrowArray,
        arrow_type: pa.DataType,
        name: str,
        errors: _RowErrors,
        side: Side,
    ) -> ArrowArray:
        fitted, unfit = fit_rows(column, arrow_type)
        for row in np.flatnonzero(unfit).tolist():
            detail = f"field {name} is out of the range of Spark's type for it"
            errors.add(row, Reason.UNDECODABLE, detail, side)
        return fitted

    def _clear_rows_with_errors(
        self, arrays: dict[str, ArrowArray], errors: _RowErrors, rows: int
    ) -> None:
        """A row with an error is null in every field, also in those that could be decoded."""
        has_error = errors.mask(rows)
        for name in self._plan.fields:
            valid: Any = arrays[name].is_valid()
            if (np.asarray(valid) & has_error).any():
                arrays[name] = null_unless(arrays[name], ~has_error)

    def _record_column(self, name: str, records: RecordColumns, errors: _RowErrors) -> ArrowArray:
        rows = len(records)
        if name in _CONSTANTS:
            value = _CONSTANTS[name](self._partition)
            return repeated(value, columns.RECORD_COLUMNS[name], rows)
        if name in _COLUMNS:
            return _COLUMNS[name](records)
        if name == columns.ERROR:
            return errors.column(rows)
        is_value = name == columns.VALUE
        is_raw = self._plan.value is PayloadFormat.RAW if is_value else name == columns.KEY
        if is_raw:
            column = records.values if is_value else records.keys
            assert column is not None, "opened because it is requested"
            return bytes_to_arrow(column)
        return errors.originals(records.value_spans if is_value else records.keys, rows)


def single_column(batch: pa.RecordBatch, is_null: Bools) -> ArrowArray:
    """A decoded payload as one column: the value itself, or a struct of the record's fields."""
    if batch.schema.names == [columns.SINGLE_FIELD]:
        return batch.column(0)
    return pa.StructArray.from_arrays(
        batch.columns, fields=list(batch.schema), mask=pa.array(is_null)
    )


def with_registry_retries(read: Callable[[], ReadBatch], wait_ms: int) -> ReadBatch:
    """Retry for this long while the registry cannot be reached."""
    deadline = time.monotonic() + wait_ms / 1000
    pause_s = _PAUSE_FIRST_S
    while True:
        try:
            return read()
        except RegistryUnavailableError:
            if time.monotonic() + pause_s > deadline:
                raise
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _PAUSE_LAST_S)


def _headers_if_any(records: RecordColumns) -> "ArrowArray | None":
    if records.headers is None or not len(records.headers.keys):
        return None
    return headers_to_arrow(records.headers)


def _timestamps(records: RecordColumns) -> ArrowArray:
    times = records.timestamps
    return numbers(times * 1000, columns.RECORD_COLUMNS[columns.TIMESTAMP], times >= 0)


def _timestamp_types(records: RecordColumns) -> ArrowArray:
    is_append_time = (records.batches.attributes & LOG_APPEND_TIME != 0).astype(np.int32)
    return numbers(
        records.batches.per_row(is_append_time), columns.RECORD_COLUMNS[columns.TIMESTAMP_TYPE]
    )


def _headers(records: RecordColumns) -> ArrowArray:
    assert records.headers is not None, "opened because they are requested"
    return headers_to_arrow(records.headers)


def _schema_ids(records: RecordColumns) -> ArrowArray:
    """From the prefix; null for values without one, and for ids beyond 31 bits."""
    values = records.value_spans
    assert values is not None, "opened because it is requested"
    content, starts, sizes = values.source, values.starts, values.ends - values.starts
    ids = np.zeros(len(starts), dtype=np.int64)
    framed = sizes >= PREFIX_BYTES
    rows = np.flatnonzero(framed)
    is_id = content[starts[rows]] == ID_MAGIC
    framed[rows[~is_id]] = False
    rows = rows[is_id]
    for byte in range(1, PREFIX_BYTES):
        ids[rows] = ids[rows] << 8 | content[starts[rows] + byte]
    framed &= ids < 1 << 31
    return numbers(ids.astype(np.int32), columns.RECORD_COLUMNS[columns.SCHEMA_ID], framed)


_CONSTANTS: Final[Mapping[str, Callable[[TopicPartition], str | int]]] = {
    columns.TOPIC: lambda partition: partition.topic,
    columns.PARTITION: lambda partition: partition.partition,
}
_COLUMNS: Final[Mapping[str, Callable[[RecordColumns], ArrowArray]]] = {
    columns.OFFSET: lambda records: numbers(
        records.offsets, columns.RECORD_COLUMNS[columns.OFFSET]
    ),
    columns.TIMESTAMP: _timestamps,
    columns.TIMESTAMP_TYPE: _timestamp_types,
    columns.HEADERS: _headers,
    columns.SCHEMA_ID: _schema_ids,
}
