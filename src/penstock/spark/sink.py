"""`df.write.format("penstock")` and `df.writeStream.format("penstock")`: Spark's side of the sink.

A batch job is one transaction. A streaming query is one transaction per micro-batch with the marker
in it, as in `exactly_once`. The layout of the frame is the caller's: if two tasks write to one
Kafka partition the job is refused before anything is visible, and `record_batches` packs a frame so
that they do not.

Spark creates a stream's writer twice for every batch, in two processes: once to send it to the
tasks and once to commit. Only the first is pickled, so that one takes the transactional id, and the
one that commits never does.
"""

import hashlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from penstock.link.transactions import TransactionHandle
from penstock.spark.batch_transaction import (
    TIMEOUT_MS,
    BatchName,
    OpenTransaction,
    TaskWrite,
    abort,
    add_marker,
    check_sequences,
    commit,
    complete_markers,
    is_written,
    take,
)
from penstock.spark.connections import cluster_for, connected_cluster, kafka_properties
from penstock.spark.encode_rows import check_columns
from penstock.spark.given_options import GivenOptions, config_error
from penstock.spark.pack_rows import PACKED_NAMES, Packer
from penstock.spark.spark_types import arrow_schema
from penstock.spark.workers import acknowledged
from penstock.spark.write_jobs import task_identity
from penstock.spark.write_options import WritePlan, request_from_options, sink_options
from penstock.spark.write_task import PartitionWriter, WriteTarget

_JOB: Final = "penstock.job."
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
_REMEDY: Final = (
    "nothing was made visible. Pack the frame first:"
    ' penstock.spark.record_batches(df, WriteRequest(...)).write.format("penstock")'
)


@dataclass(frozen=True, slots=True)
class TaskReport(WriterCommitMessage):
    """What a task reports to the driver."""

    writes: tuple[TaskWrite, ...]
    handle: TransactionHandle
    checkpoint: str = ""
    batch_id: int = -1
    is_skipped: bool = False  # the batch was written before


@dataclass(frozen=True, slots=True)
class WriteJob:
    """What tasks do with rows: pack them, unless they come packed, and write."""

    properties: Mapping[str, str]
    plan: WritePlan | None  # None: the rows are packed
    topics: tuple[str, ...]

    def take(self, transactional_id: str, timeout_ms: int) -> TransactionHandle:
        """Take an id over for writing; on the driver."""
        cluster = cluster_for(self.properties)
        complete_markers(cluster, transactional_id, list(self.topics))
        return take(cluster, transactional_id, timeout_ms=timeout_ms)

    def write(
        self, rows: Iterator[pa.RecordBatch], handle: TransactionHandle
    ) -> tuple[TaskWrite, ...]:
        """Write the rows of one task."""
        task, writer = task_identity()
        packed = acknowledged(rows) if self.plan is None else Packer(self.plan, task).pack(rows)
        target = WriteTarget(self.properties, handle, remedy=_REMEDY)
        return tuple(PartitionWriter(target, writer).write(packed))

    def commit(
        self,
        name: BatchName,
        reports: Sequence[TaskReport],
        handle: TransactionHandle,
        *,
        has_marker: bool,
    ) -> None:
        """Commit what the tasks report, or abort; on the driver."""
        cluster = cluster_for(self.properties)
        transaction = OpenTransaction(name, handle)
        try:
            transaction.add_writes(write for report in reports for write in report.writes)
            if transaction.is_empty:
                return
            check_sequences(cluster, transaction)
            if has_marker:
                add_marker(cluster, transaction, list(self.topics))
        except BaseException:
            abort(cluster, handle)
            raise
        commit(cluster, transaction)


class BatchWriter(DataSourceArrowWriter):
    """One job, one transaction."""

    def __init__(self, job: WriteJob, handle: TransactionHandle) -> None:
        self._job = job
        self._handle = handle

    def write(  # type: ignore[override]  # as Spark's own Arrow writers override it
        self, iterator: Iterator[pa.RecordBatch]
    ) -> TaskReport:
        """Spark's, in a task."""
        return TaskReport(self._job.write(iterator, self._handle), self._handle)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Spark's, on the driver, if all tasks have succeeded."""
        name = BatchName(str(self._handle.transactional_id), "", 0)
        self._job.commit(name, _reports(messages), self._handle, has_marker=False)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Spark's, on the driver, if a task has failed."""
        abort(cluster_for(self._job.properties), self._handle)


