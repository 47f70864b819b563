"""Transactions by hand: started in one process, written by others, ended by any with the handle.

Transaction protocol 2 only (a batch adds its own partition, the end raises the epoch): there a
stale writer cannot add records to a later transaction, and an end may be repeated until it has a
response. A commit is done when its response has no error; any refusal means that it is not.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.errors import ErrorCode, Refused
from penstock.link.offsets import GroupOffset, accept_rows, by_topic, offset_rows
from penstock.link.operation import Request, Steps, request_of
from penstock.link.routing import CoordinatorKind, Results, Routes, operation
from penstock.model import Millis, Offset, ProducerEpoch, ProducerId, TopicPartition
from penstock.protocol.messages.transaction_admin import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    DescribedProducer,
    DescribedTransaction,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
    DescribeTransactionsRequest,
)
from penstock.protocol.messages.transactions import (
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
    WRITE_TXN_MARKERS,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    MarkerTopic,
    TransactionMarker,
    TxnOffsetCommitRequest,
    TxnOffsetCommitTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_PROTOCOL_2: Final = 5  # of EndTxn and TxnOffsetCommit
_EXPECTED_PRODUCER_FROM: Final = 3  # InitProducerId with the producer that the client expects

_HINTS: Final = {
    ErrorCode.producer_fenced: "another process took over the transactional id",
    ErrorCode.invalid_producer_epoch: "another process took over the transactional id",
    ErrorCode.invalid_txn_state: "it ended before, or it timed out and was aborted",
    ErrorCode.invalid_producer_id_mapping: "the broker no longer knows this transactional id",
    ErrorCode.invalid_transaction_timeout: "the broker's transaction.max.timeout.ms is less",
}


class TransactionHandle(NamedTuple):
    """What a process needs to take part in a transaction."""

    transactional_id: str | None  # None: an idempotent producer outside any transaction
    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class TransactionDescription(NamedTuple):
    """One transactional id, as its coordinator knows it."""

    transactional_id: str
    state: str  # Empty, Ongoing, PrepareCommit, CompleteCommit, …
    timeout_ms: int
    started_at: Millis | None
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: tuple[TopicPartition, ...]


class PartitionProducer(NamedTuple):
    """A producer that a partition remembers."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    last_sequence: int
    coordinator_epoch: int
    transaction_start: Offset | None  # of its open transaction here


@operation
def init_producer_id(
    routes: Routes,
    transactional_id: str | None = None,
    *,
    timeout_ms: int = 60_000,
    previous: TransactionHandle | None = None,
) -> Steps[TransactionHandle]:
    """A new producer; with an id, the producer before it is fenced and its transaction aborted.

    With `previous`, the handle that this process used last (its transaction ended), it continues as
    the same producer, and is refused if another process took the id since (KIP-360).
    """
    body = InitProducerIdRequest(transactional_id, timeout_ms)
    if previous is not None:
        body = body._replace(
            producer_id=previous.producer_id, producer_epoch=previous.producer_epoch
        )
    request = request_of(
        INIT_PRODUCER_ID,
        body,
        version_min=0 if previous is None else _EXPECTED_PRODUCER_FROM,
        version_max=5,  # later ones are for two-phase commit
    )
    what = "a producer id" + (f" for {transactional_id}" if transactional_id else "")

    def attempt() -> Steps[TransactionHandle]:
        if transactional_id is None:
            response = yield from routes.send_to_any(request)
        else:
            kind = CoordinatorKind.TRANSACTION
            response = yield from routes.send_to_coordinator(kind, transactional_id, request)
        _accept(response.error_code, what)
        return _handle(transactional_id, response)

    return (yield from routes.with_retries(what, attempt, _invalidating(routes, transactional_id)))


@operation
def add_offsets(
    routes: Routes,
    handle: TransactionHandle,
    group: str,
    offsets: Mapping[TopicPartition, Offset],
    *,
    metadata: str = "",
) -> Steps[None]:
    """Commit a group's offsets in the transaction: visible only when it commits."""
    assert handle.transactional_id is not None, "a transaction has an id"
    rows = {partition: GroupOffset(offset, metadata) for partition, offset in offsets.items()}
    topics = [TxnOffsetCommitTopic(*row) for row in offset_rows(rows).items()]
    body = TxnOffsetCommitRequest(
        handle.transactional_id, group, handle.producer_id, handle.producer_epoch, topics
    )
    request = request_of(TXN_OFFSET_COMMIT, body, version_min=_PROTOCOL_2)
    what = f"offsets of group {group} in transaction {handle.transactional_id}"

    def attempt() -> Steps[None]:
        response = yield from routes.send_to_coordinator(CoordinatorKind.GROUP, group, request)
        for topic, rows in response.topics:
            accept_rows(what, topic, rows)

    def invalidate() -> None:
        routes.invalidate_coordinator(CoordinatorKind.GROUP, group)

    yield from routes.with_retries(what, attempt, invalidate)


@operation
def end_transaction(
    routes: Routes, handle: TransactionHandle, *, commit: bool
) -> Steps[TransactionHandle]:
    """Commit or abort; returns the handle for the next transaction.

    May be repeated with the same handle until it returns, by any process.
    """
    assert handle.transactional_id is not None, "a transaction has an id"
    transactional_id = handle.transactional_id
    body = EndTxnRequest(transactional_id, handle.producer_id, handle.producer_epoch, commit)
    request = request_of(END_TXN, body, version_min=_PROTOCOL_2)
    what = f"{'commit' if commit else 'abort'} of transaction {transactional_id}"

    def attempt() -> Steps[TransactionHandle]:
        kind = CoordinatorKind.TRANSACTION
        response = yield from routes.send_to_coordinator(kind, transactional_id, request)
        _accept(response.error_code, what)
        return _handle(transactional_id, response)

    return (yield from routes.with_retries(what, attempt, _invalidating(routes, transactional_id)))


