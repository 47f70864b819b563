"""A compacted topic as a table: the latest value of each key, as of now.

    customers = table(spark, "customers", {"kafka.bootstrap.servers": ..., "registry": ...})
    enriched = join_table(orders, customers, on=["customer"])

In a stream the table is read anew for every micro-batch: a row meets what was known when its batch
ran, and a batch that is run again may find more. Keys whose latest value is null are not in it.
Options are those of `format("penstock")` that choose brokers, registry, schema and columns; the
columns are the value's fields and `_key`, or `key` and `value` where values are left raw.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.errors import ErrorCode, Refused
from penstock.spark import positions
from penstock.spark import row_columns as own
from penstock.spark.connecting import reached
from penstock.spark.read_options import Coding, ReadOptions, read_options
from penstock.spark.settling import read_schema, read_task, without_notes
from penstock.spark.tasks import ReadTask

if TYPE_CHECKING:
    import pyarrow as pa

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
        from penstock.spark.table_reading import latest_rows  # kernels: workers only

        place: Any = partition.value
        return latest_rows(self._task, place)


def _refused(why: str) -> Refused:
    return Refused(ErrorCode.invalid_config, why)
