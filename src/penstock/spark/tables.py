"""A compacted topic as a table: the latest value of each key, as of now.

    customers = table(spark, "customers", {"kafka.bootstrap.servers": ..., "registry": ...})
    enriched = join_table(orders, customers, on=["customer"])

In a stream the table is read anew for every micro-batch: a row meets what was known when its batch
ran, and a batch that is run again may find more. Keys whose latest value is null are not in it.
Options are those of `format("penstock")` that choose brokers, registry, schema and columns; the
columns are the value's fields and `_key`, or `key` and `value` where values are left raw.

The latest value of each key of one partition, kept by the worker and brought up to date.

Records are made few before they are decoded: only what is the latest is looked into. What a worker
has read it keeps, within a limit, and reads only what came since: a table that is read anew for
every micro-batch costs what has changed. A topic made again under the same name is read anew.

Runs in Spark's workers; imports no Spark.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.errors import ErrorCode, Refused
from penstock.link.offsets import partitions_of
from penstock.model import Offset, TopicId, TopicPartition
from penstock.serde.batch_serializers import BatchDeserializer
from penstock.serde.contract import Contract
from penstock.serde.frame import Side
from penstock.spark import positions
from penstock.spark import spark_columns as own
from penstock.spark.connections import BOOTSTRAP, cluster, reached, registry
from penstock.spark.decode_rows import UnreadableRecord
from penstock.spark.fit_arrow import fit_rows
from penstock.spark.planning import OffsetRange
from penstock.spark.query_plan import ReadTask, read_schema, read_task, without_notes
from penstock.spark.read_options import Anchor, Coding, OnError, ReadOptions, read_options
from penstock.spark.read_task import read_ranges
from penstock.spark.reader_schemas import reader_of

if TYPE_CHECKING:
    import pyarrow as pa


KEPT_BYTES_MAX: Final = 256 << 20  # of a worker; then the partition used longest ago is forgotten
_BATCH_ROWS: Final = 10_000
_PARTS_MAX: Final = 32  # of what was read, before they are made one
_DECODERS_MAX: Final = 64
_RAW_TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "offset": pa.int64(),
    "headers": own.HEADERS_TYPE,  # some frames name their schema there
}
_RAW: Final = pa.schema(_RAW_TYPES)
_Place: TypeAlias = tuple[str, TopicPartition]


@dataclass(slots=True)
class _Latest:
    """Rows of _RAW, one for each key, tombstones too; all before `end`."""

    topic_id: TopicId | None
    end: Offset
    rows: pa.Table


_kept: "OrderedDict[_Place, _Latest]" = OrderedDict()


def latest_rows(task: ReadTask, place: TopicPartition) -> Iterator[pa.RecordBatch]:
    """The partition's latest values as the task's columns, as of now."""
    latest = _up_to_date(task, place)
    there: Any = latest.rows.column("value").is_valid()
    for batch in latest.rows.filter(there).to_batches(_BATCH_ROWS):
        yield _decoded(task, place, batch)


def _up_to_date(task: ReadTask, place: TopicPartition) -> _Latest:
    brokers = cluster(task.kafka)
    brokers.run(partitions_of([place.topic]))  # its id as of now: a topic may be created again
    start = positions.resolve(brokers, [place], Anchor.EARLIEST, task.isolation)
    end = positions.ends(brokers, [place], task.isolation)
    topic_id, stop = end.topic_ids.get(place.topic), end.offsets[place]
    name = (task.kafka[BOOTSTRAP], place)
    known = _kept.pop(name, None)
    if known is None or known.topic_id != topic_id or known.end > stop:
        known = _Latest(topic_id, start.offsets[place], _RAW.empty_table())
    begin = max(known.end, start.offsets[place])
    if begin < stop:
        asked = OffsetRange(place, begin, stop, topic_id)
        known = _Latest(topic_id, stop, _with_newer(known.rows, read_ranges(_raw(task), [asked])))
    _keep(name, known)
    return known


def _with_newer(rows: pa.Table, batches: Iterator[pa.RecordBatch]) -> pa.Table:
    parts = [rows]
    for batch in batches:
        parts.append(pa.Table.from_batches([batch], schema=_RAW))
        if len(parts) >= _PARTS_MAX:
            parts = [latest_by_key(pa.concat_tables(parts))]
    return latest_by_key(pa.concat_tables(parts))


def latest_by_key(rows: pa.Table) -> pa.Table:
    """The row with the highest offset of each key; in a partition that is the last of them."""
    numbered = rows.select(["key"]).append_column("row", pa.array(np.arange(rows.num_rows)))
    last = numbered.group_by("key").aggregate([("row", "max")]).column("row_max")
    return rows.take(np.sort(np.asarray(last))).combine_chunks()


def _keep(name: _Place, latest: _Latest) -> None:
    _kept[name] = latest
    while len(_kept) > 1 and sum(one.rows.nbytes for one in _kept.values()) > KEPT_BYTES_MAX:
        _kept.popitem(last=False)


def _raw(task: ReadTask) -> ReadTask:
    """The same reading without any decoding."""
    raw = replace(
        task.decoding,
        schema=_RAW,
        value=Coding.RAW,
        key=Coding.RAW,
        fields=(),
        value_readers={},
        key_readers={},
    )
    return replace(task, decoding=raw)


def _decoded(task: ReadTask, place: TopicPartition, batch: pa.RecordBatch) -> pa.RecordBatch:
    decoding = task.decoding
    arrays: dict[str, Any] = {own.KEY: batch.column("key"), own.VALUE: batch.column("value")}
    if decoding.fields:
        assert decoding.registry is not None, "decoding needs a registry"
        contract = reader_of(decoding.value_readers, place.topic)
        read = _deserializer(decoding.registry, place.topic, contract, decoding.fields)
        headers: Any = batch.column("headers")
        found = read.deserialize_many(
            batch.column("value"), headers if len(headers.flatten()) else None
        )
        if found.wrongs and decoding.on_error is not OnError.NULL:
            wrong = found.wrongs[0]
            raise UnreadableRecord(
                f"{place} at offset {batch.column('offset')[wrong.row]}: the value cannot be read"
                f" ({wrong.reason}: {wrong.detail}); with onError=null the row would be nulls"
            )
        for name in decoding.fields:
            kind = decoding.schema.field(name).type
            arrays[name], _ = fit_rows(found.batch.column(name), kind)
    columns = [
        arrays[own.own_column(name, decoding.value) or name] for name in decoding.schema.names
    ]
    return pa.RecordBatch.from_arrays(columns, schema=decoding.schema)


@lru_cache(maxsize=_DECODERS_MAX)
def _deserializer(
    url: str, topic: str, reader: Contract, columns: tuple[str, ...]
) -> BatchDeserializer:
    return BatchDeserializer(registry(url), topic, reader=reader, columns=columns, side=Side.VALUE)


NAME: Final = "penstock-table"
How: TypeAlias = Literal["inner", "left_outer", "left_semi", "left_anti"]


def table(spark: SparkSession, topic: str, options: Mapping[str, str]) -> DataFrame:
    """The topic's latest values."""
    spark.dataSource.register(TableSource)
    return spark.read.format(NAME).options(**options, subscribe=topic).load()


