"""Who may do what: the decisions over one transactional id. Nothing here changes state.

Every refusal is coded as the newest version of the request wants it; handlers translate for older
ones. A decision sees the state as its log will have it, so there is no change "in flight" to wait
for: only a transaction whose markers are being written answers CONCURRENT_TRANSACTIONS.
"""

from typing import Final

from penstock.coordination.transactions.commands import (
    AddPartitions,
    Command,
    EndTransaction,
    InitProducer,
    MarkersWritten,
    Missed,
    Missing,
    Producer,
    WriteMarkers,
)
from penstock.coordination.transactions.settings import TransactionSettings
from penstock.coordination.transactions.state import (
    EPOCH_MAX,
    MARKER_RETRY_MS,
    DeadlineSet,
    Event,
    MarkersConfirmed,
    MarkersDue,
    Stored,
    Transaction,
    Transactions,
    TransactionState,
)
from penstock.coordination.transactions.transitions import (
    completed,
    decided,
    fresh,
    restarted,
    widened,
)
from penstock.errors import ErrorCode, Refused
from penstock.machine import Outcome, Reply
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


def needs_producer_id(state: Transactions, command: Command) -> bool:
    """Whether deciding this command may use a producer id: the shell mints one only then."""
    match command:
        case InitProducer():
            transaction = state.by_id.get(command.transactional_id)
            return transaction is None or transaction.is_epoch_exhausted
        case EndTransaction(raises_epoch=True):
            transaction = state.by_id.get(command.transactional_id)
            return transaction is not None and transaction.is_epoch_exhausted
        case _:
            return False


# -- a producer starts ------------------------------------------------------------------------


