"""What Spark calls to read topics, as tables and as streams.

Spark's names and dicts stay here: `planning` decides what is read, from offsets alone, and
`read_task` reads it in the workers.
"""

from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.errors import ErrorCode, Refused
from penstock.link.blocking import BlockingCluster
from penstock.link.offsets import Isolation
from penstock.spark import positions
from penstock.spark.connections import cluster_for, connected_cluster
from penstock.spark.planning import (
    OffsetRange,
    StreamPosition,
    limited,
    losses,
    ranges_between,
    split_into_tasks,
)
from penstock.spark.progress_group import ProgressGroup
from penstock.spark.query_plan import plan_read, read_schema, without_notes
from penstock.spark.read_options import AtOffsets, Bound, LogEnd, ReadOptions, read_options
from penstock.spark.read_plan import ReadPlan
from penstock.spark.stream_tracing import StreamTracing
from penstock.spark.workers import AcknowledgeOnArrival, freeze_loaded, no_collection

LONG_TASK_OFFSETS: Final = 100_000

__all__ = ["batch_reader", "read_schema", "stream_reader"]


def batch_reader(options: MutableMapping[str, str], schema: StructType) -> DataSourceReader:
    """For `spark.read`."""
    checked = read_options(without_notes(options), is_stream=False)
    return BatchReader(checked, plan_read(checked, options, schema))


