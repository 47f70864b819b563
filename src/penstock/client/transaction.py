"""One transaction after another of one producer, as a `with` block.

A block ends in one of three ways: committed; aborted, and the error raised inside propagates; or
aborted by the broker (TransactionAbortedError: run the block again). A fenced producer cannot
continue.

What a transaction needs of a consumer: where it is, and how to go back there.

What a consumer handed to its program and nobody committed yet, as a transaction needs it.
"""

import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError, KafkaException

from penstock.client.commit_tracker import Progress
from penstock.client.decode_filter import Sieve
from penstock.client.delivery import Outbox, Outgoing
from penstock.client.kafka_errors import BrokerError, explained
from penstock.client.poll_thread import Intake
from penstock.serde.errors import ClientError, RebalancedError


class Offsets(Protocol):
    """A consumer whose offsets are committed by somebody else's transaction."""

    def positions(self) -> list[Any]:
        """confluent-kafka's TopicPartitions: what comes after all that was handed over."""

    def group_metadata(self) -> Any:
        """Who the consumer is in its group: the broker declines if that is over."""

    def set_aside(self) -> Sequence[Outgoing]:
        """Records for quarantine since the last transaction."""

    def settled(self) -> None:
        """All that was handed over is committed."""

    def rewind(self) -> None:
        """None of it is: hand it over again."""


class Consuming(Protocol):
    """A consumer that a transaction can speak for."""

    @property
    def offsets(self) -> Offsets:
        """What it handed over and nobody committed yet."""


WAIT_S: Final = 60.0
ATTEMPTS: Final = 5


class TransactionAbortedError(ClientError):
    """The broker wants it undone. Nothing of it is visible; do it again."""

    retriable = True


class Transaction:
    """Begins when the block is entered; what is sent inside is visible together or never."""

    def __init__(self, outbox: Outbox, transactional_id: str) -> None:
        self._outbox = outbox
        self._kafka = outbox.kafka
        self._id = transactional_id
        self._lock = threading.Lock()
        self._is_ready = False
        self._consumer: Offsets | None = None

    def over(self, consumer: Consuming | None) -> "Transaction":
        """The same, with a consumer's offsets in it."""
        self._consumer = None if consumer is None else consumer.offsets
        return self

    def __enter__(self) -> "Transaction":
        if not self._lock.acquire(blocking=False):
            raise ClientError(f"{self._id} is in a transaction already; end that one first")
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
        consumer = self._consumer
        try:
            if consumer is not None:
                self._add(consumer)
            self._retried(lambda: self._kafka.commit_transaction(WAIT_S))
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            if error.fatal():
                raise BrokerError(error, f"committing a transaction of {self._id}") from None
            self._abort()
            raise self._undone(explained(error)) from None
        except RebalancedError as reason:
            self._abort()
            raise self._undone(str(reason)) from None
        if consumer is not None:
            consumer.settled()

    def _undone(self, why: str) -> TransactionAbortedError:
        return TransactionAbortedError(
            f"the transaction of {self._id} was undone ({why}); do it again"
        )

    def _add(self, consumer: Offsets) -> None:
        """Offsets, and what belongs in quarantine, become part of the transaction."""
        for record in consumer.set_aside():
            self._outbox.send(record)
        # First who we are, then what we have: if the group changes after this, the broker declines.
        metadata = consumer.group_metadata()
        positions = consumer.positions()
        if positions:
            self._retried(
                lambda: self._kafka.send_offsets_to_transaction(positions, metadata, WAIT_S)
            )

    def _abort(self) -> None:
        try:
            self._retried(lambda: self._kafka.abort_transaction(WAIT_S))
        except KafkaException as failure:
            raise BrokerError(failure.args[0], f"undoing a transaction of {self._id}") from None
        finally:
            if self._consumer is not None:
                self._consumer.rewind()

    def _retried(self, step: Callable[[], object]) -> None:
        for attempt in range(ATTEMPTS):
            try:
                step()
                return
            except KafkaException as failure:
                error: KafkaError = failure.args[0]
                if not error.retriable() or attempt == ATTEMPTS - 1:
                    raise


class HandedOver:
    """Of one consumer; see `consuming.Offsets`."""

    def __init__(self, intake: Intake, progress: Progress, sieve: Sieve) -> None:
        self._intake = intake
        self._progress = progress
        self._sieve = sieve

    def positions(self) -> list[Any]:
        """What comes after all that was handed over."""
        return self._progress.positions()

    def group_metadata(self) -> Any:
        """Who the consumer is in its group."""
        return self._intake.group_metadata()

    def set_aside(self) -> Sequence[Outgoing]:
        """What belongs in quarantine with the transaction."""
        return self._sieve.take_asides()

    def settled(self) -> None:
        """A transaction committed all that was handed over."""
        self._progress.settled()

    def rewind(self) -> None:
        """A transaction was undone: what was handed over since the last one comes again."""
        self._sieve.take_asides()
        places = self._progress.unsettle()
        if places:
            self._intake.seek(places)
