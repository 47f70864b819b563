"""A bounded re-read of a topic, through one reader schema, into another topic or Parquet files.

    replay = Replay(spark, ReplaySource("orders", options, schema="3"), TopicTarget("orders-v3"),
                    bounds=ReplayBounds.at_times(None, Millis(1767225600000)))
    for progress in replay.run():
        print(progress.records_done, "of", replay.records_total)

Works in steps. Two consumer groups store where the replay starts and ends, and one how far it is,
so a replay that was stopped continues to the same end, whatever has been written since. Into a
topic, each step is one transaction together with its progress: every event is there once. Into
Parquet, a step is a folder `replay_part=N`, which is written again as a whole if the step was
interrupted. Nothing is deleted.
"""

import hashlib
import json
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock.link.offsets import Isolation, commit_offsets, committed_offsets, partitions_of
from penstock.model import Millis, Offset, TopicPartition
from penstock.serde.contract import Contract
from penstock.serde.frame import Side
from penstock.spark import positions
from penstock.spark import source_columns as columns
from penstock.spark.batch_transaction import PREFIX as SINK_GROUP
from penstock.spark.batch_transaction import BatchName
from penstock.spark.connections import (
    BOOTSTRAP,
    connected_cluster,
    kafka_properties,
    registry_client,
)
from penstock.spark.exactly_once_sink import TransactionalBatch, in_transaction
from penstock.spark.planning import StreamPosition, limited, ranges_between
from penstock.spark.quarantine_rows import write_quarantine
from penstock.spark.query_plan import value_reader
from penstock.spark.read_options import AtOffsets, AtTimes, Bound, LogEnd
from penstock.spark.reader_schemas import topic_subject
from penstock.spark.write_options import WriteRequest

if TYPE_CHECKING:
    from penstock.link.blocking import BlockingCluster

GROUP: Final = "penstock.replay."
STEP_OFFSETS: Final = 250_000
_NAME_CHARACTERS: Final = 12
ReplayEdge: TypeAlias = LogEnd | AtTimes | Offset


class OnUnreadable(StrEnum):
    """What to do with events that cannot be decoded."""

    FAIL = "fail"
    SKIP = "skip"
    QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True)
class ReplayBounds:
    """From and to, in every partition: its start or end, an offset, or a time of its records."""

    start: ReplayEdge = LogEnd.EARLIEST
    end: ReplayEdge = LogEnd.LATEST

    @classmethod
    def at_times(cls, start: Millis | None, end: Millis | None) -> "ReplayBounds":
        """Records from a time on, to before another."""
        return cls(
            LogEnd.EARLIEST if start is None else AtTimes(start, latest_if_none=True),
            LogEnd.LATEST if end is None else AtTimes(end, latest_if_none=True),
        )


@dataclass(frozen=True, slots=True)
class ReplaySource:
    """What is read. Without a registry, values are copied unchanged."""

    topic: str
    options: Mapping[str, str]  # kafka.*, registry
    schema: str = "latest"  # of the reader: latest, a version number, or text
    on_unreadable: OnUnreadable = OnUnreadable.FAIL

    @property
    def registry(self) -> str | None:
        """The registry's address."""
        return self.options.get("registry")


class TopicTarget(NamedTuple):
    """Events under the reader schema, with their keys, headers and timestamps."""

    topic: str


class ParquetTarget(NamedTuple):
    """A folder, as Spark names it: a path, or s3a://..."""

    folder: str


ReplayTarget: TypeAlias = TopicTarget | ParquetTarget


class ReplayProgress(NamedTuple):
    """How far a replay is after a step."""

    step: int
    records_done: int  # offsets, counted from the start of the bounds
    by_schema: Counter[int | None]  # records of this run so far, by the id that wrote them
    unreadable: int  # records of this run that were left out


class _StepCounts(NamedTuple):
    readable: Counter[int | None]
    unreadable: int


class Replay:
    """One replay. `job` is its name: the same name continues the same replay."""

    def __init__(
        self,
        spark: SparkSession,
        source: ReplaySource,
        target: ReplayTarget,
        *,
        bounds: ReplayBounds = ReplayBounds(),  # noqa: B008 - it is frozen
        job: str | None = None,
        step_offsets: int = STEP_OFFSETS,
    ) -> None:
        self._spark = spark
        self._source = source
        self._target = target
        self._step_offsets = step_offsets
        self.job: Final = job or _default_job(source, target, bounds)
        self._run = uuid.uuid4().hex  # a second start of the same job supersedes this one
        self._properties = kafka_properties(source.options)
        self._cluster: BlockingCluster = connected_cluster(self._properties)
        self._partitions = self._cluster.run(partitions_of([source.topic]))
        self._request = self._write_request()
        start, end = self._resolve(bounds)
        self.start: Final = start
        self.end: Final = end
        self.records_total: Final = _offsets_between(self.start, self.end)

    def run(self) -> Iterator[ReplayProgress]:
        """Do what is left, step by step."""
        position, step = self._progress()
        by_schema: Counter[int | None] = Counter()
        unreadable = 0
        while (after := limited(position, self.end, self._step_offsets)) != position:
            rows = self._read(position, after).persist()
            try:
                counts = self._counts(rows)
                by_schema.update(counts.readable)
                unreadable += counts.unreadable
                self._write(rows, step, after)
            finally:
                rows.unpersist()
            position, step = after, step + 1
            done = _offsets_between(self.start, position)
            yield ReplayProgress(step, done, Counter(by_schema), unreadable)
            if not ranges_between(position, self.end):
                return

    @property
    def records_done(self) -> int:
        """How many offsets were done before this run."""
        return _offsets_between(self.start, self._progress()[0])

    def versions(self, ids: Mapping[int | None, int]) -> dict[str, int]:
        """Counts by version of the subject instead of by schema id."""
        counts: Counter[str] = Counter()
        for schema_id, count in ids.items():
            counts[self._version(schema_id)] += count
        return dict(sorted(counts.items()))

    def _version(self, schema_id: int | None) -> str:
        url = self._source.registry
        if schema_id is None or url is None:
            return "no schema"
        rows = registry_client(url).api.schema_versions(schema_id)
        subject = topic_subject(self._source.topic, Side.VALUE)
        versions = [row["version"] for row in rows if row["subject"] == subject]
        return f"v{versions[0]}" if versions else f"id {schema_id}"

    def _resolve(self, bounds: ReplayBounds) -> tuple[StreamPosition, StreamPosition]:
        """Where it starts and ends: as stored, or resolved now and stored."""
        groups = (f"{GROUP}{self.job}.start", f"{GROUP}{self.job}.end")
        stored = [self._cluster.run(committed_offsets(group)) for group in groups]
        if all(set(offsets) == set(self._partitions) for offsets in stored):
            start, end = (
                {partition: row.offset for partition, row in offsets.items()} for offsets in stored
            )
        else:
            start, end = self._resolve_now(bounds)
            for group, offsets in zip(groups, (start, end), strict=True):
                self._cluster.run(commit_offsets(group, offsets))
        return (
            positions.position_at(self._cluster, start),
            positions.position_at(self._cluster, end),
        )

    def _resolve_now(
        self, bounds: ReplayBounds
    ) -> tuple[dict[TopicPartition, Offset], dict[TopicPartition, Offset]]:
        cluster, isolation = self._cluster, Isolation.READ_COMMITTED
        first = positions.resolve_bound(cluster, self._partitions, LogEnd.EARLIEST, isolation)
        last = positions.end_position(cluster, self._partitions, isolation)
        start = self._within(bounds.start, first, last)
        end = self._within(bounds.end, first, last)
        return start, {
            partition: max(offset, start[partition]) for partition, offset in end.items()
        }

    def _within(
        self, edge: ReplayEdge, first: StreamPosition, last: StreamPosition
    ) -> dict[TopicPartition, Offset]:
        """An edge in each partition, not beyond what exists."""
        bound: Bound = (
            AtOffsets(dict.fromkeys(self._partitions, edge)) if isinstance(edge, int) else edge
        )
        isolation = Isolation.READ_COMMITTED
        position = positions.resolve_bound(self._cluster, self._partitions, bound, isolation)
        return {
            partition: max(first.offsets[partition], min(offset, last.offsets[partition]))
            for partition, offset in position.offsets.items()
        }

    def _progress(self) -> tuple[StreamPosition, int]:
        """Where the next step starts, and its number."""
        done = self._cluster.run(committed_offsets(GROUP + self.job))
        offsets = {
            partition: done[partition].offset if partition in done else start
            for partition, start in self.start.offsets.items()
        }
        if isinstance(self._target, TopicTarget):
            markers = self._cluster.run(committed_offsets(f"{SINK_GROUP}replay.{self.job}"))
            step = max((int(row.offset) for row in markers.values()), default=0)
        else:
            texts = [row.metadata for row in done.values()]
            step = max((int(text) for text in texts if text.isdecimal()), default=0)
        return positions.position_at(self._cluster, offsets), step

    def _read(self, start: StreamPosition, end: StreamPosition) -> DataFrame:
        source = self._source
        reader = self._spark.read.format("penstock").options(**source.options)
        reader = reader.option("subscribe", source.topic).option("includeHeaders", "true")
        reader = reader.option("startingOffsets", _as_json(start))
        reader = reader.option("endingOffsets", _as_json(end))
        if source.registry is None:
            return reader.load()
        contract = None if self._request is None else self._request.schema
        if isinstance(contract, Contract) and contract.message is not None:
            # Every step reads the message that is written, whatever the latest events are.
            reader = reader.option("message", contract.message)
        on_error = "fail" if source.on_unreadable is OnUnreadable.FAIL else "quarantine"
        return reader.option("readerSchema", source.schema).option("onError", on_error).load()

    def _counts(self, rows: DataFrame) -> _StepCounts:
        if self._source.registry is None:
            return _StepCounts(Counter({None: rows.count()}), 0)
        has_error = (
            sf.col(columns.ERROR).isNotNull() if columns.ERROR in rows.columns else sf.lit(False)
        )
        counted = rows.groupBy(columns.SCHEMA_ID, has_error.alias("has_error")).count().collect()
        return _StepCounts(
            Counter(
                {row[columns.SCHEMA_ID]: row["count"] for row in counted if not row["has_error"]}
            ),
            sum(row["count"] for row in counted if row["has_error"]),
        )

    def _write(self, rows: DataFrame, step: int, after: StreamPosition) -> None:
        bootstrap = self._properties[BOOTSTRAP]
        readable = rows
        if columns.ERROR in rows.columns:
            readable = rows.where(sf.col(columns.ERROR).isNull())
            readable = readable.drop(columns.ERROR, columns.VALUE)
            if self._source.on_unreadable is OnUnreadable.QUARANTINE:
                unreadable = rows.where(sf.col(columns.ERROR).isNotNull())
                write_quarantine(unreadable, bootstrap, kafka=self._properties)
        group = GROUP + self.job
        if isinstance(self._target, ParquetTarget):
            folder = f"{self._target.folder}/replay_part={step:06}"
            readable.write.mode("overwrite").parquet(folder)
            self._cluster.run(commit_offsets(group, after.offsets, metadata=str(step + 1)))
            return
        request = self._request
        assert request is not None, "a topic is written by request"

        def put(batch: TransactionalBatch) -> None:
            batch.write(readable, request)
            batch.add_offsets(group, after.offsets)

        name = BatchName(f"replay.{self.job}", self.job, step, self._run)
        topics = [self._target.topic]
        in_transaction(name, put, bootstrap=bootstrap, kafka=self._properties, topics=topics)

    def _write_request(self) -> WriteRequest | None:
        if not isinstance(self._target, TopicTarget):
            return None
        self._cluster.run(partitions_of([self._target.topic]))  # fails if it does not exist
        is_raw = self._source.registry is None
        return WriteRequest(
            self._target.topic,
            bootstrap=self._properties[BOOTSTRAP],
            kafka=self._properties,
            registry=self._source.registry,
            key="key" if is_raw else columns.KEY,
            value="value" if is_raw else None,
            schema=self._contract(),
            headers="headers" if is_raw else columns.HEADERS,
            timestamp="timestamp" if is_raw else columns.TIMESTAMP,
        ).prepared()

    def _contract(self) -> Contract | None:
        """What events are written with: the schema they are read by."""
        source = self._source
        if source.registry is None:
            return None
        options = {**source.options, "subscribe": source.topic, "readerSchema": source.schema}
        return value_reader(options, source.topic)


def _offsets_between(start: StreamPosition, end: StreamPosition) -> int:
    return sum(offsets.end - offsets.start for offsets in ranges_between(start, end))


def _as_json(position: StreamPosition) -> str:
    return json.dumps(position.to_spark()["offsets"])


def _default_job(source: ReplaySource, target: ReplayTarget, bounds: ReplayBounds) -> str:
    """The same replay has the same name. Names of groups: this text must never change."""
    start, end = _stable_text(bounds.start), _stable_text(bounds.end)
    identity = f"({source.topic!r}, {source.schema!r}, {str(target)!r}, {start}, {end})"
    return f"{source.topic}.{hashlib.sha256(identity.encode()).hexdigest()[:_NAME_CHARACTERS]}"


def _stable_text(edge: ReplayEdge) -> str:
    match edge:
        case LogEnd():
            return f"<Anchor.{edge.name}: '{edge.value}'>"
        case AtTimes(times, latest_if_none):
            return f"AtTimes(times={times!r}, latest_if_none={latest_if_none})"
        case offset:
            return str(offset)
