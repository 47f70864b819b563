"""The transactions of one producer, one after another, as `with` blocks.

A block ends in one of three ways: committed; aborted, and the error raised inside propagates; or
aborted by the broker (TransactionAbortedError: run the block again). A fenced producer cannot
continue. With a consumer, the offsets of the events that it delivered are part of the transaction.
"""

import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError, KafkaException

from penstock.client.commit_tracker import CommitTracker
from penstock.client.decode_filter import DecodeFilter
from penstock.client.delivery import OutgoingRecord, RecordSender
from penstock.client.errors import RebalancedError
from penstock.client.kafka_errors import BrokerError, explained
from penstock.client.poll_thread import PollThread
from penstock.serde.errors import ClientError

WAIT_S: Final = 60.0
ATTEMPTS: Final = 5


class TransactionAbortedError(ClientError):
    """The broker aborted the transaction: nothing of it is visible. Run the block again."""

    retriable = True


class UncommittedEvents:
    """What a consumer delivered and has not committed, as a transaction needs it."""

    def __init__(self, polling: PollThread, tracker: CommitTracker, decoding: DecodeFilter) -> None:
        self._polling = polling
        self._tracker = tracker
        self._decoding = decoding

    def offsets(self) -> list[Any]:
        """confluent-kafka's TopicPartitions: the offsets after all that was delivered."""
        return self._tracker.offsets_to_commit()

    def group_metadata(self) -> Any:
        """The consumer's group metadata: the broker refuses it when it is outdated."""
        return self._polling.group_metadata()

    def quarantine_records(self) -> Sequence[OutgoingRecord]:
        """Records for quarantine since the last transaction."""
        return self._decoding.take_for_transaction()

    def on_committed(self) -> None:
        """A transaction committed all that was delivered."""
        self._tracker.on_committed()

    def roll_back(self) -> None:
        """A transaction was aborted: deliver its events again."""
        self._decoding.take_for_transaction()
        offsets = self._tracker.roll_back()
        if offsets:
            self._polling.seek(offsets)


class TransactionalConsumer(Protocol):
    """A consumer whose offsets a transaction can commit."""

    @property
    def uncommitted(self) -> UncommittedEvents:
        """What it delivered and has not committed."""


class ProducerTransaction:
    """Begins when the block is entered; what is sent inside becomes visible together, or never."""

    def __init__(self, sender: RecordSender, transactional_id: str) -> None:
        self._sender = sender
        self._kafka = sender.kafka
        self._id = transactional_id
        self._lock = threading.Lock()
        self._is_ready = False
        self._events: UncommittedEvents | None = None

    def over(self, consumer: TransactionalConsumer | None) -> "ProducerTransaction":
        """The same transaction with a consumer's offsets in it."""
        self._events = None if consumer is None else consumer.uncommitted
        return self

    def __enter__(self) -> "ProducerTransaction":
        if not self._lock.acquire(blocking=False):
            raise ClientError(f"a transaction of {self._id} is open; end it first")
        try:
            if not self._is_ready:
                self._kafka.init_transactions(WAIT_S)
                self._is_ready = True
            self._kafka.begin_transaction()
        except KafkaException as failure:
            self._lock.release()
            raise BrokerError(failure.args[0], f"beginning a transaction of {self._id}") from None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._commit()
            else:
                self._abort()
        finally:
            self._lock.release()

    def _commit(self) -> None:
        events = self._events
        try:
            if events is not None:
                self._add(events)
            self._with_retries(lambda: self._kafka.commit_transaction(WAIT_S))
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            if error.fatal():
                raise BrokerError(error, f"committing a transaction of {self._id}") from None
            self._abort()
            raise self._aborted(explained(error)) from None
        except RebalancedError as reason:
            self._abort()
            raise self._aborted(str(reason)) from None
        if events is not None:
            events.on_committed()

    def _aborted(self, reason: str) -> TransactionAbortedError:
        return TransactionAbortedError(
            f"the transaction of {self._id} was aborted ({reason}); run it again"
        )

    def _add(self, events: UncommittedEvents) -> None:
        """Add offsets, and records for quarantine, to the transaction."""
        for record in events.quarantine_records():
            self._sender.send(record)
        # First the metadata, then the offsets: if the group changes in between, the broker refuses.
        metadata = events.group_metadata()
        offsets = events.offsets()
        if offsets:
            self._with_retries(
                lambda: self._kafka.send_offsets_to_transaction(offsets, metadata, WAIT_S)
            )

    def _abort(self) -> None:
        try:
            self._with_retries(lambda: self._kafka.abort_transaction(WAIT_S))
        except KafkaException as failure:
            raise BrokerError(failure.args[0], f"aborting a transaction of {self._id}") from None
        finally:
            if self._events is not None:
                self._events.roll_back()

    def _with_retries(self, step: Callable[[], object]) -> None:
        for attempt in range(ATTEMPTS):
            try:
                step()
                return
            except KafkaException as failure:
                error: KafkaError = failure.args[0]
                if not error.retriable() or attempt == ATTEMPTS - 1:
                    raise
