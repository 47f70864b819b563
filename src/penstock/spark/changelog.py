"""Keyed state that survives the loss of its checkpoint: every change is in a compacted topic too.

    log = Changelog(spark, "revenue.state", query="revenue",
                    options={"kafka.bootstrap.servers": "127.0.0.1:9092"})
    orders = log.read(subscribe="orders", registry="http://127.0.0.1:8081")
    hourly = log.windows(orders, "at", "1 hour", lateness="10 minutes", by=["country"],
                         orders=count(), cents=total("cents"))
    hourly.start("/data/checkpoints/revenue")

Each micro-batch writes what changed, how far it has read and the newest event time in one
transaction. A query without a checkpoint starts from the topic: from the states, the offsets and
the watermark of one and the same moment, and continues with the correct result. With a checkpoint,
Spark's own state is used and the topic is only written.

Rows are aggregated before they are shuffled (`partial_aggregates`), and each key's state is
accessed once per batch (`keyed_state`). One query at a time: `query` names the writer, and a query
that takes the name fences the one before.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as spark_types
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructField, StructType

from penstock.spark import positions
from penstock.spark.aggregates import AggregateKind, StateAggregate
from penstock.spark.changelog_topic import (
    ID,
    JSON_FORMAT,
    REMOVED,
    create_topic,
    initial_states,
    read_stored,
    record_key,
    records,
)
from penstock.spark.connections import BOOTSTRAP, cluster_for, kafka_properties
from penstock.spark.exactly_once_sink import (
    TransactionalBatch,
    batch_name,
    compute_if_written_before,
    in_transaction,
)
from penstock.spark.given_options import config_error
from penstock.spark.keyed_state import LATE, StateProcessor, StateRules, Update
from penstock.spark.partial_aggregates import (
    END,
    KIND,
    NEWEST,
    PARTITION,
    ROWS,
    STATE,
    WINDOW,
    AggregationPlan,
    WindowSpec,
    partials,
)
from penstock.spark.read_options import EARLIEST_OFFSET, read_options
from penstock.spark.spark_types import arrow_schema
from penstock.spark.write_options import WriteRequest

_OFFSET_COLUMNS: Final = (("_topic", "_partition", "_offset"), ("topic", "partition", "offset"))
_TIME: Final = "_clock"
_BATCH_FIELDS: Final = (  # the columns of rows about the batch itself
    StructField(END, spark_types.LongType()),
    StructField(NEWEST, spark_types.LongType()),
    StructField(WINDOW, spark_types.LongType()),
)
_DECIMAL_DIGITS_MAX: Final = 38
_SUM_DIGITS: Final = 10  # what Spark's own sums add to a decimal


@dataclass(frozen=True, slots=True)
class Output:
    """A topic that gets rows made of the changes, in the same transaction.

    `rows` gets the changes of a batch as a frame: the columns of `by`, `window_start` and
    `window_end` if there are windows, the state's columns, and `removed`. Without it, the changes
    that are not removals are written. The brokers are those of the changelog.
    """

    request: WriteRequest
    _: KW_ONLY
    rows: Callable[[DataFrame], DataFrame] | None = None
    late: bool = False  # windows that were over when more rows came for them, not the changes


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
        self.properties: Final = kafka_properties(options)
        create_topic(self.properties, topic, partitions)
        self.stored: Final = read_stored(spark, self.properties, topic)

    def read(self, **options: str) -> DataFrame:
        """A stream that starts where the topic says, or else at the earliest offset.

        The options of `format("penstock")`; `startingOffsets` is used if the topic is empty.
        """
        given = {f"kafka.{name}": value for name, value in self.properties.items()} | options
        if self.stored.offsets:
            given = {name: value for name, value in given.items() if not _is_start(name)}
            given["startingOffsets"] = self.starting_offsets(given)
        else:
            given.setdefault("startingOffsets", "earliest")
        return self.spark.readStream.format("penstock").options(**given).load()

    def starting_offsets(self, options: Mapping[str, str]) -> str:
        """Where to start, as the source takes it; new partitions start at their beginning."""
        selection = read_options(options).selection
        offsets: dict[str, dict[str, int]] = {}
        for partition in positions.select_partitions(cluster_for(self.properties), selection):
            offset = self.stored.offsets.get(partition, EARLIEST_OFFSET)
            offsets.setdefault(partition.topic, {})[str(partition.partition)] = offset
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
        **aggregates: StateAggregate,
    ) -> "StatefulQuery":
        """Aggregates per key and window of event time, tumbling or, with `every`, sliding.

        A window's state is removed once the watermark has passed its end.
        """
        size_us = self._micros(size)
        every_us = size_us if every is None else self._micros(every)
        if every_us <= 0 or size_us % every_us:
            raise config_error(
                f"windows of {size} every {every}: the size must be a multiple of the interval"
            )
        windows = WindowSpec(time, size_us, every_us)
        return self._stateful(events, by, aggregates, windows=windows, lateness=lateness)

    def keyed(
        self, events: DataFrame, /, *, by: Sequence[str], **aggregates: StateAggregate
    ) -> "StatefulQuery":
        """Aggregates per key, over all events."""
        return self._stateful(events, by, aggregates)

    def updated(
        self, events: DataFrame, update: Update, /, *, by: Sequence[str], state: str
    ) -> "StatefulQuery":
        """State of any form: `update(state or None, rows)` returns a key's new one, or None.

        `state` has its columns as Spark writes them ("n long, last string"). Rows and state are
        dicts; the rows of one partition come in the order of their offsets.
        """
        columns = StructType.fromDDL(state)
        assert isinstance(columns, StructType), "columns with names make a struct"
        return self._stateful(events, by, {}, update=update, columns=columns)

    def _stateful(
        self,
        events: DataFrame,
        by: Sequence[str],
        aggregates: Mapping[str, StateAggregate],
        *,
        windows: WindowSpec | None = None,
        lateness: str = "0 seconds",
        update: Update | None = None,
        columns: StructType | None = None,
    ) -> "StatefulQuery":
        if not by or (not aggregates and update is None):
            raise config_error("a state needs a key, by=[...], and at least one aggregate")
        offset_columns = next(
            (names for names in _OFFSET_COLUMNS if set(names) <= set(events.columns)), None
        )
        if offset_columns is None:
            names = ", ".join(_OFFSET_COLUMNS[0])
            raise config_error(f"the frame has no {names}: read them as `columns`")
        used = [*by, *(each.column for each in aggregates.values() if each.column is not None)]
        if windows is not None:
            used.append(windows.time)
        missing = [name for name in used if name not in events.columns]
        if missing:
            raise config_error(f"the frame has no column {missing[0]}: it has {events.columns}")
        selected = list(dict.fromkeys([*used, *offset_columns]))
        return StatefulQuery(
            self,
            events.select(*(selected if update is None else events.columns)),
            tuple(by),
            columns if columns is not None else _state_columns(events.schema, aggregates),
            aggregates,
            update,
            windows,
            self._micros(lateness),
            lateness,
            offset_columns,
        )

    def _micros(self, interval: str) -> int:
        frame = self.spark.range(1).select(
            sf.unix_micros(sf.timestamp_micros(sf.lit(0)) + sf.expr(f"interval {interval}"))
        )
        micros: int = frame.collect()[0][0]
        return micros


@dataclass(frozen=True)
class StatefulQuery:
    """A stream's keyed state, ready to be started."""

    log: Changelog
    events: DataFrame
    keys: tuple[str, ...]
    columns: StructType
    aggregates: Mapping[str, StateAggregate]
    update: Update | None
    windows: WindowSpec | None
    lateness_us: int
    lateness: str
    offset_columns: tuple[str, str, str]

    @property
    def state(self) -> StructType:
        """What is stored per key."""
        return StructType([*self.columns.fields, *_BATCH_FIELDS])

    def changes(self) -> DataFrame:
        """The stream of changes, in update mode: what `start` writes."""
        rows = self.events.mapInArrow(_partials(self._plan()), self._partial_schema())
        rows = rows.withColumn(ID, record_key(self.keys))
        if self.windows is not None:
            rows = rows.withColumn(_TIME, sf.timestamp_micros(NEWEST))
            rows = rows.withWatermark(_TIME, self.lateness)
        return rows.groupBy(KIND, ID).transformWithState(
            StateProcessor(self._rules()),
            StructType(
                [
                    StructField(KIND, spark_types.StringType()),
                    StructField(ID, spark_types.StringType()),
                    StructField(REMOVED, spark_types.BooleanType()),
                    *self.state.fields,
                ]
            ),
            "Update",
            "None" if self.windows is None else "EventTime",
            initial_states(self.log.stored, self.state),
        )

    def start(
        self,
        checkpoint: str | Path,
        *,
        outputs: Sequence[Output] = (),
        trigger: Mapping[str, Any] | None = None,
    ) -> StreamingQuery:
        """Start the query. `trigger` is Spark's, such as {"availableNow": True}."""
        writer = self.changes().writeStream.outputMode("update").queryName(self.log.query)
        writer = writer.option("checkpointLocation", str(checkpoint))
        if trigger:
            writer = writer.trigger(**trigger)
        return writer.foreachBatch(self.writer(outputs)).start()

    def writer(self, outputs: Sequence[Output] = ()) -> Callable[[DataFrame, int], None]:
        """For `foreachBatch`: writes a batch of changes and its outputs as one transaction."""
        log = self.log
        bootstrap = log.properties[BOOTSTRAP]
        own = WriteRequest(
            log.topic, bootstrap=bootstrap, kafka=log.properties, key="key", value="value"
        )
        requests = [
            replace(output.request, bootstrap=bootstrap, kafka=log.properties).prepared()
            for output in outputs
        ]
        topics = [log.topic, *(each.topic for each in requests if each.topic is not None)]

        def write(changes: DataFrame, batch_id: int) -> None:
            if requests:
                changes = changes.persist()

            def put(batch: TransactionalBatch) -> None:
                batch.write(records(changes.where(sf.col(KIND) != LATE), self.state), own)
                for output, request in zip(outputs, requests, strict=True):
                    batch.write(self._output_rows(changes, output), request)

            try:
                name = batch_name(changes, batch_id, log.query)
                outcome = in_transaction(
                    name, put, bootstrap=bootstrap, kafka=log.properties, topics=topics
                )
                compute_if_written_before(changes, outcome)
            finally:
                if requests:
                    changes.unpersist()

        return write

    def _output_rows(self, changes: DataFrame, output: Output) -> DataFrame:
        rows = self.readable(changes.where(sf.col(KIND) == (LATE if output.late else STATE)))
        if output.rows is not None:
            return output.rows(rows)
        return rows.where(~sf.col("removed")).drop("removed")

    def readable(self, changes: DataFrame) -> DataFrame:
        """Changes with the key's own columns instead of its text."""
        fields = [self.events.schema[name] for name in self.keys]
        key = sf.from_json(sf.get_json_object(ID, "$.key"), StructType(fields), JSON_FORMAT)
        columns = [key[name].alias(name) for name in self.keys]
        if self.windows is not None:
            end = sf.col(WINDOW) + self.windows.size_us
            columns.append(sf.timestamp_micros(WINDOW).alias("window_start"))
            columns.append(sf.timestamp_micros(end).alias("window_end"))
        return changes.select(*columns, *self.columns.names, sf.col(REMOVED).alias("removed"))

    def _watermark_us(self) -> int | None:
        """Of the query before this one, from the topic."""
        newest_us = self.log.stored.newest_us
        if self.windows is None or newest_us is None:
            return None
        return newest_us - self.lateness_us

    def _rules(self) -> StateRules:
        watermark_us = self._watermark_us() or 0
        return StateRules(
            names=tuple(self.columns.names),
            state=self.state,
            aggregates=dict(self.aggregates),
            update=self.update,
            size_us=None if self.windows is None else self.windows.size_us,
            watermark_ms=max(0, watermark_us // 1000),
        )

    def _plan(self) -> AggregationPlan:
        return AggregationPlan(
            self.keys,
            dict(self.aggregates),
            self.windows,
            self.offset_columns,
            arrow_schema(self._partial_schema()),
            None if self.windows is None else self.log.stored.newest_us,
        )

    def _partial_schema(self) -> StructType:
        columns = self.columns.fields
        if self.update is not None:
            columns = [StructField(ROWS, spark_types.ArrayType(self.events.schema))]
        return StructType(
            [
                StructField(KIND, spark_types.StringType()),
                *[StructField(name, self.events.schema[name].dataType) for name in self.keys],
                *columns,
                StructField(PARTITION[0], spark_types.StringType()),
                StructField(PARTITION[1], spark_types.IntegerType()),
                *_BATCH_FIELDS,
            ]
        )


def _partials(plan: AggregationPlan) -> Any:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return partials(batches, plan)

    return run


def _state_columns(schema: StructType, aggregates: Mapping[str, StateAggregate]) -> StructType:
    return StructType(
        [StructField(name, _type_of(schema, each)) for name, each in aggregates.items()]
    )


def _type_of(schema: StructType, aggregate: StateAggregate) -> spark_types.DataType:
    if aggregate.column is None:
        return spark_types.LongType()
    column_type = schema[aggregate.column].dataType
    if aggregate.kind is not AggregateKind.TOTAL:
        return column_type
    match column_type:
        case spark_types.IntegralType():
            return spark_types.LongType()
        case spark_types.DecimalType(precision=precision, scale=scale):
            digits = min(_DECIMAL_DIGITS_MAX, precision + _SUM_DIGITS)
            return spark_types.DecimalType(digits, scale)
        case spark_types.FractionalType():
            return spark_types.DoubleType()
    raise config_error(f"{aggregate.column} is {column_type.simpleString()}: it has no total")


def _is_start(name: str) -> bool:
    return name.lower().startswith("starting")
