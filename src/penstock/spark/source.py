"""What Spark calls to read topics, as tables and as streams.

Spark's names and dicts live here and go no further: what is read is planned by `planning` from
offsets alone, and read by `reading` in the workers.
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
from penstock.spark.connections import Progress, cluster, reached
from penstock.spark.planning import OffsetRange, Position, admit, deal, losses, ranges_between
from penstock.spark.query_plan import ReadTask, read_schema, read_task, without_notes
from penstock.spark.read_options import (
    Anchor,
    AtOffsets,
    Bound,
    ReadOptions,
    read_options,
)
from penstock.spark.workers import WorkArrives, freeze_loaded, no_collection

LONG_OFFSETS: Final = 100_000  # of a task: many batches

__all__ = ["batch_reader", "read_schema", "stream_reader"]


def batch_reader(options: MutableMapping[str, str], schema: StructType) -> DataSourceReader:
    """For `spark.read`."""
    asked = read_options(without_notes(options), is_stream=False)
    return BatchReader(asked, read_task(asked, options, schema))


def stream_reader(options: MutableMapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """For `spark.readStream`."""
    asked = read_options(without_notes(options), is_stream=True)
    return StreamReader(asked, read_task(asked, options, schema))


class BatchReader(DataSourceReader):
    """A table: what the topics hold when the query is planned, or as far as the options say.

    `pushFilters` is not overridden: Spark 4.3 keeps the plan of the last pushed filter in the
    relation, and reads every later use of the frame, filtered or not, by that plan.
    """

    def __init__(self, options: ReadOptions, task: ReadTask) -> None:
        self._arrival = WorkArrives()
        self._options = options
        self._task = task

    def partitions(self) -> Sequence[InputPartition]:
        """A partition for each task."""
        options = self._options
        brokers = reached(options.kafka)
        chosen = positions.selected(brokers, options.selection)
        if not chosen:
            return []
        starting = options.starting or Anchor.EARLIEST
        start = positions.resolve(brokers, chosen, starting, options.isolation)
        start = _start_within(brokers, options, starting, start)
        end = positions.resolve(brokers, chosen, options.ending, options.isolation)
        end = _end_within(brokers, options, end)
        return _partitions(options, ranges_between(start, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a worker: the rows of one partition."""
        return _read(self._task, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream. Positions in the checkpoint are offsets by topic and partition, and topics' ids."""

    def __init__(self, options: ReadOptions, task: ReadTask) -> None:
        self._arrival = WorkArrives()
        self._options = options
        self._task = task
        self._progress = Progress(options.group, options.kafka)
        self._target: Position | None = None  # of AvailableNow
        self._latest: Position | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins."""
        options = self._options
        brokers = reached(options.kafka)
        chosen = positions.selected(brokers, options.selection)
        bound = options.starting or Anchor.LATEST
        start = positions.resolve(brokers, chosen, bound, options.isolation)
        return _start_within(brokers, options, bound, start).to_spark()

    def prepareForTriggerAvailableNow(self) -> None:
        """What is there now is all that this query will read."""
        self._target = self._ends()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limits of the options."""
        options = self._options
        if options.offsets_per_trigger_max is not None:
            return ReadMaxRows(options.offsets_per_trigger_max)
        if options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(options.bytes_per_trigger_max)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next micro-batch ends. What comes before `start` is done by now."""
        begin = Position.from_spark(start)
        self._progress.show(begin)
        end = self._latest = self._target or self._ends()
        lost = losses(begin, end)
        if lost and self._options.fail_on_data_loss:
            raise Refused(
                ErrorCode.offset_out_of_range,
                f"{lost[0]}. With failOnDataLoss=false it goes on with what is there",
            )
        if end.offsets == begin.offsets:
            self._progress.settle()  # nothing to do: a query that ends here has shown its end
        return self._admitted(begin, end, limit).to_spark()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For the query's progress."""
        return None if self._latest is None else self._latest.to_spark()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """A partition for each task: the same for the same offsets, whenever it is asked."""
        with no_collection():  # there may be a hundred thousand of them
            ranges = ranges_between(Position.from_spark(start), Position.from_spark(end))
            return _partitions(self._options, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a worker: the rows of one partition."""
        return _read(self._task, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has written down that everything before `end` is done."""
        self._progress.show(Position.from_spark(end))

    def stop(self) -> None:
        """The query has ended."""
        self._progress.settle()

    def _ends(self) -> Position:
        options = self._options
        brokers = reached(options.kafka)
        chosen = positions.selected(
            brokers, options.selection, skips_missing=not options.fail_on_data_loss
        )
        return positions.ends(brokers, chosen, options.isolation)

    def _admitted(self, begin: Position, end: Position, limit: ReadLimit) -> Position:
        options = self._options
        if isinstance(limit, ReadAllAvailable):
            return end
        offsets_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        size_max = (
            limit.max_bytes if isinstance(limit, ReadMaxBytes) else options.bytes_per_trigger_max
        )
        if offsets_max is not None:
            end = admit(begin, end, offsets_max)
        if size_max is not None:
            ranges = ranges_between(begin, end)
            mean = positions.offset_bytes(cluster(options.kafka), ranges, options.isolation)
            end = admit(begin, end, max(1, int(size_max / mean)))
        return end


def _read(task: ReadTask, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    from penstock.spark.read_task import no_rows, read_ranges  # kernels: workers only

    # Spark makes one partition of None where there are none.
    ranges = [OffsetRange.from_spark(one) for one in partition.value or ()]
    if sum(one.end - one.start for one in ranges) > LONG_OFFSETS:
        # Spark holds the first batch for as long as the task runs: one without rows is no burden.
        yield no_rows(task)
    yield from read_ranges(task, ranges)
    freeze_loaded("reading")


def _partitions(options: ReadOptions, ranges: Sequence[OffsetRange]) -> list[InputPartition]:
    return [
        InputPartition(tuple(one.to_spark() for one in dealt))
        for dealt in deal(
            ranges,
            partitions_min=options.partitions_min,
            records_per_partition_max=options.records_per_partition_max,
        )
    ]


def _start_within(
    brokers: BlockingCluster, options: ReadOptions, bound: Bound, start: Position
) -> Position:
    """Not past the end of a log; behind an open transaction is no error, it only waits there."""
    if not isinstance(bound, AtOffsets):
        return start
    there = positions.ends(brokers, list(start.offsets), Isolation.READ_UNCOMMITTED)
    return _within(options, start, there, "startingOffsets")


def _end_within(brokers: BlockingCluster, options: ReadOptions, end: Position) -> Position:
    """Not past what can be read: waiting for more could take for ever."""
    if options.ending is Anchor.LATEST:
        return end
    there = positions.ends(brokers, list(end.offsets), options.isolation)
    return _within(options, end, there, "endingOffsets")


def _within(options: ReadOptions, position: Position, there: Position, option: str) -> Position:
    for place, offset in position.offsets.items():
        if offset > there.offsets[place] and options.fail_on_data_loss:
            raise Refused(
                ErrorCode.offset_out_of_range,
                f"{place} ends at {there.offsets[place]}, before offset {offset} of {option};"
                " with failOnDataLoss=false what is there would be read",
            )
    return position.with_offsets(
        {place: min(one, there.offsets[place]) for place, one in position.offsets.items()}
    )
