"""A range of a topic's records as an Arrow table: the fields of values, and where each record was.

    _partition, _offset, _timestamp (UTC), _key, _error, then the fields of the value

Values under a schema are read as the latest version of the subject, or the version that was chosen.
A value that cannot be read is a row of nulls with `_error`. Values without a schema are one column,
`value`, as text if all of them are. A key is text if all of them are.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from penstock.client.registry import Registry
from penstock.columns.arrow_records import ArrowArray, bytes_to_arrow
from penstock.columns.open_batches import open_pages
from penstock.columns.record_columns import RecordColumns
from penstock.console.sql.sql_request import Place, SqlLimits
from penstock.errors import ErrorCode, Refused
from penstock.link.blocking import BlockingCluster
from penstock.link.fetch_range import FetchSettings, fetch_range
from penstock.link.offsets import (
    Isolation,
    end_offsets,
    list_offsets,
    partitions_of,
    start_offsets,
)
from penstock.model import NO_OFFSET, Millis, Offset, TopicPartition
from penstock.serde.batch_serializers import BatchDeserializer
from penstock.serde.contract import Contract
from penstock.serde.errors import UnknownSchemaError

_COMMITTED: Final = Isolation.READ_COMMITTED
_FETCH: Final = FetchSettings(isolation=_COMMITTED, chunk_bytes=4 << 20)
_TIMESTAMP: Final = pa.timestamp("ms")
_OFFSET_MAX: Final = (1 << 63) - 1
_DIGITS_MAX: Final = 19
VALUE: Final = "value"


class TopicTable(NamedTuple):
    """The records of a topic, and how many of how many offsets were read."""

    table: pa.Table
    scanned: int
    total: int
    size_bytes: int = 0  # decoded


class TopicRange(NamedTuple):
    """What of a topic is read, and as which version of its subject (None: the latest)."""

    topic: str
    begin: Place
    until: Place
    version: int | None


class _Plan(NamedTuple):
    """The offsets of a topic that a query asks for."""

    wanted: TopicRange
    ranges: Mapping[TopicPartition, tuple[Offset, Offset]]

    @property
    def total(self) -> int:
        return sum(end - start for start, end in self.ranges.values())


class _Share(NamedTuple):
    """What one topic may use of the limits of its query."""

    records: int
    size_bytes: int


def read_topics(
    cluster: BlockingCluster, registry: Registry, wanted: Sequence[TopicRange], limits: SqlLimits
) -> dict[str, TopicTable]:
    """Read until the ranges or the limits end. Refused if a range is not valid.

    The limits hold for all topics together. The smallest topic is read first, and each may use an
    equal share of what is left, so that a large one does not leave the others without records.
    """
    plans = [_Plan(each, _ranges(cluster, each)) for each in wanted]
    records, size_bytes = limits.records, limits.scan_bytes
    tables: dict[str, TopicTable] = {}
    for plan in sorted(plans, key=lambda plan: plan.total):
        waiting = len(plans) - len(tables)
        share = _Share(records // waiting, size_bytes // waiting)
        table = _read_topic(cluster, registry, plan, share)
        records -= table.scanned
        size_bytes = max(0, size_bytes - table.size_bytes)
        tables[plan.wanted.topic] = table
    return tables


def _read_topic(
    cluster: BlockingCluster, registry: Registry, plan: _Plan, share: _Share
) -> TopicTable:
    reader = _value_reader(registry, plan.wanted)
    batches: list[pa.RecordBatch] = []
    scanned = size_bytes = 0
    for place, (start, end) in plan.ranges.items():
        last = Offset(min(end, start + max(0, share.records - scanned)))
        position = start
        if last > start and size_bytes < share.size_bytes:
            for chunk in cluster.stream(fetch_range(place, start, last, settings=_FETCH)):
                pages = open_pages(
                    chunk.records, start_offset=position, end_offset=last, aborted=chunk.aborted
                )
                read = [_batch(place, page, reader) for page in pages if len(page)]
                batches += read
                position = min(last, chunk.end_offset)
                # Decoded, because a compressed topic may take many times the memory.
                size_bytes += sum(batch.nbytes for batch in read)
                if size_bytes >= share.size_bytes:
                    break
        scanned += position - start
    return TopicTable(_table(batches, reader), scanned, plan.total, size_bytes)


def _ranges(
    cluster: BlockingCluster, wanted: TopicRange
) -> dict[TopicPartition, tuple[Offset, Offset]]:
    places = cluster.run(partitions_of([wanted.topic]))
    starts = cluster.run(start_offsets(places))
    ends = cluster.run(end_offsets(places, isolation=_COMMITTED))
    begins = _offsets(cluster, wanted.begin, starts, ends)
    stops = _offsets(cluster, wanted.until, starts, ends)
    return {place: (begins[place], max(begins[place], stops[place])) for place in places}


def _offsets(
    cluster: BlockingCluster,
    place: Place,
    starts: Mapping[TopicPartition, Offset],
    ends: Mapping[TopicPartition, Offset],
) -> Mapping[TopicPartition, Offset]:
    if place == "earliest":
        return starts
    if place == "latest":
        return ends
    assert isinstance(place, dict)
    ((name, given),) = place.items() if len(place) == 1 else (("", ""),)
    text = str(given)
    if name not in ("offset", "time") or not _is_number(text):
        raise Refused(
            ErrorCode.invalid_request,
            'from and until are earliest, latest, {"offset": n} or {"time": ms}',
        )
    number = min(int(text), _OFFSET_MAX)
    if name == "offset":
        return {each: Offset(min(max(number, starts[each]), ends[each])) for each in ends}
    times = dict.fromkeys(ends, Millis(number))
    rows = cluster.run(list_offsets(times, isolation=_COMMITTED))
    return {
        each: ends[each] if row.offset == NO_OFFSET else min(row.offset, ends[each])
        for each, row in rows.items()
    }


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX


def _value_reader(registry: Registry, wanted: TopicRange) -> BatchDeserializer | None:
    """None: the topic's values have no schema."""
    subject = f"{wanted.topic}-value"
    contract = Contract()
    try:
        if wanted.version is not None:
            source = registry.version(subject, wanted.version).source
            contract = Contract(schema=source.text, type=source.type, references=source.references)
        else:
            registry.latest(subject)
    except UnknownSchemaError:
        if wanted.version is not None:
            raise
        return None
    return BatchDeserializer(registry, wanted.topic, reader=contract)


