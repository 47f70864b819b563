"""One partition of this broker: its log, leader and committed offset, and what waits for it.

Only this process appends, on its event loop. The high watermark moves in one place, `_advance`, and
that releases what waits for it: produce responses, journals, fetches.
    log.start_offset <= log.last_stable_offset <= log.high_watermark <= log.end_offset
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from penstock.broker.admission import Admission
from penstock.broker.committer import Committer, FlushCommitter, InSyncCommitter, LocalCommitter
from penstock.errors import ErrorCode, Refused
from penstock.log.flush import SyncError
from penstock.protocol.batch import BatchHeader, read_header
from penstock.protocol.fields import LeaderAndEpoch

if TYPE_CHECKING:
    from penstock.broker.settings import TopicSettings
    from penstock.log.append_plan import Appended
    from penstock.log.partition_log import PartitionLog
    from penstock.log.producer_state import Origin
    from penstock.model import LeaderEpoch, Millis, NodeId, Offset, TopicId, TopicPartition
    from penstock.protocol.control_records import Marker
    from penstock.protocol.varint import WritableBuffer

# Called with None when committed, else with the reason why it will not be.
OnCommitted: TypeAlias = Callable[[Refused | None], None]


class Leadership(NamedTuple):
    """Leader and replicas of a partition, as the controller decided."""

    leader: NodeId
    leader_epoch: LeaderEpoch
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]


class NotLeader(Refused):
    """Another broker leads the partition, as far as this one knows: see `leader`."""

    def __init__(self, leader: LeaderAndEpoch, message: str) -> None:
        super().__init__(ErrorCode.not_leader_or_follower, message)
        self.leader = leader


class Poll(Protocol):
    """A fetch that waits for more to read from some partitions."""

    def on_readable(self, partition: Partition, size_bytes: int) -> None:
        """This many more bytes may be read from the partition."""

    def on_unavailable(self) -> None:
        """A partition was deleted or has another leader: respond with what there is."""


class FlushPort(Protocol):
    """Syncs logs to disk, off the event loop."""

    def request(self, partition: Partition) -> None:
        """Sync what the log has now; then call `on_flushed` or `on_flush_failed`."""

    def request_within(self, partition: Partition, wait_ms: Millis) -> None:
        """Sync after this long at the latest."""


class Partition:
    """One partition of this broker."""

    __slots__ = (
        "_committer",
        "_flush",
        "_flush_port",
        "_uncommitted_bytes",
        "_waiting",
        "admission",
        "has_min_insync",
        "is_leader",
        "leader_epoch",
        "leadership",
        "log",
        "marker_listeners",
        "markers_written",
        "node_id",
        "polls",
        "settings",
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
        self.log: PartitionLog = log
        self.topic_partition: TopicPartition = log.topic_partition
        self.topic_id: TopicId = topic_id
        self.node_id: NodeId = node_id
        self.settings: TopicSettings = settings
        self.is_leader: bool = False
        self.polls: set[Poll] = set()
        self.marker_listeners: list[Callable[[Marker], None]] = []  # a transaction ended here
        self.markers_written: int = 0  # to detect that a verified transaction has ended since
        self._waiting: deque[tuple[Offset, OnCommitted]] = deque()  # in the order of the log
        self._uncommitted_bytes = 0  # appended since the high watermark moved
        self._flush_port = flush
        self.lead(leadership)

    def __repr__(self) -> str:
        return f"<Partition {self.topic_partition} {self.log.start_offset}..{self.log.end_offset}>"

    # Leadership and settings.

    def lead(self, leadership: Leadership) -> None:
        """Follow the controller's decision about leader, epoch and in-sync replicas."""
        was_leader = self.is_leader
        self.leadership: Leadership = leadership
        self.leader_epoch: LeaderEpoch = leadership.leader_epoch
        self.is_leader = leadership.leader == self.node_id
        if self.is_leader:
            self.log.start_epoch(self.leader_epoch)
        elif was_leader:
            self.abandon()
        self._apply_settings()

    def replace_settings(self, settings: TopicSettings) -> None:
        """The topic was reconfigured: takes effect with the next request."""
        if settings.log != self.settings.log:
            self.log.replace_settings(settings.log)
        self.settings = settings
        self._apply_settings()

    def _apply_settings(self) -> None:
        """Derive what every write needs. No more in-sync replicas are needed than exist."""
        leadership, accept = self.leadership, self.settings.admission
        needed = min(accept.min_insync_replicas, len(leadership.replicas))
        self.has_min_insync: bool = self.is_leader and len(leadership.isr) >= needed
        self.admission: Admission = Admission(accept)
        log = self.settings.log
        has_flush_policy = log.flush_messages is not None or log.flush_ms is not None
        self._flush = self._flush_port if has_flush_policy else None
        self._committer = self._new_committer()
        if self.is_leader:
            self._advance(self._committer.on_appended(self.log.end_offset))
            if self._flush is not None:
                self._flush_by_policy(self._flush)

    def _new_committer(self) -> Committer:
        flush_messages = self.settings.log.flush_messages
        local: Committer = LocalCommitter()
        if flush_messages is not None and self._flush is not None:
            local = FlushCommitter(flush_messages, self.log.recovery_point)
        followers = [replica for replica in self.leadership.isr if replica != self.node_id]
        return InSyncCommitter(local, followers) if followers else local

    def check_leader(self, current_leader_epoch: int) -> None:
        """Refuse a request for another leader, or for another leader epoch."""
        if not self.is_leader:
            raise self._not_leader(
                f"this broker does not lead {self.topic_partition}; refresh the metadata"
            )
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise Refused(
                ErrorCode.fenced_leader_epoch,
                f"the leader epoch is {self.leader_epoch}; refresh the metadata",
            )
        raise Refused(
            ErrorCode.unknown_leader_epoch,
            f"the leader epoch is {self.leader_epoch} as far as this broker knows; retry",
        )

    def _not_leader(self, message: str) -> NotLeader:
        return NotLeader(LeaderAndEpoch(self.leadership.leader, self.leader_epoch), message)

    def _leader_changed(self) -> Refused:
        message = "the leader changed meanwhile; refresh the metadata"
        if self.leadership.leader == self.node_id:  # in another epoch, or the topic is deleted
            return Refused(ErrorCode.not_leader_or_follower, message)
        return self._not_leader(message)

    def check_min_insync(self) -> None:
        """Refuse a write with acks=all while too few replicas are in sync."""
        if not self.has_min_insync:
            raise Refused(
                ErrorCode.not_enough_replicas,
                f"{len(self.leadership.isr)} replicas are in sync, min.insync.replicas is "
                f"{self.settings.admission.min_insync_replicas}",
            )

    # Appending and committing.

    def append(
        self,
        batch: WritableBuffer,
        header: BatchHeader,
        *,
        now: Millis,
        origin: Origin = "client",
        epoch: LeaderEpoch | None = None,
    ) -> Appended:
        """Append a checked batch as the leader. Refused and OSError leave the log as it was.

        `epoch` is the leader epoch under which the caller made its checks, if it waited since.
        """
        if not self.is_leader or (epoch is not None and epoch != self.leader_epoch):
            raise self._leader_changed()
        appended = self.log.append(
            batch, header, leader_epoch=self.leader_epoch, now=now, origin=origin
        )
        if not appended.is_duplicate:
            self._uncommitted_bytes += len(batch)
            self._advance(self._committer.on_appended(appended.end_offset))
            if self._flush is not None:
                self._flush_by_policy(self._flush)
        return appended

    def append_marker(self, batch: bytearray, marker: Marker, *, now: Millis) -> Appended:
        """End a producer's transaction here."""
        self.markers_written += 1
        appended = self.append(batch, read_header(batch), now=now, origin="marker")
        for listener in self.marker_listeners:
            listener(marker)
        return appended

    def call_when_committed(self, end_offset: Offset, call: OnCommitted) -> None:
        """Call when everything below `end_offset` is committed: now if it is."""
        if self.log.high_watermark >= end_offset:
            call(None)
        elif self.log.sync_failure is not None:
            call(_disk_failed())
        else:
            self._waiting.append((end_offset, call))

    def on_replica_fetch(self, replica: NodeId, end_offset: Offset) -> None:
        """A follower has everything below `end_offset`."""
        self._advance(self._committer.on_replica_fetch(replica, end_offset))

    def _advance(self, high_watermark: Offset) -> None:
        """The only place where the high watermark moves."""
        if high_watermark <= self.log.high_watermark:
            return
        self.log.set_high_watermark(high_watermark)
        waiting = self._waiting
        while waiting and waiting[0][0] <= high_watermark:
            waiting.popleft()[1](None)
        size_bytes, self._uncommitted_bytes = self._uncommitted_bytes, 0
        if self.polls:
            for poll in tuple(self.polls):
                poll.on_readable(self, size_bytes)

    def abandon(self) -> None:
        """Deleted, or led by another broker: respond to everything that waits."""
        for poll in tuple(self.polls):
            poll.on_unavailable()
        self._refuse_waiting(self._leader_changed())

    def _refuse_waiting(self, refusal: Refused) -> None:
        while self._waiting:
            self._waiting.popleft()[1](refusal)

    # Flushing.

    @property
    def waits_for_flush(self) -> bool:
        """Whether the topic requires a flush before it is committed."""
        return self._committer.waits_for_flush

    def _flush_by_policy(self, flush: FlushPort) -> None:
        if self._committer.waits_for_flush:
            flush.request(self)
        elif self.settings.log.flush_ms is not None and self.log.unflushed_messages:
            flush.request_within(self, self.settings.log.flush_ms)

    def on_flushed(self, offset: Offset, now: Millis) -> None:
        """Everything below `offset` is on disk."""
        self.log.flushed(offset, now)
        self._advance(self._committer.on_flushed(self.log.recovery_point))
        if self._flush is not None and self._committer.waits_for_flush:
            self._flush.request(self)  # more was appended while it was synced

    def on_flush_failed(self, error: OSError) -> None:
        """The disk failed: refuse what waits, and all later writes."""
        if isinstance(error, SyncError):
            self.log.stop_writing(error)
        self._refuse_waiting(_disk_failed())


def _disk_failed() -> Refused:
    return Refused(ErrorCode.kafka_storage_error, "the disk failed")
