"""Keyed state that outlives its checkpoint: every change of it is in a compacted topic as well.

    log = Changelog(spark, "revenue.state", query="revenue",
                    options={"kafka.bootstrap.servers": "127.0.0.1:9092"})
    orders = log.read(subscribe="orders", registry="http://127.0.0.1:8081")
    hourly = log.windows(orders, "at", "1 hour", lateness="10 minutes", by=["country"],
                         orders=count(), cents=total("cents"))
    hourly.start("/data/checkpoints/revenue")

Each micro-batch writes what changed, how far it has read and the newest event time in one
transaction. A query whose checkpoint is gone begins with what the topic says: the states, the
offsets and the watermark of one and the same moment, and goes on with the right answer. As long as
the checkpoint is there, Spark's own state is used and the topic only written.

Rows are made few before they are shuffled (`partials`), and each key's state is touched once per
batch (`keyed_state`). One query at a time: `query` names the writer, and who takes the name fences
whoever had it.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as spark_types
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructField, StructType

from penstock.errors import ErrorCode, Refused
from penstock.serde.contract import Contract
from penstock.spark import positions
from penstock.spark.changelog_topic import (
    GONE,
    ID,
    JSON_FORMAT,
    Known,
    identity,
    initial_states,
    make_topic,
    read_known,
    records,
)
from penstock.spark.connections import cluster, kafka_properties
from penstock.spark.exactly_once_sink import (
    TransactionalBatch,
    batch_name,
    in_transaction,
    run_through,
)
from penstock.spark.keyed_state import LATE, KeyedState, Rules, Update
from penstock.spark.partial_aggregates import (
    END,
    KIND,
    NEWEST,
    PLACE,
    ROWS,
    STATE,
    WINDOW,
    Aggregate,
    Kind,
    Plan,
    Windows,
    partials,
)
from penstock.spark.read_options import EARLIEST_OFFSET, read_options
from penstock.spark.spark_columns import arrow_schema
from penstock.spark.write_options import WriteRequest, contract_of, framing_of, prepared

_PLACES: Final = (("_topic", "_partition", "_offset"), ("topic", "partition", "offset"))
_CLOCK: Final = "_clock"
_ABOUT: Final = (  # the columns of rows about the batch itself
    StructField(END, spark_types.LongType()),
    StructField(NEWEST, spark_types.LongType()),
    StructField(WINDOW, spark_types.LongType()),
)
_DECIMAL_DIGITS_MAX: Final = 38
_SUM_DIGITS: Final = 10  # what Spark's own sums add to a decimal


@dataclass(frozen=True, slots=True)
class Output:
    """A topic that gets rows made of the changes, in the same transaction.

    `rows` is given the changes of a batch as a frame: the columns of `by`, `window_start` and
    `window_end` if there are windows, the state's columns, and `gone`. Without it the changes that
    are not gone are written. Columns and schema are as for `exactly_once`.
    """

    topic: str
    rows: Callable[[DataFrame], DataFrame] | None = None
    key: str | Sequence[str] | None = None
    value: str | Sequence[str] | None = None
    schema: Contract | str | Path | None = None
    key_schema: Contract | str | Path | None = None
    registry: str | None = None
    late: bool = False  # windows that were over when more came for them, instead of the changes

    def request(self, properties: Mapping[str, str]) -> WriteRequest:
        """What the sink is asked for."""
        return prepared(
            WriteRequest(
                properties=properties,
                topic=self.topic,
                key=self.key,
                value=self.value,
                schema=contract_of(self.schema),
                key_schema=contract_of(self.key_schema),
                registry_url=self.registry,
                framing=framing_of(properties),
            )
        )


class Changelog:
    """A topic with the state of one query."""

    def __init__(
        self,
        spark: SparkSession,
        topic: str,
        *,
        query: str,
        options: Mapping[str, str],
        partitions: int = 4,
    ) -> None:
        self.spark = spark
        self.topic = topic
        self.query = query
        self.properties = kafka_properties(options)
        make_topic(self.properties, topic, partitions)
        self.known: Known = read_known(spark, self.properties, topic)

    def read(self, **options: str) -> DataFrame:
        """A stream that begins where the topic says, or else at the earliest offset.

        The options of `format("penstock")`; `startingOffsets` is for a topic that says nothing.
        """
        given = {f"kafka.{name}": value for name, value in self.properties.items()} | options
        if self.known.offsets:
            given = {name: one for name, one in given.items() if not _is_start(name)}
            given["startingOffsets"] = self.starting_offsets(given)
        else:
            given.setdefault("startingOffsets", "earliest")
        return self.spark.readStream.format("penstock").options(**given).load()

    def starting_offsets(self, options: Mapping[str, str]) -> str:
        """Where to begin, as the source takes it; partitions that are new begin at their start."""
        asked = read_options(options)
        offsets: dict[str, dict[str, int]] = {}
        for place in positions.selected(cluster(self.properties), asked.selection):
            known = self.known.offsets.get(place, EARLIEST_OFFSET)
            offsets.setdefault(place.topic, {})[str(place.partition)] = known
        return json.dumps(offsets)

    def windows(
        self,
        events: DataFrame,
        time: str,
        size: str,
        /,
        *,
        lateness: str,
        by: Sequence[str],
        every: str | None = None,
        **aggregates: Aggregate,
    ) -> "States":
        """Aggregates per key and window of event time, tumbling or, with `every`, sliding.

        A window's state is dropped once the watermark has passed its end.
        """
        size_us = self._micros(size)
        every_us = size_us if every is None else self._micros(every)
        if every_us <= 0 or size_us % every_us:
            raise _refused(f"windows of {size} every {every}: the size must be some whole steps")
        windows = Windows(time, size_us, every_us)
        return self._states(events, by, aggregates, windows=windows, lateness=lateness)

    def keyed(
        self, events: DataFrame, /, *, by: Sequence[str], **aggregates: Aggregate
    ) -> "States":
        """Aggregates per key, over everything there ever was."""
        return self._states(events, by, aggregates)

    def updated(
        self, events: DataFrame, update: Update, /, *, by: Sequence[str], state: str
    ) -> "States":
        """State of any form: `update(state or None, rows)` gives a key's new one, None for none.

        `state` has its columns as Spark writes them ("n long, last string"). Rows and state are
        dicts; the rows of one partition come in the order of their offsets.
        """
        columns = StructType.fromDDL(state)
        assert isinstance(columns, StructType), "columns with names make a struct"
        return self._states(events, by, {}, update=update, columns=columns)

    def _states(
        self,
        events: DataFrame,
        by: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        *,
        windows: Windows | None = None,
        lateness: str = "0 seconds",
        update: Update | None = None,
        columns: StructType | None = None,
    ) -> "States":
        if not by or (not aggregates and update is None):
            raise _refused("a state needs a key, by=[...], and something to know of it")
        place = next((names for names in _PLACES if set(names) <= set(events.columns)), None)
        if place is None:
            raise _refused(f"the frame has no {', '.join(_PLACES[0])}: read them as `columns`")
        used = [*by, *(one.column for one in aggregates.values() if one.column is not None)]
        if windows is not None:
            used.append(windows.time)
        missing = [name for name in used if name not in events.columns]
        if missing:
            raise _refused(f"the frame has no column {missing[0]}: it has {events.columns}")
        own = columns if columns is not None else _columns(events.schema, aggregates)
        names = list(dict.fromkeys([*used, *place])) if update is None else events.columns
        return States(
            self,
            events.select(*names),
            tuple(by),
            own,
            aggregates,
            update,
            windows,
            self._micros(lateness),
            lateness,
            place,
        )

    def _micros(self, interval: str) -> int:
        told = self.spark.range(1).select(
            F.unix_micros(F.timestamp_micros(F.lit(0)) + F.expr(f"interval {interval}"))
        )
        micros: int = told.collect()[0][0]
        return micros


@dataclass(frozen=True)
class States:
    """A stream's keyed state, ready to be started."""

    log: Changelog
    events: DataFrame
    keys: tuple[str, ...]
    columns: StructType
    aggregates: Mapping[str, Aggregate]
    update: Update | None
    windows: Windows | None
    lateness_us: int
    lateness: str
    place: tuple[str, str, str]

    @property
    def state(self) -> StructType:
        """What is kept of a key."""
        return StructType([*self.columns.fields, *_ABOUT])

    def changes(self) -> DataFrame:
        """The stream of changes, in update mode: what `start` writes."""
        rows = self.events.mapInArrow(_partials(self._plan()), self._partial_schema())
        rows = rows.withColumn(ID, identity(self.keys))
        if self.windows is not None:
            rows = rows.withColumn(_CLOCK, F.timestamp_micros(NEWEST))
            rows = rows.withWatermark(_CLOCK, self.lateness)
        return rows.groupBy(KIND, ID).transformWithState(
            KeyedState(self._rules()),
            StructType(
                [
                    StructField(KIND, spark_types.StringType()),
                    StructField(ID, spark_types.StringType()),
                    StructField(GONE, spark_types.BooleanType()),
                    *self.state.fields,
                ]
            ),
            "Update",
            "None" if self.windows is None else "EventTime",
            initial_states(self.log.known, self.state),
        )

    def start(
        self,
        checkpoint: str | Path,
        *,
        outputs: Sequence[Output] = (),
        trigger: Mapping[str, Any] | None = None,
    ) -> StreamingQuery:
        """Run it: `trigger` is Spark's, such as {"availableNow": True}."""
        writer = self.changes().writeStream.outputMode("update").queryName(self.log.query)
        writer = writer.option("checkpointLocation", str(checkpoint))
        if trigger:
            writer = writer.trigger(**trigger)
        return writer.foreachBatch(self.writer(outputs)).start()

    def writer(self, outputs: Sequence[Output] = ()) -> Callable[[DataFrame, int], None]:
        """For `foreachBatch`: writes a batch of changes, and what outputs make of it, as one."""
        log = self.log
        own = WriteRequest(
            properties=log.properties,
            topic=log.topic,
            key="key",
            value="value",
            framing=framing_of(log.properties),
        )
        requests = [(output, output.request(log.properties)) for output in outputs]
        topics = [log.topic, *(output.topic for output in outputs)]

        def write(changes: DataFrame, batch_id: int) -> None:
            if requests:
                changes = changes.persist()

            def put(batch: TransactionalBatch) -> None:
                batch.write(records(changes.where(F.col(KIND) != LATE), self.state), own)
                for output, request in requests:
                    batch.write(self._output_rows(changes, output), request)

            try:
                name = batch_name(changes, batch_id, log.query, log.topic)
                run_through(changes, in_transaction(name, log.properties, put, topics=topics))
            finally:
                if requests:
                    changes.unpersist()

        return write

    def _output_rows(self, changes: DataFrame, output: Output) -> DataFrame:
        told = self.readable(changes.where(F.col(KIND) == (LATE if output.late else STATE)))
        if output.rows is not None:
            return output.rows(told)
        return told.where(~F.col("gone")).drop("gone")

    def readable(self, changes: DataFrame) -> DataFrame:
        """Changes with the key's own columns in place of its text."""
        fields = [self.events.schema[name] for name in self.keys]
        key = F.from_json(F.get_json_object(ID, "$.key"), StructType(fields), JSON_FORMAT)
        columns = [key[name].alias(name) for name in self.keys]
        if self.windows is not None:
            end = F.col(WINDOW) + self.windows.size_us
            columns.append(F.timestamp_micros(WINDOW).alias("window_start"))
            columns.append(F.timestamp_micros(end).alias("window_end"))
        return changes.select(*columns, *self.columns.names, F.col(GONE).alias("gone"))

    def _watermark_us(self) -> int | None:
        """Of the query before this one, from what the topic says."""
        newest_us = self.log.known.newest_us
        if self.windows is None or newest_us is None:
            return None
        return newest_us - self.lateness_us

    def _rules(self) -> Rules:
        watermark_us = self._watermark_us() or 0
        return Rules(
            names=tuple(self.columns.names),
            state=self.state,
            aggregates=dict(self.aggregates),
            update=self.update,
            size_us=None if self.windows is None else self.windows.size_us,
            watermark_ms=max(0, watermark_us // 1000),
        )

    def _plan(self) -> Plan:
        newest_us = None if self.windows is None else self.log.known.newest_us
        schema = arrow_schema(self._partial_schema())
        return Plan(self.keys, dict(self.aggregates), self.windows, self.place, schema, newest_us)

    def _partial_schema(self) -> StructType:
        own = self.columns.fields
        if self.update is not None:
            own = [StructField(ROWS, spark_types.ArrayType(self.events.schema))]
        return StructType(
            [
                StructField(KIND, spark_types.StringType()),
                *[StructField(name, self.events.schema[name].dataType) for name in self.keys],
                *own,
                StructField(PLACE[0], spark_types.StringType()),
                StructField(PLACE[1], spark_types.IntegerType()),
                *_ABOUT,
            ]
        )


def _partials(plan: Plan) -> Any:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return partials(batches, plan)

    return run


def _columns(schema: StructType, aggregates: Mapping[str, Aggregate]) -> StructType:
    return StructType(
        [StructField(name, _type_of(schema, one)) for name, one in aggregates.items()]
    )


def _type_of(schema: StructType, aggregate: Aggregate) -> spark_types.DataType:
    if aggregate.column is None:
        return spark_types.LongType()
    kind = schema[aggregate.column].dataType
    if aggregate.kind is not Kind.TOTAL:
        return kind
    match kind:
        case spark_types.IntegralType():
            return spark_types.LongType()
        case spark_types.FractionalType() if not isinstance(kind, spark_types.DecimalType):
            return spark_types.DoubleType()
        case spark_types.DecimalType(precision=precision, scale=scale):
            digits = min(_DECIMAL_DIGITS_MAX, precision + _SUM_DIGITS)
            return spark_types.DecimalType(digits, scale)
    raise _refused(f"{aggregate.column} is {kind.simpleString()}: it has no total")


def _is_start(name: str) -> bool:
    return name.lower().startswith("starting")


def _refused(why: str) -> Refused:
    return Refused(ErrorCode.invalid_config, why)
