"""Events of one topic as Arrow columns, and how records become them.

Columns of positions are made when they are first used. Imported when a program first uses columns,
because pyarrow and the kernels are heavy.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.client.fetched_rows import FetchedRows, PageRows
from penstock.client.registry import Registry
from penstock.columns.arrow_records import TIMESTAMP_TYPE, bytes_to_arrow, headers_to_arrow
from penstock.columns.compiled import Int64s
from penstock.model import TopicPartition
from penstock.serde.batch_serializers import BatchDeserializer
from penstock.serde.contract import Contract
from penstock.serde.errors import ArgumentError, DecodeError
from penstock.serde.serde_stats import SerdeStats

if TYPE_CHECKING:
    from numpy.typing import NDArray


class EventBatch:
    """Events of one topic, in the order they were read.

    `values` is an Arrow record batch with a row per event and a column per field. The other
    columns say where each event was: `partitions`, `offsets`, `timestamps`, `keys` (as bytes).
    An event without a value, which deletes its key, is a row of nulls; `deletes` marks these rows.
    """

    def __init__(
        self, values: pa.RecordBatch, rows: FetchedRows, *, kept: Int64s | None = None
    ) -> None:
        self.topic: str = rows.topic
        self.values = values
        self._rows = rows
        self._kept = kept  # which of the rows are in here, in order; None: all
        assert values.num_rows == len(rows if kept is None else kept), "a row per record"

    def __len__(self) -> int:
        return self.values.num_rows

    def __repr__(self) -> str:
        return f"<{len(self)} events of {self.topic}: {', '.join(self.values.schema.names)}>"

    @cached_property
    def partitions(self) -> "pa.Array[Any]":
        """As int32."""
        return self._column(
            lambda part: np.full(part.rows, part.partition.partition, dtype=np.int32)
        )

    @cached_property
    def offsets(self) -> "pa.Array[Any]":
        """As int64."""
        return self._column(lambda part: part.page.offsets[part.start : part.end])

    @cached_property
    def timestamps(self) -> "pa.Array[Any]":
        """In milliseconds, UTC."""
        millis = self._column(lambda part: part.page.timestamps[part.start : part.end])
        return millis.view(TIMESTAMP_TYPE)

    @cached_property
    def keys(self) -> "pa.Array[Any]":
        """The bytes in the records; null where there is no key."""
        return self._arrow(self._rows.columns(_keys)).cast(pa.large_binary())

    @cached_property
    def deletes(self) -> "pa.Array[Any]":
        """Which events have no value."""
        return self._column(_has_no_value)

    def to_pandas(self) -> Any:
        """The values as a pandas DataFrame."""
        return self.values.to_pandas()

    def to_polars(self) -> Any:
        """The values as a Polars DataFrame; Polars must be installed."""
        import polars  # no part of any extra: a program that calls this has it

        return polars.from_arrow(self.values)

    def only(self, rows: Int64s) -> "EventBatch":
        """Some of the rows, by their numbers here."""
        values = self.values.take(rows)
        return EventBatch(values, self._rows, kept=rows if self._kept is None else self._kept[rows])

    def of(self, partitions: Collection[TopicPartition]) -> "EventBatch":
        """The rows of some partitions."""
        if all(part.partition in partitions for part in self._rows.parts):
            return self
        _, rows = self._rows.of(partitions)
        return self.only(rows if self._kept is None else np.flatnonzero(np.isin(self._kept, rows)))

    def _column(self, read: "Callable[[PageRows], NDArray[Any]]") -> "pa.Array[Any]":
        return self._arrow([pa.array(part) for part in self._rows.columns(read)])

    def _arrow(self, parts: "list[pa.Array[Any]]") -> "pa.Array[Any]":
        column: Any = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        kept: pa.Array[Any] = column if self._kept is None else column.take(pa.array(self._kept))
        return kept


def _keys(part: PageRows) -> "pa.Array[Any]":
    assert part.page.keys is not None, "keys are opened"
    return bytes_to_arrow(part.page.keys).slice(part.start, part.rows)


def _headers(part: PageRows) -> "pa.Array[Any]":
    assert part.page.headers is not None, "headers are opened"
    return headers_to_arrow(part.page.headers).slice(part.start, part.rows)


def _has_no_value(part: PageRows) -> "NDArray[Any]":
    spans = part.page.value_spans
    if spans is None or spans.valid is None:
        return np.zeros(part.rows, dtype=np.bool_)
    return ~spans.valid[part.start : part.end]


class ColumnReader:
    """How one program reads columns: its reader schema, and the fields it uses."""

    def __init__(
        self,
        registry: Registry,
        contract: Contract | None,
        columns: Sequence[str] | None,
        *,
        plain_indexes: bool = False,
        validate: bool = True,
    ) -> None:
        self._registry = registry
        self._contract = contract
        self._columns = columns
        self._plain_indexes = plain_indexes
        self._validate = validate
        self._deserializers: dict[str, BatchDeserializer] = {}

    def stats(self) -> Iterator[tuple[str, SerdeStats]]:
        """By subject."""
        for deserializer in list(self._deserializers.values()):
            yield deserializer.subject, deserializer.stats

    def read(self, rows: FetchedRows) -> tuple[EventBatch, Sequence[tuple[int, DecodeError]]]:
        """A row per record, and the rows that cannot be read; RegistryUnavailableError: retry."""
        deserializer = self._deserializer(rows.topic)
        headers: Any = pa.concat_arrays(rows.columns(_headers)) if rows.has_headers else None
        try:
            values, errors = deserializer.deserialize_many(rows.value_spans(), headers)
        except ValueError as invalid:
            if type(invalid) is not ValueError:  # Arrow's are subclasses
                raise
            raise ArgumentError(f"cannot read the columns of {rows.topic}: {invalid}") from None
        subject = deserializer.subject
        failures = [
            (row, DecodeError(reason, detail, schema=schema, subject=subject))
            for row, reason, detail, schema in errors
        ]
        return EventBatch(values, rows), failures

    def _deserializer(self, topic: str) -> BatchDeserializer:
        deserializer = self._deserializers.get(topic)
        if deserializer is None:
            deserializer = self._deserializers[topic] = BatchDeserializer(
                self._registry,
                topic,
                reader=self._contract,
                columns=self._columns,
                validate=self._validate,
                plain_indexes=self._plain_indexes,
            )
        return deserializer
