"""A compacted topic as a table: the latest value of each key, as of now.

    customers = table(spark, "customers", {"kafka.bootstrap.servers": ..., "registry": ...})
    enriched = join_table(orders, customers, on=["customer"])

In a stream the table is read again for every micro-batch: a row is joined with what was known when
its batch ran, and a batch that is run again may find more. Keys whose latest value is null are not
in it. Options are those of `format("penstock")` for brokers, registry, schema and columns; the
columns are the value's fields and `_key`, or `key` and `value` if values are raw.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.spark import positions
from penstock.spark import source_columns as columns
from penstock.spark.connections import connected_cluster
from penstock.spark.given_options import config_error
from penstock.spark.query_plan import plan_read, read_schema, without_notes
from penstock.spark.read_options import PayloadFormat, ReadOptions, read_options
from penstock.spark.read_plan import ReadPlan

if TYPE_CHECKING:
    import pyarrow as pa

NAME: Final = "penstock-table"
TableJoin: TypeAlias = Literal["inner", "left_outer", "left_semi", "left_anti"]


def table(spark: SparkSession, topic: str, options: Mapping[str, str]) -> DataFrame:
    """The topic's latest values."""
    spark.dataSource.register(TableSource)
    return spark.read.format(NAME).options(**options, subscribe=topic).load()


def join_table(
    events: DataFrame, table: DataFrame, *, on: Sequence[str], how: TableJoin = "left_outer"
) -> DataFrame:
    """Each event with the row of the table that has the same `on`, without the table's `_key`."""
    for owner, frame in (("events have", events), ("table has", table)):
        missing = [name for name in on if name not in frame.columns]
        if missing:
            raise config_error(f"the {owner} no column {missing[0]}: {', '.join(frame.columns)}")
    rows = table.drop(*{columns.KEY} - set(on))
    shared = sorted((set(events.columns) & set(rows.columns)) - set(on))
    if shared and how in ("inner", "left_outer"):
        raise config_error(f"both have {', '.join(shared)}: rename or drop one of each")
    return events.join(rows, list(on), how)


class TableSource(DataSource):
    """The source of `format("penstock-table")`."""

    @classmethod
    def name(cls) -> str:
        """Spark's."""
        return NAME

    def schema(self) -> StructType:
        """Spark's: the fields of the value and the key."""
        schema = read_schema(self.options)
        options = read_options(without_notes(self.options))
        if options.columns is not None:
            return schema
        return StructType([field for field in schema if _is_readable(field.name, options.value)])

    def reader(self, schema: StructType) -> "TableReader":
        """Spark's."""
        options = read_options(without_notes(self.options), is_stream=False)
        return TableReader(options, plan_read(options, self.options, schema))


def _is_readable(name: str, value: PayloadFormat) -> bool:
    """Whether a table has this column: a field of the value, the key, or the raw value."""
    readable = {None, columns.KEY, *([columns.VALUE] if value is PayloadFormat.RAW else [])}
    return columns.record_column(name, value) in readable


class TableReader(DataSourceReader):
    """Planned once, read often: each read finds out what is new."""

    def __init__(self, options: ReadOptions, plan: ReadPlan) -> None:
        self._options = options
        self._plan = plan
        for name in plan.decode.schema.names:
            if not _is_readable(name, options.value):
                raise config_error(
                    f"a table has no {name}: its columns are the value's fields and the key"
                )
        if options.key is not PayloadFormat.RAW:
            raise config_error(
                "a table's keys are bytes: leave key=raw, and use a field of the value"
            )

    def partitions(self) -> Sequence[InputPartition]:
        """Spark's: one for each partition of the topic."""
        cluster = connected_cluster(self._options.kafka)
        partitions = positions.select_partitions(cluster, self._options.selection)
        return [InputPartition(partition) for partition in partitions]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Spark's, in a worker: the latest values of one partition, as of now."""
        from penstock.spark.latest_values import latest_values  # kernels: workers only

        topic_partition: Any = partition.value
        return latest_values(self._plan, topic_partition)
