"""Parts what can be read from what cannot: events go on, the rest goes to quarantine.

An event that cannot be read is no reason to stop: it is put aside, with the reason, and the next
one comes. A registry that is down is no fault of the event: it is waited for, and if that takes too
long the caller gets the error and the event comes again.
"""

import logging
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, assert_never

from confluent_kafka import Message

from penstock.client.delivery import Outgoing
from penstock.client.event import Event, Reading, UndecodableSide, origin_of
from penstock.client.quarantine import Origin, quarantine_topic, verdict_on
from penstock.client.quarantine_writer import QuarantineWriter
from penstock.client.rate_limited_log import RateLimitedLog
from penstock.model import Millis
from penstock.serde.errors import ClientError, DecodeError, RegistryUnavailableError
from penstock.serde.frame import Side

if TYPE_CHECKING:
    from penstock.client.event_batch import ColumnReading, EventBatch

logger = logging.getLogger(__name__)

_REGISTRY_PAUSE_S: Final = 0.5
_Found = TypeVar("_Found")


class OnUndecodable(StrEnum):
    """What becomes of an event that cannot be read."""

    QUARANTINE = "quarantine"
    RAISE = "raise"  # the program decides; asking again goes on behind it
    SKIP = "skip"  # counted, and gone


class Sifted(NamedTuple):
    """What was made of some records, in order; the others must come again."""

    done: list[tuple[Message, Event | None]]  # None: put aside
    rest: Sequence[Message]
    failure: ClientError | None  # why there is a rest


class SiftedColumns(NamedTuple):
    """The same as columns, which have a row for each record that was not put aside."""

    done: Sequence[Message]
    batch: "EventBatch | None"  # None: nothing could be read yet
    rest: Sequence[Message]
    failure: ClientError | None


class Sieve:
    """One consumer's. With `in_transactions`, what is put aside waits for the next of them."""

    def __init__(
        self,
        reading: Reading,
        quarantine: QuarantineWriter,
        on_undecodable: OnUndecodable,
        *,
        in_transactions: bool,
        registry_wait_s: float,
        client: str,
        reader: str | None = None,
    ) -> None:
        self.reading = reading
        self.quarantine = quarantine
        self._on_undecodable = on_undecodable
        self._in_transactions = in_transactions
        self._registry_wait_s = registry_wait_s
        self._client, self._reader_name = client, reader
        self._asides: list[Outgoing] = []
        self._lines = RateLimitedLog(logger)  # by reason: a flood of bad events is one line

    def sift(self, messages: Sequence[Message]) -> Sifted:
        """Read as many as can be; a failure that concerns a later one is left for its turn."""
        done: list[tuple[Message, Event | None]] = []
        for number, message in enumerate(messages):
            try:
                done.append((message, self._read(origin_of(message))))
            except ClientError as failure:
                is_over = isinstance(failure, DecodeError) and not done
                return Sifted(done, messages[number + is_over :], failure)
        return Sifted(done, (), None)

    def sift_columns(
        self, topic: str, messages: Sequence[Message], reading: "ColumnReading"
    ) -> SiftedColumns:
        """The same for records of one topic, all at once."""
        try:
            batch, wrongs = self._patiently(lambda: reading.read(topic, messages))
        except ClientError as failure:
            return SiftedColumns((), None, messages, failure)
        if not wrongs:
            return SiftedColumns(messages, batch, (), None)
        readable = dict(enumerate(messages))
        for row, reason, detail, schema in wrongs:
            wrong = DecodeError(reason, detail, schema=schema, subject=f"{topic}-{Side.VALUE}")
            try:
                self._put_aside(origin_of(messages[row]), UndecodableSide(Side.VALUE, wrong))
            except ClientError as failure:
                is_over = isinstance(failure, DecodeError) and row == 0
                before = [one for place, one in readable.items() if place < row]
                rest = messages[row + is_over :]
                return SiftedColumns(messages[:row], batch.among(before), rest, failure)
            del readable[row]
        return SiftedColumns(messages, batch.among(readable.values()), (), None)

    def take_asides(self) -> Sequence[Outgoing]:
        """What belongs in quarantine with the transaction that is being committed."""
        asides, self._asides = self._asides, []
        return asides

    def _read(self, origin: Origin) -> Event | None:
        try:
            return self._patiently(lambda: self.reading.event(origin))
        except UndecodableSide as found:
            self._put_aside(origin, found)
            return None

    def _patiently(self, read: Callable[[], _Found]) -> _Found:
        """Read, and wait for the registry if it cannot be asked just now."""
        deadline_s = time.monotonic() + self._registry_wait_s
        while True:
            try:
                return read()
            except RegistryUnavailableError as failure:
                if time.monotonic() >= deadline_s:
                    raise
                self._lines.log("registry", logging.WARNING, "events wait: %s", failure)
                time.sleep(_REGISTRY_PAUSE_S)

    def _put_aside(self, origin: Origin, found: UndecodableSide) -> None:
        match self._on_undecodable:
            case OnUndecodable.RAISE:
                raise _placed(found.wrong, origin)
            case OnUndecodable.SKIP:
                self._report(origin, found, "skipped")
            case OnUndecodable.QUARANTINE:
                self._report(origin, found, f"sent to {quarantine_topic(origin.topic)}")
                now = Millis(int(time.time() * 1000))
                verdict = verdict_on(
                    found.wrong, found.side, client=self._client, at=now, reader=self._reader_name
                )
                if self._in_transactions:
                    self._asides.append(self.quarantine.record(origin, verdict))
                else:
                    self.quarantine.put(origin, verdict)
            case other:
                assert_never(other)

    def _report(self, origin: Origin, found: UndecodableSide, outcome: str) -> None:
        self._lines.log(
            found.wrong.reason, logging.WARNING,
            "%s-%d at offset %d: the %s cannot be read, %s: %s",
            origin.topic, origin.partition, origin.offset, found.side, outcome, found.wrong,
        )  # fmt: skip


def _placed(wrong: DecodeError, origin: Origin) -> DecodeError:
    where = f"{origin.topic}-{origin.partition} at {origin.offset}"
    return DecodeError(
        wrong.reason, f"{where}: {wrong.detail}", schema=wrong.schema, subject=wrong.subject
    )
