"""Transactions by hand: begun in one process, written in by others, ended by any with the handle.

Transaction protocol 2 only (a batch adds its own partition, the end raises the epoch): there a
writer left behind cannot add rows to a later transaction, and an end may be repeated until it is
answered. A commit is done when it is answered without an error; any refusal means it is not.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from penstock.errors import ErrorCode, Refused
from penstock.link.offsets import accept_rows, offset_rows
from penstock.link.operation import Ask, Request, Steps, ask_all, plain
from penstock.link.routing import Coordinates, Routes, operation
from penstock.model import Offset, ProducerEpoch, ProducerId, TopicPartition
from penstock.protocol.api import Api
from penstock.protocol.messages.transactions import TransactionState, read_states_answer

_PROTOCOL_2: Final = 5  # of EndTxn and TxnOffsetCommit
_EXPECTS_FROM: Final = 3  # InitProducerId with the producer that the client believes to be

_HINTS: Final = {
    ErrorCode.producer_fenced: "another process has taken over the transactional id",
    ErrorCode.invalid_producer_epoch: "another process has taken over the transactional id",
    ErrorCode.invalid_txn_state: "it was ended already, or it timed out and was aborted",
    ErrorCode.invalid_producer_id_mapping: "the broker has forgotten this transactional id",
    ErrorCode.invalid_transaction_timeout: "the broker's transaction.max.timeout.ms is less",
}


class Handle(NamedTuple):
    """All that a process must know to act in a transaction."""

    transactional_id: str | None  # None: an idempotent producer outside any transaction
    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class ActiveProducer(NamedTuple):
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
    previous: Handle | None = None,
) -> Steps[Handle]:
    """A new producer; with an id, whoever had it before is fenced and left-overs are aborted.

    With `previous`, the handle that this process used last (with its transaction ended), it goes on
    as the same producer, and is refused if another process has taken the id since (KIP-360).
    """
    expected = {}
    if previous is not None:
        expected = {
            "producer_id": previous.producer_id,
            "producer_epoch": previous.producer_epoch,
        }
    request = plain(
        Api.INIT_PRODUCER_ID,
        least=0 if previous is None else _EXPECTS_FROM,
        last=5,  # later ones are for two-phase commit
        transactional_id=transactional_id,
        transaction_timeout=timeout_ms,
        **expected,
    )
    what = "a producer id" + (f" for {transactional_id}" if transactional_id else "")

    def attempt() -> Steps[Handle]:
        if transactional_id is None:
            answer = yield from routes.ask_any(request)
        else:
            kind = Coordinates.TRANSACTION
            answer = yield from routes.ask_coordinator(kind, transactional_id, request)
        _accept(answer, what)
        return Handle(
            transactional_id, ProducerId(answer.producer_id), ProducerEpoch(answer.producer_epoch)
        )

    return (yield from routes.patiently(what, attempt, _doubting(routes, transactional_id)))


@operation
def add_offsets(
    routes: Routes,
    handle: Handle,
    group: str,
    offsets: Mapping[TopicPartition, Offset],
    *,
    metadata: str = "",
) -> Steps[None]:
    """Commit a group's offsets as part of the transaction: seen when it commits, and only then."""
    request = plain(
        Api.TXN_OFFSET_COMMIT,
        least=_PROTOCOL_2,
        transactional_id=handle.transactional_id,
        group_id=group,
        producer_id=handle.producer_id,
        producer_epoch=handle.producer_epoch,
        topics=offset_rows(offsets, metadata),
    )
    what = f"offsets of group {group} in transaction {handle.transactional_id}"

    def attempt() -> Steps[None]:
        answer = yield from routes.ask_coordinator(Coordinates.GROUP, group, request)
        accept_rows(answer, what)

    def doubt() -> None:
        routes.doubt_coordinator(Coordinates.GROUP, group)

    yield from routes.patiently(what, attempt, doubt)


@operation
def end_transaction(routes: Routes, handle: Handle, *, commit: bool) -> Steps[Handle]:
    """Commit or abort; the handle for the next transaction.

    May be called again with the same handle until it answers, by any process.
    """
    assert handle.transactional_id is not None, "there is no transaction without an id"
    request = plain(
        Api.END_TXN,
        least=_PROTOCOL_2,
        transactional_id=handle.transactional_id,
        producer_id=handle.producer_id,
        producer_epoch=handle.producer_epoch,
        committed=commit,
    )
    transactional_id = handle.transactional_id
    what = f"{'commit' if commit else 'abort'} of transaction {transactional_id}"

    def attempt() -> Steps[Handle]:
        kind = Coordinates.TRANSACTION
        answer = yield from routes.ask_coordinator(kind, transactional_id, request)
        _accept(answer, what)
        return Handle(
            transactional_id, ProducerId(answer.producer_id), ProducerEpoch(answer.producer_epoch)
        )

    return (yield from routes.patiently(what, attempt, _doubting(routes, transactional_id)))


