"""Separates readable events from unreadable ones: the latter go to quarantine.

An unreadable event does not stop the consumer: it is quarantined with the reason, and the next one
is read. An unreachable registry is not the event's fault: reading waits for it, and if that takes
too long the caller gets the error and the event is read again.
"""

import logging
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, assert_never

import numpy as np
from confluent_kafka import Message

from penstock.client.delivery import OutgoingRecord
from penstock.client.event import Event, RecordReader, SideDecodeError, original_record
from penstock.client.quarantine import OriginalRecord, failure_of, quarantine_topic
from penstock.client.quarantine_writer import QuarantineWriter
from penstock.client.rate_limited_log import RateLimitedLog
from penstock.clock import wall_ms
from penstock.serde.errors import ClientError, DecodeError, RegistryUnavailableError
from penstock.serde.frame import Side

if TYPE_CHECKING:
    from penstock.client.event_batch import ColumnReader, EventBatch
    from penstock.client.fetched_rows import FetchedRows

logger: Final = logging.getLogger(__name__)

_REGISTRY_PAUSE_S: Final = 0.5
_Result = TypeVar("_Result")


class OnDecodeError(StrEnum):
    """What a consumer does with an event that it cannot read."""

    QUARANTINE = "quarantine"
    RAISE = "raise"  # the next call continues after it
    SKIP = "skip"  # count it and continue


class DecodedEvents(NamedTuple):
    """Some records, in order: `done` are read or quarantined, `rest` must be read again."""

    done: list[tuple[Message, Event | None]]  # None: quarantined or skipped
    rest: Sequence[Message]
    failure: ClientError | None  # why there is a rest


class DecodedColumns(NamedTuple):
    """The same as columns, with a row for each record that was not quarantined or skipped."""

    done: "FetchedRows"
    batch: "EventBatch | None"  # None: nothing could be read yet
    rest: "FetchedRows"
    failure: ClientError | None


class DecodeFilter:
    """For one consumer. With `in_transactions`, quarantined records wait for the next of them."""

    def __init__(
        self,
        reader: RecordReader,
        quarantine: QuarantineWriter,
        on_decode_error: OnDecodeError,
        *,
        in_transactions: bool,
        registry_wait_s: float,
        client: str,
        reader_name: str | None = None,
    ) -> None:
        self.reader = reader
        self.quarantine = quarantine
        self._on_decode_error = on_decode_error
        self._in_transactions = in_transactions
        self._registry_wait_s = registry_wait_s
        self._client, self._reader_name = client, reader_name
        self._for_transaction: list[OutgoingRecord] = []
        self._lines = RateLimitedLog(logger)  # by reason: a flood of bad events is one line

    def decode(self, messages: Sequence[Message]) -> DecodedEvents:
        """Read as many as possible; the failure of a later one is raised when it is first."""
        done: list[tuple[Message, Event | None]] = []
        for index, message in enumerate(messages):
            try:
                done.append((message, self._read(original_record(message))))
            except ClientError as failure:
                is_over = isinstance(failure, DecodeError) and not done
                return DecodedEvents(done, messages[index + is_over :], failure)
        return DecodedEvents(done, (), None)

    def decode_columns(self, rows: "FetchedRows", reader: "ColumnReader") -> DecodedColumns:
        """The same for records of one topic, all together."""
        nothing = rows.before(0)
        try:
            batch, errors = self._wait_for_registry(lambda: reader.read(rows))
        except ClientError as failure:
            return DecodedColumns(nothing, None, rows, failure)
        if not errors:
            return DecodedColumns(rows, batch, nothing, None)
        readable = np.ones(len(rows), dtype=np.bool_)
        for row, error in errors:
            try:
                self._reject(rows.original(row), SideDecodeError(Side.VALUE, error))
            except ClientError as failure:
                is_over = isinstance(failure, DecodeError) and row == 0
                readable[row:] = False
                before = batch.only(np.flatnonzero(readable))
                return DecodedColumns(rows.before(row), before, rows.after(row + is_over), failure)
            readable[row] = False
        return DecodedColumns(rows, batch.only(np.flatnonzero(readable)), nothing, None)

    def take_for_transaction(self) -> Sequence[OutgoingRecord]:
        """The records for quarantine that belong to the transaction that is being committed."""
        records, self._for_transaction = self._for_transaction, []
        return records

    def _read(self, record: OriginalRecord) -> Event | None:
        try:
            return self._wait_for_registry(lambda: self.reader.read(record))
        except SideDecodeError as unreadable:
            self._reject(record, unreadable)
            return None

    def _wait_for_registry(self, read: Callable[[], _Result]) -> _Result:
        deadline_s = time.monotonic() + self._registry_wait_s
        while True:
            try:
                return read()
            except RegistryUnavailableError as failure:
                if time.monotonic() >= deadline_s:
                    raise
                self._lines.log("registry", logging.WARNING, "waiting for schemas: %s", failure)
                time.sleep(_REGISTRY_PAUSE_S)

    def _reject(self, record: OriginalRecord, unreadable: SideDecodeError) -> None:
        match self._on_decode_error:
            case OnDecodeError.RAISE:
                raise _at_offset(unreadable.error, record)
            case OnDecodeError.SKIP:
                self._report(record, unreadable, "skipped")
            case OnDecodeError.QUARANTINE:
                self._report(record, unreadable, f"sent to {quarantine_topic(record.topic)}")
                self._quarantine(record, unreadable)
            case other:
                assert_never(other)

    def _quarantine(self, record: OriginalRecord, unreadable: SideDecodeError) -> None:
        failure = failure_of(
            unreadable.error,
            unreadable.side,
            client=self._client,
            at=wall_ms(),
            reader=self._reader_name,
        )
        if self._in_transactions:
            self._for_transaction.append(self.quarantine.record(record, failure))
        else:
            self.quarantine.write(record, failure)

    def _report(self, record: OriginalRecord, unreadable: SideDecodeError, outcome: str) -> None:
        self._lines.log(
            unreadable.error.reason, logging.WARNING,
            "%s-%d at offset %d: cannot read the %s, %s: %s",
            record.topic, record.partition, record.offset, unreadable.side, outcome,
            unreadable.error,
        )  # fmt: skip


def _at_offset(error: DecodeError, record: OriginalRecord) -> DecodeError:
    position = f"{record.topic}-{record.partition} at {record.offset}"
    return DecodeError(
        error.reason, f"{position}: {error.detail}", schema=error.schema, subject=error.subject
    )
