"""Rows -> record batches that only lack producer and checksum, each for one Kafka partition.

The first half of a write, done by whichever tasks have the rows: a batch is built once, as vectors.
Either that task writes it in its turn, or it goes as one row to the task that writes its partition,
so that no single record passes through Spark's shuffle. Runs in tasks; imports no pyspark.

Batches of one task for one partition are numbered: the writer puts them in order of (task, number),
and rows of one task that go to one partition keep their order.

Rows of a frame, as Arrow batches -> keys, values, headers and all the rest of records, by topic.

Runs in tasks; imports no pyspark. Whole columns at a time, whatever the language of the contract. A
row that does not fit its contract fails the task with the row's column or number: nothing is made
up and nothing is left out.
"""

import time
from binascii import crc32
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.build_batches import UNSEALED, PartitionBatches, build_batches
from penstock.columns.partitioner import Unkeyed
from penstock.errors import ErrorCode, Refused
from penstock.link.offsets import partitions_of
from penstock.model import Millis
from penstock.schemas.model import SchemaType
from penstock.serde.avro.compile_read import VALUE
from penstock.serde.batch_serializers import BatchSerializer, Encoded
from penstock.serde.contract import Form
from penstock.serde.errors import ClientError
from penstock.serde.frame import Side
from penstock.serde.serializers import Serializer
from penstock.spark.connections import cluster, registry
from penstock.spark.workers import acknowledged, freeze_loaded, keep_memory
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


_FIELDS: Final[list[Any]] = [
    pa.field("lane", pa.int32()),  # the same for all of a partition: which task writes it
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("task", pa.int32()),
    pa.field("number", pa.int32()),
    pa.field("records", pa.int32()),
    pa.field("batch", pa.binary()),
]
PACKED: Final = pa.schema(_FIELDS)
PACKED_NAMES: Final = PACKED.names
_ROWS_BYTES_LEAST: Final = 2 << 20  # of rows that are packed at once: what caches hold
_ROWS_BYTES_MAX: Final = 8 << 20
_FULL_BATCHES: Final = 3  # of a partition's batches in rows that are packed at once; one is not
_LANE_MASK: Final = 0x3FFFFFFF
Built: TypeAlias = dict[int, PartitionBatches]  # by partition


class Packer:
    """Packs the rows of one task."""

    def __init__(self, plan: WritePlan, task: int) -> None:
        self._plan = plan
        self._task = task
        self._encoder = Encoder(plan)
        self._counts: dict[str, int] = {}
        self._number = 0
        self._unkeyed = 0  # where the next rows without a key go

    def pack(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The packed batches as rows of PACKED."""
        for topic, built in self.build(batches):
            yield self._packed(topic, built)

    def build(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, Built]]:
        """The packed batches as they are, some rows' at a time, each with its topic."""
        keep_memory()
        for rows in gathered(acknowledged(batches), self._rows_bytes()):
            for topic, records in self._encoder.encode(rows):
                yield topic, self._built(topic, records)
        freeze_loaded("packing")

    def _built(self, topic: str, records: pa.RecordBatch) -> Built:
        count = self._partition_count(topic)
        built = build_batches(
            records,
            partition_count=count,
            now=Millis(time.time_ns() // 1_000_000),
            unkeyed=Unkeyed.sticky((self._task + self._unkeyed) % count),
            framing=self._plan.framing,
            stamp=UNSEALED,
        )
        self._unkeyed += 1
        return built

    def _packed(self, topic: str, built: Built) -> pa.RecordBatch:
        first_lane = 0 if self._plan.topic is not None else crc32(topic.encode()) & _LANE_MASK
        rows = [
            (first_lane + partition, partition, batch)
            for partition, some in built.items()
            for batch in some.batches
        ]
        numbers = range(self._number, self._number + len(rows))
        self._number += len(rows)
        return pa.RecordBatch.from_arrays(
            [
                pa.array([lane for lane, _, _ in rows], pa.int32()),
                pa.array([topic] * len(rows), pa.string()),
                pa.array([partition for _, partition, _ in rows], pa.int32()),
                pa.array([self._task] * len(rows), pa.int32()),
                pa.array(numbers, pa.int32()),
                pa.array([batch.record_count for _, _, batch in rows], pa.int32()),
                batches_column([batch.content for _, _, batch in rows]),
            ],
            schema=PACKED,
        )

    def _rows_bytes(self) -> int:
        """How much to pack at once: enough for batches of the size that they may have."""
        if self._plan.topic is None:
            return _ROWS_BYTES_MAX
        count = self._partition_count(self._plan.topic)
        wanted = _FULL_BATCHES * count * self._plan.framing.batch_bytes_max
        return min(max(wanted, _ROWS_BYTES_LEAST), _ROWS_BYTES_MAX)

    def _partition_count(self, topic: str) -> int:
        if topic not in self._counts:
            places = cluster(self._plan.properties).run(partitions_of([topic]))
            self._counts[topic] = len(places)
        return self._counts[topic]


def batches_column(batches: list[memoryview]) -> Any:
    """The batches as one column. `pa.array` would keep every memoryview it is given, for ever."""
    ends = np.cumsum([0, *map(len, batches)], dtype=np.int32)
    buffers = [None, pa.py_buffer(ends.data), pa.py_buffer(b"".join(batches))]
    return pa.Array.from_buffers(pa.binary(), len(batches), buffers)


def gathered(batches: Iterator[pa.RecordBatch], size_bytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of about this size, so that many small ones make few large."""
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        waiting.append(batch)
        waiting_bytes += batch.get_total_buffer_size()
        if waiting_bytes >= size_bytes:
            yield _joined(waiting)
            waiting, waiting_bytes = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined
