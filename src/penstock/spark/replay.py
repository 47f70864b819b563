"""A bounded re-read of topics, seen through one schema, into another topic or Parquet files.

    replay = Replay(spark, Source("orders", options, schema="3"), TopicTarget("orders-v3"),
                    bounds=Bounds.at_times(None, Millis(1767225600000)))
    for part in replay.run():
        print(part.records_done, "of", replay.records_total)

Done in parts. How far it is and where it must end is kept by two consumer groups, so a replay that
was stopped goes on where it was, to the end that was settled when it first began, whatever has been
written since. Into a topic each part is one transaction, together with how far it is: every event
is there once. Into Parquet a part is a folder `replay_part=N`, written again as a whole if the part
did not come to its end. Nothing is deleted.
"""

import hashlib
import json
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.link.blocking import BlockingCluster
from penstock.link.offsets import Isolation, commit_offsets, committed_offsets, partitions_of
from penstock.model import Millis, Offset, TopicPartition
from penstock.serde.contract import Contract, SubjectNames, subject_name
from penstock.serde.frame import Side
from penstock.spark import positions
from penstock.spark import spark_columns as own
from penstock.spark.batch_transaction import PREFIX as SINK_GROUP
from penstock.spark.batch_transaction import BatchName
from penstock.spark.connections import kafka_properties, reached, registry
from penstock.spark.exactly_once_sink import TransactionalBatch, in_transaction
from penstock.spark.planning import Position, admit, ranges_between
from penstock.spark.quarantine_rows import write_quarantine
from penstock.spark.query_plan import value_reader
from penstock.spark.read_options import Anchor, AtOffsets, AtTimes, Bound
from penstock.spark.write_options import WriteRequest, framing_of, prepared

GROUP: Final = "penstock.replay."
PART_OFFSETS: Final = 250_000
_NAME_CHARACTERS: Final = 12
Edge: TypeAlias = Anchor | AtTimes | Offset


class OnBad(StrEnum):
    """What becomes of events that cannot be read."""

    FAIL = "fail"
    SKIP = "skip"
    QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True)
class Bounds:
    """From and to, of every partition: its ends, an offset, or a time of its records."""

    start: Edge = Anchor.EARLIEST
    end: Edge = Anchor.LATEST

    @classmethod
    def at_times(cls, start: Millis | None, end: Millis | None) -> "Bounds":
        """Records from a time on, to before another."""
        return cls(
            Anchor.EARLIEST if start is None else AtTimes(start, latest_if_none=True),
            Anchor.LATEST if end is None else AtTimes(end, latest_if_none=True),
        )


@dataclass(frozen=True, slots=True)
class Source:
    """What is read. Without a registry values are copied as they are."""

    topic: str
    options: Mapping[str, str]  # kafka.*, registry
    schema: str = "latest"  # of the reader: latest, a version's number, or text
    on_bad: OnBad = OnBad.FAIL

    @property
    def registry(self) -> str | None:
        """Where schemas are."""
        return self.options.get("registry")


class TopicTarget(NamedTuple):
    """Events under the reader's schema, with their keys, headers and times."""

    topic: str


class ParquetTarget(NamedTuple):
    """A folder, as Spark names it: a path, or s3a://…"""

    folder: str


Target: TypeAlias = TopicTarget | ParquetTarget


class Part(NamedTuple):
    """How far it is after a part."""

    number: int
    records_done: int  # offsets, counted from the bounds' start
    by_schema: Counter[int | None]  # records of this run so far, by the id that wrote them
    bad: int  # of this run, left out


class Replay:
    """One replay. `job` is its name: the same name goes on with the same replay."""

    def __init__(
        self,
        spark: SparkSession,
        source: Source,
        target: Target,
        *,
        bounds: Bounds = Bounds(),  # noqa: B008 - nobody can change it
        job: str | None = None,
        part_offsets: int = PART_OFFSETS,
    ) -> None:
        self._spark = spark
        self._source = source
        self._target = target
        self._part_offsets = part_offsets
        self.job = job or _fingerprint(source, target, bounds)
        self._run = uuid.uuid4().hex  # a second start of the same job supersedes this one
        self._properties = kafka_properties(source.options)
        self._brokers: BlockingCluster = reached(self._properties)
        self._places = self._brokers.run(partitions_of([source.topic]))
        self._request = self._write_request()
        self.start, self.end = self._settled(bounds)
        self.records_total = _between(self.start, self.end)

    def run(self) -> Iterator[Part]:
        """Do what is left, part by part."""
        at, number = self._reached()
        by_schema: Counter[int | None] = Counter()
        bad = 0
        while (after := admit(at, self.end, self._part_offsets)) != at:
            rows = self._read(at, after).persist()
            try:
                counts = self._counts(rows)
                by_schema.update(counts.good)
                bad += counts.bad
                self._write(rows, number, after)
            finally:
                rows.unpersist()
            at, number = after, number + 1
            yield Part(number, _between(self.start, at), Counter(by_schema), bad)
            if not ranges_between(at, self.end):
                return

    @property
    def records_done(self) -> int:
        """How many offsets were done before this run."""
        return _between(self.start, self._reached()[0])

    def versions(self, ids: Mapping[int | None, int]) -> dict[str, int]:
        """Counts by version of the subject instead of by id."""
        told: dict[str, int] = {}
        for schema_id, count in ids.items():
            told[self._version(schema_id)] = told.get(self._version(schema_id), 0) + count
        return dict(sorted(told.items()))

    def _version(self, schema_id: int | None) -> str:
        url = self._source.registry
        if schema_id is None or url is None:
            return "no schema"
        rows = registry(url).api.schema_versions(schema_id)
        subject = subject_name(SubjectNames.TOPIC, self._source.topic, Side.VALUE, None)
        found = [row["version"] for row in rows if row["subject"] == subject]
        return f"v{found[0]}" if found else f"id {schema_id}"

    def _settled(self, bounds: Bounds) -> tuple[Position, Position]:
        """Where it begins and ends: as settled before, or now and for good."""
        groups = (f"{GROUP}{self.job}.start", f"{GROUP}{self.job}.end")
        known = [self._brokers.run(committed_offsets(group)) for group in groups]
        if all(set(offsets) == set(self._places) for offsets in known):
            start, end = (
                {place: row.offset for place, row in offsets.items()} for offsets in known
            )
            return positions.at(self._brokers, start), positions.at(self._brokers, end)
        isolation = Isolation.READ_COMMITTED
        first = positions.resolve(self._brokers, self._places, Anchor.EARLIEST, isolation)
        last = positions.ends(self._brokers, self._places, isolation)
        start = self._within(bounds.start, first, last)
        end = self._within(bounds.end, first, last)
        end = {place: max(one, start[place]) for place, one in end.items()}
        for group, offsets in zip(groups, (start, end), strict=True):
            self._brokers.run(commit_offsets(group, offsets))
        return positions.at(self._brokers, start), positions.at(self._brokers, end)

    def _within(self, edge: Edge, first: Position, last: Position) -> dict[TopicPartition, Offset]:
        """An edge in each partition, no further than what there is."""
        bound: Bound = (
            AtOffsets(dict.fromkeys(self._places, edge)) if isinstance(edge, int) else edge
        )
        found = positions.resolve(self._brokers, self._places, bound, Isolation.READ_COMMITTED)
        return {
            place: max(first.offsets[place], min(offset, last.offsets[place]))
            for place, offset in found.offsets.items()
        }

    def _reached(self) -> tuple[Position, int]:
        """Where the next part begins, and its number."""
        done = self._brokers.run(committed_offsets(GROUP + self.job))
        offsets = {
            place: done[place].offset if place in done else start
            for place, start in self.start.offsets.items()
        }
        if isinstance(self._target, TopicTarget):
            marked = self._brokers.run(committed_offsets(f"{SINK_GROUP}replay.{self.job}"))
            number = max((int(row.offset) for row in marked.values()), default=0)
        else:
            told = [row.metadata for row in done.values()]
            number = max((int(one) for one in told if one.isdecimal()), default=0)
        return positions.at(self._brokers, offsets), number

    def _read(self, start: Position, end: Position) -> DataFrame:
        source = self._source
        reader = self._spark.read.format("penstock").options(**source.options)
        reader = reader.option("subscribe", source.topic).option("includeHeaders", "true")
        reader = reader.option("startingOffsets", _as_json(start))
        reader = reader.option("endingOffsets", _as_json(end))
        if source.registry is None:
            return reader.load()
        if self._request is not None and self._request.schema is not None:
            message = self._request.schema.message  # every part as the one that it is written as
            reader = reader if message is None else reader.option("message", message)
        bad = "fail" if source.on_bad is OnBad.FAIL else "quarantine"
        return reader.option("readerSchema", source.schema).option("onError", bad).load()

    def _counts(self, rows: DataFrame) -> "_Counts":
        if self._source.registry is None:
            return _Counts(Counter({None: rows.count()}), 0)
        is_bad = F.col(own.ERROR).isNotNull() if own.ERROR in rows.columns else F.lit(False)
        grouped = rows.groupBy(own.SCHEMA_ID, is_bad.alias("bad")).count().collect()
        good = Counter({row[own.SCHEMA_ID]: row["count"] for row in grouped if not row["bad"]})
        return _Counts(good, sum(row["count"] for row in grouped if row["bad"]))

    def _write(self, rows: DataFrame, number: int, after: Position) -> None:
        good = rows
        if own.ERROR in rows.columns:
            good = rows.where(F.col(own.ERROR).isNull()).drop(own.ERROR, own.VALUE)
            if self._source.on_bad is OnBad.QUARANTINE:
                bad = rows.where(F.col(own.ERROR).isNotNull())
                write_quarantine(bad, self._properties["bootstrap.servers"], kafka=self._properties)
        group = GROUP + self.job
        if isinstance(self._target, ParquetTarget):
            good.write.mode("overwrite").parquet(f"{self._target.folder}/replay_part={number:06}")
            told = str(number + 1)
            self._brokers.run(commit_offsets(group, after.offsets, metadata=told))
            return
        request = self._request
        assert request is not None, "a topic is written by request"

        def put(batch: TransactionalBatch) -> None:
            batch.write(good, request)
            batch.add_offsets(group, after.offsets)

        name = BatchName(f"replay.{self.job}", self.job, number, self._run)
        in_transaction(name, self._properties, put, topics=[self._target.topic])

    def _write_request(self) -> WriteRequest | None:
        if not isinstance(self._target, TopicTarget):
            return None
        self._brokers.run(partitions_of([self._target.topic]))  # one that is not there fails here
        is_raw = self._source.registry is None
        return prepared(
            WriteRequest(
                properties=self._properties,
                topic=self._target.topic,
                key="key" if is_raw else own.KEY,
                value="value" if is_raw else None,
                schema=self._contract(),
                headers="headers" if is_raw else own.HEADERS,
                timestamp="timestamp" if is_raw else own.TIMESTAMP,
                registry_url=self._source.registry,
                framing=framing_of(self._properties),
            )
        )

    def _contract(self) -> Contract | None:
        """What events are written with: the schema they are read by."""
        source = self._source
        if source.registry is None:
            return None
        asked = {**source.options, "subscribe": source.topic, "readerSchema": source.schema}
        return value_reader(asked, source.topic)


class _Counts(NamedTuple):
    good: Counter[int | None]
    bad: int


def _between(start: Position, end: Position) -> int:
    return sum(one.end - one.start for one in ranges_between(start, end))


def _as_json(position: Position) -> str:
    return json.dumps(position.to_spark()["offsets"])


def _fingerprint(source: Source, target: Target, bounds: Bounds) -> str:
    """The same replay asked for again has the same name."""
    what = repr((source.topic, source.schema, str(target), bounds.start, bounds.end))
    return f"{source.topic}.{hashlib.sha256(what.encode()).hexdigest()[:_NAME_CHARACTERS]}"
