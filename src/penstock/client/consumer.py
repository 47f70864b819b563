"""Reads events of topics as a member of a group.

    with Consumer("127.0.0.1:9092", "orders", group="billing", registry=registry) as consumer:
        for event in consumer:
            print(event.offset, event.value)

Polls on a thread of its own, so a slow program stays in its group; a bounded queue in between
pauses and resumes fetching. Unreadable events go to `<topic>.quarantine`. While the registry is
down, events with cached schemas are read, and others are waited for.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from confluent_kafka import Message

from penstock.client.commit_tracker import (
    CommitMode,
    CommitTracker,
    HandledOffsets,
    OffsetSpan,
    spans_of,
)
from penstock.client.decode_filter import DecodeFilter, OnDecodeError
from penstock.client.event import Event, RecordReader
from penstock.client.flow_control import FlowControl, FlowLimits, FlowStats
from penstock.client.kafka_messages import partition_of
from penstock.client.poll_thread import BATCH_MAX, PollThread
from penstock.client.quarantine_writer import QuarantineWriter
from penstock.client.reader_lease import ReaderLease
from penstock.client.registry import Registry
from penstock.client.transaction import UncommittedEvents
from penstock.closing import Closing
from penstock.extras import require
from penstock.link.settings import connection_settings
from penstock.model import Offset, TopicPartition
from penstock.schemas.readers import Reader
from penstock.serde.contract import Contract
from penstock.serde.errors import ArgumentError, ClientError
from penstock.serde.serde_stats import SerdeStats

if TYPE_CHECKING:
    from penstock.client.event_batch import ColumnReader, EventBatch
    from penstock.client.fetched_rows import FetchedRows
    from penstock.client.tracing import Tracing

REGISTRY_WAIT_S: Final = 60.0
ARROW_RECORDS_MAX: Final = 10_000  # in one Arrow batch; columns are cheap for many records
_POLL_S: Final = 0.5  # how often an idle iteration wakes up
_Result = TypeVar("_Result")


class Consumer(Closing):
    """Reads topics, alone or with other members of its group. For one thread of the program.

    `value` is the reader's contract: events have its schema; without one, that of their writer.
    Without a registry, values are bytes. Keys are bytes unless `framed_keys` is set or `key` has a
    contract. `reader` declares this program to the registry, which then refuses changes that would
    break it: Reader("fraud-scorer", "7", fields=("id", "coupon")); the consumer renews that while
    it runs. JSON values are checked against the schema unless `validate` is False. `commit_mode`
    says when an event counts as handled. `flow` limits what waits in memory. `settings` are
    librdkafka's, by its names. `tracing` makes spans that continue or link the traces of events.
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
        commit_mode: CommitMode = CommitMode.AT_LEAST_ONCE,
        on_decode_error: OnDecodeError = OnDecodeError.QUARANTINE,
        flow: FlowLimits | None = None,
        start: str = "earliest",
        registry_wait_s: float = REGISTRY_WAIT_S,
        settings: Mapping[str, Any] | None = None,
        tracing: "Tracing | None" = None,
    ) -> None:
        if not group:  # librdkafka's binding would abort the process
            raise ArgumentError(f"group is {group!r}: a consumer needs the name of a group")
        names = _topic_names(topics)
        if reader is not None:
            _required(registry, "a reader")
        events = RecordReader(
            registry, value=value, key=key, framed_keys=framed_keys or key is not None,
            as_dicts=as_dicts, plain_indexes=plain_indexes, validate=validate,
        )  # fmt: skip
        self._decoding = DecodeFilter(
            events, QuarantineWriter(bootstrap, connection_settings(settings)), on_decode_error,
            in_transactions=commit_mode is CommitMode.EXACTLY_ONCE,
            registry_wait_s=registry_wait_s, client=group,
            reader_name=None if reader is None else reader.title,
        )  # fmt: skip
        self._taken: Sequence[Message] | FetchedRows = ()
        self._epoch = 0  # of the records decoded last
        self._registry, self._contract, self._tracing = registry, value, tracing
        self._plain_indexes, self._validate = plain_indexes, validate
        self._column_readers: dict[tuple[str, ...] | None, ColumnReader] = {}
        limits = flow or FlowLimits()
        own = {**_settings(group, commit_mode, start, limits), **(settings or {})}
        self._polling = PollThread(bootstrap, FlowControl(limits), own)
        self._tracker = CommitTracker(self._polling, commit_mode)
        self._uncommitted = UncommittedEvents(self._polling, self._tracker, self._decoding)
        self._handled = HandledOffsets(self._decoding.quarantine, self._tracker)
        self._polling.start(names, self._tracker.on_revoked)
        self._lease = ReaderLease(registry, names, reader, value) if registry and reader else None

    def __iter__(self) -> Iterator[Event]:
        return self.events()

    def events(self, *, idle_s: float | None = None) -> Iterator[Event]:
        """Events one by one, without end, or until none came for `idle_s`.

        Taking the next one means that this one is handled. If the loop is left in the middle of an
        event, that event comes again (unless the mode is at-most-once).
        """
        step = partial(self._decode, self.events_per_step)
        for decoded in self._steps(step, idle_s=idle_s):
            for message, event in decoded:
                if event is not None and self._tracing is not None:
                    with self._tracing.process(event):
                        yield event
                elif event is not None:
                    yield event
                self._handled.add(spans_of([message]), 1)

    @property
    def events_per_step(self) -> int:
        """How many events an iteration over single events takes from the queue together.

        One, because a rebalance or a roll-back may still drop what is in the queue; at most once,
        they are committed together before the first is delivered.
        """
        return BATCH_MAX if self._tracker.mode is CommitMode.AT_MOST_ONCE else 1

    def batches(
        self, *, records_max: int = BATCH_MAX, idle_s: float | None = None
    ) -> Iterator[list[Event]]:
        """Events in lists of those that are ready, at most `records_max`.

        Taking the next list means that this one is handled.
        """
        for decoded in self._steps(partial(self._decode, records_max), idle_s=idle_s):
            batch = [event for _, event in decoded if event is not None]
            if batch and self._tracing is not None:
                with self._tracing.process(batch):
                    yield batch
            elif batch:
                yield batch
            self._handled.add(spans_of(message for message, _ in decoded), len(decoded))

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

        `columns` are the fields to read, in that order; all without it. The schema is that of the
        `value` contract, or the latest version of the subject. Taking the next batch means that
        this one is handled.
        """
        step = partial(self._decode_columns, self._column_reader(columns), records_max)
        for rows, batch in self._steps(step, idle_s=idle_s):
            if len(batch) and self._tracing is not None:
                with self._tracing.batch_span(rows.topic, rows.header_sample(), len(batch)):
                    yield batch
            elif len(batch):
                yield batch
            self._handled.add(rows.spans(), len(rows))

    def take(self, records_max: int = BATCH_MAX, wait_s: float | None = 1.0) -> list[Event]:
        """Some events as soon as there are any, or none after `wait_s`.

        Unreadable events do not end the wait. The next call marks these events as handled.
        """
        self._handle_taken()
        began_ns = time.time_ns()
        for decoded in self._steps(partial(self._decode, records_max), total_s=wait_s):
            messages = [message for message, _ in decoded]
            events = [event for _, event in decoded if event is not None]
            if events:
                self._taken = messages
                if self._tracing is not None:
                    self._tracing.received(
                        events[0].topic, [event.headers for event in events], began_ns
                    )
                return events
            self._handled.add(spans_of(messages), len(messages))
        return []

    def take_arrow(
        self,
        columns: Sequence[str] | None = None,
        *,
        records_max: int = ARROW_RECORDS_MAX,
        wait_s: float | None = 1.0,
    ) -> "EventBatch | None":
        """Some events as one Arrow batch, or None after `wait_s`. Otherwise as `take`."""
        self._handle_taken()
        began_ns = time.time_ns()
        step = partial(self._decode_columns, self._column_reader(columns), records_max)
        for rows, batch in self._steps(step, total_s=wait_s):
            if len(batch):
                self._taken = rows
                if self._tracing is not None:
                    self._tracing.received(rows.topic, rows.header_sample(), began_ns, len(batch))
                return batch
            self._handled.add(rows.spans(), len(rows))
        return None

    def put_back_taken(self) -> None:
        """Undo the last `take` or `take_arrow`, whose events the program did not get."""
        taken, self._taken = self._taken, ()
        if isinstance(taken, Sequence):
            self._tracker.undeliver(spans_of(taken))
            self._polling.put_back(taken, self._epoch)
        else:
            self._tracker.undeliver(taken.spans())
            self._polling.put_back_rows(taken, self._epoch)

    def _handle_taken(self) -> None:
        taken, self._taken = self._taken, ()
        spans = spans_of(taken) if isinstance(taken, Sequence) else taken.spans()
        self._handled.add(spans, len(taken))

    def commit(self) -> None:
        """Commit all events that were delivered, the current one included, and wait."""
        self._handled.release()
        self._tracker.commit()

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop fetching these partitions until `resume`, also after rebalances."""
        self._polling.pause(partitions)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Fetch these partitions again."""
        self._polling.resume(partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue reading a partition at an offset."""
        self._polling.seek({partition: Offset(offset)})

    @property
    def uncommitted(self) -> UncommittedEvents:
        """What `producer.transaction(consumer)` commits."""
        return self._uncommitted

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the group assigned to this member."""
        return frozenset(self._polling.flow.assigned)

    @property
    def flow_stats(self) -> FlowStats:
        """How full the queue was, and how often fetching was paused."""
        return self._polling.flow.stats

    @property
    def read_stats(self) -> list[tuple[str, SerdeStats]]:
        """By subject: how many events were read, how long it took, and which failed."""
        stats = [(reader.subject, reader.stats) for reader in self._decoding.reader]
        for columns in list(self._column_readers.values()):
            stats += columns.stats()
        return stats

    @property
    def quarantined(self) -> int:
        """How many events were sent to quarantine."""
        return self._decoding.quarantine.written_total

    def close(self) -> None:
        """Leave the group. Handled events are committed, the current one is not."""
        if self._lease is not None:
            self._lease.close()
        try:
            self._handled.release()
        finally:
            self._polling.close()
            self._decoding.quarantine.close()

    def _steps(
        self,
        step: Callable[[float], _Result | None],
        *,
        idle_s: float | None = None,
        total_s: float | None = None,
    ) -> Iterator[_Result]:
        """The results of each step, until there were none for `idle_s`, or after `total_s`."""
        started_s = idle_since_s = time.monotonic()
        wait_s = min(limit for limit in (_POLL_S, idle_s, total_s) if limit is not None)
        while True:
            result = step(wait_s)
            if result:
                yield result
            else:
                self._handled.release()
            now_s = time.monotonic()
            if result:
                idle_since_s = now_s
            elif idle_s is not None and now_s - idle_since_s >= idle_s:
                return
            if total_s is not None:
                wait_s = min(wait_s, started_s + total_s - now_s)
                if wait_s <= 0:
                    return

    def _decode(self, records_max: int, wait_s: float | None) -> list[tuple[Message, Event | None]]:
        """The next records, decoded; they count as delivered."""
        taken = self._polling.take(records_max, wait_s)
        messages, self._epoch = taken
        if self._tracker.mode is CommitMode.AT_MOST_ONCE:  # before they are decoded
            allowed = self._deliver(spans_of(messages))
            messages = [message for message in messages if partition_of(message) in allowed]
        done, rest, failure = self._decoding.decode(messages)
        if failure is not None:
            self._polling.put_back(rest, self._epoch)
            if not done:
                raise failure
        if not done or self._tracker.mode is CommitMode.AT_MOST_ONCE:
            return done
        spans = spans_of(message for message, _ in done)
        allowed = self._deliver(spans)
        if len(allowed) == len(spans):
            return done
        return [(message, event) for message, event in done if partition_of(message) in allowed]

    def _decode_columns(
        self, reader: "ColumnReader", records_max: int, wait_s: float | None
    ) -> "tuple[FetchedRows, EventBatch] | None":
        """The next records of one topic as columns; they count as delivered."""
        rows, self._epoch = self._polling.take_rows(records_max, wait_s)
        if len(rows) and self._tracker.mode is CommitMode.AT_MOST_ONCE:  # before they are decoded
            rows, _ = rows.of(self._deliver(rows.spans()))
        if not len(rows):
            return None
        done, batch, rest, failure = self._decoding.decode_columns(rows, reader)
        if failure is not None:
            self._polling.put_back_rows(rest, self._epoch)
            if not len(done):
                raise failure
        assert batch is not None, "a failure of the first record was raised"
        if self._tracker.mode is CommitMode.AT_MOST_ONCE:
            return done, batch
        allowed = self._deliver(done.spans())
        return done.of(allowed)[0], batch.of(allowed)

    def _column_reader(self, columns: Sequence[str] | None) -> "ColumnReader":
        require("arrow")
        from penstock.client.event_batch import ColumnReader  # heavy, and most programs lack it

        key = None if columns is None else tuple(columns)
        reader = self._column_readers.get(key)
        if reader is None:
            reader = self._column_readers[key] = ColumnReader(
                _required(self._registry, "an Arrow batch"),
                self._contract,
                columns,
                plain_indexes=self._plain_indexes,
                validate=self._validate,
            )
        return reader

    def _deliver(self, spans: Mapping[TopicPartition, OffsetSpan]) -> set[TopicPartition]:
        """The partitions that were not revoked meanwhile."""
        flow, epoch = self._polling.flow, self._epoch
        return self._tracker.deliver(spans, lambda partition: flow.is_current(partition, epoch))


def _topic_names(topics: str | Sequence[str]) -> list[str]:
    try:
        names = [topics] if isinstance(topics, str) else list(topics)
    except TypeError:
        names = []
    if not names or not all(names):
        raise ArgumentError(f"topics is {topics!r}: pass the name of a topic, or a list of names")
    return names


def _required(registry: Registry | None, purpose: str) -> Registry:
    if registry is None:
        raise ClientError(
            f"{purpose} needs a schema from a registry: pass registry=Registry('http://host:8081')"
        )
    return registry


def _settings(group: str, mode: CommitMode, start: str, limits: FlowLimits) -> dict[str, Any]:
    return {
        "group.id": group,
        "auto.offset.reset": start,
        # librdkafka commits the stored offsets, at intervals and when it is closed.
        "enable.auto.commit": mode is CommitMode.AT_LEAST_ONCE,
        "auto.commit.interval.ms": 1000,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed",
        # librdkafka's own queue is memory too.
        "queued.max.messages.kbytes": max(1024, limits.high_bytes // 1024),
        "queued.min.messages": min(100_000, limits.high_records),
    }
