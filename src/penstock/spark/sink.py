"""`df.write.format("penstock")` and `df.writeStream.format("penstock")`: Spark's side of the sink.

A batch job is one transaction. A streaming query is one transaction per micro-batch with the marker
in it, as `exactly_once` makes it. Here the layout of the frame is the caller's: where two tasks
would write to one Kafka partition the job is refused before anything is visible, and
`record_batches` lays a frame out so that they do not.

Spark makes a stream's writer twice for every batch, in two processes: once to send it to the tasks
and once to commit. Only the first is pickled, so the transactional id is taken then and never by
the one that commits.
"""

import hashlib
import uuid
from collections.abc import Iterator, Mapping
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

from penstock.errors import ErrorCode, Refused
from penstock.link.transactions import TransactionHandle
from penstock.spark.batch_transaction import (
    TIMEOUT_MS,
    BatchName,
    OpenTransaction,
    Written,
    abort,
    add_marker,
    check_sequences,
    commit,
    is_written,
    take,
)
from penstock.spark.connections import cluster, kafka_properties, reached
from penstock.spark.pack_rows import PACKED_NAMES, Packer, check_columns
from penstock.spark.spark_columns import arrow_schema
from penstock.spark.workers import acknowledged
from penstock.spark.write_options import WritePlan, WriteRequest, prepared, request_from_options
from penstock.spark.write_task import PartitionWriter, WriteTarget

_JOB: Final = "penstock.job."
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
_REMEDY: Final = (
    "nothing was made visible. Lay the frame out first:"
    ' penstock.spark.record_batches(df, "topic", ...).write.format("penstock")'
)


@dataclass(frozen=True, slots=True)
class Told(WriterCommitMessage):
    """What a task tells the driver."""

    written: tuple[Written, ...]
    handle: TransactionHandle
    checkpoint: str = ""
    batch_id: int = -1
    is_skipped: bool = False  # the batch was written before


@dataclass(frozen=True, slots=True)
class Job:
    """What tasks do with rows: pack them, unless they come packed, and write."""

    properties: Mapping[str, str]
    plan: WritePlan | None  # None: the rows are packed
    topics: tuple[str, ...]

    def write(
        self, rows: Iterator[pa.RecordBatch], handle: TransactionHandle
    ) -> tuple[Written, ...]:
        """The rows of one task."""
        context = TaskContext.get()
        assert context is not None, "tasks have a context"
        task = context.partitionId()
        packed = acknowledged(rows) if self.plan is None else Packer(self.plan, task).pack(rows)
        target = WriteTarget(self.properties, handle, remedy=_REMEDY)
        writer = f"task {task} (attempt {context.taskAttemptId()})"
        return tuple(PartitionWriter(target, writer).write(packed))


class BatchWriter(DataSourceArrowWriter):
    """One job, one transaction."""

    def __init__(self, job: Job, handle: TransactionHandle) -> None:
        self._job = job
        self._handle = handle

    def write(  # type: ignore[override]  # as Spark's own Arrow writers override it
        self, iterator: Iterator[pa.RecordBatch]
    ) -> Told:
        """In a task."""
        return Told(self._job.write(iterator, self._handle), self._handle)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when all tasks have ended well."""
        brokers = cluster(self._job.properties)
        name = BatchName(str(self._handle.transactional_id), "", 0)
        transaction = OpenTransaction(name, self._handle)
        try:
            transaction.note(one for told in _told(messages) for one in told.written)
            if transaction.is_empty:
                return
            check_sequences(brokers, transaction)
        except BaseException:
            abort(brokers, self._handle)
            raise
        commit(brokers, transaction)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when one has not."""
        abort(cluster(self._job.properties), self._handle)


