"""Opened records of one topic -> batches with exactly the columns that Spark was told.

Only what is asked for is decoded. What cannot be decoded becomes a row with `_error` and the
original bytes, a row of nulls, or the end of the task, as the task says; a registry that is away is
waited for, because nothing is known of the records then. Imports no pyspark.
"""

import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.columns.arrow_records import ArrowArray, bytes_to_arrow, headers_to_arrow
from penstock.columns.compiled import Bools
from penstock.columns.open_batches import Wanted
from penstock.columns.record_columns import BytesColumn, BytesPlaces, RecordColumns
from penstock.model import TopicPartition
from penstock.protocol.batch import LOG_APPEND_TIME
from penstock.serde.batch_serializers import BatchDeserializer, ReadBatch
from penstock.serde.contract import Contract
from penstock.serde.errors import ClientError, Reason, RegistryUnavailableError
from penstock.serde.frame import ID_MAGIC, PREFIX_BYTES, Side
from penstock.spark import spark_columns as own
from penstock.spark.connections import registry
from penstock.spark.fit_arrow import all_null, fit_rows, kept_where, numbers, repeated
from penstock.spark.query_plan import Decoding
from penstock.spark.read_options import Coding, OnError
from penstock.spark.reader_schemas import reader_of

_DECODERS_MAX: Final = 64
_PAUSE_FIRST_S: Final = 0.5
_PAUSE_LAST_S: Final = 5.0
_VALUE_FIELD: Final = "value"  # the one column of a schema that is not a record


class UnreadableRecord(ClientError):
    """A record that cannot be decoded, where that is to end the query."""


def parts_wanted(decoding: Decoding) -> Wanted:
    """Which parts of a record must be opened."""
    mine, decodes = decoding.own_columns, decoding.decodes_value or decoding.decodes_key
    is_raw, wants_value = decoding.value is Coding.RAW, own.VALUE in mine
    return Wanted(
        keys=decoding.decodes_key or bool(mine & {own.KEY, own.KEY_BYTES}),
        values=is_raw and wants_value,
        headers=decodes or own.HEADERS in mine,
        value_places=decoding.decodes_value
        or own.SCHEMA_ID in mine
        or (wants_value and not is_raw),
    )


@lru_cache(maxsize=_DECODERS_MAX)
def _deserializer(
    url: str, topic: str, reader: Contract, columns: tuple[str, ...] | None, side: Side
) -> BatchDeserializer:
    """Kept by the process: its programs are compiled once for each pair of schemas."""
    return BatchDeserializer(registry(url), topic, reader=reader, columns=columns, side=side)


