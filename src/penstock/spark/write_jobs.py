"""The jobs of a write as Spark sees them: rows packed by the tasks that have them, and written.

A transaction has one producer, so that two tasks must not write to one partition at a time. On
`local[*]` all tasks are on one machine and take turns: one stage, and nothing is shuffled. On other
masters the packed batches are laid out first so that every Kafka partition is in one task.
"""

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa

from penstock.link.offsets import partitions_of
from penstock.model import SequenceNumber, TopicPartition
from penstock.spark.batch_transaction import Written
from penstock.spark.connections import cluster, is_classic
from penstock.spark.pack_rows import PACKED, PACKED_NAMES, Packer
from penstock.spark.workers import acknowledged
from penstock.spark.write_options import WritePlan
from penstock.spark.write_task import WRITTEN, PartitionWriter, TurnWriter, WriteTarget
from penstock.spark.write_turns import Turns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_ONE_MACHINE: Final = re.compile(r"local(\[.*\])?")
_ERROR_CHARACTERS_MAX: Final = 2_000


class WriteFailed(Exception):
    """Spark could not do the writing job; the message has the cause and not the whole trace."""


@contextmanager
def turns_for(
    frame: "DataFrame", sequences: Mapping[TopicPartition, SequenceNumber]
) -> Iterator[Turns | None]:
    """Turns for the tasks of one job; None where they are not on one machine."""
    master = frame.sparkSession.conf.get("spark.master", "")
    if _ONE_MACHINE.fullmatch(master or "") is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="penstock-sink-") as folder:
        yield Turns.begin(folder, sequences)


def written_by_turns(
    frame: "DataFrame", plan: WritePlan, target: WriteTarget, turns: Turns
) -> list[Written]:
    """Write a frame of rows by tasks that take turns; what each has written where."""

    def write(batches: Iterator[pa.RecordBatch], task: int, writer: str) -> list[Written]:
        packed = Packer(plan, task).build(batches)
        return TurnWriter(target, turns, writer).write(packed)

    return _ran(planned(frame, plan), write)


def written(packed: "DataFrame", target: WriteTarget) -> list[Written]:
    """Write a frame that is laid out; what each task has written where."""

    def write(batches: Iterator[pa.RecordBatch], _: int, writer: str) -> list[Written]:
        return PartitionWriter(target, writer).write(acknowledged(batches))

    return _ran(packed.select(*PACKED_NAMES), write)


def laid_out(frame: "DataFrame", plan: WritePlan) -> "DataFrame":
    """The frame's rows as record batches (columns of PACKED), each partition's in one task."""
    lanes = _lanes(frame.sparkSession)
    if plan.topic is not None:
        lanes = min(lanes, len(cluster(plan.properties).run(partitions_of([plan.topic]))))
    packed = planned(frame, plan).mapInArrow(_packing(plan), _columns(PACKED))
    placed = packed.repartitionById(lanes, "lane")
    if frame.isStreaming:  # Spark sorts no streams; its shuffle keeps the order of each task
        return placed
    return placed.sortWithinPartitions("lane", "task", "number")


def _lanes(session: "SparkSession") -> int:
    """How many tasks may write. Over Spark Connect only the number of shuffle tasks is known."""
    if is_classic(session):
        return session.sparkContext.defaultParallelism
    return int(session.conf.get("spark.sql.shuffle.partitions") or 1)


def planned(frame: "DataFrame", plan: WritePlan) -> "DataFrame":
    """Of the frame, the columns that the plan reads."""
    if sorted(frame.columns) == sorted(plan.columns):
        return frame  # each frame that is made is analysed: milliseconds of every micro-batch
    return frame.select(*("`" + name.replace("`", "``") + "`" for name in plan.columns))


def _columns(schema: pa.Schema) -> "StructType":
    """For Spark, without its parser: that is asked by a call to the JVM for each column."""
    from penstock.spark.spark_columns import spark_type

    columns: Any = spark_type(pa.struct(list(schema)))
    return cast("StructType", columns)


def _packing(plan: WritePlan) -> Any:
    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "tasks have a context"
        return Packer(plan, context.partitionId()).pack(batches)

    return pack


def _ran(
    rows: "DataFrame", write: Callable[[Iterator[pa.RecordBatch], int, str], list[Written]]
) -> list[Written]:
    """Run the job that writes; what its tasks tell."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no stubs
    from pyspark.errors import PySparkException

    try:
        told = rows.mapInArrow(_writing(write), _columns(WRITTEN)).collect()
    except (PySparkException, Py4JError) as failure:
        # Spark matches what foreachBatch raises with a pattern that runs out of stack when the
        # text is as long as a Java trace: the cause alone is passed on.
        raise WriteFailed(cause_of(str(failure))) from None
    return [
        Written(TopicPartition(topic, partition), records, SequenceNumber(end_sequence), writer)
        for topic, partition, records, end_sequence, writer in told
    ]


def _writing(write: Callable[[Iterator[pa.RecordBatch], int, str], list[Written]]) -> Any:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "tasks have a context"
        writer = f"task {context.partitionId()} (attempt {context.taskAttemptId()})"
        rows = write(batches, context.partitionId(), writer)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([row.place.topic for row in rows], pa.string()),
                pa.array([row.place.partition for row in rows], pa.int32()),
                pa.array([row.record_count for row in rows], pa.int64()),
                pa.array([row.end_sequence for row in rows], pa.int64()),
                pa.array([row.writer for row in rows], pa.string()),
            ],
            schema=WRITTEN,
        )

    return task


def cause_of(text: str) -> str:
    """The line that a Python task ended with, out of all that Spark tells about it."""
    lines = [line.strip() for line in text.splitlines()]
    told = [line for line in lines if _is_cause(line)]
    return (told[-1] if told else text)[:_ERROR_CHARACTERS_MAX]


def _is_cause(line: str) -> bool:
    head = line.partition(":")[0]
    return head.startswith(("penstock.", "pyarrow.")) or head in _BUILT_IN_ERRORS


_BUILT_IN_ERRORS: Final = frozenset(
    {"ValueError", "TypeError", "KeyError", "AssertionError", "OSError", "TimeoutError"}
)
