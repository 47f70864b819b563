"""Reads events of topics as a member of a group.

    with Consumer("127.0.0.1:9092", "orders", group="billing", registry=registry) as consumer:
        for event in consumer:
            print(event.offset, event.value)

Polls on a thread of its own, so a slow program stays in its group; a bounded queue in between
pauses and resumes fetching. What cannot be read goes to `<topic>.quarantine` and the next event
comes. While the registry is down, events with schemas seen before go on, and others are waited for.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final

from confluent_kafka import Message

from penstock.client.contract import Contract
from penstock.client.event import Event
from penstock.client.flow import Flow, FlowLimits, FlowStats
from penstock.client.intake import BATCH_MAX, Intake, offset_of, partition_of
from penstock.client.outbox import Outgoing
from penstock.client.progress import Commits, Progress
from penstock.client.quarantine_writer import QuarantineWriter
from penstock.client.reading import Reading
from penstock.client.registry import Registry
from penstock.client.serializers import Deserializer
from penstock.client.sieve import OnUndecodable, Sieve
from penstock.model import Offset, TopicPartition

REGISTRY_WAIT_S: Final = 60.0
SETTLE_RECORDS: Final = 500  # with something on its way to quarantine, offsets wait for it:
SETTLE_S: Final = 0.5  # until so many records or so much time came together
_TAKE_S: Final = 0.5  # how often an idle iteration looks around


class Consumer:
    """Reads topics, alone or with others of its group. For one thread of the program.

    `value` is the reader's contract: events come as its schema sees them; without one, as they were
    written. Without a registry, values are bytes. Keys are bytes unless `framed_keys` is set or
    `key` has a contract. `commits` says when an event counts as handled. `flow` bounds what waits
    in memory. `settings` are librdkafka's, by its names.
    """

    def __init__(
        self,
        bootstrap: str,
        topics: str | Sequence[str],
        group: str,
        *,
        registry: Registry | None = None,
        value: Contract | None = None,
        key: Contract | None = None,
        framed_keys: bool = False,
        as_dicts: bool = False,
        plain_indexes: bool = False,
        commits: Commits = Commits.AT_LEAST_ONCE,
        on_undecodable: OnUndecodable = OnUndecodable.QUARANTINE,
        flow: FlowLimits | None = None,
        start: str = "earliest",
        registry_wait_s: float = REGISTRY_WAIT_S,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        reading = Reading(
            registry, value=value, key=key, framed_keys=framed_keys or key is not None,
            as_dicts=as_dicts, plain_indexes=plain_indexes,
        )  # fmt: skip
        self._sieve = Sieve(
            reading, QuarantineWriter(bootstrap), on_undecodable,
            in_transactions=commits is Commits.EXACTLY_ONCE, registry_wait_s=registry_wait_s,
            client=group,
        )  # fmt: skip
        self._unsettled: dict[TopicPartition, Offset] = {}  # done, once quarantine has its part
        self._unsettled_records = 0
        self._unsettled_since_s = 0.0
        self._taken: Sequence[Message] = ()
        limits = flow or FlowLimits()
        more = {**_settings(group, commits, start, limits), **(settings or {})}
        self._intake = Intake(bootstrap, Flow(limits), more)
        self._progress = Progress(self._intake, commits)
        names = [topics] if isinstance(topics, str) else list(topics)
        self._intake.start(names, self._progress.on_revoked)

    def __iter__(self) -> Iterator[Event]:
        return self.events()

    def events(self, *, idle_s: float | None = None) -> Iterator[Event]:
        """Events one by one, for ever, or until none came for `idle_s`.

        Asking for the next one says that this one is done. If the loop is left in the middle of
        an event, that event comes again (unless commits are at-most-once).
        """
        # One at a time: what is still in the queue can be dropped by a rebalance or a rewind.
        at_once = BATCH_MAX if self._progress.commits is Commits.AT_MOST_ONCE else 1
        for sifted in self._batches(at_once, idle_s):
            for message, event in sifted:
                if event is not None:
                    yield event
                self._done([message])

    def batches(
        self, *, records_max: int = BATCH_MAX, idle_s: float | None = None
    ) -> Iterator[list[Event]]:
        """Events in lists, as many as are there and no more than asked for.

        Asking for the next list says that this one is done.
        """
        for sifted in self._batches(records_max, idle_s):
            batch = [event for _, event in sifted if event is not None]
            if batch:
                yield batch
            self._done([message for message, _ in sifted])

    def take(self, records_max: int = BATCH_MAX, wait_s: float | None = 1.0) -> list[Event]:
        """Some events now, or none when the time is over. The next call says that they are done."""
        self._done(self._taken)
        self._taken = ()
        sifted = self._sift(records_max, wait_s)
        self._taken = [message for message, _ in sifted]
        if not sifted:
            self._settle()
        return [event for _, event in sifted if event is not None]

    def commit(self) -> None:
        """Commit all that was handed over so far, the present event included, and wait for it."""
        self._settle()
        self._progress.commit()

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Fetch no more of these until `resume`; rebalances do not change that."""
        self._intake.hold(partitions)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Fetch these again."""
        self._intake.release(partitions)

    def seek(self, partition: TopicPartition, offset: Offset) -> None:
        """Go on reading a partition from here."""
        self._intake.seek({partition: offset})

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions the group gave to this member."""
        return frozenset(self._intake.flow.assigned)

    @property
    def flow_stats(self) -> FlowStats:
        """How full the queue was, and how often it was paused."""
        return self._intake.flow.stats

    @property
    def deserializers(self) -> list[Deserializer]:
        """One per topic and side; each has `stats` with what it could not read."""
        return list(self._sieve.reading)

    @property
    def quarantined(self) -> int:
        """How many events went to quarantine."""
        return self._sieve.quarantine.put_total

    def close(self) -> None:
        """Leave the group. What the program is done with is committed, the present event is not."""
        try:
            self._settle()
        finally:
            self._intake.close()
            self._sieve.quarantine.close()

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def positions(self) -> list[Any]:
        """What comes after all that was handed over; for a transaction."""
        return self._progress.positions()

    def group_metadata(self) -> Any:
        """Who this is in its group; for a transaction."""
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

    def _batches(
        self, records_max: int, idle_s: float | None
    ) -> Iterator[list[tuple[Message, Event | None]]]:
        idle_since_s = time.monotonic()
        wait_s = _TAKE_S if idle_s is None else min(_TAKE_S, idle_s)
        while True:
            sifted = self._sift(records_max, wait_s)
            if sifted:
                yield sifted
                idle_since_s = time.monotonic()
                continue
            self._settle()
            if idle_s is not None and time.monotonic() - idle_since_s >= idle_s:
                return

    def _sift(self, records_max: int, wait_s: float | None) -> list[tuple[Message, Event | None]]:
        """The next records, read; they count as handed over."""
        messages, epoch = self._intake.take(records_max, wait_s)
        if self._progress.commits is Commits.AT_MOST_ONCE:
            messages = self._handed_over(messages, epoch)
        done, rest, failure = self._sieve.sift(messages)
        if failure is not None:
            self._intake.put_back(rest, epoch)
            if not done:
                raise failure
        if self._progress.commits is Commits.AT_MOST_ONCE:
            return done
        kept = set(map(id, self._handed_over([message for message, _ in done], epoch)))
        return [pair for pair in done if id(pair[0]) in kept]

    def _handed_over(self, messages: list[Message], epoch: int) -> list[Message]:
        """Those that did not go to another member meanwhile."""
        if not messages:
            return messages
        flow = self._intake.flow
        allowed = self._progress.handing_over(
            messages, lambda partition: flow.is_current(partition, epoch)
        )
        return [message for index, message in enumerate(messages) if index in allowed]

    def _done(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._unsettled[partition_of(message)] = Offset(offset_of(message) + 1)
        now_s = time.monotonic()
        if not self._unsettled_records:
            self._unsettled_since_s = now_s
        self._unsettled_records += len(messages)
        if (
            not self._sieve.quarantine.is_waiting
            or self._unsettled_records >= SETTLE_RECORDS
            or now_s - self._unsettled_since_s >= SETTLE_S
        ):
            self._settle()

    def _settle(self) -> None:
        """What is done may be committed once all that was put aside is safe."""
        self._sieve.quarantine.settle()
        ends, self._unsettled, self._unsettled_records = self._unsettled, {}, 0
        self._progress.done(ends)


def _settings(group: str, commits: Commits, start: str, limits: FlowLimits) -> dict[str, Any]:
    return {
        "group.id": group,
        "auto.offset.reset": start,
        # It commits what is stored, now and then and at the end.
        "enable.auto.commit": commits is Commits.AT_LEAST_ONCE,
        "auto.commit.interval.ms": 1000,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed",
        # librdkafka's own queue is memory too.
        "queued.max.messages.kbytes": max(1024, limits.high_bytes // 1024),
        "queued.min.messages": min(100_000, limits.high_records),
    }
