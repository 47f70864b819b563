"""The Spark jobs of a write: rows are packed by the tasks that have them, and written.

A transaction has one producer, so two tasks must not write to one partition at the same time. On
`local[*]` all tasks are on one machine and take turns: one stage, and nothing is shuffled. On other
masters the packed batches are shuffled first, so that every Kafka partition is in one task.
"""

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import pyarrow as pa

from penstock.link.offsets import partitions_of
from penstock.model import SequenceNumber, TopicPartition
from penstock.spark.batch_transaction import TaskWrite
from penstock.spark.connections import cluster_for, is_classic
from penstock.spark.pack_rows import PACKED, PACKED_NAMES, Packer
from penstock.spark.task_failures import failure_from, with_codes
from penstock.spark.workers import acknowledged
from penstock.spark.write_options import WritePlan
from penstock.spark.write_task import WRITES, PartitionWriter, TurnWriter, WriteTarget
from penstock.spark.write_turns import WriteTurns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_LOCAL_MASTER: Final = re.compile(r"local(\[.*\])?")

# What a task does with its rows: (rows, number of the task, its name for people).
TaskFunction: TypeAlias = Callable[[Iterator[pa.RecordBatch], int, str], list[TaskWrite]]


@contextmanager
def turns_for(
    frame: "DataFrame", sequences: Mapping[TopicPartition, SequenceNumber]
) -> Iterator[WriteTurns | None]:
    """Turns for the tasks of one job; None if they are not on one machine."""
    master = frame.sparkSession.conf.get("spark.master", "")
    if _LOCAL_MASTER.fullmatch(master or "") is None:
        yield None
        return
    with tempfile.NamedTemporaryFile(prefix="penstock-sink-") as file:
        yield WriteTurns.create(Path(file.name), sequences)


def write_by_turns(
    frame: "DataFrame", plan: WritePlan, target: WriteTarget, turns: WriteTurns
) -> list[TaskWrite]:
    """Write a frame of rows by tasks that take turns; what each has written where."""

    def write(rows: Iterator[pa.RecordBatch], task: int, writer: str) -> list[TaskWrite]:
        packed = Packer(plan, task).build(rows)
        return TurnWriter(target, turns, writer).write(packed)

    return _run_tasks(planned_columns(frame, plan), write)


def write_packed(packed: "DataFrame", target: WriteTarget) -> list[TaskWrite]:
    """Write a frame that `packed_by_partition` returned; what each task has written where."""

    def write(rows: Iterator[pa.RecordBatch], _: int, writer: str) -> list[TaskWrite]:
        return PartitionWriter(target, writer).write(acknowledged(rows))

    return _run_tasks(packed.select(*PACKED_NAMES), write)


def packed_by_partition(frame: "DataFrame", plan: WritePlan) -> "DataFrame":
    """The rows as record batches (columns of PACKED), each Kafka partition's in one task."""
    lanes = _lanes(frame.sparkSession)
    if plan.topic is not None:
        lanes = min(lanes, len(cluster_for(plan.properties).run(partitions_of([plan.topic]))))
    packed = planned_columns(frame, plan).mapInArrow(_pack_function(plan), _struct_type(PACKED))
    by_partition = packed.repartitionById(lanes, "lane")
    if frame.isStreaming:  # Spark sorts no streams; its shuffle keeps the order of each task
        return by_partition
    return by_partition.sortWithinPartitions("lane", "task", "number")


def _lanes(session: "SparkSession") -> int:
    """How many tasks may write. Over Spark Connect only the number of shuffle tasks is known."""
    if is_classic(session):
        return session.sparkContext.defaultParallelism
    return int(session.conf.get("spark.sql.shuffle.partitions") or 1)


def planned_columns(frame: "DataFrame", plan: WritePlan) -> "DataFrame":
    """The columns of the frame that the plan reads."""
    if sorted(frame.columns) == sorted(plan.columns):
        return frame  # every new frame is analysed: milliseconds of each micro-batch
    return frame.select(*("`" + name.replace("`", "``") + "`" for name in plan.columns))


def _struct_type(schema: pa.Schema) -> "StructType":
    """For Spark, without its parser: that costs a call to the JVM for each column."""
    from penstock.spark.spark_types import spark_type

    struct: Any = spark_type(pa.struct(list(schema)))
    return cast("StructType", struct)


def _pack_function(plan: WritePlan) -> Any:
    def pack(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return with_codes(Packer(plan, task_identity()[0]).pack(rows))

    return pack


def _run_tasks(rows: "DataFrame", write: TaskFunction) -> list[TaskWrite]:
    """Run the job that writes; what its tasks report."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no stubs
    from pyspark.errors import PySparkException

    try:
        # As Arrow: `collect` takes several milliseconds longer for the same few rows.
        reports = rows.mapInArrow(_write_function(write), _struct_type(WRITES)).toArrow()
    except (PySparkException, Py4JError) as failure:
        raise failure_from(str(failure)) from None
    return [
        TaskWrite(
            TopicPartition(row["topic"], row["partition"]),
            row["records"],
            SequenceNumber(row["end_sequence"]),
            row["writer"],
        )
        for row in reports.to_pylist()
    ]


def _write_function(write: TaskFunction) -> Any:
    def run(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task, writer = task_identity()
        writes = write(rows, task, writer)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([row.partition.topic for row in writes], pa.string()),
                pa.array([row.partition.partition for row in writes], pa.int32()),
                pa.array([row.record_count for row in writes], pa.int64()),
                pa.array([row.end_sequence for row in writes], pa.int64()),
                pa.array([row.writer for row in writes], pa.string()),
            ],
            schema=WRITES,
        )

    return lambda rows: with_codes(run(rows))


def task_identity() -> tuple[int, str]:
    """The number of the running task, and its name for people."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "called in a task"
    task = context.partitionId()
    return task, f"task {task} (attempt {context.taskAttemptId()})"