class _Errors:
    """Why rows could not be read: the first reason of each."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[str, str, str]] = {}

    def note(self, row: int, reason: Reason, detail: str, side: Side) -> None:
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
            return all_null(rows, own.ERROR_TYPE)
        names = [one.name for one in own.ERROR_TYPE]
        told: list[dict[str, str] | None] = [None] * rows
        for row, words in self._rows.items():
            told[row] = dict(zip(names, words, strict=True))
        return pa.array(told, own.ERROR_TYPE)

    def originals(self, column: BytesPlaces | BytesColumn | None, rows: int) -> ArrowArray:
        """The bytes of what could not be read, and null for all else."""
        if not self._rows:
            return all_null(rows, pa.binary())
        assert column is not None, "opened because it is decoded"
        kept: list[bytes | None] = [None] * rows
        for row in self._rows:
            kept[row] = column.row(row)
        return pa.array(kept, pa.binary())


class RowMaker:
    """Makes the batches of one partition."""

    def __init__(self, decoding: Decoding, partition: TopicPartition) -> None:
        self._decoding = decoding
        self._partition = partition

    def rows(self, records: RecordColumns) -> pa.RecordBatch:
        """A row per record, in their order."""
        decoding = self._decoding
        errors = _Errors()
        arrays: dict[str, ArrowArray] = {}
        headers = _headers_if_any(records)
        if decoding.decodes_value:
            self._decode_value(records, headers, arrays, errors)
        if decoding.decodes_key:
            arrays[own.KEY] = self._decoded_key(records, headers, errors)
        if errors and decoding.on_error is OnError.FAIL:
            row, (reason, detail, side) = errors.first()
            raise UnreadableRecord(
                f"{self._partition} at offset {records.offsets[row]}: the {side} cannot be read"
                f" ({reason}: {detail}); with onError=quarantine it would be a row with _error"
            )
        for name in decoding.schema.names:
            mine = own.own_column(name, decoding.value)
            if mine is not None and mine not in arrays:
                arrays[mine] = self._own(mine, records, errors)
        ordered = [
            arrays[own.own_column(name, decoding.value) or name] for name in decoding.schema.names
        ]
        return pa.RecordBatch.from_arrays(ordered, schema=decoding.schema)

    def _decode_value(
        self,
        records: RecordColumns,
        headers: "ArrowArray | None",
        arrays: dict[str, ArrowArray],
        errors: _Errors,
    ) -> None:
        decoding = self._decoding
        assert records.value_places is not None, "opened because it is decoded"
        read = self._read(records, records.value_places, headers, Side.VALUE, decoding.fields)
        for wrong in read.wrongs:
            errors.note(wrong.row, wrong.reason, wrong.detail, Side.VALUE)
        for name in decoding.fields:
            kind = decoding.schema.field(name).type
            arrays[name] = self._fitted(read.batch.column(name), kind, name, errors, Side.VALUE)
        if errors:
            self._blank_misfits(arrays, errors, len(records))

    def _decoded_key(
        self, records: RecordColumns, headers: "ArrowArray | None", errors: _Errors
    ) -> ArrowArray:
        assert records.keys is not None, "opened because it is decoded"
        read = self._read(records, bytes_to_arrow(records.keys), headers, Side.KEY, None)
        for wrong in read.wrongs:
            errors.note(wrong.row, wrong.reason, wrong.detail, Side.KEY)
        unread = np.zeros(len(records), dtype=np.bool_)
        unread[[wrong.row for wrong in read.wrongs]] = True
        if records.keys.valid is not None:
            unread |= ~records.keys.valid
        whole = key_column(read.batch, unread)
        if own.KEY not in self._decoding.own_columns:
            return whole
        name = next(
            name
            for name in self._decoding.schema.names
            if own.own_column(name, self._decoding.value) == own.KEY
        )
        kind = self._decoding.schema.field(name).type
        return self._fitted(whole, kind, name, errors, Side.KEY)

    def _read(
        self,
        records: RecordColumns,
        values: "BytesPlaces | ArrowArray",
        headers: "ArrowArray | None",
        side: Side,
        fields: tuple[str, ...] | None,
    ) -> ReadBatch:
        decoding = self._decoding
        assert decoding.registry is not None, "decoding needs a registry"
        readers = decoding.value_readers if side is Side.VALUE else decoding.key_readers
        topic = self._partition.topic
        read = _deserializer(decoding.registry, topic, reader_of(readers, topic), fields, side)
        try:
            return patiently(
                lambda: read.deserialize_many(values, headers),
                decoding.registry_wait_ms,
            )
        except RegistryUnavailableError as away:
            raise UnreadableRecord(
                f"{self._partition} from offset {records.offsets[0]} on: {away} It was waited for"
                f" {decoding.registry_wait_ms} ms (option registryWaitMs)."
            ) from away

    def _fitted(
        self, column: ArrowArray, kind: pa.DataType, name: str, errors: _Errors, side: Side
    ) -> ArrowArray:
        fitted, unfit = fit_rows(column, kind)
        for row in np.flatnonzero(unfit).tolist():
            told = f"field {name} is beyond what Spark's type for it can hold"
            errors.note(row, Reason.UNDECODABLE, told, side)
        return fitted

    def _blank_misfits(self, arrays: dict[str, ArrowArray], errors: _Errors, rows: int) -> None:
        """A row with an error is null in every field, also in those that could be read."""
        wrong = errors.mask(rows)
        for name in self._decoding.fields:
            readable: Any = arrays[name].is_valid()
            if (np.asarray(readable) & wrong).any():
                arrays[name] = kept_where(arrays[name], ~wrong)

    def _own(self, name: str, records: RecordColumns, errors: _Errors) -> ArrowArray:
        """One of the record's own columns."""
        rows = len(records)
        if name in _CONSTANTS:
            return repeated(_CONSTANTS[name](self._partition), own.OWN_TYPES[name], rows)
        if name in _COLUMNS:
            return _COLUMNS[name](records)
        if name == own.ERROR:
            return errors.column(rows)
        is_raw = self._decoding.value is Coding.RAW if name == own.VALUE else name == own.KEY
        if is_raw:
            column = records.values if name == own.VALUE else records.keys
            assert column is not None, "opened because it is wanted"
            return bytes_to_arrow(column)
        return errors.originals(records.value_places if name == own.VALUE else records.keys, rows)


def key_column(batch: pa.RecordBatch, is_null: Bools) -> ArrowArray:
    """A decoded key as one column: the value itself, or a struct of the record's fields."""
    if batch.schema.names == [_VALUE_FIELD]:
        return batch.column(0)
    return pa.StructArray.from_arrays(
        batch.columns, fields=list(batch.schema), mask=pa.array(is_null)
    )


def patiently(read: Callable[[], ReadBatch], wait_ms: int) -> ReadBatch:
    """Again and again until the registry answers, for so long."""
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
    return numbers(times * 1000, own.OWN_TYPES[own.TIMESTAMP], times >= 0)


def _timestamp_types(records: RecordColumns) -> ArrowArray:
    appended = (records.batches.attributes & LOG_APPEND_TIME != 0).astype(np.int32)
    return numbers(records.batches.per_row(appended), own.OWN_TYPES[own.TIMESTAMP_TYPE])


def _headers(records: RecordColumns) -> ArrowArray:
    assert records.headers is not None, "opened because they are wanted"
    return headers_to_arrow(records.headers)


def _schema_ids(records: RecordColumns) -> ArrowArray:
    """From the prefix; null for values that have none, and for ids in no 32 bits."""
    values = records.value_places
    assert values is not None, "opened because it is wanted"
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
    return numbers(ids.astype(np.int32), own.OWN_TYPES[own.SCHEMA_ID], framed)


_CONSTANTS: Final[Mapping[str, Callable[[TopicPartition], str | int]]] = {
    own.TOPIC: lambda partition: partition.topic,
    own.PARTITION: lambda partition: partition.partition,
}
_COLUMNS: Final[Mapping[str, Callable[[RecordColumns], ArrowArray]]] = {
    own.OFFSET: lambda records: numbers(records.offsets, own.OWN_TYPES[own.OFFSET]),
    own.TIMESTAMP: _timestamps,
    own.TIMESTAMP_TYPE: _timestamp_types,
    own.HEADERS: _headers,
    own.SCHEMA_ID: _schema_ids,
}
