"""The rules of one transactional id: which producer may do what. Nothing here changes state.

Refusals have the codes of the newest version of the request; handlers translate for older ones. A
decision sees the state as its log will have it, so there is no change in flight to wait for: only a
transaction whose markers are being written is refused with CONCURRENT_TRANSACTIONS.
"""

from typing import Final

from penstock.coordination.transactions.commands import (
    AddPartitions,
    Command,
    EndTransaction,
    IfMissing,
    InitProducer,
    MarkersWritten,
    MissingPartitions,
    ProducerIdentity,
    WriteMarkers,
)
from penstock.coordination.transactions.events import (
    DeadlineSet,
    Event,
    MarkersConfirmed,
    MarkersDue,
    TransactionSet,
)
from penstock.coordination.transactions.settings import TransactionSettings
from penstock.coordination.transactions.state import TransactionsState
from penstock.coordination.transactions.transaction_moves import (
    EPOCH_MAX,
    Transaction,
    TransactionState,
    completed,
    initialized,
    new_transaction,
    prepared,
    with_partitions,
)
from penstock.errors import ErrorCode, Refused
from penstock.machine import Outcome, Reply, Step
from penstock.model import (
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    Millis,
    Moment,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)

LAST_CLIENT_EPOCH: Final = EPOCH_MAX - 1  # beyond, the client gets a new producer id
FENCED: Final = "fenced by a new producer"
TIMED_OUT: Final = "timed out"
MARKER_RETRY_MS: Final = Millis(100)  # a marker that is not confirmed by then is sent again


def needs_producer_id(state: TransactionsState, command: Command) -> bool:
    """Whether deciding this command may use a new producer id: the shell gets one only then."""
    match command:
        case InitProducer():
            transaction = state.by_id.get(command.transactional_id)
            return transaction is None or transaction.is_epoch_exhausted
        case EndTransaction(raises_epoch=True):
            transaction = state.by_id.get(command.transactional_id)
            return transaction is not None and transaction.is_epoch_exhausted
        case _:
            return False


def decide_init(
    state: TransactionsState, command: InitProducer, settings: TransactionSettings, now: Moment
) -> Outcome[Event]:
    """Give the producer an epoch that fences all earlier ones, aborting what they left open."""
    if not command.transactional_id:
        raise Refused(ErrorCode.invalid_request, "a transactional id cannot be empty")
    if not 0 < command.timeout_ms <= settings.timeout_max_ms:
        raise Refused(
            ErrorCode.invalid_transaction_timeout,
            f"a transaction may last from 1 to {settings.timeout_max_ms} ms",
        )
    transaction = state.by_id.get(command.transactional_id)
    if transaction is None:
        assert command.new_producer_id != NO_PRODUCER
        transaction = new_transaction(
            command.transactional_id, command.new_producer_id, command.timeout_ms, now
        )
    _check_expected(transaction, command.expected)
    if transaction.state.is_ending:
        raise _concurrent()
    if transaction.state is TransactionState.ONGOING:
        if command.expected not in (None, producer_of(transaction)):
            raise _fenced()  # a producer that is fenced already must not abort its successor's work
        # No client gets the fencing epoch: the producer tries again and gets the next one.
        aborting = fenced(transaction, command.new_producer_id, now)
        return ending_outcome(aborting, now, FENCED, Reply(command.caller, _concurrent()))
    after = _initialize(transaction, command, now)
    return Outcome(
        events=(TransactionSet(after),),
        replies=(Reply(command.caller, producer_of(after)),),
        story=(_step(after, "producer initialized"),),
    )


def producer_of(transaction: Transaction) -> ProducerIdentity:
    """The producer that may use the transactional id."""
    return ProducerIdentity(transaction.producer_id, transaction.producer_epoch)


def _check_expected(transaction: Transaction, expected: ProducerIdentity | None) -> None:
    """A producer that names its identity must have the current one, or have missed a response."""
    if expected is None or transaction.producer_epoch == NO_PRODUCER_EPOCH:
        return
    if expected.producer_id == transaction.producer_id:
        return
    missed_replacement = (
        expected.producer_id == transaction.previous_producer_id
        and expected.producer_epoch >= LAST_CLIENT_EPOCH
    )
    if not missed_replacement:
        raise _fenced()


