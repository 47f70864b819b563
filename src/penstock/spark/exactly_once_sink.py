"""Frames into topics exactly once: for `foreachBatch`, and as a building block.

    revenue = WriteRequest("revenue", bootstrap="127.0.0.1:9092", registry="http://127.0.0.1:8081",
                           key="store", schema=Path("revenue.avsc"))
    df.writeStream.foreachBatch(exactly_once(revenue))

The tasks that have the rows pack them into record batches (`pack_rows`), which are written under
the handle of the batch's transaction (`write_jobs`, `write_task`, `batch_transaction`).
"""

import json
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.errors import ErrorCode, Refused
from penstock.link.offsets import partitions_of
from penstock.link.transactions import TransactionHandle
from penstock.model import Offset, TopicPartition
from penstock.spark.batch_transaction import (
    OVERLAP,
    TIMEOUT_MS,
    BatchName,
    BatchOutcome,
    Instance,
    OpenTransaction,
    write_transaction,
)
from penstock.spark.connections import (
    BOOTSTRAP,
    client_properties,
    cluster_for,
    connected_cluster,
    is_classic,
)
from penstock.spark.encode_rows import check_columns
from penstock.spark.write_jobs import (
    packed_by_partition,
    planned_columns,
    turns_for,
    write_by_turns,
    write_packed,
)
from penstock.spark.write_options import WritePlan, WriteRequest
from penstock.spark.write_task import WriteTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.client.tracing import Tracing

ATTEMPTS_MAX: Final = 3  # of one batch, if tasks were lost that had written
INSTANCES_MAX: Final = 1_000
_QUERY_ID: Final = "sql.streaming.queryId"
_RUN_ID: Final = "spark.jobGroup.id"  # changes with a restart on the same checkpoint
_CHECKPOINTS_MAX: Final = 8
_NO_BATCH: Final = (
    "this frame is not a micro-batch: use foreachBatch, or write it with"
    ' df.write.format("penstock")'
)
_NO_CHECKPOINT: Final = (
    "over Spark Connect a batch is identified by its checkpoint: give exactly_once(...,"
    " checkpoint=...), the same location as the query's checkpointLocation"
)


class TransactionalBatch:
    """A batch while it is written: frames to topics, and offsets, all in one transaction."""

    def __init__(self, transaction: OpenTransaction) -> None:
        self._transaction = transaction

    @property
    def handle(self) -> TransactionHandle:
        """What a process must know to write in this transaction."""
        return self._transaction.handle

    def write(self, frame: "DataFrame", request: WriteRequest) -> int:
        """Write a frame; the number of records. May be called several times, for any topics.

        What is written first to a partition comes first there.
        """
        plan = request.plan(frame.columns)
        transaction = self._transaction
        sequences = dict(transaction.sequences)
        target = WriteTarget(plan.properties, transaction.handle, sequences)
        with turns_for(frame, sequences) as turns:
            if turns is None:
                packed = packed_by_partition(frame, plan)
                return transaction.add_writes(write_packed(packed, target))
            writes = write_by_turns(frame, plan, target, turns)
            return transaction.add_writes(writes, turns.end_sequences())

    def add_offsets(
        self, group: str, offsets: Mapping[TopicPartition, Offset], *, metadata: str = ""
    ) -> None:
        """Commit a group's offsets with the batch."""
        self._transaction.add_offsets(group, offsets, metadata=metadata)


def in_transaction(
    name: BatchName,
    write: Callable[[TransactionalBatch], object],
    *,
    bootstrap: str,
    kafka: Mapping[str, str] | None = None,
    topics: Iterable[str] = (),
    timeout_ms: int = TIMEOUT_MS,
) -> BatchOutcome:
    """Write a batch whole and once, however often this is called for it.

    `write` puts frames and offsets into the batch; it is called again if tasks were lost that had
    already written, and not at all if the batch was written before. `topics` are those that it may
    write to, as far as they are known. SupersededError: another instance of the query has started
    since.
    """
    properties = client_properties(bootstrap, kafka or {})
    cluster = cluster_for(properties)
    instance = _instances.of(name, properties)

    def attempt() -> BatchOutcome:
        return write_transaction(
            cluster,
            name,
            lambda transaction: write(TransactionalBatch(transaction)),
            topics=topics,
            timeout_ms=timeout_ms,
            instance=instance,
        )

    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return attempt()
        except Refused as refusal:
            if refusal.code is not OVERLAP:
                raise
    return attempt()


def exactly_once(
    request: WriteRequest,
    *,
    query: str | None = None,
    checkpoint: str | Path | None = None,
    timeout_ms: int = TIMEOUT_MS,
    tracing: "Tracing | None" = None,
) -> Callable[["DataFrame", int], None]:
    """A function for `foreachBatch` that writes every micro-batch once, as one transaction.

    Schemas are registered, or looked up, now: what the registry refuses stops the job before it
    starts, and so does a topic that does not exist. `query` names the writer instead of the topic
    and Spark's query id; only one query at a time may use it. `checkpoint` is the query's
    `checkpointLocation`; it is needed over Spark Connect only. With `tracing` each micro-batch is a
    span, and the headers of its records name it unless they name another one.
    """
    prepared = request.prepared()
    if prepared.topic is not None:
        connected_cluster(prepared.properties).run(partitions_of([prepared.topic]))
    location = None if checkpoint is None else str(checkpoint)
    return ExactlyOnce(prepared, query, timeout_ms, location, tracing)