class StreamWriter(DataSourceStreamArrowWriter):
    """One micro-batch, one transaction, with the marker in it."""

    def __init__(self, job: WriteJob, query: str, timeout_ms: int) -> None:
        self._job = job
        self._query = query
        self._timeout_ms = timeout_ms
        self._handle: TransactionHandle | None = None

    def __getstate__(self) -> dict[str, Any]:
        """On its way to the tasks: they write under a handle that is taken now."""
        if self._handle is None:
            name = BatchName(self._query, "", 0)
            self._handle = self._job.take(name.transactional_id, self._timeout_ms)
        return self.__dict__.copy()

    def write(  # type: ignore[override]  # as Spark's own Arrow writers override it
        self, iterator: Iterator[pa.RecordBatch]
    ) -> TaskReport:
        """Spark's, in a task."""
        context = TaskContext.get()
        assert context is not None, "called in a task"
        assert self._handle is not None, "taken when the writer was pickled"
        checkpoint = context.getLocalProperty(_QUERY_ID)
        batch_id = context.getLocalProperty(_BATCH_ID)
        assert checkpoint is not None, "a streaming query has an id"
        assert batch_id is not None, "a micro-batch has a number"
        name = BatchName(self._query, checkpoint, int(batch_id))
        if is_written(cluster_for(self._job.properties), name):
            return TaskReport((), self._handle, checkpoint, name.batch_id, is_skipped=True)
        writes = self._job.write(iterator, self._handle)
        return TaskReport(writes, self._handle, checkpoint, name.batch_id)

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,
    ) -> None:
        """Spark's, on the driver, in a process of its own."""
        reports = [report for report in _reports(messages) if not report.is_skipped]
        if not reports:
            return
        first = reports[0]
        assert {(report.handle, report.batch_id) for report in reports} == {(first.handle, batchId)}
        name = BatchName(self._query, first.checkpoint, batchId)
        self._job.commit(name, reports, first.handle, has_marker=True)

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,
    ) -> None:
        """Spark's, on the driver. Without a report, the next batch aborts the transaction."""
        for report in _reports(messages)[:1]:
            abort(cluster_for(self._job.properties), report.handle)


def batch_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> DataSourceArrowWriter:
    """For `df.write`; schemas are registered or looked up here, before any row is written."""
    given = sink_options(options)
    job = _job(options, schema, overwrite=overwrite)
    transactional_id = given.text("transactionalId") or _JOB + uuid.uuid4().hex
    connected_cluster(job.properties)
    return BatchWriter(job, job.take(transactional_id, given.count("timeoutMs") or TIMEOUT_MS))


def stream_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """For `df.writeStream`; schemas are registered or looked up here."""
    given = sink_options(options)
    job = _job(options, schema, overwrite=overwrite)
    query = given.text("query") or _query_of(given, job)
    return StreamWriter(job, query, given.count("timeoutMs") or TIMEOUT_MS)


def _job(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> WriteJob:
    if overwrite:
        raise config_error('a topic cannot be overwritten: use mode("append")')
    if schema.names == PACKED_NAMES:
        topic = sink_options(options).text("topic")
        return WriteJob(kafka_properties(options), None, () if topic is None else (topic,))
    request = request_from_options(options).prepared()
    plan = request.plan(schema.names)
    check_columns(plan, arrow_schema(schema))
    return WriteJob(plan.properties, plan, () if request.topic is None else (request.topic,))


def _query_of(given: GivenOptions, job: WriteJob) -> str:
    """A name of the query that survives restarts, from its checkpoint."""
    checkpoint = given.text("checkpointLocation")
    if checkpoint is None:
        raise config_error(
            'give option("query", a name of its own) or option("checkpointLocation", ...): the sink'
            " must recognise the query after a restart"
        )
    short = hashlib.sha256(checkpoint.encode()).hexdigest()[:16]
    return ".".join((*job.topics, short))


def _reports(messages: list[WriterCommitMessage | None]) -> list[TaskReport]:
    return [message for message in messages if isinstance(message, TaskReport)]
