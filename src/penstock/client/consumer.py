"""Reads events of topics as a member of a group.

    with Consumer("127.0.0.1:9092", "orders", group="billing", registry=registry) as consumer:
        for event in consumer:
            print(event.offset, event.value)

Polls on a thread of its own, so a slow program stays in its group; a bounded queue in between
pauses and resumes fetching. What cannot be read goes to `<topic>.quarantine` and the next event
comes. While the registry is down, events with schemas seen before go on, and others are waited for.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from confluent_kafka import Message

from penstock.client.commit_tracker import Commits, Progress, Settling
from penstock.client.decode_filter import OnUndecodable, Sieve
from penstock.client.event import Event, Reading
from penstock.client.flow_control import Flow, FlowLimits, FlowStats
from penstock.client.poll_thread import BATCH_MAX, Intake, Taken
from penstock.client.quarantine_writer import QuarantineWriter
from penstock.client.reader_lease import ReaderLease
from penstock.client.registry import Registry
from penstock.client.transaction import HandedOver, Offsets
from penstock.closing import Closing
from penstock.extras import require
from penstock.link.settings import connection_settings
from penstock.model import Offset, TopicPartition
from penstock.schemas.readers import Reader
from penstock.serde.contract import Contract
from penstock.serde.errors import ArgumentError, ClientError
from penstock.serde.serializers import SerdeStats

if TYPE_CHECKING:
    from penstock.client.event_batch import ColumnReading, EventBatch

REGISTRY_WAIT_S: Final = 60.0
ARROW_RECORDS_MAX: Final = 10_000  # in one Arrow batch; columns are cheap where there are many
_TAKE_S: Final = 0.5  # how often an idle iteration looks around
_Found = TypeVar("_Found")


class Consumer(Closing):
    """Reads topics, alone or with others of its group. For one thread of the program.

    `value` is the reader's contract: events come as its schema sees them; without one, as they were
    written. Without a registry, values are bytes. Keys are bytes unless `framed_keys` is set or
    `key` has a contract. `reader` declares this program to the registry, which then declines
    changes that would break it: Reader("fraud-scorer", "7", fields=("id", "coupon")); the consumer
    renews that while it runs. JSON values are checked against the schema unless `validate` is
    False. `commits` says when an event counts as handled. `flow` bounds what
    waits in memory. `settings` are librdkafka's, by its names.
    """

    def __init__(
        self,
        bootstrap: str,
        topics: str | Sequence[str],
        group: str,
        *,
        registry: Registry | None = None,
        value: Contract | None = None,
        reader: Reader | None = None,
        key: Contract | None = None,
        framed_keys: bool = False,
        as_dicts: bool = False,
        plain_indexes: bool = False,
        validate: bool = True,
        commits: Commits = Commits.AT_LEAST_ONCE,
        on_undecodable: OnUndecodable = OnUndecodable.QUARANTINE,
        flow: FlowLimits | None = None,
        start: str = "earliest",
        registry_wait_s: float = REGISTRY_WAIT_S,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        if not group:  # librdkafka's binding would abort the process
            raise ArgumentError(f"group is {group!r}: a consumer needs a group's name")
        names = _topic_names(topics)
        if reader is not None:
            _needed(registry, "a reader")
        reading = Reading(
            registry, value=value, key=key, framed_keys=framed_keys or key is not None,
            as_dicts=as_dicts, plain_indexes=plain_indexes, validate=validate,
        )  # fmt: skip
        self._sieve = Sieve(
            reading, QuarantineWriter(bootstrap, connection_settings(settings)), on_undecodable,
            in_transactions=commits is Commits.EXACTLY_ONCE, registry_wait_s=registry_wait_s,
            client=group, reader=None if reader is None else reader.title,
        )  # fmt: skip
        self._taken: Sequence[Message] = ()
        self._registry, self._reader = registry, value
        self._plain_indexes, self._validate = plain_indexes, validate
        self._column_readings: dict[tuple[str, ...] | None, ColumnReading] = {}
        limits = flow or FlowLimits()
        more = {**_settings(group, commits, start, limits), **(settings or {})}
        self._intake = Intake(bootstrap, Flow(limits), more)
        self._progress = Progress(self._intake, commits)
        self._offsets = HandedOver(self._intake, self._progress, self._sieve)
        self._settling = Settling(self._sieve.quarantine, self._progress)
        self._intake.start(names, self._progress.on_revoked)
        self._lease = ReaderLease(registry, names, reader, value) if registry and reader else None

    def __iter__(self) -> Iterator[Event]:
        return self.events()

    def events(self, *, idle_s: float | None = None) -> Iterator[Event]:
        """Events one by one, for ever, or until none came for `idle_s`.

        Asking for the next one says that this one is done. If the loop is left in the middle of
        an event, that event comes again (unless commits are at-most-once).
        """
        # One at a time: what is still in the queue can be dropped by a rebalance or a rewind.
        at_once = BATCH_MAX if self._progress.commits is Commits.AT_MOST_ONCE else 1
        for sifted in self._rounds(partial(self._sift, at_once), idle_s=idle_s):
            for message, event in sifted:
                if event is not None:
                    yield event
                self._settling.done([message])

    def batches(
        self, *, records_max: int = BATCH_MAX, idle_s: float | None = None
    ) -> Iterator[list[Event]]:
        """Events in lists, as many as are there and no more than asked for.

        Asking for the next list says that this one is done.
        """
        for sifted in self._rounds(partial(self._sift, records_max), idle_s=idle_s):
            batch = [event for _, event in sifted if event is not None]
            if batch:
                yield batch
            self._settling.done([message for message, _ in sifted])

    def arrow_batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        records_max: int = ARROW_RECORDS_MAX,
        idle_s: float | None = None,
    ) -> "Iterator[EventBatch]":
        """Events as Arrow batches, of one topic each: no Python object per field.

        for batch in consumer.arrow_batches(["id", "total"]):
            print(batch.values.to_pandas(), batch.offsets)

        `columns` are the fields wanted, in that order; all without it. The schema is that of the
        `value` contract, or the latest version of the subject. Asking for the next batch says that
        this one is done.
        """
        reading = self._column_reading(columns)
        step = partial(self._sift_columns, reading, records_max)
        for messages, batch in self._rounds(step, idle_s=idle_s):
            if len(batch):
                yield batch
            self._settling.done(messages)

    def take_arrow(
        self,
        columns: Sequence[str] | None = None,
        *,
        records_max: int = ARROW_RECORDS_MAX,
        wait_s: float | None = 1.0,
    ) -> "EventBatch | None":
        """Some events as one Arrow batch, or None after `wait_s`. As `take` otherwise."""
        self._settling.done(self._taken)
        self._taken = ()
        step = partial(self._sift_columns, self._column_reading(columns), records_max)
        for messages, batch in self._rounds(step, total_s=wait_s):
            if len(batch):
                self._taken = messages
                return batch
            self._settling.done(messages)
        return None

    def take(self, records_max: int = BATCH_MAX, wait_s: float | None = 1.0) -> list[Event]:
        """Some events as soon as there are any, or none after `wait_s`.

        Events that cannot be read do not end the wait. The next call marks the events as handled.
        """
        self._settling.done(self._taken)
        self._taken = ()
        for sifted in self._rounds(partial(self._sift, records_max), total_s=wait_s):
            messages = [message for message, _ in sifted]
            events = [event for _, event in sifted if event is not None]
            if events:
                self._taken = messages
                return events
            self._settling.done(messages)
        return []

    def commit(self) -> None:
        """Commit all that was handed over so far, the present event included, and wait for it."""
        self._settling.settle()
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
    def offsets(self) -> Offsets:
        """What a transaction commits of this consumer: `producer.transaction(consumer)` asks."""
        return self._offsets

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions the group gave to this member."""
        return frozenset(self._intake.flow.assigned)

    @property
    def flow_stats(self) -> FlowStats:
        """How full the queue was, and how often it was paused."""
        return self._intake.flow.stats

    @property
    def read_stats(self) -> list[tuple[str, SerdeStats]]:
        """By subject: how many events were read, how long it took, and what could not be."""
        found = [(one.subject, one.stats) for one in self._sieve.reading]
        for reading in list(self._column_readings.values()):
            found += reading.stats()
        return found

    @property
    def quarantined(self) -> int:
        """How many events went to quarantine."""
        return self._sieve.quarantine.put_total

    def close(self) -> None:
        """Leave the group. What the program is done with is committed, the present event is not."""
        if self._lease is not None:
            self._lease.close()
        try:
            self._settling.settle()
        finally:
            self._intake.close()
            self._sieve.quarantine.close()

    def _rounds(
        self,
        step: Callable[[float], _Found | None],
        *,
        idle_s: float | None = None,
        total_s: float | None = None,
    ) -> Iterator[_Found]:
        """What each step finds, until none found anything for `idle_s`, or for `total_s` in all."""
        started_s = idle_since_s = time.monotonic()
        wait_s = min(limit for limit in (_TAKE_S, idle_s, total_s) if limit is not None)
        while True:
            found = step(wait_s)
            if found:
                yield found
            else:
                self._settling.settle()
            now_s = time.monotonic()
            if found:
                idle_since_s = now_s
            elif idle_s is not None and now_s - idle_since_s >= idle_s:
                return
            if total_s is not None:
                wait_s = min(wait_s, started_s + total_s - now_s)
                if wait_s <= 0:
                    return

    def _sift(self, records_max: int, wait_s: float | None) -> list[tuple[Message, Event | None]]:
        """The next records, read; they count as handed over."""
        messages, epoch = self._take(records_max, wait_s)
        done, rest, failure = self._sieve.sift(messages)
        self._put_back(rest, epoch, failure, is_first=not done)
        kept = self._still_ours([message for message, _ in done], epoch)
        return [done[index] for index in kept]

    def _sift_columns(
        self, reading: "ColumnReading", records_max: int, wait_s: float | None
    ) -> "tuple[Sequence[Message], EventBatch] | None":
        """The next records of one topic as columns; they count as handed over."""
        taken, epoch = self._take(records_max, wait_s)
        if not taken:
            return None
        topic = taken[0].topic() or ""
        messages = [one for one in taken if one.topic() == topic]
        if len(messages) < len(taken):
            self._intake.put_back([one for one in taken if one.topic() != topic], epoch)
        done, batch, rest, failure = self._sieve.sift_columns(topic, messages, reading)
        self._put_back(rest, epoch, failure, is_first=not done)
        assert batch is not None, "what failed was raised"
        kept = self._still_ours(done, epoch)
        if len(kept) == len(done):
            return done, batch
        done = [done[index] for index in kept]
        return done, batch.among(done)

    def _column_reading(self, columns: Sequence[str] | None) -> "ColumnReading":
        require("arrow")
        from penstock.client.event_batch import ColumnReading  # heavy, and most never ask for it

        key = None if columns is None else tuple(columns)
        found = self._column_readings.get(key)
        if found is None:
            found = ColumnReading(
                _needed(self._registry, "an Arrow batch"),
                self._reader,
                columns,
                plain_indexes=self._plain_indexes,
                validate=self._validate,
            )
            self._column_readings[key] = found
        return found

    def _take(self, records_max: int, wait_s: float | None) -> Taken:
        """Records from the queue; at most once, they are committed before anybody reads them."""
        taken = self._intake.take(records_max, wait_s)
        if self._progress.commits is not Commits.AT_MOST_ONCE:
            return taken
        kept = self._handed_over(taken.messages, taken.epoch)
        return Taken([taken.messages[index] for index in kept], taken.epoch)

    def _put_back(
        self, rest: Sequence[Message], epoch: int, failure: ClientError | None, *, is_first: bool
    ) -> None:
        """What could not be read comes again; why is raised once there is nothing before it."""
        if failure is not None:
            self._intake.put_back(rest, epoch)
            if is_first:
                raise failure

    def _still_ours(self, messages: Sequence[Message], epoch: int) -> Sequence[int]:
        if self._progress.commits is Commits.AT_MOST_ONCE:
            return range(len(messages))
        return self._handed_over(messages, epoch)

    def _handed_over(self, messages: Sequence[Message], epoch: int) -> Sequence[int]:
        """The places of those that did not go to another member meanwhile."""
        if not messages:
            return ()
        flow = self._intake.flow
        return self._progress.handing_over(
            messages, lambda partition: flow.is_current(partition, epoch)
        )


def _topic_names(topics: str | Sequence[str]) -> list[str]:
    try:
        names = [topics] if isinstance(topics, str) else list(topics)
    except TypeError:
        names = []
    if not names or not all(names):
        raise ArgumentError(f"topics is {topics!r}: give a topic's name, or a list of names")
    return names


def _needed(registry: Registry | None, by: str) -> Registry:
    if registry is None:
        raise ClientError(
            f"{by} needs a schema, and there is no registry to ask for it: pass "
            "registry=Registry('http://host:8081')"
        )
    return registry


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