def _batch(
    place: TopicPartition, page: RecordColumns, reader: BatchDeserializer | None
) -> pa.RecordBatch:
    rows = len(page)
    assert page.keys is not None, "all parts are opened"
    assert page.values is not None, "all parts are opened"
    columns: dict[str, ArrowArray] = {
        "_partition": pa.array([place.partition] * rows, pa.int32()),
        "_offset": pa.array(page.offsets),
        "_timestamp": pa.array(page.timestamps).view(_TIMESTAMP),
        "_key": bytes_to_arrow(page.keys),
    }
    errors: list[str | None] = [None] * rows
    if reader is None:
        columns[VALUE] = bytes_to_arrow(page.values)
    else:
        read = reader.deserialize_records(page)
        for error in read.errors:
            errors[error.row] = f"{error.reason}: {error.detail}"
        for name, column in zip(read.batch.schema.names, read.batch.columns, strict=True):
            columns.setdefault(name, column)
    columns["_error"] = pa.array(errors, pa.string())
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _table(batches: list[pa.RecordBatch], reader: BatchDeserializer | None) -> pa.Table:
    if not batches:
        return _empty(reader)
    table = pa.Table.from_batches(batches)
    for name in ("_key",) if reader is not None else ("_key", VALUE):
        table = _as_text(table, name)
    return table


def _as_text(table: pa.Table, name: str) -> pa.Table:
    """A column of bytes as text, if all of it is."""
    index = table.schema.get_field_index(name)
    try:
        return table.set_column(index, name, table.column(index).cast(pa.string()))
    except pa.ArrowInvalid:
        return table


def _empty(reader: BatchDeserializer | None) -> pa.Table:
    fields: list[Any] = [
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_timestamp", _TIMESTAMP),
        ("_key", pa.string()),
    ]
    own = [(VALUE, pa.string())] if reader is None else list(_fields(reader))
    return pa.schema([*fields, *own, ("_error", pa.string())]).empty_table()


def _fields(reader: BatchDeserializer) -> Iterator[Any]:
    for field in reader.arrow_schema():
        yield field.name, field.type