def _initialize(transaction: Transaction, command: InitProducer, now: Moment) -> Transaction:
    expected = command.expected
    epoch = transaction.producer_epoch
    if transaction.is_epoch_exhausted and (
        expected is None or expected.producer_epoch == transaction.producer_epoch
    ):
        return initialized(
            transaction,
            producer_id=command.new_producer_id,
            producer_epoch=ProducerEpoch(0),
            last_producer_epoch=NO_PRODUCER_EPOCH if expected is None else epoch,
            timeout_ms=command.timeout_ms,
            now=now,
        )
    raised = ProducerEpoch(epoch + 1)
    if expected is None:
        epochs = (raised, NO_PRODUCER_EPOCH)
    elif epoch in (NO_PRODUCER_EPOCH, expected.producer_epoch):
        epochs = (raised, epoch)
    elif expected.producer_epoch == transaction.last_producer_epoch:
        # a retry of a call that worked: a newer producer would have cleared the last epoch
        epochs = (epoch, transaction.last_producer_epoch)
    else:
        raise _fenced()
    return initialized(
        transaction,
        producer_epoch=epochs[0],
        last_producer_epoch=epochs[1],
        timeout_ms=command.timeout_ms,
        now=now,
    )


def decide_add(state: TransactionsState, command: AddPartitions, now: Moment) -> Outcome[Event]:
    """Add partitions to the transaction, or reply which are not in it."""
    if not command.transactional_id:
        raise Refused(ErrorCode.invalid_request, "a transactional id cannot be empty")
    transaction = _of_producer(state, command.transactional_id, command.producer)
    if transaction.producer_epoch != command.producer.producer_epoch:
        raise _fenced()
    if transaction.state.is_ending:
        raise _concurrent()
    missing = command.partitions - transaction.partitions
    if command.if_missing is IfMissing.REFUSE:
        return Outcome(replies=(Reply(command.caller, MissingPartitions(missing)),))
    replies = (Reply(command.caller, MissingPartitions(frozenset())),)
    is_open = transaction.state is TransactionState.ONGOING
    if is_open and not missing:
        return Outcome(replies=replies)
    after = with_partitions(transaction, command.partitions, command.client_version, now)
    if is_open:
        return Outcome(events=(TransactionSet(after),), replies=replies)
    deadline = DeadlineSet(after.transactional_id, Millis(now.steady + after.timeout_ms))
    return Outcome(
        events=(TransactionSet(after),),
        notes=(deadline,),
        replies=replies,
        story=(_step(after, "transaction opened"),),
    )


def _of_producer(
    state: TransactionsState, transactional_id: str, producer: ProducerIdentity
) -> Transaction:
    transaction = state.by_id.get(transactional_id)
    if transaction is None:
        raise _unmapped()
    _check_producer_id(transaction, producer.producer_id)
    return transaction


def _check_producer_id(transaction: Transaction, producer_id: ProducerId) -> None:
    if producer_id == transaction.producer_id:
        return
    if producer_id == transaction.next_producer_id:
        raise _concurrent()  # the producer has it already; in use once the markers are written
    raise _unmapped()


def decide_end(state: TransactionsState, command: EndTransaction, now: Moment) -> Outcome[Event]:
    """Commit or abort. A retry of an end that worked gets the same reply again."""
    if not command.transactional_id:
        raise Refused(ErrorCode.invalid_request, "a transactional id cannot be empty")
    transaction = state.by_id.get(command.transactional_id)
    if transaction is None:
        raise _unmapped()
    if command.raises_epoch:
        return _decide_raising_end(transaction, command, now)
    return _decide_end_in_epoch(transaction, command, now)


def _decide_end_in_epoch(
    transaction: Transaction, command: EndTransaction, now: Moment
) -> Outcome[Event]:
    """EndTxn up to 4: the epoch stays, so a repeated end looks like the first."""
    _check_producer_id(transaction, command.producer.producer_id)
    if transaction.producer_epoch != command.producer.producer_epoch:
        raise _fenced()
    if transaction.state is TransactionState.ONGOING:
        after = prepared(transaction, commit=command.commit, raises_epoch=False, now=now)
        return _ending(after, command, now)
    if transaction.state is _complete(command.commit):
        return Outcome(replies=(Reply(command.caller, command.producer),))
    if transaction.state is _prepare(command.commit):
        raise _concurrent()
    raise _impossible(transaction, command.commit)


def _decide_raising_end(
    transaction: Transaction, command: EndTransaction, now: Moment
) -> Outcome[Event]:
    """EndTxn 5 and later: the epoch before the raise marks a retry, the one after a new end."""
    epoch = command.producer.producer_epoch
    missed_replacement = (
        transaction.previous_producer_id == command.producer.producer_id
        and epoch == LAST_CLIENT_EPOCH
        and transaction.producer_epoch == 0
    )
    is_retry = missed_replacement or transaction.producer_epoch == epoch + 1
    if not missed_replacement:
        _check_producer_id(transaction, command.producer.producer_id)
    if not _is_epoch_fit(transaction, epoch, is_retry=is_retry):
        raise _fenced()
    new_producer_id = command.new_producer_id
    if transaction.state is TransactionState.ONGOING:
        after = _raised(transaction, new_producer_id, commit=command.commit, now=now)
        return _ending(after, command, now)
    if transaction.state is _prepare(command.commit):
        raise _concurrent()
    if is_retry and transaction.state is _complete(command.commit):
        return Outcome(replies=(Reply(command.caller, producer_of(transaction)),))
    if is_retry or command.commit or transaction.state.is_ending:
        raise _impossible(transaction, command.commit)
    # an abort of nothing is allowed: a client cannot know whether its first write arrived
    return _ending(_raised(transaction, new_producer_id, commit=False, now=now), command, now)


