"""Rows of a frame, as Arrow batches -> keys, values, headers and the rest of records, by topic.

Works on whole columns, whatever the schema language. A row that does not fit its schema fails the
task and names the row or column: no value is changed and no row is left out. Runs in tasks. Imports
no pyspark.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.client.tracing import TRACE_PARENT
from penstock.columns.arrow_records import with_nulls
from penstock.errors import ErrorCode, Refused
from penstock.schemas.model import SchemaType
from penstock.serde.batch_serializers import BatchSerializer
from penstock.serde.contract import Form
from penstock.serde.errors import ClientError
from penstock.serde.frame import Side
from penstock.serde.serializers import Serializer
from penstock.spark.connections import registry_client
from penstock.spark.source_columns import SINGLE_FIELD
from penstock.spark.write_options import PayloadPlan, WritePlan


class RowEncoder:
    """Turns rows into the columns of records, as `columns.build_batches` takes them."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan
        self._encoders: dict[tuple[str, Side], PayloadEncoder] = {}

    def encode(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The records of each topic that these rows go to."""
        for topic, topic_rows in self._by_topic(rows):
            yield topic, self._records(topic, topic_rows)

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._plan.topic is not None:
            yield self._plan.topic, rows
            return
        assert self._plan.topic_column is not None, "a plan has a topic or a column for it"
        topics: Any = rows.column(self._plan.topic_column)
        if topics.null_count:
            raise Refused(
                ErrorCode.invalid_request, f"column {self._plan.topic_column} is null in a row"
            )
        names: Any = pc.unique(topics)
        for topic in names:
            yield topic.as_py(), rows.filter(pc.equal(topics, topic))

    def _records(self, topic: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        plan = self._plan
        columns: dict[str, Any] = {}
        if plan.key is not None:
            columns["key"] = self._payload(topic, Side.KEY, plan.key, rows)
        columns["value"] = self._payload(topic, Side.VALUE, plan.value, rows)
        for name, column in (
            ("headers", plan.headers),
            ("partition", plan.partition),
            ("timestamp", plan.timestamp),
        ):
            if column is not None:
                columns[name] = rows.column(column)
        if plan.trace:
            columns["headers"] = with_trace(columns.get("headers"), rows.num_rows, plan.trace)
        return pa.RecordBatch.from_pydict(columns)

    def _payload(self, topic: str, side: Side, plan: PayloadPlan, rows: pa.RecordBatch) -> Any:
        if plan.contract is None:
            return text_or_bytes(rows, plan.columns[0], side)
        encoder = self._encoders.get((topic, side))
        if encoder is None:
            assert self._plan.registry_url is not None, "a plan with a contract has a registry"
            encoder = PayloadEncoder(self._plan.registry_url, topic, side, plan)
            self._encoders[topic, side] = encoder
        return encoder.encode(rows)


def check_columns(plan: WritePlan, columns: pa.Schema) -> None:
    """Raise what any row of a frame with these columns would raise, before the first row."""
    rows = pa.RecordBatch.from_pylist([], schema=columns)
    for _ in RowEncoder(plan).encode(rows):
        continue


def text_or_bytes(rows: pa.RecordBatch, name: str, side: Side) -> Any:
    """A column that is written unchanged."""
    column = rows.column(name)
    arrow_type = column.type
    if pa.types.is_null(arrow_type) or _is_text_or_bytes(arrow_type):
        return column
    raise Refused(
        ErrorCode.invalid_config,
        f"column {name} is {arrow_type}: a {side} without a schema is text or bytes. Cast it, or"
        f" give {'`key_schema`' if side is Side.KEY else '`schema`'}",
    )


def _is_text_or_bytes(arrow_type: Any) -> bool:
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string)
    return any(test(arrow_type) for test in (*tests, pa.types.is_large_string))


class PayloadEncoder:
    """Encodes the keys or the values of one topic under their contract."""

    def __init__(self, registry_url: str, topic: str, side: Side, plan: PayloadPlan) -> None:
        assert plan.contract is not None, "for payloads with a contract"
        if plan.contract.form is not Form.PREFIX:
            raise Refused(
                ErrorCode.invalid_config,
                f"the {side} of {topic}: the sink writes schema ids as a prefix, not in headers",
            )
        self._plan = plan
        client = registry_client(registry_url)
        schema = Serializer(client, topic, plan.contract, side=side).prepare().schema
        self._is_json = schema.type is SchemaType.JSON
        self._serializer = BatchSerializer(client, topic, plan.contract, side=side)

    def encode(self, rows: pa.RecordBatch) -> Any:
        """The framed payloads; null where the single column is null."""
        fields, valid = self._fields(rows)
        if valid is None:
            return self._framed(fields)
        return with_nulls(self._framed(fields.filter(valid)), valid)

    def _fields(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        """The rows as the schema's fields, and which rows are not null if some are."""
        if self._plan.is_row:
            return rows.select(list(self._plan.columns)), None
        (name,) = self._plan.columns
        column: Any = rows.column(name)
        valid = column.is_valid() if column.null_count else None
        if pa.types.is_struct(column.type):
            return pa.RecordBatch.from_struct_array(column), valid
        return pa.RecordBatch.from_arrays([column], names=[SINGLE_FIELD]), valid

    def _framed(self, fields: pa.RecordBatch) -> Any:
        rows: Any = fields
        if self._is_json and fields.schema.names == [SINGLE_FIELD] and not self._plan.is_row:
            rows = fields.column(0).to_pylist()  # as a column it would be the text of JSON
        try:
            return self._serializer.serialize_many(rows).as_arrow()
        except ValueError as error:
            raise ClientError(f"{self._serializer.subject}: {error}") from None


def with_trace(column: Any, row_count: int, trace: tuple[tuple[str, bytes], ...]) -> Any:
    """The headers of rows, with those of a span added where a row names none."""
    kind: Any = pa.struct([("key", pa.string()), ("value", pa.binary())])
    own: Any = pa.array([None] * row_count, pa.list_(kind)) if column is None else column
    counts = np.asarray(pc.list_value_length(own).fill_null(0), dtype=np.int64)
    parents = np.repeat(np.arange(row_count), counts)
    pairs: Any = pc.list_flatten(own)
    names, values = pairs.flatten()
    has_trace = np.zeros(row_count, dtype=np.bool_)
    is_trace = pc.equal(names, pa.scalar(TRACE_PARENT)).fill_null(False)
    has_trace[parents[np.asarray(is_trace)]] = True
    rows = np.concatenate([parents, np.repeat(np.flatnonzero(~has_trace), len(trace))])
    order: Any = np.argsort(rows, kind="stable")
    added: Any = np.tile(np.arange(len(trace)), int((~has_trace).sum()))
    keys = pa.concat_arrays(
        [names.cast(pa.string()), pa.array([name for name, _ in trace]).take(added)]
    ).take(order)
    contents = pa.concat_arrays(
        [
            values.cast(pa.binary()),
            pa.array([value for _, value in trace], pa.binary()).take(added),
        ]
    ).take(order)
    ends = np.concatenate(([0], np.cumsum(counts + len(trace) * ~has_trace)))
    joined: Any = pa.StructArray.from_arrays([keys, contents], ["key", "value"])
    return pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), joined)
