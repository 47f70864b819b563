"""Records on their way to the program: a thread that never stops polling, and a bounded queue.

The thread polls all the time, so the member stays in its group however slow the program is: above
the high-water mark partitions are paused, and polled on. When partitions are revoked, what still
waits of them is dropped: whoever has them now begins at the committed offset.

No other thread touches the client: confluent-kafka's consumer can deadlock (2.16: one call waits
with the interpreter's lock for another that needs it to end). What others want done is left for
the thread to do between two polls.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.client.flow_control import RECORD_OVERHEAD_BYTES, Flow
from penstock.client.kafka_errors import (
    BrokerError,
    KafkaReports,
    connected,
    ends_reading,
    is_unknown_topic,
)
from penstock.client.rate_limited_log import RateLimitedLog
from penstock.model import Offset, TopicPartition
from penstock.serde.errors import ArgumentError, ClosedError, WaitTimeoutError

logger = logging.getLogger(__name__)

BATCH_MAX: Final = 500
ASSIGNMENT_S: Final = 5.0  # without an assignment before a warning says what is being waited for
_POLL_S: Final = 0.05
_COMMAND_S: Final = 30.0

_Answer = TypeVar("_Answer")
OnRevoked = Callable[[list[TopicPartition]], None]


class Taken(NamedTuple):
    """Records, and the flow's epoch in which they left the queue."""

    messages: list[Message]
    epoch: int