def stream_reader(options: MutableMapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """For `spark.readStream`."""
    checked = read_options(without_notes(options), is_stream=True)
    return StreamReader(checked, plan_read(checked, options, schema))


class BatchReader(DataSourceReader):
    """A table: what the topics have when the query is planned, or as far as the options say.

    `pushFilters` is not overridden: Spark 4.3 keeps the plan of the last pushed filter in the
    relation, and reads every later use of the frame, filtered or not, by that plan.
    """

    def __init__(self, options: ReadOptions, plan: ReadPlan) -> None:
        self._arrival = AcknowledgeOnArrival()
        self._options = options
        self._plan = plan

    def partitions(self) -> Sequence[InputPartition]:
        """Spark's: a partition for each task."""
        options = self._options
        cluster = connected_cluster(options.kafka)
        partitions = positions.select_partitions(cluster, options.selection)
        if not partitions:
            return []
        bound = options.starting or LogEnd.EARLIEST
        start = positions.resolve_bound(cluster, partitions, bound, options.isolation)
        start = _check_start(cluster, options, bound, start)
        end = positions.resolve_bound(cluster, partitions, options.ending, options.isolation)
        end = _check_end(cluster, options, end)
        return _input_partitions(options, ranges_between(start, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Spark's, in a worker: the rows of one partition."""
        return _read(self._plan, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream. The checkpoint has offsets by topic and partition, and topic ids."""

    def __init__(self, options: ReadOptions, plan: ReadPlan) -> None:
        self._arrival = AcknowledgeOnArrival()
        self._options = options
        self._plan = plan
        self._progress = ProgressGroup(options.group, options.kafka)
        self._tracing = StreamTracing(options.tracing, options.kafka)
        self._target: StreamPosition | None = None  # of AvailableNow
        self._latest: StreamPosition | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Spark's: where a new query starts."""
        options = self._options
        cluster = connected_cluster(options.kafka)
        partitions = positions.select_partitions(cluster, options.selection)
        bound = options.starting or LogEnd.LATEST
        start = positions.resolve_bound(cluster, partitions, bound, options.isolation)
        return _check_start(cluster, options, bound, start).to_spark()

    def prepareForTriggerAvailableNow(self) -> None:
        """Spark's: this query reads to the present end and stops."""
        self._target = self._end()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark's: the limits of the options."""
        options = self._options
        if options.offsets_per_trigger_max is not None:
            return ReadMaxRows(options.offsets_per_trigger_max)
        if options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(options.bytes_per_trigger_max)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Spark's: where the next micro-batch ends. Everything before `start` is done."""
        self._tracing.finish()
        begin = StreamPosition.from_spark(start)
        self._progress.show(begin)
        end = self._latest = self._target or self._end()
        lost = losses(begin, end)
        if lost and self._options.fail_on_data_loss:
            raise Refused(
                ErrorCode.offset_out_of_range,
                f"{lost[0]}. With failOnDataLoss=false the query continues with the records that"
                " exist",
            )
        if end.offsets == begin.offsets:
            self._progress.wait()  # idle: a query that ends here has shown its end
        return self._limited(begin, end, limit).to_spark()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Spark's: for the query's progress."""
        return None if self._latest is None else self._latest.to_spark()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Spark's: a partition for each task, always the same for the same offsets."""
        with no_collection():  # there may be a hundred thousand of them
            ranges = ranges_between(
                StreamPosition.from_spark(start), StreamPosition.from_spark(end)
            )
            partitions = _input_partitions(self._options, ranges)
        self._tracing.start(ranges)
        return partitions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Spark's, in a worker: the rows of one partition."""
        return _read(self._plan, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark's: the commit log says that everything before `end` is done."""
        self._progress.show(StreamPosition.from_spark(end))

    def stop(self) -> None:
        """Spark's: the query has ended."""
        self._tracing.finish()
        self._progress.wait()

    def _end(self) -> StreamPosition:
        options = self._options
        cluster = connected_cluster(options.kafka)
        partitions = positions.select_partitions(
            cluster, options.selection, skip_missing=not options.fail_on_data_loss
        )
        return positions.end_position(cluster, partitions, options.isolation)

    def _limited(
        self, begin: StreamPosition, end: StreamPosition, limit: ReadLimit
    ) -> StreamPosition:
        options = self._options
        if isinstance(limit, ReadAllAvailable):
            return end
        offsets_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        bytes_max = (
            limit.max_bytes if isinstance(limit, ReadMaxBytes) else options.bytes_per_trigger_max
        )
        if offsets_max is not None:
            end = limited(begin, end, offsets_max)
        if bytes_max is not None:
            ranges = ranges_between(begin, end)
            cluster = cluster_for(options.kafka)
            mean_bytes = positions.mean_offset_bytes(cluster, ranges, options.isolation)
            end = limited(begin, end, max(1, int(bytes_max / mean_bytes)))
        return end


def _read(plan: ReadPlan, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    from penstock.spark.read_task import empty_batch, read_ranges  # kernels: workers only

    # Spark makes one partition of None where there are none.
    ranges = [OffsetRange.from_spark(values) for values in partition.value or ()]
    if sum(offsets.end - offsets.start for offsets in ranges) > LONG_TASK_OFFSETS:
        # Spark keeps the first batch while the task runs: an empty one takes no memory.
        yield empty_batch(plan)
    yield from read_ranges(plan, ranges)
    freeze_loaded("reading")


def _input_partitions(options: ReadOptions, ranges: Sequence[OffsetRange]) -> list[InputPartition]:
    return [
        InputPartition(tuple(offsets.to_spark() for offsets in task))
        for task in split_into_tasks(
            ranges,
            partitions_min=options.partitions_min,
            records_per_partition_max=options.records_per_partition_max,
        )
    ]


def _check_start(
    cluster: BlockingCluster, options: ReadOptions, bound: Bound, start: StreamPosition
) -> StreamPosition:
    """Not past the end of a log. Behind an open transaction is no error: the query waits there."""
    if not isinstance(bound, AtOffsets):
        return start
    end = positions.end_position(cluster, list(start.offsets), Isolation.READ_UNCOMMITTED)
    return _not_past(options, start, end, "startingOffsets")


def _check_end(
    cluster: BlockingCluster, options: ReadOptions, end: StreamPosition
) -> StreamPosition:
    """Not past what can be read: waiting for more could take indefinitely."""
    if options.ending is LogEnd.LATEST:
        return end
    readable = positions.end_position(cluster, list(end.offsets), options.isolation)
    return _not_past(options, end, readable, "endingOffsets")


def _not_past(
    options: ReadOptions, position: StreamPosition, end: StreamPosition, option: str
) -> StreamPosition:
    for partition, offset in position.offsets.items():
        if offset > end.offsets[partition] and options.fail_on_data_loss:
            raise Refused(
                ErrorCode.offset_out_of_range,
                f"{partition} ends at {end.offsets[partition]}, before offset {offset} of {option};"
                " with failOnDataLoss=false the records that exist would be read",
            )
    return position.with_offsets(
        {
            partition: min(offset, end.offsets[partition])
            for partition, offset in position.offsets.items()
        }
    )