def decide_init(
    state: Transactions, command: InitProducer, settings: TransactionSettings, now: Moment
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
        assert command.minted_producer_id != NO_PRODUCER
        transaction = fresh(
            command.transactional_id, command.minted_producer_id, command.timeout_ms, now
        )
    _check_expected(transaction, command.expected)
    if transaction.state.is_ending:
        raise _concurrent()
    if transaction.state is TransactionState.ONGOING:
        if command.expected not in (None, _producer_of(transaction)):
            raise _fenced()  # one that is fenced already must not abort its successor's work
        # the fencing epoch is never told to anybody: the producer asks again and gets the next
        aborting = fenced(transaction, command.minted_producer_id, now)
        return ending_outcome(aborting, now, Reply(command.caller, _concurrent()))
    after = _restart(transaction, command, now)
    return Outcome(
        events=(Stored(after),),
        replies=(Reply(command.caller, _producer_of(after)),),
    )


def _producer_of(transaction: Transaction) -> Producer:
    return Producer(transaction.producer_id, transaction.producer_epoch)


def _check_expected(transaction: Transaction, expected: Producer | None) -> None:
    """Who says who it is must be the one we know, or one that missed its last answer."""
    if expected is None or transaction.producer_epoch == NO_PRODUCER_EPOCH:
        return
    if expected.producer_id == transaction.producer_id:
        return
    missed_the_exchange = (
        expected.producer_id == transaction.previous_producer_id
        and expected.producer_epoch >= LAST_CLIENT_EPOCH
    )
    if not missed_the_exchange:
        raise _fenced()


def _restart(transaction: Transaction, command: InitProducer, now: Moment) -> Transaction:
    expected = command.expected
    epoch = transaction.producer_epoch
    if transaction.is_epoch_exhausted and (
        expected is None or expected.producer_epoch == transaction.producer_epoch
    ):
        return restarted(
            transaction,
            producer_id=command.minted_producer_id,
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
    return restarted(
        transaction,
        producer_epoch=epochs[0],
        last_producer_epoch=epochs[1],
        timeout_ms=command.timeout_ms,
        now=now,
    )


# -- partitions join --------------------------------------------------------------------------


def decide_add(state: Transactions, command: AddPartitions, now: Moment) -> Outcome[Event]:
    """Put partitions into the transaction, or tell which are not there."""
    if not command.transactional_id:
        raise Refused(ErrorCode.invalid_request, "a transactional id cannot be empty")
    transaction = _of_producer(state, command.transactional_id, command.producer)
    if transaction.producer_epoch != command.producer.producer_epoch:
        raise _fenced()
    if transaction.state.is_ending:
        raise _concurrent()
    missed = command.partitions - transaction.partitions
    if command.missing is Missing.REFUSE:
        return Outcome(replies=(Reply(command.caller, Missed(missed)),))
    answer = Reply(command.caller, Missed(frozenset()))
    if transaction.state is TransactionState.ONGOING and not missed:
        return Outcome(replies=(answer,))
    after = widened(transaction, command.partitions, command.client_version, now)
    notes: tuple[Event, ...] = ()
    if transaction.state is not TransactionState.ONGOING:
        notes = (DeadlineSet(after.transactional_id, Millis(now.steady + after.timeout_ms)),)
    return Outcome(events=(Stored(after),), notes=notes, replies=(answer,))


def _of_producer(state: Transactions, transactional_id: str, producer: Producer) -> Transaction:
    transaction = state.by_id.get(transactional_id)
    if transaction is None:
        raise _unmapped()
    _check_producer_id(transaction, producer.producer_id)
    return transaction


def _check_producer_id(transaction: Transaction, producer_id: ProducerId) -> None:
    if producer_id == transaction.producer_id:
        return
    if producer_id == transaction.next_producer_id:
        raise _concurrent()  # told to the producer already; takes over once markers are written
    raise _unmapped()


# -- the end ----------------------------------------------------------------------------------


def decide_end(state: Transactions, command: EndTransaction, now: Moment) -> Outcome[Event]:
    """Commit or abort. A retry of an end that worked gets the same answer again."""
    if not command.transactional_id:
        raise Refused(ErrorCode.invalid_request, "a transactional id cannot be empty")
    transaction = state.by_id.get(command.transactional_id)
    if transaction is None:
        raise _unmapped()
    if command.raises_epoch:
        return _decide_raising_end(transaction, command, now)
    return _decide_plain_end(transaction, command, now)


def _decide_plain_end(
    transaction: Transaction, command: EndTransaction, now: Moment
) -> Outcome[Event]:
    """EndTxn up to 4: the epoch stays, so a repeated end looks like the first."""
    _check_producer_id(transaction, command.producer.producer_id)
    if transaction.producer_epoch != command.producer.producer_epoch:
        raise _fenced()
    if transaction.state is TransactionState.ONGOING:
        after = decided(transaction, commit=command.commit, raises_epoch=False, now=now)
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
    missed_the_exchange = (
        transaction.previous_producer_id == command.producer.producer_id
        and epoch == LAST_CLIENT_EPOCH
        and transaction.producer_epoch == 0
    )
    is_retry = missed_the_exchange or transaction.producer_epoch == epoch + 1
    if not missed_the_exchange:
        _check_producer_id(transaction, command.producer.producer_id)
    if not _is_epoch_fit(transaction, epoch, is_retry=is_retry):
        raise _fenced()
    minted = command.minted_producer_id
    if transaction.state is TransactionState.ONGOING:
        after = _raised(transaction, minted, commit=command.commit, now=now)
        return _ending(after, command, now)
    if transaction.state is _prepare(command.commit):
        raise _concurrent()
    if is_retry and transaction.state is _complete(command.commit):
        return Outcome(replies=(Reply(command.caller, _producer_of(transaction)),))
    if is_retry or command.commit or transaction.state.is_ending:
        raise _impossible(transaction, command.commit)
    # an abort of nothing is allowed: a client cannot know whether its first write arrived
    return _ending(_raised(transaction, minted, commit=False, now=now), command, now)


def _is_epoch_fit(transaction: Transaction, epoch: ProducerEpoch, *, is_retry: bool) -> bool:
    is_current = transaction.producer_epoch == epoch
    if transaction.state.is_ending:
        return is_retry
    if transaction.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
        return is_retry or is_current
    return is_current


def _raised(
    transaction: Transaction, minted_producer_id: ProducerId, *, commit: bool, now: Moment
) -> Transaction:
    return decided(
        transaction,
        commit=commit,
        raises_epoch=True,
        next_producer_id=minted_producer_id if transaction.is_epoch_exhausted else NO_PRODUCER,
        now=now,
    )


def _ending(after: Transaction, command: EndTransaction, now: Moment) -> Outcome[Event]:
    producer = _producer_of(after)
    if after.next_producer_id != NO_PRODUCER:
        producer = Producer(after.next_producer_id, ProducerEpoch(0))
    return ending_outcome(after, now, Reply(command.caller, producer))


def fenced(transaction: Transaction, minted_producer_id: ProducerId, now: Moment) -> Transaction:
    """Abort for a producer that is gone, under an epoch it does not know."""
    return _raised(transaction, minted_producer_id, commit=False, now=now)


def ending_outcome(after: Transaction, now: Moment, *replies: Reply) -> Outcome[Event]:
    """Write the outcome down, then send markers; without partitions it is complete at once."""
    if not after.partitions:
        return Outcome(events=(Stored(after), Stored(completed(after, now))), replies=replies)
    return Outcome(
        events=(Stored(after),),
        notes=(MarkersDue(after.transactional_id, Millis(now.steady + MARKER_RETRY_MS)),),
        replies=replies,
        sends=(markers_of(after, after.partitions),),
    )


def markers_of(transaction: Transaction, partitions: frozenset[TopicPartition]) -> WriteMarkers:
    """The markers that these partitions of an ending transaction still need."""
    return WriteMarkers(
        transaction.transactional_id,
        _producer_of(transaction),
        commit=transaction.state is TransactionState.PREPARE_COMMIT,
        partitions=partitions,
        raises_epoch=transaction.client_version >= 2,
    )


def decide_markers_written(
    state: Transactions, report: MarkersWritten, now: Moment
) -> Outcome[Event]:
    """Complete when the last partition has its marker; a report about the past says nothing."""
    transaction = state.by_id.get(report.transactional_id)
    if transaction is None or not transaction.state.is_ending:
        return Outcome()
    if report.producer != _producer_of(transaction):
        return Outcome()
    if state.unmarked[report.transactional_id] <= report.partitions:
        return Outcome(events=(Stored(completed(transaction, now)),))
    confirmed = MarkersConfirmed(report.transactional_id, *report.producer, report.partitions)
    return Outcome(notes=(confirmed,))


def _prepare(commit: bool) -> TransactionState:
    return TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT


def _complete(commit: bool) -> TransactionState:
    return TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT


# -- refusals ---------------------------------------------------------------------------------


def _fenced() -> Refused:
    return Refused(ErrorCode.producer_fenced, "a newer producer uses this transactional id")


def _unmapped() -> Refused:
    return Refused(
        ErrorCode.invalid_producer_id_mapping,
        "the transactional id is unknown or belongs to another producer id; initialise again",
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
