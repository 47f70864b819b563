"""A thread that polls librdkafka, and a bounded queue between it and the program.

Records are fetched by librdkafka one by one, or as columns by a `ColumnFetcher`; the first `take`
of the other kind switches, and continues with the first record that was not taken.

The thread never stops polling, so the member stays in its group however slow the program is: above
the high watermark partitions are paused and polling continues. When partitions are revoked, their
queued records are dropped: the next owner starts at the committed offset.

No other thread uses the Kafka consumer: confluent-kafka's can deadlock (2.16: one call waits with
the interpreter's lock for another that needs it to end). Commands of other threads run on this
thread between two polls.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.client.errors import ClosedError, WaitTimeoutError
from penstock.client.flow_control import FlowControl
from penstock.client.kafka_errors import (
    BrokerError,
    KafkaReports,
    connect_client,
    ends_reading,
    is_unknown_topic,
)
from penstock.client.kafka_messages import (
    kafka_partitions,
    message_bytes,
    offset_of,
    own_partitions,
    partition_of,
    size_bytes,
)
from penstock.client.rate_limited_log import RateLimitedLog
from penstock.errors import Refused
from penstock.link.settings import link_settings
from penstock.model import Offset, TopicPartition
from penstock.serde.errors import ArgumentError

if TYPE_CHECKING:
    from penstock.client.column_fetcher import ColumnFetcher
    from penstock.client.fetched_rows import FetchedRows

logger: Final = logging.getLogger(__name__)

BATCH_MAX: Final = 500
ASSIGNMENT_S: Final = 5.0  # without an assignment before a warning gives the reason
_POLL_S: Final = 0.05
_COMMAND_S: Final = 30.0

_Result = TypeVar("_Result")
OnRevoked = Callable[[list[TopicPartition]], None]


class TakenRecords(NamedTuple):
    """Records, and the flow control's epoch in which they left the queue."""

    messages: list[Message]
    epoch: int


class TakenRows(NamedTuple):
    """The same as columns, of one topic."""

    rows: "FetchedRows"
    epoch: int