@operation
def describe_transaction(
    routes: Routes, transactional_id: str
) -> Steps[TransactionDescription | None]:
    """The coordinator's last state of an id; None if it no longer knows it."""
    request = request_of(DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest([transactional_id]))
    what = f"state of transaction {transactional_id}"

    def attempt() -> Steps[TransactionDescription | None]:
        kind = CoordinatorKind.TRANSACTION
        response = yield from routes.send_to_coordinator(kind, transactional_id, request)
        (row,) = response.transaction_states
        if row.error_code is ErrorCode.transactional_id_not_found:
            return None
        if row.error_code is not ErrorCode.none:
            raise Refused(row.error_code, f"{what}: {row.error_code.name}")
        return _description(row)

    return (yield from routes.with_retries(what, attempt, _invalidating(routes, transactional_id)))


@operation
def describe_producers(
    routes: Routes, partitions: Iterable[TopicPartition]
) -> Steps[dict[TopicPartition, list[PartitionProducer]]]:
    """The recent producers of these partitions, and which have a transaction open there."""

    def write(some: Sequence[TopicPartition]) -> Request[DescribeProducersResponse]:
        topics = [DescribeProducersTopic(*row) for row in by_topic(some).items()]
        return request_of(DESCRIBE_PRODUCERS, DescribeProducersRequest(topics))

    return (
        yield from routes.for_each_leader("describe producers", partitions, write, _read_producers)
    )


@operation
def unmarked_partitions(
    routes: Routes, handle: TransactionHandle, partitions: Iterable[TopicPartition]
) -> Steps[dict[TopicPartition, PartitionProducer]]:
    """Where the marker of a transaction that has ended is not written yet."""
    producers = yield from describe_producers(partitions)(routes)
    return {
        partition: row
        for partition, rows in producers.items()
        for row in rows
        if row.producer_id == handle.producer_id and row.transaction_start is not None
    }


@operation
def write_markers(
    routes: Routes,
    ended: TransactionHandle,
    unmarked: Mapping[TopicPartition, PartitionProducer],
    *,
    commit: bool,
) -> Steps[None]:
    """Write the markers that a broker decided on and failed to write (KAFKA-20734).

    `ended` is the handle that `end_transaction` returned. Only what the coordinator decided may be
    written here: check `describe_transaction` first.
    """

    def write(some: Sequence[TopicPartition]) -> Request[WriteTxnMarkersResponse]:
        return _markers_request(
            ended, {partition: unmarked[partition] for partition in some}, commit
        )

    yield from routes.for_each_leader("write markers", unmarked, write, _read_markers)


def _markers_request(
    ended: TransactionHandle, unmarked: Mapping[TopicPartition, PartitionProducer], commit: bool
) -> Request[WriteTxnMarkersResponse]:
    markers = [
        TransactionMarker(
            ended.producer_id,
            ended.producer_epoch,
            commit,
            [MarkerTopic(name, [index])],
            max(0, producer.coordinator_epoch),
        )
        for (name, index), producer in unmarked.items()
    ]
    return request_of(WRITE_TXN_MARKERS, WriteTxnMarkersRequest(markers), version_max=1)


def _read_markers(response: WriteTxnMarkersResponse) -> Results[bool]:
    for marker in response.markers:
        for topic in marker.topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.name, row.partition_index)
                code = row.error_code
                is_written = code is ErrorCode.none
                refusal = Refused(code, f"marker for {partition}: {code.name}")
                yield partition, is_written or refusal


def _read_producers(response: DescribeProducersResponse) -> Results[list[PartitionProducer]]:
    for topic in response.topics:
        for row in topic.partitions:
            partition = TopicPartition(topic.name, row.partition_index)
            code = row.error_code
            if code is ErrorCode.none:
                yield partition, [_producer(producer) for producer in row.active_producers]
            else:
                reason = row.error_message or code.name
                yield partition, Refused(code, f"producers of {partition}: {reason}")


def _producer(row: DescribedProducer) -> PartitionProducer:
    start = row.current_txn_start_offset
    return PartitionProducer(
        ProducerId(row.producer_id),
        ProducerEpoch(row.producer_epoch),
        row.last_sequence,
        row.coordinator_epoch,
        Offset(start) if start >= 0 else None,
    )


def _description(row: DescribedTransaction) -> TransactionDescription:
    started_at = row.transaction_start_time_ms
    return TransactionDescription(
        row.transactional_id,
        row.transaction_state,
        row.transaction_timeout_ms,
        Millis(started_at) if started_at >= 0 else None,
        ProducerId(row.producer_id),
        ProducerEpoch(row.producer_epoch),
        tuple(TopicPartition(name, index) for name, indexes in row.topics for index in indexes),
    )


def _handle(
    transactional_id: str | None, response: InitProducerIdResponse | EndTxnResponse
) -> TransactionHandle:
    producer_id, epoch = ProducerId(response.producer_id), ProducerEpoch(response.producer_epoch)
    return TransactionHandle(transactional_id, producer_id, epoch)


def _invalidating(routes: Routes, transactional_id: str | None) -> Callable[[], None]:
    def invalidate() -> None:
        if transactional_id is not None:
            routes.invalidate_coordinator(CoordinatorKind.TRANSACTION, transactional_id)

    return invalidate


def _accept(code: ErrorCode, what: str) -> None:
    if code is not ErrorCode.none:
        raise Refused(code, f"{what}: {_HINTS.get(code, code.name)}")
