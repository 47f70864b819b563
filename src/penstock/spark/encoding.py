"""Rows of a frame, as Arrow batches -> keys, values, headers and all the rest of records, by topic.

Runs in tasks; imports no pyspark. Whole columns at a time, whatever the language of the contract. A
row that does not fit its contract fails the task with the row's column or number: nothing is made
up and nothing is left out.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.client.avro_program import VALUE
from penstock.client.batches import BatchSerializer, Encoded
from penstock.client.contract import Form
from penstock.client.errors import ClientError
from penstock.client.frame import Side
from penstock.client.serializers import Serializer
from penstock.errors import ErrorCode, Refused
from penstock.schemas.model import SchemaType
from penstock.spark.connecting import registry
from penstock.spark.write_options import SidePlan, WritePlan


class Encoder:
    """Turns rows into records' columns, as `columns.building` takes them."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan
        self._writers: dict[tuple[str, Side], SideWriter] = {}

    def encode(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The records of each topic that these rows go to."""
        for topic, some in self._by_topic(rows):
            yield topic, self._records(topic, some)

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._plan.topic is not None:
            yield self._plan.topic, rows
            return
        assert self._plan.topic_column is not None, "a plan has a topic or a column for it"
        topics: Any = rows.column(self._plan.topic_column)
        if topics.null_count:
            raise Refused(
                ErrorCode.invalid_request, f"column {self._plan.topic_column} has no topic in a row"
            )
        names: Any = pc.unique(topics)
        for topic in names:
            yield topic.as_py(), rows.filter(pc.equal(topics, topic))

    def _records(self, topic: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        plan = self._plan
        columns: dict[str, Any] = {}
        if plan.key is not None:
            columns["key"] = self._side(topic, Side.KEY, plan.key, rows)
        columns["value"] = self._side(topic, Side.VALUE, plan.value, rows)
        for name, column in (
            ("headers", plan.headers),
            ("partition", plan.partition),
            ("timestamp", plan.timestamp),
        ):
            if column is not None:
                columns[name] = rows.column(column)
        return pa.RecordBatch.from_pydict(columns)

    def _side(self, topic: str, side: Side, plan: SidePlan, rows: pa.RecordBatch) -> Any:
        if plan.contract is None:
            return plain_column(rows, plan.columns[0], side)
        writer = self._writers.get((topic, side))
        if writer is None:
            writer = self._writers[topic, side] = self._writer(topic, side, plan)
        return writer.write(rows)

    def _writer(self, topic: str, side: Side, plan: SidePlan) -> "SideWriter":
        assert self._plan.registry_url is not None, "a plan with a contract has a registry"
        return SideWriter(self._plan.registry_url, topic, side, plan)


def check_columns(plan: WritePlan, columns: pa.Schema) -> None:
    """Raises what any row of a frame with these columns would: a misfit shows before the first."""
    rows = pa.RecordBatch.from_pylist([], schema=columns)
    for _ in Encoder(plan).encode(rows):
        continue


def plain_column(rows: pa.RecordBatch, name: str, side: Side) -> Any:
    """Bytes or text as they are."""
    column = rows.column(name)
    kind = column.type
    if pa.types.is_null(kind) or _is_text_or_bytes(kind):
        return column
    raise Refused(
        ErrorCode.invalid_config,
        f"column {name} is {kind}: a {side} without a schema is text or bytes. Cast it, or give"
        f" {'`key_schema`' if side is Side.KEY else '`schema`'}",
    )


def _is_text_or_bytes(kind: Any) -> bool:
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string)
    return any(test(kind) for test in (*tests, pa.types.is_large_string))


class SideWriter:
    """Writes one side of one topic's records under its contract."""

    def __init__(self, registry_url: str, topic: str, side: Side, plan: SidePlan) -> None:
        assert plan.contract is not None, "this is for sides with one"
        if plan.contract.form is not Form.PREFIX:
            raise Refused(
                ErrorCode.invalid_config,
                f"the {side} of {topic}: frames in headers are not written here; use the prefix",
            )
        self._plan = plan
        client = registry(registry_url)
        schema = Serializer(client, topic, plan.contract, side=side).prepare()[1]
        self._is_json = schema.type is SchemaType.JSON
        self._serializer = BatchSerializer(client, topic, plan.contract, side=side)

    def write(self, rows: pa.RecordBatch) -> Any:
        """The framed values, null where the one column is."""
        fields, valid = self._fields(rows)
        if valid is None:
            return self._framed(fields)
        return _spread(self._framed(fields.filter(valid)), valid)

    def _fields(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        """The rows as the schema's fields, and which of them there are if not all."""
        if self._plan.is_row:
            return rows.select(list(self._plan.columns)), None
        (name,) = self._plan.columns
        column: Any = rows.column(name)
        valid = column.is_valid() if column.null_count else None
        if pa.types.is_struct(column.type):
            return pa.RecordBatch.from_struct_array(column), valid
        return pa.RecordBatch.from_arrays([column], names=[VALUE]), valid

    def _framed(self, fields: pa.RecordBatch) -> Any:
        rows: Any = fields
        if self._is_json and fields.schema.names == [VALUE] and not self._plan.is_row:
            rows = fields.column(0).to_pylist()  # as a column it would be JSON's text
        try:
            return as_column(self._serializer.serialize_many(rows))
        except ValueError as wrong:
            raise ClientError(f"{self._serializer.subject}: {wrong}") from None


def as_column(encoded: Encoded) -> Any:
    """Values that lie end to end, as an Arrow column over the same memory."""
    buffers: list[Any] = [encoded.offsets, encoded.buffer]
    return pa.Array.from_buffers(
        pa.large_binary(),
        len(encoded.offsets) - 1,
        [None, *(pa.py_buffer(buffer) for buffer in buffers)],
    )


def _spread(column: Any, valid: Any) -> Any:
    """A column of the valid rows, with nulls where the others are."""
    is_valid = np.asarray(valid)
    places = np.cumsum(is_valid) - 1
    return column.take(pa.array(places, mask=~is_valid))