def _is_epoch_fit(transaction: Transaction, epoch: ProducerEpoch, *, is_retry: bool) -> bool:
    is_current = transaction.producer_epoch == epoch
    if transaction.state.is_ending:
        return is_retry
    if transaction.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
        return is_retry or is_current
    return is_current


def _raised(
    transaction: Transaction, new_producer_id: ProducerId, *, commit: bool, now: Moment
) -> Transaction:
    return prepared(
        transaction,
        commit=commit,
        raises_epoch=True,
        next_producer_id=new_producer_id if transaction.is_epoch_exhausted else NO_PRODUCER,
        now=now,
    )


def _ending(after: Transaction, command: EndTransaction, now: Moment) -> Outcome[Event]:
    producer = producer_of(after)
    if after.next_producer_id != NO_PRODUCER:
        producer = ProducerIdentity(after.next_producer_id, ProducerEpoch(0))
    reason = "commit requested" if command.commit else "abort requested"
    return ending_outcome(after, now, reason, Reply(command.caller, producer))


def fenced(transaction: Transaction, new_producer_id: ProducerId, now: Moment) -> Transaction:
    """Abort in place of the producer, under an epoch that it does not know."""
    return _raised(transaction, new_producer_id, commit=False, now=now)


def ending_outcome(after: Transaction, now: Moment, reason: str, *replies: Reply) -> Outcome[Event]:
    """Log the outcome, then send markers; without partitions it is complete immediately."""
    story = (_step(after, reason),)
    if not after.partitions:
        return Outcome(
            events=(TransactionSet(after), TransactionSet(completed(after, now))),
            replies=replies,
            story=story,
        )
    return Outcome(
        events=(TransactionSet(after),),
        notes=(MarkersDue(after.transactional_id, Millis(now.steady + MARKER_RETRY_MS)),),
        replies=replies,
        sends=(markers_of(after, after.partitions),),
        story=story,
    )


def markers_of(transaction: Transaction, partitions: frozenset[TopicPartition]) -> WriteMarkers:
    """The markers that these partitions of an ending transaction still need."""
    return WriteMarkers(
        transaction.transactional_id,
        producer_of(transaction),
        commit=transaction.state is TransactionState.PREPARE_COMMIT,
        partitions=partitions,
    )


def decide_markers_written(
    state: TransactionsState, report: MarkersWritten, now: Moment
) -> Outcome[Event]:
    """Complete when the last partition has its marker; a report about an older end is ignored."""
    transaction = state.by_id.get(report.transactional_id)
    if transaction is None or not transaction.state.is_ending:
        return Outcome()
    if report.producer != producer_of(transaction):
        return Outcome()
    if state.unmarked[report.transactional_id] <= report.partitions:
        after = completed(transaction, now)
        return Outcome(
            events=(TransactionSet(after),), story=(_step(after, "all markers are written"),)
        )
    confirmed = MarkersConfirmed(report.transactional_id, *report.producer, report.partitions)
    return Outcome(notes=(confirmed,))


def _step(after: Transaction, reason: str) -> Step:
    values = (reason, after.state.title, after.producer_id, after.producer_epoch)
    text = "{}: {} as producer {} epoch {}"
    return Step(after.transactional_id, text, values, is_logged=reason in (FENCED, TIMED_OUT))


def _prepare(commit: bool) -> TransactionState:
    return TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT


def _complete(commit: bool) -> TransactionState:
    return TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT


def _fenced() -> Refused:
    return Refused(ErrorCode.producer_fenced, "a newer producer uses this transactional id")


def _unmapped() -> Refused:
    return Refused(
        ErrorCode.invalid_producer_id_mapping,
        "the transactional id is unknown or belongs to another producer id; initialize again",
    )


def _concurrent() -> Refused:
    return Refused(
        ErrorCode.concurrent_transactions, "the last transaction is still being ended; try again"
    )


def _impossible(transaction: Transaction, commit: bool) -> Refused:
    return Refused(
        ErrorCode.invalid_txn_state,
        f"cannot {'commit' if commit else 'abort'}: it is {transaction.state.title}",
    )