class PollThread:
    """One member of a group, and the records that it fetched."""

    def __init__(
        self,
        bootstrap: str,
        flow: FlowControl,
        settings: Mapping[str, Any],
    ) -> None:
        self.flow = flow
        self._on_revoked: OnRevoked = lambda _partitions: None
        self._is_cooperative = _is_cooperative(settings)
        self._bootstrap = bootstrap
        self._settings = settings
        self._reports = KafkaReports(bootstrap)
        self._lines = RateLimitedLog(logger)
        self._kafka = connect_client(KafkaConsumer, bootstrap, settings, self._reports)
        self._metadata: Any = None  # this member's group metadata, as last read
        self._changed = threading.Condition()  # guards the queue, the flow and the failure
        self._queue: deque[Message] = deque()
        self._columns: ColumnFetcher | None = None  # most programs never use it
        self._sought: dict[TopicPartition, Offset] = {}  # and no record fetched since
        self._commands: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._stored: dict[TopicPartition, Offset] = {}  # end offsets for librdkafka to commit
        self._failure: BrokerError | None = None
        self._largest_bytes = 1 << 20  # an estimate of the largest record
        self._started_s = 0.0
        self._was_assigned = False  # at least once, perhaps nothing
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="consumer-poll", daemon=True)

    def start(self, topics: Sequence[str], on_revoked: OnRevoked) -> None:
        """Join the group and fetch; `on_revoked` gets the partitions that were revoked."""
        self._on_revoked = on_revoked
        try:
            self._kafka.subscribe(
                list(topics), on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lose
            )
        except (KafkaException, TypeError) as failure:
            self._kafka.close()
            raise ArgumentError(f"cannot subscribe to {topics!r}: {failure}") from None
        self._started_s = time.monotonic()
        self._thread.start()

    def take(self, records_max: int, wait_s: float | None) -> TakenRecords:
        """Up to `records_max` records, as soon as there is one; none after `wait_s`."""
        self._fetch_as(columns=False)
        with self._changed:
            self._changed.wait_for(self._is_ready, wait_s)
            taken = [self._queue.popleft() for _ in range(min(records_max, len(self._queue)))]
            self.flow.on_removed(len(taken), size_bytes(taken))
            if not taken:
                self._raise_failure()
            return TakenRecords(taken, self.flow.epoch)

    def take_rows(self, records_max: int, wait_s: float | None) -> TakenRows:
        """The same as columns, of one topic."""
        from penstock.client.fetched_rows import FetchedRows  # with the kernels

        self._fetch_as(columns=True)
        with self._changed:
            self._changed.wait_for(self._is_ready, wait_s)
            parts = [] if self._columns is None else self._columns.take(records_max)
            if not parts:
                self._raise_failure()
            return TakenRows(FetchedRows(parts), self.flow.epoch)

    def _is_ready(self) -> bool:
        has_rows = self._columns is not None and not self._columns.is_empty
        is_over = self._failure is not None or self._stopping.is_set()
        return bool(self._queue) or has_rows or is_over

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._stopping.is_set():
            raise ClosedError("the consumer is closed")

    def put_back(self, messages: Sequence[Message], epoch: int) -> None:
        """Queue records again, before the others, that were taken in an epoch and not used."""
        with self._changed:
            is_current = self.flow.is_current
            current = [each for each in messages if is_current(partition_of(each), epoch)]
            self._queue.extendleft(reversed(current))
            self.flow.on_returned(len(current), size_bytes(current))

    def put_back_rows(self, rows: "FetchedRows", epoch: int) -> None:
        """The same with columns."""
        with self._changed:
            if self._columns is not None and self.flow.is_external:
                self._columns.put_back(
                    [part for part in rows.parts if self.flow.is_current(part.partition, epoch)]
                )

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching these until `resume`, rebalances included."""
        with self._changed:
            self.flow.paused_by_program.update(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch these again."""
        with self._changed:
            self.flow.paused_by_program.difference_update(partitions)

    def seek(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Continue at these offsets; queued records of these partitions are dropped."""
        self._on_thread(lambda: self._seek(offsets), "seeking")

    def store(self, end_offsets: Mapping[TopicPartition, Offset]) -> None:
        """Let librdkafka commit these soon."""
        with self._changed:
            self._stored.update(end_offsets)

    def commit(self, end_offsets: Mapping[TopicPartition, Offset]) -> None:
        """Commit these now, and wait."""
        offsets = [KafkaPartition(*partition, offset) for partition, offset in end_offsets.items()]
        results = self._on_thread(
            lambda: self._kafka.commit(offsets=offsets, asynchronous=False), "committing offsets"
        )
        for result in results or ():
            if result.error is not None:
                raise BrokerError(result.error, f"committing {result.topic}")

    def group_metadata(self) -> Any:
        """This member's group metadata; if it is outdated, the broker refuses it."""
        if self._metadata is None:
            self._on_thread(self._read_group_metadata, "reading the group metadata")
        return self._metadata

    def close(self) -> None:
        """Leave the group; stored offsets are committed."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._thread.join()
        if self._columns is not None:
            self._columns.close()
        try:
            self._store_offsets()
            self._kafka.close()
        finally:
            with self._changed:
                self._changed.notify_all()
                for _, future in self._commands:
                    future.set_exception(ClosedError("the consumer is closed"))
                self._commands.clear()

    def _on_thread(self, command: Callable[[], _Result], doing: str) -> _Result:
        future: Future[_Result] = Future()
        with self._changed:
            if self._stopping.is_set():
                raise ClosedError("the consumer is closed")
            self._commands.append((command, future))
        try:
            return future.result(_COMMAND_S)
        except KafkaException as failure:
            raise BrokerError(failure.args[0], doing) from None
        except TimeoutError:
            raise WaitTimeoutError(f"{doing} took longer than {_COMMAND_S:.0f} s") from None

    def _fetch_as(self, *, columns: bool) -> None:
        if self.flow.is_external is columns or self._stopping.is_set():
            return
        if self._columns is None:
            self._columns = self._make_fetcher()
        self._on_thread(partial(self._switch, columns), "changing how records are fetched")

    def _make_fetcher(self) -> "ColumnFetcher":
        from penstock.client.column_fetcher import ColumnFetcher, fetch_source  # with the kernels

        try:
            link = link_settings({key: str(value) for key, value in self._settings.items()})
            source = fetch_source(self._bootstrap, link, self._settings)
        except (Refused, KeyError) as refusal:
            raise ArgumentError(
                f"columns cannot be fetched with these settings: {refusal}"
            ) from None
        fetcher = ColumnFetcher(source, self.flow, self._changed, self._fail)
        fetcher.start()
        return fetcher

    def _switch(self, columns: bool) -> None:
        """Continue at the first record of each partition that was not taken."""
        assert self._columns is not None, "made before"
        with self._changed:
            assigned = sorted(self.flow.assigned)
        placed = self._kafka.position(kafka_partitions(assigned)) if columns and assigned else ()
        with self._changed:
            self.flow.is_external = columns
            if columns:
                positions: dict[TopicPartition, Offset | None] = dict.fromkeys(assigned)
                offsets = [partition.offset for partition in placed]
                reached = dict(zip(own_partitions(placed), offsets, strict=True))
                positions |= {partition: Offset(at) for partition, at in reached.items() if at >= 0}
                positions |= self._sought
                positions |= {partition_of(each): offset_of(each) for each in reversed(self._queue)}
                self.flow.on_discarded(len(self._queue), size_bytes(self._queue))
                self._queue.clear()
                self._columns.assign({partition: positions[partition] for partition in assigned})
                continued = {}
            else:
                continued = self._columns.release()
                self._sought |= continued
        for (topic, partition), offset in continued.items():
            self._kafka.seek(KafkaPartition(topic, partition, offset))
        self._pause_and_resume()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._run_commands()
                self._pause_and_resume()
                self._fetch()
                self._report_waiting()
            except KafkaException as failure:
                self._fail(BrokerError(failure.args[0], "reading"))
                time.sleep(_POLL_S)

    def _run_commands(self) -> None:
        if self._metadata is not None:
            self._read_group_metadata()
        self._store_offsets()
        while self._commands:
            command, future = self._commands.popleft()
            try:
                future.set_result(command())
            except KafkaException as failure:
                future.set_exception(failure)

    def _read_group_metadata(self) -> None:
        self._metadata = self._kafka.consumer_group_metadata()

    def _store_offsets(self) -> None:
        with self._changed:
            stored, self._stored = self._stored, {}
        for partition, end_offset in stored.items():
            try:
                self._kafka.store_offsets(offsets=[KafkaPartition(*partition, end_offset)])
            except KafkaException as failure:
                if failure.args[0].code() != KafkaError._STATE:  # noqa: SLF001 - revoked meanwhile
                    raise

    def _pause_and_resume(self) -> None:
        with self._changed:
            pause, resume = self.flow.changes()
        if pause:
            self._kafka.pause(kafka_partitions(pause))
        if resume:
            self._kafka.resume(kafka_partitions(resume))

    def _fetch(self) -> None:
        """Wait for one record, and take as many more as are ready and fit the queue."""
        with self._changed:
            fitting = self.flow.capacity_bytes // self._largest_bytes
            records_max = max(1, min(BATCH_MAX, self.flow.capacity_records, fitting))
        first = self._kafka.poll(_POLL_S)
        if first is None:
            return
        messages = [first]
        if records_max > 1:
            messages += self._kafka.consume(records_max - 1, 0)
        self._enqueue(messages)

    def _enqueue(self, messages: list[Message]) -> None:
        records = []
        for message in messages:
            error = message.error()
            if error is None:
                records.append(message)
            elif ends_reading(error):
                self._fail(BrokerError(error, f"reading {message.topic() or ''}"))
            elif is_unknown_topic(error):
                self._report_unknown(message.topic() or "")
            else:
                logger.debug("reading continues after: %s", error)
        if not records or self.flow.is_external:  # those before a switch: fetched again
            return
        sizes = [message_bytes(record) for record in records]
        with self._changed:
            self._queue.extend(records)
            if self._sought:
                for record in records:
                    self._sought.pop(partition_of(record), None)
            self.flow.on_fetched(len(records), sum(sizes))
            # Up immediately, down slowly: one large record says more than many small ones.
            self._largest_bytes = max(*sizes, self._largest_bytes * 3 // 4, 1)
            self._changed.notify_all()

    def _report_unknown(self, topic: str) -> None:
        self._reports.last_error = f"topic {topic!r} does not exist"
        self._lines.log(
            topic, logging.WARNING,
            "topic %r does not exist at %s; reading starts once it is created. Is the name right?",
            topic, self._bootstrap,
        )  # fmt: skip

    def _report_waiting(self) -> None:
        """Make an unreachable cluster look different from an empty topic."""
        waited_s = time.monotonic() - self._started_s
        if not self._was_assigned and waited_s >= ASSIGNMENT_S:
            self._lines.log(
                None, logging.WARNING, "cannot read from %s yet, after %.0f s: %s",
                self._bootstrap, waited_s,
                self._reports.last_error or "the group has not assigned partitions",
            )  # fmt: skip

    def _fail(self, failure: BrokerError) -> None:
        with self._changed:
            self._failure = failure
            self._changed.notify_all()

    def _assign(self, kafka: KafkaConsumer, partitions: list[KafkaPartition]) -> None:
        self._was_assigned = True
        with self._changed:
            own = own_partitions(partitions)
            self.flow.on_assigned(own)
            if self._columns is not None and self.flow.is_external:
                self._columns.assign(dict.fromkeys(own))
        if self._is_cooperative:
            kafka.incremental_assign(partitions)
        else:
            kafka.assign(partitions)
        self._pause_and_resume()  # before the first record can arrive

    def _revoke(self, kafka: KafkaConsumer, partitions: list[KafkaPartition]) -> None:
        self._store_offsets()  # handled events are committed before the partitions are revoked
        self._on_partitions_revoked(own_partitions(partitions))
        if self._is_cooperative:
            kafka.incremental_unassign(partitions)
        else:
            kafka.unassign()

    def _lose(self, kafka: KafkaConsumer, partitions: list[KafkaPartition]) -> None:
        self._revoke(kafka, partitions)

    def _on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        with self._changed:
            self.flow.on_revoked(partitions)
            self._drop(set(partitions))
            if self._columns is not None:
                self._columns.revoke(partitions)
            for partition in partitions:
                self._sought.pop(partition, None)
        self._on_revoked(partitions)

    def _drop(self, partitions: set[TopicPartition]) -> None:
        dropped = [each for each in self._queue if partition_of(each) in partitions]
        if dropped:
            self._queue = deque(
                each for each in self._queue if partition_of(each) not in partitions
            )
            self.flow.on_removed(len(dropped), size_bytes(dropped), dropped=True)

    def _seek(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        with self._changed:
            assigned = {key: offset for key, offset in offsets.items() if key in self.flow.assigned}
            self.flow.invalidate(assigned)
            self._drop(set(assigned))
            if self._columns is not None and self.flow.is_external:
                self._columns.drop(set(assigned))
                self._columns.assign(assigned)
                return
            self._sought |= assigned
        for (topic, partition), offset in assigned.items():
            self._kafka.seek(KafkaPartition(topic, partition, offset))


def _is_cooperative(settings: Mapping[str, Any]) -> bool:
    strategy = str(settings.get("partition.assignment.strategy", ""))
    return "cooperative" in strategy or settings.get("group.protocol") == "consumer"
