"""The latest value of each key of one partition, kept by the worker and updated.

Only the latest records are decoded. A worker keeps what it has read, up to a limit, and reads only
what came since: a table that is read in every micro-batch costs what has changed. A topic that was
created again under the same name is read from its start. Runs in workers. Imports no pyspark.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.link.offsets import partitions_of
from penstock.model import Offset, TopicId, TopicPartition
from penstock.serde.frame import Side
from penstock.spark import positions
from penstock.spark import source_columns as columns
from penstock.spark.connections import BOOTSTRAP, cluster_for
from penstock.spark.decode_rows import UnreadableRecordError, cached_deserializer
from penstock.spark.fit_arrow import fit_rows
from penstock.spark.planning import OffsetRange
from penstock.spark.read_options import LogEnd, OnError, PayloadFormat
from penstock.spark.read_plan import ReadPlan
from penstock.spark.read_task import read_ranges
from penstock.spark.reader_schemas import reader_of

CACHE_BYTES_MAX: Final = 256 << 20  # per worker; then the least recently used partition is dropped
_BATCH_ROWS: Final = 10_000
_TABLES_MAX: Final = 32  # of what was read, before they are merged
_RAW_TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "offset": pa.int64(),
    "headers": columns.HEADERS_TYPE,  # some frames have their schema id there
}
_RAW: Final = pa.schema(_RAW_TYPES)
_CacheKey: TypeAlias = tuple[str, TopicPartition]


@dataclass(slots=True)
class _LatestRows:
    """Rows of _RAW, one for each key including tombstones; all before `end`."""

    topic_id: TopicId | None
    end: Offset
    rows: pa.Table


_cache: "OrderedDict[_CacheKey, _LatestRows]" = OrderedDict()


def latest_values(plan: ReadPlan, partition: TopicPartition) -> Iterator[pa.RecordBatch]:
    """The partition's latest values as the plan's columns, as of now."""
    latest = _updated(plan, partition)
    has_value: Any = latest.rows.column("value").is_valid()
    for batch in latest.rows.filter(has_value).to_batches(_BATCH_ROWS):
        yield _decoded(plan, partition, batch)


def _updated(plan: ReadPlan, partition: TopicPartition) -> _LatestRows:
    cluster = cluster_for(plan.kafka)
    cluster.run(partitions_of([partition.topic]))  # its id now: a topic may be created again
    start = positions.resolve_bound(cluster, [partition], LogEnd.EARLIEST, plan.isolation)
    end = positions.end_position(cluster, [partition], plan.isolation)
    topic_id, end_offset = end.topic_ids.get(partition.topic), end.offsets[partition]
    name = (plan.kafka[BOOTSTRAP], partition)
    cached = _cache.pop(name, None)
    if cached is None or cached.topic_id != topic_id or cached.end > end_offset:
        cached = _LatestRows(topic_id, start.offsets[partition], _RAW.empty_table())
    first = max(cached.end, start.offsets[partition])
    if first < end_offset:
        unread = OffsetRange(partition, first, end_offset, topic_id)
        newer = read_ranges(_without_decoding(plan), [unread])
        cached = _LatestRows(topic_id, end_offset, _merged(cached.rows, newer))
    _keep(name, cached)
    return cached


def _merged(rows: pa.Table, newer: Iterator[pa.RecordBatch]) -> pa.Table:
    tables = [rows]
    for batch in newer:
        tables.append(pa.Table.from_batches([batch], schema=_RAW))
        if len(tables) >= _TABLES_MAX:
            tables = [latest_by_key(pa.concat_tables(tables))]
    return latest_by_key(pa.concat_tables(tables))


def latest_by_key(rows: pa.Table) -> pa.Table:
    """The row with the highest offset of each key; in a partition that is the last of them."""
    numbered = rows.select(["key"]).append_column("row", pa.array(np.arange(rows.num_rows)))
    last = numbered.group_by("key").aggregate([("row", "max")]).column("row_max")
    return rows.take(np.sort(np.asarray(last))).combine_chunks()


def _keep(name: _CacheKey, latest: _LatestRows) -> None:
    _cache[name] = latest
    while len(_cache) > 1 and sum(entry.rows.nbytes for entry in _cache.values()) > CACHE_BYTES_MAX:
        _cache.popitem(last=False)


def _without_decoding(plan: ReadPlan) -> ReadPlan:
    raw = replace(
        plan.decode,
        schema=_RAW,
        value=PayloadFormat.RAW,
        key=PayloadFormat.RAW,
        fields=(),
        value_readers={},
        key_readers={},
    )
    return replace(plan, decode=raw)


def _decoded(plan: ReadPlan, partition: TopicPartition, batch: pa.RecordBatch) -> pa.RecordBatch:
    decode = plan.decode
    arrays: dict[str, Any] = {
        columns.KEY: batch.column("key"),
        columns.VALUE: batch.column("value"),
    }
    if decode.fields:
        assert decode.registry is not None, "decoding needs a registry"
        contract = reader_of(decode.value_readers, partition.topic)
        deserializer = cached_deserializer(
            decode.registry, partition.topic, contract, decode.fields, Side.VALUE
        )
        headers: Any = batch.column("headers")
        read = deserializer.deserialize_many(
            batch.column("value"), headers if len(headers.flatten()) else None
        )
        if read.errors and decode.on_error is not OnError.NULL:
            error = read.errors[0]
            raise UnreadableRecordError(
                f"{partition} at offset {batch.column('offset')[error.row]}: cannot decode the"
                f" value ({error.reason}: {error.detail}); with onError=null the row would be nulls"
            )
        for name in decode.fields:
            arrow_type = decode.schema.field(name).type
            arrays[name], _ = fit_rows(read.batch.column(name), arrow_type)
    ordered = [
        arrays[columns.record_column(name, decode.value) or name] for name in decode.schema.names
    ]
    return pa.RecordBatch.from_arrays(ordered, schema=decode.schema)
