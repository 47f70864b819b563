"""Frames into topics exactly once: for `foreachBatch`, and as a piece to build with.

    df.writeStream.foreachBatch(exactly_once("revenue", key="store", schema=Path("revenue.avsc"),
        registry="http://127.0.0.1:8081", bootstrap_servers="127.0.0.1:9092"))

Tasks that have the rows pack them into record batches (`packing`), which are written under the
handle of the batch's transaction (`write_jobs`, `writing`, `transacting`).
"""

import json
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.errors import ErrorCode, Refused
from penstock.link.offsets import partitions_of
from penstock.link.transactions import TransactionHandle
from penstock.model import Offset, TopicPartition
from penstock.serde.contract import Contract
from penstock.spark.batch_transaction import (
    ALREADY_WRITTEN,
    TIMEOUT_MS,
    BatchName,
    Instance,
    OpenTransaction,
    Outcome,
    transact,
)
from penstock.spark.connections import BOOTSTRAP, cluster, is_classic, kafka_properties, reached
from penstock.spark.pack_rows import check_columns
from penstock.spark.write_jobs import (
    WriteFailed,
    laid_out,
    planned,
    turns_for,
    written,
    written_by_turns,
)
from penstock.spark.write_options import (
    WritePlan,
    WriteRequest,
    contract_of,
    framing_of,
    prepared,
)
from penstock.spark.write_task import WriteTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WRITES_MAX: Final = 3  # of one batch, where tasks were lost that had written
_QUERY_ID: Final = "sql.streaming.queryId"
_RUN_ID: Final = "spark.jobGroup.id"  # another one after a restart on the same checkpoint
INSTANCES_MAX: Final = 1_000
_CHECKPOINTS_MAX: Final = 8
_NO_BATCH: Final = (
    'this frame is no micro-batch: use foreachBatch, or write it with df.write.format("penstock")'
)
_NO_CHECKPOINT: Final = (
    "over Spark Connect a batch is known by its checkpoint: give exactly_once(..., checkpoint=...),"
    " the same location as the query's checkpointLocation"
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
        """Write a frame, once or more often, to any topics; how many records.

        What is written first to a partition comes first there.
        """
        plan = request.plan(frame.columns)
        transaction = self._transaction
        sequences = dict(transaction.sequences)
        target = WriteTarget(request.properties, transaction.handle, sequences)
        with turns_for(frame, sequences) as turns:
            if turns is None:
                return transaction.note(written(laid_out(frame, plan), target))
            told = written_by_turns(frame, plan, target, turns)
            return transaction.note_turns(told, turns.end_sequences())

    def add_offsets(
        self, group: str, offsets: Mapping[TopicPartition, Offset], *, metadata: str = ""
    ) -> None:
        """Commit a group's offsets with the batch."""
        self._transaction.add_offsets(group, offsets, metadata=metadata)


def in_transaction(
    name: BatchName,
    properties: Mapping[str, str],
    write: Callable[[TransactionalBatch], object],
    *,
    topics: Iterable[str] = (),
    timeout_ms: int = TIMEOUT_MS,
) -> Outcome:
    """Write a batch whole and once, however often it is asked for.

    `write` puts frames and offsets into the batch; it is called again when tasks were lost that had
    written already, and not at all when the batch was written before. Superseded: another instance
    of the query has started since.
    """
    brokers = cluster(properties)
    instance = _instances.of(name, properties)

    def attempt() -> Outcome:
        return transact(
            brokers,
            name,
            lambda transaction: write(TransactionalBatch(transaction)),
            topics=topics,
            timeout_ms=timeout_ms,
            instance=instance,
        )

    for _ in range(WRITES_MAX - 1):
        try:
            return attempt()
        except (WriteFailed, Refused) as failure:
            if ALREADY_WRITTEN not in str(failure):
                raise
    return attempt()


def exactly_once(
    topic: str | None = None,
    *,
    topic_column: str | None = None,
    key: str | Sequence[str] | None = None,
    value: str | Sequence[str] | None = None,
    schema: Contract | str | Path | None = None,
    key_schema: Contract | str | Path | None = None,
    registry: str | None = None,
    headers: str | None = None,
    partition: str | None = None,
    timestamp: str | None = None,
    query: str | None = None,
    checkpoint: str | Path | None = None,
    timeout_ms: int = TIMEOUT_MS,
    **kafka: str,
) -> Callable[["DataFrame", int], None]:
    """A function for `foreachBatch` that writes every micro-batch once, as one transaction.

    Schemas are registered, or looked up, now: what the registry refuses stops the job before it
    starts. `kafka` has a client's properties with underscores for dots, `bootstrap_servers` first.
    `query` names the writer in place of the topic and Spark's query id: one at a time may use it.
    `checkpoint` is the query's `checkpointLocation`; Spark Connect needs it, and only there.
    """
    request = _request(
        topic=topic,
        topic_column=topic_column,
        key=key,
        value=value,
        schema=schema,
        key_schema=key_schema,
        registry=registry,
        headers=headers,
        partition=partition,
        timestamp=timestamp,
        kafka=kafka,
    )
    if topic is not None:
        reached(request.properties).run(partitions_of([topic]))  # one that is not there fails here
    place = None if checkpoint is None else str(checkpoint)
    return ExactlyOnce(request, query, timeout_ms, place)


def record_batches(
    frame: "DataFrame",
    topic: str | None = None,
    *,
    topic_column: str | None = None,
    key: str | Sequence[str] | None = None,
    value: str | Sequence[str] | None = None,
    schema: Contract | str | Path | None = None,
    key_schema: Contract | str | Path | None = None,
    registry: str | None = None,
    headers: str | None = None,
    partition: str | None = None,
    timestamp: str | None = None,
    **kafka: str,
) -> "DataFrame":
    """A frame, batch or streaming, as record batches laid out for `format("penstock")` to write.

    Every Kafka partition is in one task, as a transaction needs it, whatever the layout was. Its
    session is the active one of this thread from now on: writers by `format` are looked up there.
    """
    from penstock.spark.session import activate

    activate(frame.sparkSession)
    request = _request(
        topic=topic,
        topic_column=topic_column,
        key=key,
        value=value,
        schema=schema,
        key_schema=key_schema,
        registry=registry,
        headers=headers,
        partition=partition,
        timestamp=timestamp,
        kafka=kafka,
    )
    return laid_out(frame, request.plan(frame.columns))


def _request(
    *,
    topic: str | None,
    topic_column: str | None,
    key: str | Sequence[str] | None,
    value: str | Sequence[str] | None,
    schema: Contract | str | Path | None,
    key_schema: Contract | str | Path | None,
    registry: str | None,
    headers: str | None,
    partition: str | None,
    timestamp: str | None,
    kafka: Mapping[str, str],
) -> WriteRequest:
    properties = kafka_properties(
        {f"kafka.{name.replace('_', '.')}": str(value) for name, value in kafka.items()}
    )
    return prepared(
        WriteRequest(
            properties=properties,
            topic=topic,
            topic_column=topic_column,
            key=key,
            value=value,
            key_schema=contract_of(key_schema),
            schema=contract_of(schema),
            headers=headers,
            partition=partition,
            timestamp=timestamp,
            registry_url=registry,
            framing=framing_of(properties),
        )
    )


class ExactlyOnce:
    """What `exactly_once` makes: called by Spark with each micro-batch."""

    def __init__(
        self, request: WriteRequest, query: str | None, timeout_ms: int, checkpoint: str | None
    ) -> None:
        self._request = request
        self._query = query
        self._timeout_ms = timeout_ms
        self._checkpoint = checkpoint
        self._checked: object = None  # the columns that are known to fit

    def __call__(self, frame: "DataFrame", batch_id: int) -> None:
        """Write the batch, unless it has been."""
        request = self._request
        told = request.topic or request.topic_column or "topics"
        name = batch_name(frame, batch_id, self._query, told, checkpoint=self._checkpoint)
        _claims.claim(name, self)
        if frame.schema != self._checked:
            check_frame(frame, request.plan(frame.columns))
            self._checked = frame.schema
        outcome = in_transaction(
            name,
            request.properties,
            lambda batch: batch.write(frame, request),
            topics=[] if request.topic is None else [request.topic],
            timeout_ms=self._timeout_ms,
        )
        run_through(frame, outcome)


def run_through(frame: "DataFrame", outcome: Outcome) -> None:
    """Run a batch that was written before, for the state of its query: nothing else moves that on.

    Without it Spark would look for the state of a batch that it has never worked out.
    """
    if outcome is Outcome.WRITTEN_BEFORE:
        frame.write.format("noop").mode("overwrite").save()


class _Claims:
    """Which sink of this process writes under which name: two under one would skip each other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[str, tuple[str, int, object]] = {}  # query -> run, batch, sink

    def claim(self, name: BatchName, sink: object) -> None:
        """Note that a sink writes a batch; Refused if another has, in the same run of a query."""
        with self._lock:
            last = self._last.get(name.query)
            self._last[name.query] = (name.run, name.batch_id, sink)
        if last is not None and last[:2] == (name.run, name.batch_id) and last[2] is not sink:
            raise Refused(
                ErrorCode.invalid_request,
                f"two sinks write {name} under one name, so the second would be taken for a repeat"
                " of the first: give each its own `query`",
            )


_claims = _Claims()


class _Instances:
    """The instances of queries that write from this process, by name and run.

    The one used longest ago is dropped once there are more than INSTANCES_MAX; should it write
    again, it takes the transactional id as a new instance would.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str, str], Instance] = {}

    def of(self, name: BatchName, properties: Mapping[str, str]) -> Instance:
        """The instance that a batch belongs to."""
        if not name.run:
            return Instance()
        key = (properties[BOOTSTRAP], name.query, name.run)
        with self._lock:
            found = self._known.pop(key, None) or Instance()
            self._known[key] = found
            while len(self._known) > INSTANCES_MAX:
                del self._known[next(iter(self._known))]
        return found


_instances = _Instances()


def batch_name(
    frame: "DataFrame",
    batch_id: int,
    query: str | None,
    told: str,
    *,
    checkpoint: str | Path | None = None,
) -> BatchName:
    """Which batch of whom this frame is, as Spark tells inside `foreachBatch`.

    Over Spark Connect only the checkpoint tells it: `checkpoint` is its location.
    """
    session = frame.sparkSession
    if is_classic(session):
        query_id = session.sparkContext.getLocalProperty(_QUERY_ID)
        run = str(session.sparkContext.getLocalProperty(_RUN_ID))
    else:
        query_id = None if checkpoint is None else _query_id_in(session, str(checkpoint))
        run = _run_of_process()
    if query_id is None:
        why = _NO_BATCH if is_classic(session) else _NO_CHECKPOINT
        raise Refused(ErrorCode.invalid_request, why)
    return BatchName(query or f"{told}.{query_id}", query_id, batch_id, run)


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
    """Raises if the columns cannot be written as planned, before any row is looked at."""
    from penstock.spark.spark_columns import arrow_schema

    check_columns(plan, arrow_schema(planned(frame, plan).schema))