def record_batches(frame: "DataFrame", request: WriteRequest) -> "DataFrame":
    """A frame, batch or streaming, as record batches for `format("penstock")` to write.

    Every Kafka partition is in one task, as a transaction needs it, whatever the layout was. Makes
    the frame's session the active one of this thread: writers by `format` are looked up there.
    """
    from penstock.spark.spark_session import activate

    activate(frame.sparkSession)
    return packed_by_partition(frame, request.prepared().plan(frame.columns))


class ExactlyOnce:
    """What `exactly_once` returns: called by Spark with each micro-batch."""

    def __init__(
        self,
        request: WriteRequest,
        query: str | None,
        timeout_ms: int,
        checkpoint: str | None,
        tracing: "Tracing | None" = None,
    ) -> None:
        self._request = request
        self._tracing = tracing
        self._query = query
        self._timeout_ms = timeout_ms
        self._checkpoint = checkpoint
        self._checked: object = None  # the columns that are known to fit

    def __call__(self, frame: "DataFrame", batch_id: int) -> None:
        """Write the batch, unless it is written."""
        tracing, request = self._tracing, self._request
        if tracing is None:
            self._write(frame, batch_id, request)
            return
        with tracing.sending(request.topic or "topics") as span:
            span.set_attribute("penstock.batch.id", batch_id)
            trace = tuple(tracing.headers_of(span))
            self._write(frame, batch_id, replace(request, trace=trace))

    def _write(self, frame: "DataFrame", batch_id: int, request: WriteRequest) -> None:
        prefix = request.topic or request.topic_column or "topics"
        name = batch_name(frame, batch_id, self._query, prefix=prefix, checkpoint=self._checkpoint)
        _claims.claim(name, self)
        if frame.schema != self._checked:
            check_frame(frame, request.plan(frame.columns))
            self._checked = frame.schema
        outcome = in_transaction(
            name,
            lambda batch: batch.write(frame, request),
            bootstrap=request.bootstrap,
            kafka=request.kafka,
            topics=[] if request.topic is None else [request.topic],
            timeout_ms=self._timeout_ms,
        )
        compute_if_written_before(frame, outcome)


def compute_if_written_before(frame: "DataFrame", outcome: BatchOutcome) -> None:
    """Compute a batch that was written before, because that is what advances its query's state.

    Otherwise Spark would later look for the state of a batch that it has never computed.
    """
    if outcome is BatchOutcome.WRITTEN_BEFORE:
        frame.write.format("noop").mode("overwrite").save()


class _Claims:
    """Which sink of this process writes under which name: two under one would skip each other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[str, tuple[str, int, object]] = {}  # query -> run, batch, sink

    def claim(self, name: BatchName, sink: object) -> None:
        """Note that a sink writes a batch; Refused if another has, in the same run of a query."""
        with self._lock:
            last = self._last.pop(name.query, None)
            self._last[name.query] = (name.run, name.batch_id, sink)
            while len(self._last) > INSTANCES_MAX:
                del self._last[next(iter(self._last))]
        if last is not None and last[:2] == (name.run, name.batch_id) and last[2] is not sink:
            raise Refused(
                ErrorCode.invalid_request,
                f"two sinks write {name} under one name, so the second would be mistaken for a"
                " repetition of the first: give each its own `query`",
            )


_claims = _Claims()


class _Instances:
    """The instances of queries that write from this process, by name and run.

    The least recently used is dropped once there are more than INSTANCES_MAX; if it writes again,
    it takes the transactional id as a new instance does.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_run: dict[tuple[str, str, str], Instance] = {}

    def of(self, name: BatchName, properties: Mapping[str, str]) -> Instance:
        """The instance that a batch belongs to."""
        if not name.run:
            return Instance()
        key = (properties[BOOTSTRAP], name.query, name.run)
        with self._lock:
            instance = self._by_run.pop(key, None) or Instance()
            self._by_run[key] = instance
            while len(self._by_run) > INSTANCES_MAX:
                del self._by_run[next(iter(self._by_run))]
        return instance


_instances = _Instances()


def batch_name(
    frame: "DataFrame",
    batch_id: int,
    query: str | None = None,
    *,
    prefix: str = "",
    checkpoint: str | Path | None = None,
) -> BatchName:
    """Which batch of which query this frame is, inside `foreachBatch`.

    `query` is the writer's name; without it, that is `prefix` and Spark's query id. Over Spark
    Connect the query id is read from the checkpoint: `checkpoint` is its location.
    """
    session = frame.sparkSession
    if is_classic(session):
        query_id = session.sparkContext.getLocalProperty(_QUERY_ID)
        run = str(session.sparkContext.getLocalProperty(_RUN_ID))
    else:
        query_id = None if checkpoint is None else _query_id_in(session, str(checkpoint))
        run = _run_of_process()
    if query_id is None:
        reason = _NO_BATCH if is_classic(session) else _NO_CHECKPOINT
        raise Refused(ErrorCode.invalid_request, reason)
    default = f"{prefix}.{query_id}" if prefix else query_id
    return BatchName(query or default, query_id, batch_id, run)


@lru_cache(maxsize=_CHECKPOINTS_MAX)
def _query_id_in(session: "SparkSession", checkpoint: str) -> str:
    """The query's id, which Spark writes into a checkpoint when it is created."""
    rows = session.read.text(f"{checkpoint.rstrip('/')}/metadata").collect()
    query_id: str = json.loads("".join(row[0] for row in rows))["id"]
    return query_id


@cache
def _run_of_process() -> str:
    """Spark Connect starts a process for each start of a query with `foreachBatch`."""
    return uuid.uuid4().hex


def check_frame(frame: "DataFrame", plan: WritePlan) -> None:
    """Raise if the columns cannot be written as planned, before any row is computed."""
    from penstock.spark.spark_types import arrow_schema

    check_columns(plan, arrow_schema(planned_columns(frame, plan).schema))