@operation
def describe_transaction(routes: Routes, transactional_id: str) -> Steps[TransactionState | None]:
    """What the coordinator last knew of an id; None if it has forgotten it."""
    asked = plain(Api.DESCRIBE_TRANSACTIONS, last=0, transactional_ids=[transactional_id])
    request = Request(asked.api_key, asked.write, lambda _: read_states_answer, last=0)
    what = f"state of transaction {transactional_id}"

    def attempt() -> Steps[TransactionState | None]:
        kind = Coordinates.TRANSACTION
        (state,) = yield from routes.ask_coordinator(kind, transactional_id, request)
        code = ErrorCode(state.error_code)
        if code is ErrorCode.transactional_id_not_found:
            return None
        if code is not ErrorCode.none:
            raise Refused(code, f"{what}: {code.name}")
        found: TransactionState = state
        return found

    return (yield from routes.patiently(what, attempt, _doubting(routes, transactional_id)))


@operation
def describe_producers(
    routes: Routes, partitions: Iterable[TopicPartition]
) -> Steps[dict[TopicPartition, list[ActiveProducer]]]:
    """Who has written to these partitions lately, and who has a transaction open there."""
    wanted = list(partitions)
    found: dict[TopicPartition, list[ActiveProducer]] = {}

    def attempt() -> Steps[None]:
        by_broker = yield from routes.leaders(p for p in wanted if p not in found)
        asks = [
            Ask(address, plain(Api.DESCRIBE_PRODUCERS, topics=_indexes(places)))
            for address, places in by_broker.items()
        ]
        failure: Exception | None = None
        for outcome in (yield from ask_all(asks)):
            if isinstance(outcome, Exception):
                failure = outcome
            else:
                failure = _take_producers(outcome, found) or failure
        if failure is not None:
            raise failure

    def doubt() -> None:
        routes.doubt_topics({partition.topic for partition in wanted})

    yield from routes.patiently("describe producers", attempt, doubt, progress=lambda: len(found))
    return found


@operation
def unmarked_partitions(
    routes: Routes, handle: Handle, partitions: Iterable[TopicPartition]
) -> Steps[dict[TopicPartition, ActiveProducer]]:
    """Where the end of a transaction has not been written (yet), though it is decided."""
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
    ended: Handle,
    unmarked: Mapping[TopicPartition, ActiveProducer],
    *,
    commit: bool,
) -> Steps[None]:
    """Write by hand the end that a broker has decided and failed to write (KAFKA-20734).

    `ended` is the handle that `end_transaction` answered. Nothing but what the coordinator has
    decided may be written here: check `describe_transaction` first.
    """
    done: set[TopicPartition] = set()

    def attempt() -> Steps[None]:
        by_broker = yield from routes.leaders(p for p in unmarked if p not in done)
        asks = [
            Ask(address, _markers_request(ended, [(p, unmarked[p]) for p in places], commit))
            for address, places in by_broker.items()
        ]
        failure: Exception | None = None
        for outcome in (yield from ask_all(asks)):
            if isinstance(outcome, Exception):
                failure = outcome
            else:
                failure = _take_markers(outcome, done) or failure
        if failure is not None:
            raise failure

    def doubt() -> None:
        routes.doubt_topics({partition.topic for partition in unmarked})

    yield from routes.patiently("write markers", attempt, doubt, progress=lambda: len(done))


def _markers_request(
    ended: Handle, places: Sequence[tuple[TopicPartition, ActiveProducer]], commit: bool
) -> Request:
    markers = [
        {
            "producer_id": ended.producer_id,
            "producer_epoch": ended.producer_epoch,
            "transaction_result": commit,
            "topics": _indexes([partition]),
            "coordinator_epoch": max(0, producer.coordinator_epoch),
        }
        for partition, producer in places
    ]
    return plain(Api.WRITE_TXN_MARKERS, last=1, markers=markers)


def _take_markers(answer: Any, done: set[TopicPartition]) -> Refused | None:
    worst: Refused | None = None
    for marker in answer.markers:
        for topic in marker.topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.name, row.partition_index)
                code = ErrorCode(row.error_code)
                if code is ErrorCode.none:
                    done.add(partition)
                else:
                    worst = Refused(code, f"marker for {partition}: {code.name}")
    return worst


def _take_producers(
    answer: Any, found: dict[TopicPartition, list[ActiveProducer]]
) -> Refused | None:
    worst: Refused | None = None
    for topic in answer.topics:
        for row in topic.partitions:
            partition = TopicPartition(topic.name, row.partition_index)
            code = ErrorCode(row.error_code)
            if code is not ErrorCode.none:
                worst = Refused(code, f"producers of {partition}: {row.error_message or code.name}")
                continue
            found[partition] = [_producer(producer) for producer in row.active_producers]
    return worst


def _producer(row: Any) -> ActiveProducer:
    start = row.current_txn_start_offset
    return ActiveProducer(
        ProducerId(row.producer_id),
        ProducerEpoch(row.producer_epoch),
        row.last_sequence,
        row.coordinator_epoch,
        Offset(start) if start >= 0 else None,
    )


def _indexes(partitions: Iterable[TopicPartition]) -> list[dict[str, object]]:
    topics: dict[str, list[int]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    return [{"name": name, "partition_indexes": rows} for name, rows in topics.items()]


def _doubting(routes: Routes, transactional_id: str | None) -> Any:
    def doubt() -> None:
        if transactional_id is not None:
            routes.doubt_coordinator(Coordinates.TRANSACTION, transactional_id)

    return doubt


def _accept(answer: Any, what: str) -> None:
    code = ErrorCode(answer.error_code)
    if code is not ErrorCode.none:
        raise Refused(code, f"{what}: {_HINTS.get(code, code.name)}")