class StreamWriter(DataSourceStreamArrowWriter):
    """One micro-batch, one transaction, with the marker in it."""

    def __init__(self, job: Job, query: str, timeout_ms: int) -> None:
        self._job = job
        self._query = query
        self._timeout_ms = timeout_ms
        self._handle: TransactionHandle | None = None

    def __getstate__(self) -> dict[str, Any]:
        """On its way to the tasks: they write under a handle that is taken now."""
        if self._handle is None:
            name = BatchName(self._query, "", 0)
            self._handle = take(
                cluster(self._job.properties),
                name.transactional_id,
                list(self._job.topics),
                timeout_ms=self._timeout_ms,
            )
        return self.__dict__.copy()

    def write(  # type: ignore[override]  # as Spark's own Arrow writers override it
        self, iterator: Iterator[pa.RecordBatch]
    ) -> Told:
        """In a task."""
        context = TaskContext.get()
        assert context is not None, "tasks have a context"
        assert self._handle is not None, "taken when the writer was sent here"
        checkpoint = context.getLocalProperty(_QUERY_ID)
        batch_id = context.getLocalProperty(_BATCH_ID)
        assert checkpoint is not None, "a streaming query has an id"
        assert batch_id is not None, "a micro-batch has a number"
        name = BatchName(self._query, checkpoint, int(batch_id))
        told = Told((), self._handle, checkpoint, name.batch_id, is_skipped=True)
        if is_written(cluster(self._job.properties), name):
            return told
        written = self._job.write(iterator, self._handle)
        return Told(written, self._handle, checkpoint, name.batch_id)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver, in a process of its own."""
        told = [one for one in _told(messages) if not one.is_skipped]
        if not told:
            return
        brokers = cluster(self._job.properties)
        first = told[0]
        assert {(one.handle, one.batch_id) for one in told} == {(first.handle, batchId)}
        name = BatchName(self._query, first.checkpoint, batchId)
        transaction = OpenTransaction(name, first.handle)
        try:
            transaction.note(one for told_one in told for one in told_one.written)
            if transaction.is_empty:
                return
            check_sequences(brokers, transaction)
            add_marker(brokers, transaction, list(self._job.topics))
        except BaseException:
            abort(brokers, first.handle)
            raise
        commit(brokers, transaction)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver. Without a message the handle is not known: the next batch aborts it."""
        for told in _told(messages)[:1]:
            abort(cluster(self._job.properties), told.handle)


def batch_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> DataSourceArrowWriter:
    """For `df.write`; schemas are registered or looked up here, before any row is written."""
    job, said = _job(options, schema, overwrite)
    transactional_id = said.get("transactionalid") or _JOB + uuid.uuid4().hex
    brokers = reached(job.properties)
    topics = list(job.topics)
    handle = take(brokers, transactional_id, topics, timeout_ms=_timeout_ms(said))
    return BatchWriter(job, handle)


def stream_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """For `df.writeStream`; schemas are registered or looked up here."""
    job, said = _job(options, schema, overwrite)
    query = said.get("query") or _query_of(said, job)
    return StreamWriter(job, query, _timeout_ms(said))


def _job(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> tuple[Job, dict[str, str]]:
    if overwrite:
        raise _refused('a log is added to, never overwritten: use mode("append")')
    said = {name.lower(): value for name, value in options.items()}
    if schema.names == PACKED_NAMES:
        topics = (said["topic"],) if "topic" in said else ()
        return Job(kafka_properties(options), None, topics), said
    request: WriteRequest = prepared(request_from_options(options))
    topics = () if request.topic is None else (request.topic,)
    plan = request.plan(schema.names)
    check_columns(plan, arrow_schema(schema))
    return Job(request.properties, plan, topics), said


def _query_of(said: Mapping[str, str], job: Job) -> str:
    """A name of the query that outlives restarts: of its checkpoint."""
    checkpoint = said.get("checkpointlocation")
    if checkpoint is None:
        raise _refused(
            'say option("query", a name of its own), or give the checkpoint with'
            ' option("checkpointLocation", ...): the sink must know the query again after a restart'
        )
    short = hashlib.sha256(checkpoint.encode()).hexdigest()[:16]
    return ".".join((*job.topics, short))


def _timeout_ms(said: Mapping[str, str]) -> int:
    text = said.get("timeoutms", str(TIMEOUT_MS))
    if not text.isdecimal():
        raise _refused(f"timeoutMs {text!r} is no number of milliseconds")
    return int(text)


def _told(messages: list[WriterCommitMessage | None]) -> list[Told]:
    return [message for message in messages if isinstance(message, Told)]


def _refused(why: str) -> Refused:
    return Refused(ErrorCode.invalid_config, why)
