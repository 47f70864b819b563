"""One partition of this broker: its log, leader and committed offset, and what waits for it.

Only this process appends, on its event loop. The high watermark moves in one place, `_advance`, and
that releases what waits for it: produce responses, journals, fetches.
    log.start_offset <= log.last_stable_offset <= log.high_watermark <= log.end_offset
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.admission import Admission
from penstock.broker.committer import (
    Committer,
    FlushCommitter,
    LocalCommitter,
    ReplicatedCommitter,
)
from penstock.broker.counts import TopicCounts
from penstock.broker.leadership import REPLICA_SETTINGS, Leadership, NotLeader, check_epoch
from penstock.broker.partition_waits import OnCommitted, PartitionWaits, disk_failed
from penstock.consensus.replica.leader import InSyncReplicas, ReplicaSettings
from penstock.errors import ErrorCode, Refused
from penstock.log.flush import SyncError, disk_failure, is_full
from penstock.model import NO_EPOCH, NO_OFFSET, LeaderEpoch, Millis, NodeId, Offset
from penstock.protocol.batch import BatchHeader, read_header
from penstock.protocol.fields import LeaderAndEpoch

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from penstock.broker.partition_ports import (
        FlushPort,
        FollowerListener,
        MarkerWatcher,
        Poll,
        ReplicaHealth,
    )
    from penstock.broker.settings import TopicSettings
    from penstock.consensus.replica.leader import IsEligible
    from penstock.log.append_plan import Appended
    from penstock.log.partition_log import PartitionLog
    from penstock.log.producer_state import Origin
    from penstock.model import ProducerId, TopicId, TopicPartition
    from penstock.protocol.control_records import Marker
    from penstock.protocol.varint import Buffer, WritableBuffer


class Partition:
    """One partition of this broker."""

    __slots__ = (
        "_committer",
        "_flush",
        "_flush_messages",
        "_flush_port",
        "_is_eligible",
        "_replica_settings",
        "_uncommitted_bytes",
        "_waits",
        "admission",
        "counts",
        "followers",
        "has_min_insync",
        "health",
        "in_sync",
        "is_leader",
        "leader_epoch",
        "leadership",
        "log",
        "marker_listeners",
        "marker_watchers",
        "node_id",
        "on_copy_flushed",
        "polls",
        "settings",
        "topic_id",
        "topic_partition",
        "truncating",
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
        replica_settings: ReplicaSettings = REPLICA_SETTINGS,
        counts: TopicCounts | None = None,
        is_eligible: IsEligible = lambda _replica, _epoch: True,
        health: ReplicaHealth | None = None,
    ) -> None:
        self.log: PartitionLog = log
        self.counts: TopicCounts = TopicCounts() if counts is None else counts
        self.topic_partition: TopicPartition = log.topic_partition
        self.topic_id: TopicId = topic_id
        self.node_id: NodeId = node_id
        self.settings: TopicSettings = settings
        self.leadership: Leadership = leadership
        self.is_leader: bool = False
        self.leader_epoch: LeaderEpoch = NO_EPOCH
        self.in_sync: InSyncReplicas | None = None  # of this leader epoch; None: the only replica
        self.followers: list[FollowerListener] = []
        self.on_copy_flushed: Callable[[], None] | None = None  # while this is a follower
        self.truncating: asyncio.Task[None] | None = None  # the last truncation; may be done
        self.polls: dict[Poll, None] = {}  # in the order in which they wait
        self.marker_listeners: list[Callable[[Marker], None]] = []  # a transaction ended here
        # By producer: writes whose transaction is being verified, which a marker makes stale
        self.marker_watchers: dict[ProducerId, list[MarkerWatcher]] = {}
        self._waits = PartitionWaits()
        self.has_min_insync: bool = False
        self._uncommitted_bytes = 0  # appended since the high watermark moved
        self._flush_port = flush
        self.health: ReplicaHealth | None = health
        self._replica_settings = replica_settings
        self._is_eligible = is_eligible  # to join the in-sync set
        self.lead(leadership)

    def __repr__(self) -> str:
        return f"<Partition {self.topic_partition} {self.log.start_offset}..{self.log.end_offset}>"

    # Leadership and settings.

    def lead(self, leadership: Leadership) -> None:
        """Follow the controller's decision about leader, epoch and in-sync replicas."""
        was_leader, last_epoch = self.is_leader, self.leader_epoch
        self.counts.note_change(self.leadership, leadership)
        self.leadership = leadership
        self.leader_epoch = leadership.leader_epoch
        self.is_leader = leadership.leader == self.node_id
        is_new_epoch = not was_leader or self.leader_epoch != last_epoch
        if was_leader and not self.is_leader:
            self.abandon()
        elif is_new_epoch:
            self._drop_followers()
        if self.is_leader and is_new_epoch:
            self.log.give_up_truncation()
            self.log.start_epoch(self.leader_epoch)
        if not self.is_leader or is_new_epoch:
            self.in_sync = None
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
        had_min_insync = self.has_min_insync
        self.has_min_insync = self.is_leader and len(leadership.isr) >= needed
        self.admission: Admission = Admission(accept)
        self._set_flush_policy()
        self._committer = self._new_committer()
        if self.is_leader:
            self._update_replicas(needed)
            self._advance(self._committer.on_appended(self.log.end_offset))
        self.flush_by_policy()
        if had_min_insync and not self.has_min_insync:
            self._waits.on_too_few_in_sync()
        self._waits.on_deleted(self.least_start_offset)

    def _set_flush_policy(self) -> None:
        """A log that is marked as synced stays under `flush.messages=1` until the mark is gone.

        Marked is one whose replica has been in sync, and so has all that it ever acknowledged.
        """
        log, policy = self.log, self.settings.log
        has_all = self.node_id in self.leadership.isr or log.has_synced_marker
        is_replicated = len(self.leadership.replicas) > 1 and self._flush_port is not None
        log.marks_synced = policy.flush_messages == 1 and has_all and is_replicated
        self._flush_messages = 1 if log.has_synced_marker else policy.flush_messages
        has_policy = self._flush_messages is not None or policy.flush_ms is not None
        self._flush = self._flush_port if has_policy else None

    def _new_committer(self) -> Committer:
        if self._flush_messages is not None and self._flush is not None:
            return FlushCommitter(self._flush_messages, self.log.recovery_point)
        return LocalCommitter()

    def _update_replicas(self, min_insync: int) -> None:
        """What is known of the followers lasts as long as the leader epoch."""
        leadership = self.leadership
        if self.in_sync is not None:
            self.in_sync.on_committed_isr(leadership.isr, leadership.partition_epoch)
            self.in_sync.set_replicas(leadership.replicas, min_insync)
        elif len(leadership.replicas) > 1:
            self.in_sync = InSyncReplicas(
                node_id=self.node_id,
                leader_epoch=self.leader_epoch,
                partition_epoch=leadership.partition_epoch,
                replicas=leadership.replicas,
                isr=leadership.isr,
                min_insync=min_insync,
                high_watermark=self.log.high_watermark,
                epoch_start_offset=self.log.end_offset,
                settings=self._replica_settings,
                is_eligible=self._is_eligible,
            )
        if self.in_sync is not None:
            self._committer = ReplicatedCommitter(self._committer, self.in_sync)

    def check_leader(self, current_leader_epoch: int) -> None:
        """Refuse a request for another leader, or for another leader epoch."""
        if not self.is_leader:
            raise self._not_leader(
                f"{self.topic_partition} has another leader; refresh the metadata"
            )
        check_epoch(self.leader_epoch, current_leader_epoch)

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
            count, needed = len(self.leadership.isr), self.settings.admission.min_insync_replicas
            message = f"{count} replicas are in sync, min.insync.replicas is {needed}"
            raise Refused(ErrorCode.not_enough_replicas, message)

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
        try:
            appended = self.log.append(
                batch, header, leader_epoch=self.leader_epoch, now=now, origin=origin
            )
        except OSError as error:
            self.on_write_failed(error)
            raise
        if not appended.is_duplicate:
            self._uncommitted_bytes += len(batch)
            self.counts.note_batch(len(batch), header.record_count)
            self._advance(self._committer.on_appended(appended.end_offset))
            if self._flush is not None:
                self.flush_by_policy()
            if self.followers:
                for follower in self.followers:
                    follower.on_appended()
        return appended

    def append_marker(self, batch: bytearray, marker: Marker, *, now: Millis) -> Appended:
        """End a producer's transaction here."""
        for watcher in self.marker_watchers.get(marker.producer_id, ()):
            watcher.is_stale = True
        appended = self.append(batch, read_header(batch), now=now, origin="marker")
        for listener in self.marker_listeners:
            listener(marker)
        return appended

    def call_when_committed(
        self, end_offset: Offset, call: OnCommitted, *, needs_min_insync: bool = False
    ) -> None:
        """Call when everything below `end_offset` is committed: now if it is.

        With `needs_min_insync` also when too few replicas are in sync for that: a client can act.
        """
        if self.log.high_watermark >= end_offset:
            call(None)
        elif self.log.disk_failure is not None:
            call(disk_failed())
        else:
            self._waits.add_commit(end_offset, call, needs_min_insync=needs_min_insync)

    def on_replica_fetch(
        self,
        replica: NodeId,
        end_offset: Offset,
        *,
        start_offset: Offset = NO_OFFSET,
        broker_epoch: int = -1,
        now: Millis = Millis(0),
    ) -> None:
        """A follower, whose history is this log's, has everything below `end_offset`."""
        if self.in_sync is not None:
            self._advance(
                self.in_sync.on_fetch(
                    replica,
                    end_offset,
                    start_offset=start_offset,
                    broker_epoch=broker_epoch,
                    leader_end_offset=self.log.end_offset,
                    now=now,
                )
            )
            if self._waits.has_deletions:
                self._waits.on_deleted(self.least_start_offset)

    def delete_before(self, offset: Offset, now: Millis) -> None:
        """Delete records at the log's start, here and on the followers."""
        if offset > self.log.start_offset:
            self.log.advance_start_offset(offset, now)
            for follower in self.followers:
                follower.on_start_moved()

    def call_when_deleted(self, offset: Offset, call: OnCommitted) -> None:
        """Call when no replica that is in sync has a record below `offset`: now if that is so."""
        self._waits.add_deletion(offset, call)
        self._waits.on_deleted(self.least_start_offset)

    @property
    def least_start_offset(self) -> Offset:
        """Where the first log starts, of the replicas that are in sync."""
        own = self.log.start_offset
        return own if self.in_sync is None else self.in_sync.least_start_offset(own)

    def check_followers(self) -> None:
        """At intervals while not all replicas are in sync: one that was to join may be fenced."""
        if self.in_sync is not None:
            self._advance(self.in_sync.on_brokers_changed())

    def withdraw_proposal(self) -> None:
        """The controller did not take a change of the in-sync set."""
        if self.in_sync is not None:
            self._advance(self.in_sync.withdraw())

    def _advance(self, high_watermark: Offset) -> None:
        """The only place where the high watermark moves."""
        if high_watermark <= self.log.high_watermark:
            return
        self.log.set_high_watermark(high_watermark)
        self._waits.on_committed(high_watermark)
        size_bytes, self._uncommitted_bytes = self._uncommitted_bytes, 0
        if self.polls:
            for poll in tuple(self.polls):
                poll.on_readable(self, size_bytes)
        for follower in self.followers:
            follower.on_high_watermark()

    def abandon(self) -> None:
        """Deleted, or led by another broker: respond to everything that waits."""
        for poll in tuple(self.polls):
            poll.on_unavailable()
        self._drop_followers()
        self._waits.refuse_all(self._leader_changed())

    def _drop_followers(self) -> None:
        followers, self.followers = self.followers, []
        for follower in followers:
            follower.on_unavailable()

    # Following.

    def append_copies(
        self, batches: Buffer, headers: Sequence[BatchHeader], *, epoch: LeaderEpoch, now: Millis
    ) -> None:
        """Append what the leader of `epoch` sent. Malformed, Refused or OSError: see the log."""
        if self.is_leader or epoch != self.leader_epoch:
            raise self._leader_changed()
        try:
            self.log.append_replicated(batches, headers, leader_epoch=epoch, now=now)
        except OSError as error:
            self.on_write_failed(error)
            raise
        finally:  # some batches may be there
            self.flush_by_policy()

    def follow_leader(self, high_watermark: Offset, start_offset: Offset, now: Millis) -> None:
        """Take over how far the leader has committed, and where its log starts."""
        self.log.set_high_watermark(max(high_watermark, self.log.high_watermark))
        start_offset = min(start_offset, self.log.high_watermark)
        if start_offset > self.log.start_offset:
            self.log.advance_start_offset(start_offset, now)

    # Flushing.

    @property
    def waits_for_flush(self) -> bool:
        """Whether the topic requires a flush before this replica acknowledges what it has."""
        limit = self._flush_messages if self._flush is not None else None
        return limit is not None and self.log.unflushed_messages >= limit

    def flush_by_policy(self) -> None:
        """Request a flush if the topic requires one."""
        flush = self._flush
        if flush is None or self.log.disk_failure is not None:
            return
        if self.waits_for_flush or self.log.must_change_marker:
            flush.request(self)
        elif self.settings.log.flush_ms is not None and self.log.unflushed_messages:
            flush.request_within(self, self.settings.log.flush_ms)

    def on_flushed(self, offset: Offset, now: Millis) -> None:
        """Everything below `offset` is on disk."""
        was_marked = self.log.has_synced_marker
        self.log.flushed(offset, now)
        if was_marked != self.log.has_synced_marker:
            self._apply_settings()
        committed = self._committer.on_flushed(self.log.recovery_point)
        if self.is_leader:
            self._advance(committed)
        elif self.on_copy_flushed is not None and not self.waits_for_flush:
            self.on_copy_flushed()
        if self._flush is not None and self.waits_for_flush and not self.log.is_truncating:
            self._flush.request(self)  # more was appended while it was synced

    def on_flush_failed(self, error: OSError) -> None:
        """A sync failed: refuse what waits, and if the disk did, all later writes."""
        if isinstance(error, SyncError):
            self.on_write_failed(error)
        self._waits.refuse_all(disk_failed())

    def on_write_failed(self, error: OSError) -> None:
        """If the disk failed, write nothing more. Others can lead then, or until it has space."""
        if is_full(error) and self.health is not None:
            self.health.on_full(self)
        failure = disk_failure(error)
        if failure is None or self.log.disk_failure is not None:
            return
        self.log.stop_writing(failure)
        self._waits.refuse_all(disk_failed())
        if self.health is not None:
            self.health.on_failed(self)

    def on_unreadable(self, refusal: Refused) -> None:
        """The log is damaged where it was read: a copy of another replica may replace it."""
        if self.health is not None and refusal.code is ErrorCode.corrupt_message:
            self.health.on_damaged(self, refusal.message)
