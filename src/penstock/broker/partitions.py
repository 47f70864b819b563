"""The partitions this broker holds: their logs, who leads them, and who waits on them.

A partition is appended to by this process and nobody else, between two turns of the event loop.
Which partitions exist is the controller's word; this table only follows it.
    log.start_offset <= log.last_stable_offset <= log.high_watermark <= log.end_offset
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple, Protocol

from penstock.broker.accepting import takes_as_is
from penstock.config.views import (
    AcceptSettings,
    CompactionSettings,
    LogSettings,
    RetentionSettings,
)
from penstock.errors import ErrorCode, Refused
from penstock.log.flush import NotSynced
from penstock.log.partition import PartitionLog
from penstock.log.placing import Appended
from penstock.model import LeaderEpoch, Millis, NodeId, Offset, TopicId, TopicPartition
from penstock.protocol.batch import BatchHeader
from penstock.protocol.control import Marker

Origin = Literal["client", "marker", "internal"]


class TopicSettings(NamedTuple):
    """A topic's configuration as each room sees it."""

    log: LogSettings = LogSettings()
    accept: AcceptSettings = AcceptSettings()
    retention: RetentionSettings = RetentionSettings()
    compaction: CompactionSettings = CompactionSettings()


class Leadership(NamedTuple):
    """Who holds a partition, by the controller's word."""

    leader: NodeId
    leader_epoch: LeaderEpoch
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]


class Poll(Protocol):
    """A fetch that waits for news of some partitions."""

    def on_readable(self, partition: Partition, size_bytes: int) -> None:
        """So many bytes more may be read from the partition."""

    def on_gone(self) -> None:
        """A partition was deleted or is led elsewhere: answer now, with what is known."""


class FlushPort(Protocol):
    """Whoever syncs logs to disk, off the event loop."""

    def ask(self, partition: Partition) -> None:
        """Sync what the partition holds now; then it hears `on_flushed` or `on_flush_failed`."""

    def ask_within(self, partition: Partition, wait_ms: Millis) -> None:
        """Sync at the latest after so long."""


def _has_flush_policy(settings: LogSettings) -> bool:
    return settings.flush_messages is not None or settings.flush_ms is not None