def join_table(
    events: DataFrame, table: DataFrame, *, on: Sequence[str], how: How = "left_outer"
) -> DataFrame:
    """Each event with the row of the table that has the same `on`; `_key` is not taken along."""
    for side, frame in (("events have", events), ("table has", table)):
        missing = [name for name in on if name not in frame.columns]
        if missing:
            raise _refused(f"the {side} no column {missing[0]}: {', '.join(frame.columns)}")
    rows = table.drop(*{own.KEY} - set(on))
    twins = sorted((set(events.columns) & set(rows.columns)) - set(on))
    if twins and how in ("inner", "left_outer"):
        raise _refused(f"both have {', '.join(twins)}: rename or drop one of each")
    return events.join(rows, list(on), how)


class TableSource(DataSource):
    """What `format("penstock-table")` means."""

    @classmethod
    def name(cls) -> str:
        """Spark's."""
        return NAME

    def schema(self) -> StructType:
        """Spark's: the fields of the value and the key."""
        everything = read_schema(self.options)
        if read_options(without_notes(self.options)).columns is not None:
            return everything
        wanted = ("key", "value", own.KEY)
        kept = [one for one in everything if one.name in wanted or not _is_own(one.name)]
        return StructType(kept)

    def reader(self, schema: StructType) -> "TableReader":
        """Spark's."""
        asked = read_options(without_notes(self.options), is_stream=False)
        return TableReader(asked, read_task(asked, self.options, schema))


def _is_own(name: str) -> bool:
    return name in own.OWN_TYPES or own.own_column(name, Coding.RAW) is not None


class TableReader(DataSourceReader):
    """Planned once, read often: what there is to read is found out when it is read."""

    def __init__(self, options: ReadOptions, task: ReadTask) -> None:
        self._options = options
        self._task = task
        readable = {own.KEY} if task.decoding.decodes_value else {own.KEY, own.VALUE}
        for name in task.decoding.schema.names:
            mine = own.own_column(name, options.value)
            if mine is not None and mine not in readable:
                raise _refused(f"a table has no {name}: its columns are the value's and the key")
        if options.key is not Coding.RAW:
            raise _refused("a table's keys are bytes: leave key=raw, and use a field of the value")

    def partitions(self) -> Sequence[InputPartition]:
        """Spark's: one for each partition of the topic."""
        chosen = positions.selected(reached(self._options.kafka), self._options.selection)
        return [InputPartition(place) for place in chosen]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Spark's, in a worker: the latest values of one partition, as of now."""

        place: Any = partition.value
        return latest_rows(self._task, place)


def _refused(why: str) -> Refused:
    return Refused(ErrorCode.invalid_config, why)