class Intake:
    """One member of a group, or a reader of its own, and what it fetched."""

    def __init__(
        self,
        bootstrap: str,
        flow: Flow,
        settings: Mapping[str, Any],
    ) -> None:
        self.flow = flow
        self._on_revoked: OnRevoked = lambda partitions: None
        self._is_cooperative = _is_cooperative(settings)
        self._bootstrap = bootstrap
        self._reports = KafkaReports(bootstrap)
        self._lines = RateLimitedLog(logger)
        self._kafka = connected(KafkaConsumer, bootstrap, settings, self._reports)
        self._metadata: Any = None  # who we were in the group when last looked
        self._changed = threading.Condition()  # guards the queue, the flow and the failure
        self._queue: deque[Message] = deque()
        self._commands: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._ends: dict[TopicPartition, Offset] = {}  # to be stored, and so committed
        self._failure: BrokerError | None = None
        self._largest_bytes = 1 << 20  # of a record, until one was seen
        self._started_s = 0.0
        self._was_assigned = False  # at least once, perhaps nothing
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="intake", daemon=True)

    def start(self, topics: Sequence[str], on_revoked: OnRevoked) -> None:
        """Join the group and read; `on_revoked` is told which partitions went elsewhere."""
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

    def take(self, records_max: int, wait_s: float | None) -> Taken:
        """Up to so many records, as soon as there is one; none when the time is over."""
        with self._changed:
            self._changed.wait_for(self._has_news, wait_s)
            taken = [self._queue.popleft() for _ in range(min(records_max, len(self._queue)))]
            self.flow.left(len(taken), _size_bytes(taken))
            if not taken and self._failure is not None:
                raise self._failure
            if not taken and self._stopping.is_set():
                raise ClosedError("the consumer was closed")
            return Taken(taken, self.flow.epoch)

    def _has_news(self) -> bool:
        return bool(self._queue) or self._failure is not None or self._stopping.is_set()

    def put_back(self, messages: Sequence[Message], epoch: int) -> None:
        """What was taken in an epoch and could not be used yet comes first again."""
        with self._changed:
            kept = [one for one in messages if self.flow.is_current(partition_of(one), epoch)]
            self._queue.extendleft(reversed(kept))
            self.flow.returned(len(kept), _size_bytes(kept))

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch no more of these until they are released; rebalances do not release them."""
        with self._changed:
            self.flow.held.update(partitions)

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch these again."""
        with self._changed:
            self.flow.held.difference_update(partitions)

    def seek(self, places: Mapping[TopicPartition, Offset]) -> None:
        """Go back, or forward; what waits of these partitions is dropped."""
        self._on_thread(lambda: self._seek(places), "seeking")

    def store(self, ends: Mapping[TopicPartition, Offset]) -> None:
        """All before these is done, and is committed before long."""
        with self._changed:
            self._ends.update(ends)

    def commit(self, ends: Mapping[TopicPartition, Offset]) -> None:
        """Commit these, and wait for it."""
        places = [KafkaPartition(*one, offset) for one, offset in ends.items()]
        answers = self._on_thread(
            lambda: self._kafka.commit(offsets=places, asynchronous=False), "committing offsets"
        )
        for place in answers or ():
            if place.error is not None:
                raise BrokerError(place.error, f"committing {place.topic}")

    def group_metadata(self) -> Any:
        """Who we are in the group, or were a moment ago; in that case the broker declines."""
        if self._metadata is None:
            self._on_thread(self._look_at_group, "asking for the group")
        return self._metadata

    def close(self) -> None:
        """Leave the group; offsets that were stored are committed."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._thread.join()
        try:
            self._store()
            self._kafka.close()
        finally:
            with self._changed:
                self._changed.notify_all()
                for _, future in self._commands:
                    future.set_exception(ClosedError("the consumer was closed"))
                self._commands.clear()

    def _on_thread(self, command: Callable[[], _Answer], doing: str) -> _Answer:
        future: Future[_Answer] = Future()
        with self._changed:
            if self._stopping.is_set():
                raise ClosedError("the consumer was closed")
            self._commands.append((command, future))
        try:
            return future.result(_COMMAND_S)
        except KafkaException as failure:
            raise BrokerError(failure.args[0], doing) from None
        except TimeoutError:
            raise WaitTimeoutError(f"{doing} took longer than {_COMMAND_S:.0f} s") from None

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._obey()
                self._steer()
                self._fetch()
                self._report_waiting()
            except KafkaException as failure:
                self._fail(BrokerError(failure.args[0], "reading"))
                time.sleep(_POLL_S)

    def _obey(self) -> None:
        if self._metadata is not None:
            self._look_at_group()
        self._store()
        while self._commands:
            command, future = self._commands.popleft()
            try:
                future.set_result(command())
            except KafkaException as failure:
                future.set_exception(failure)

    def _look_at_group(self) -> None:
        self._metadata = self._kafka.consumer_group_metadata()

    def _store(self) -> None:
        with self._changed:
            ends, self._ends = self._ends, {}
        for partition, end_offset in ends.items():
            try:
                self._kafka.store_offsets(offsets=[KafkaPartition(*partition, end_offset)])
            except KafkaException as failure:
                if failure.args[0].code() != KafkaError._STATE:  # noqa: SLF001 - not ours any more
                    raise

    def _steer(self) -> None:
        with self._changed:
            pause, resume = self.flow.steer()
        if pause:
            self._kafka.pause(_kafka_partitions(pause))
        if resume:
            self._kafka.resume(_kafka_partitions(resume))

    def _fetch(self) -> None:
        """Wait for one record, and take what else is there; less of it when records are large."""
        with self._changed:
            fitting = self.flow.room_bytes // self._largest_bytes
            wanted = max(1, min(BATCH_MAX, self.flow.room_records, fitting))
        first = self._kafka.poll(_POLL_S)
        if first is None:
            return
        messages = [first]
        if wanted > 1:
            messages += self._kafka.consume(wanted - 1, 0)
        self._keep(messages)

    def _keep(self, messages: list[Message]) -> None:
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
                logger.debug("reading goes on after: %s", error)
        if not records:
            return
        sizes = [_message_bytes(one) for one in records]
        with self._changed:
            self._queue.extend(records)
            self.flow.arrived(len(records), sum(sizes))
            # Slowly down, at once up: one large record says more than many small ones.
            self._largest_bytes = max(*sizes, self._largest_bytes * 3 // 4, 1)
            self._changed.notify_all()

    def _report_unknown(self, topic: str) -> None:
        self._reports.last_error = f"there is no topic {topic!r}"
        self._lines.log(
            topic, logging.WARNING,
            "there is no topic %r at %s; reading starts once it is created. Is the name right?",
            topic, self._bootstrap,
        )  # fmt: skip

    def _report_waiting(self) -> None:
        """An unreachable cluster must not look like an empty topic."""
        waited_s = time.monotonic() - self._started_s
        if not self._was_assigned and waited_s >= ASSIGNMENT_S:
            self._lines.log(
                None, logging.WARNING, "nothing can be read from %s yet, after %.0f s: %s",
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
            self.flow.on_assigned(_own_partitions(partitions))
        if self._is_cooperative:
            kafka.incremental_assign(partitions)
        else:
            kafka.assign(partitions)
        self._steer()  # before the first record can come

    def _revoke(self, kafka: KafkaConsumer, partitions: list[KafkaPartition]) -> None:
        self._store()  # what is done is committed before the partitions go
        self._forget(_own_partitions(partitions))
        if self._is_cooperative:
            kafka.incremental_unassign(partitions)
        else:
            kafka.unassign()

    def _lose(self, kafka: KafkaConsumer, partitions: list[KafkaPartition]) -> None:
        self._revoke(kafka, partitions)

    def _forget(self, partitions: list[TopicPartition]) -> None:
        with self._changed:
            self.flow.on_revoked(partitions)
            self._drop(set(partitions))
        self._on_revoked(partitions)

    def _drop(self, partitions: set[TopicPartition]) -> None:
        gone = [one for one in self._queue if partition_of(one) in partitions]
        if gone:
            kept = [one for one in self._queue if partition_of(one) not in partitions]
            self._queue = deque(kept)
            self.flow.left(len(gone), _size_bytes(gone), dropped=True)

    def _seek(self, places: Mapping[TopicPartition, Offset]) -> None:
        with self._changed:
            known = {one: place for one, place in places.items() if one in self.flow.assigned}
            self.flow.turned(known)
            self._drop(set(known))
        for (topic, partition), offset in known.items():
            self._kafka.seek(KafkaPartition(topic, partition, offset))


def partition_of(message: Message) -> TopicPartition:
    """Where a record that was read is."""
    topic, partition = message.topic(), message.partition()
    assert topic is not None, "what was read has a topic"
    assert partition is not None, "and a partition"
    return TopicPartition(topic, partition)


def offset_of(message: Message) -> Offset:
    """Its place there."""
    offset = message.offset()
    assert offset is not None, "what was read has an offset"
    return Offset(offset)


def end_offsets(messages: Iterable[Message]) -> dict[TopicPartition, Offset]:
    """What comes after the last of them, in each partition."""
    last = {(one.topic(), one.partition()): one for one in messages}
    return {partition_of(one): Offset(offset_of(one) + 1) for one in last.values()}


def places_by_partition(messages: Iterable[Message]) -> dict[TopicPartition, list[int]]:
    """Which of them are of which partition, in order."""
    found: dict[tuple[str | None, int | None], list[int]] = {}
    for place, message in enumerate(messages):
        where = message.topic(), message.partition()
        if where in found:
            found[where].append(place)
        else:
            found[where] = [place]
    return {
        TopicPartition(topic, partition): places
        for (topic, partition), places in found.items()
        if topic is not None and partition is not None
    }


def _is_cooperative(settings: Mapping[str, Any]) -> bool:
    strategy = str(settings.get("partition.assignment.strategy", ""))
    return "cooperative" in strategy or settings.get("group.protocol") == "consumer"


def _own_partitions(partitions: Iterable[KafkaPartition]) -> list[TopicPartition]:
    return [TopicPartition(one.topic, one.partition) for one in partitions]


def _kafka_partitions(partitions: Iterable[TopicPartition]) -> list[KafkaPartition]:
    return [KafkaPartition(topic, partition) for topic, partition in partitions]


def _message_bytes(message: Message) -> int:
    return len(message.value() or b"") + len(message.key() or b"") + RECORD_OVERHEAD_BYTES


def _size_bytes(messages: Iterable[Message]) -> int:
    return sum(map(_message_bytes, messages))