class Partition:
    """One partition of this broker."""

    __slots__ = (
        "_acknowledged",
        "_commits_alone",
        "_flush",
        "_flush_port",
        "_uncommitted_bytes",
        "commit_listeners",
        "commits_at_once",
        "failure_listeners",
        "leadership",
        "log",
        "marker_listeners",
        "markers_written",
        "node_id",
        "polls",
        "settings",
        "takes_all_in_sync",
        "takes_at_once",
        "takes_writes",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        log: PartitionLog,
        *,
        topic_id: TopicId,
        node_id: NodeId,
        leadership: Leadership,
        settings: TopicSettings,
        flush: FlushPort | None = None,
    ) -> None:
        self.log = log
        self.topic_partition: TopicPartition = log.topic_partition
        self.topic_id = topic_id
        self.node_id = node_id
        self.leadership = leadership
        self.settings = settings
        self.takes_writes = False  # this broker leads it
        self.takes_all_in_sync = False  # and enough replicas are in sync for acks=all
        self.commits_at_once = False  # what is appended here is committed by that
        self.takes_at_once = False  # and a client's plain batch is appended as it came
        self._commits_alone = False  # this broker is the only replica in sync
        self.polls: set[Poll] = set()
        self.commit_listeners: list[Callable[[], None]] = []  # the high watermark moved
        self.failure_listeners: list[Callable[[], None]] = []  # it will not, for the disk failed
        self.marker_listeners: list[Callable[[Marker], None]] = []  # a transaction ended here
        self.markers_written = 0  # a verified transaction may have ended since: compare
        self._acknowledged: deque[tuple[Offset, asyncio.Future[None]]] = deque()
        self._uncommitted_bytes = 0
        self._flush_port = flush
        self._flush = flush if _has_flush_policy(settings.log) else None
        self.lead(leadership)

    def __repr__(self) -> str:
        return f"<Partition {self.topic_partition} {self.log.start_offset}..{self.log.end_offset}>"

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """The epoch of the current leader."""
        return self.leadership.leader_epoch

    @property
    def is_led_here(self) -> bool:
        """Whether this broker takes the partition's writes."""
        return self.leadership.leader == self.node_id

    def lead(self, leadership: Leadership) -> None:
        """Take the controller's word on leader, epoch and in-sync replicas."""
        led_before, self.leadership = self.is_led_here, leadership
        if led_before and not self.is_led_here:
            self.abandon()
        self._judge()
        self._advance_high_watermark()

    def check_leader(self, current_leader_epoch: int) -> None:
        """Refuse a request that was meant for another leader, or made under another epoch."""
        if not self.is_led_here:
            raise Refused(ErrorCode.not_leader_or_follower, "this broker does not lead it")
        if current_leader_epoch < 0 or current_leader_epoch == self.leadership.leader_epoch:
            return
        if current_leader_epoch < self.leadership.leader_epoch:
            raise Refused(ErrorCode.fenced_leader_epoch, "the leader has changed since")
        raise Refused(ErrorCode.unknown_leader_epoch, "this broker has not heard of that leader")

    def check_writable(self) -> None:
        """Say why a write that waits for all in-sync replicas is not taken, if it is not."""
        self.check_leader(-1)
        if not self.takes_all_in_sync:
            raise Refused(
                ErrorCode.not_enough_replicas,
                f"{len(self.leadership.isr)} in sync; min.insync.replicas wants more",
            )

    def _judge(self) -> None:
        """What is asked by every write is found once. Never are more replicas needed than exist."""
        needed = min(self.settings.accept.min_insync_replicas, len(self.leadership.replicas))
        self.takes_writes = self.is_led_here
        self.takes_all_in_sync = self.takes_writes and len(self.leadership.isr) >= needed
        self._commits_alone = self.leadership.isr == (self.node_id,)
        self.commits_at_once = self.takes_writes and self._commits_alone and self._flush is None
        self.takes_at_once = (
            self.takes_all_in_sync and self.commits_at_once and takes_as_is(self.settings.accept)
        )

    def append(
        self, batches: bytearray | memoryview, *, now: Millis, origin: Origin = "client"
    ) -> Appended:
        """Append checked batches as the leader. Refused and OSError leave the log as it was."""
        appended = self.log.append(
            batches, leader_epoch=self.leadership.leader_epoch, now=now, origin=origin
        )
        self._on_appended(appended, len(batches))
        return appended

    def append_one(
        self, batch: bytearray | memoryview, header: BatchHeader, *, now: Millis
    ) -> Appended:
        """As `append`, of a plain batch whose header was read, where `commits_at_once`."""
        appended = self.log.append_alone(
            batch, header, leader_epoch=self.leadership.leader_epoch, now=now
        )
        if not appended.duplicate:
            self._tell_committed(appended.end_offset, len(batch))
        return appended

    def _on_appended(self, appended: Appended, size_bytes: int) -> None:
        if appended.duplicate:
            return
        if self._flush is not None:
            self._flush_by_policy()
        self._uncommitted_bytes += size_bytes
        self._advance_high_watermark()

    def append_marker(self, batch: bytearray, marker: Marker, *, now: Millis) -> Appended:
        """End a producer's transaction here, and tell whoever keeps state over this log."""
        self.markers_written += 1
        appended = self.append(batch, now=now, origin="marker")
        for listener in self.marker_listeners:
            listener(marker)
        return appended

    def when_committed(self, end_offset: Offset) -> asyncio.Future[None] | None:
        """A future done when all below `end_offset` is on every in-sync replica; None: it is."""
        if self.log.high_watermark >= end_offset:
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.log.sync_failure is None:
            self._acknowledged.append((end_offset, future))
        else:
            future.set_exception(_not_on_disk())
        return future

    def abandon(self) -> None:
        """Deleted, or led elsewhere: answer everybody who waits."""
        for poll in tuple(self.polls):
            poll.on_gone()
        self._refuse_acknowledged(
            Refused(ErrorCode.not_leader_or_follower, "the leader changed before it was safe")
        )

    def _refuse_acknowledged(self, refusal: Refused) -> None:
        while self._acknowledged:
            _, future = self._acknowledged.popleft()
            if not future.done():
                future.set_exception(refusal)

    def replace_settings(self, settings: TopicSettings) -> None:
        """The topic was reconfigured: takes effect with the next request."""
        if settings.log != self.settings.log:
            self.log.replace_settings(settings.log)
        self.settings = settings
        self._flush = self._flush_port if _has_flush_policy(settings.log) else None
        self._judge()
        self._advance_high_watermark()

    def _advance_high_watermark(self) -> None:
        """A leader that is the only in-sync replica commits what it appends."""
        if self._commits_alone and (self._flush is None or not self.waits_for_flush):
            self.set_high_watermark(self.log.end_offset)

    @property
    def waits_for_flush(self) -> bool:
        """Whether so much is unsynced that the topic wants it on disk before it is committed."""
        if self._flush is None:
            return False
        messages = self.settings.log.flush_messages
        return messages is not None and self.log.unflushed_messages >= messages

    def _flush_by_policy(self) -> None:
        assert self._flush is not None
        if self.waits_for_flush:
            self._flush.ask(self)
        elif self.settings.log.flush_ms is not None:
            self._flush.ask_within(self, self.settings.log.flush_ms)

    def on_flushed(self, offset: Offset, now: Millis) -> None:
        """All below `offset` is on disk."""
        self.log.flushed(offset, now)
        if self._flush is None:
            return
        if self.waits_for_flush:
            self._flush.ask(self)  # more came while it was synced
        self._advance_high_watermark()

    def on_flush_failed(self, error: OSError) -> None:
        """The disk did not take it: nobody who waited may believe it did, nor who writes next."""
        if isinstance(error, NotSynced):
            self.log.stop_writing(error)
        self._refuse_acknowledged(_not_on_disk())
        for listener in self.failure_listeners:
            listener()

    def set_high_watermark(self, offset: Offset) -> None:
        """Every in-sync replica has all below `offset`; release those who waited for it."""
        self.log.set_high_watermark(offset)
        size_bytes, self._uncommitted_bytes = self._uncommitted_bytes, 0
        self._tell_committed(offset, size_bytes)

    def _tell_committed(self, offset: Offset, size_bytes: int) -> None:
        if self._acknowledged:
            self._acknowledge(offset)
        for listener in self.commit_listeners:
            listener()
        if self.polls:
            for poll in tuple(self.polls):
                poll.on_readable(self, size_bytes)

    def _acknowledge(self, offset: Offset) -> None:
        while self._acknowledged and self._acknowledged[0][0] <= offset:
            _, future = self._acknowledged.popleft()
            if not future.done():
                future.set_result(None)


def _not_on_disk() -> Refused:
    return Refused(ErrorCode.kafka_storage_error, "the disk failed")


class HostedTopic:
    """A topic and those of its partitions that this broker holds."""

    __slots__ = ("name", "partitions", "settings", "topic_id")

    def __init__(self, name: str, topic_id: TopicId, settings: TopicSettings) -> None:
        self.name = name
        self.topic_id = topic_id
        self.settings = settings
        self.partitions: dict[int, Partition] = {}


class LogStore(Protocol):
    """Where logs live on disk."""

    def open(
        self, topic_partition: TopicPartition, topic_id: TopicId, settings: LogSettings
    ) -> PartitionLog:
        """The log of that partition, made if absent, recovered if need be."""

    def delete(self, log: PartitionLog) -> None:
        """Take the log out of sight now and off the disk later."""

    def close(self, logs: Sequence[PartitionLog]) -> None:
        """Close all logs, and leave the mark of a clean stop."""


class Partitions:
    """All partitions of this broker, by name and by topic id."""

    def __init__(self, node_id: NodeId, store: LogStore) -> None:
        self.node_id = node_id
        self.flush: FlushPort | None = None  # for partitions created from then on
        self.generation = 0  # changes with the table: whoever keeps a partition looks again then
        self.topics: dict[str, HostedTopic] = {}
        self.topics_by_id: dict[bytes, HostedTopic] = {}  # by the id's 16 bytes, as on the wire
        self._store = store

    def __iter__(self) -> Iterator[Partition]:
        for topic in self.topics.values():
            yield from topic.partitions.values()

    def find(self, topic: str, index: int) -> Partition | None:
        """The partition by name, if this broker holds it."""
        hosted = self.topics.get(topic)
        return None if hosted is None else hosted.partitions.get(index)

    def find_by_id(self, topic_id: bytes, index: int) -> Partition | None:
        """The partition by its topic's id, if this broker holds it."""
        hosted = self.topics_by_id.get(topic_id)
        return None if hosted is None else hosted.partitions.get(index)

    def create(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        leadership: Leadership,
        settings: TopicSettings,
    ) -> Partition:
        """Hold a partition from now on; finds its log on disk if there is one. Repeatable."""
        topic = self.topics.get(topic_partition.topic)
        if topic is None:
            topic = HostedTopic(topic_partition.topic, topic_id, settings)
            self.topics[topic.name] = self.topics_by_id[topic_id.bytes] = topic
        assert topic.topic_id == topic_id, "a topic is deleted before its name is used again"
        held = topic.partitions.get(topic_partition.partition)
        if held is not None:
            held.lead(leadership)
            return held
        partition = Partition(
            self._store.open(topic_partition, topic_id, settings.log),
            topic_id=topic_id,
            node_id=self.node_id,
            leadership=leadership,
            settings=settings,
            flush=self.flush,
        )
        topic.partitions[topic_partition.partition] = partition
        self.generation += 1
        return partition

    def delete(self, topic: str) -> None:
        """Let go of a topic with all it holds; its files vanish after a delay.

        OSError, once all are let go of, when the disk kept the files of one.
        """
        hosted = self.topics.pop(topic, None)
        if hosted is None:
            return
        self.topics_by_id.pop(hosted.topic_id.bytes, None)
        self.generation += 1
        kept: OSError | None = None
        for partition in hosted.partitions.values():
            partition.abandon()
            try:
                self._store.delete(partition.log)
            except OSError as error:
                kept = error
        if kept is not None:
            raise kept

    def replace_settings(self, topic: str, settings: TopicSettings) -> None:
        """A topic was reconfigured."""
        hosted = self.topics.get(topic)
        if hosted is None:
            return
        hosted.settings = settings
        for partition in hosted.partitions.values():
            partition.replace_settings(settings)

    def abandon(self) -> None:
        """Answer all who wait: the broker stops."""
        for partition in self:
            partition.abandon()

    def close(self) -> None:
        """Close every log."""
        self._store.close([partition.log for partition in self])
        self.topics.clear()
        self.topics_by_id.clear()
