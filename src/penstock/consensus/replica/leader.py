"""What a leader knows of its followers: who is in sync, and how far the partition is committed.

One object per leader epoch, dropped with it. The in-sync set changes only when the controller has
committed the change; while a proposal is under way, everything waits for the union of the committed
and the proposed set (the *maximal* in-sync set), so that it does not matter which of the two holds.

    high_watermark = the least end offset of the maximal set and of followers about to join it,
    never lower than it was, and unmoved while fewer than `min_insync` replicas are in sync
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from penstock.model import NO_OFFSET, LeaderEpoch, Millis, NodeId, Offset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

NO_BROKER_EPOCH: Final = -1


# Whether a replica may join the in-sync set: its broker is live, in that broker epoch.
IsEligible: TypeAlias = "Callable[[NodeId, int], bool]"


class ReplicaSettings(NamedTuple):
    """How long a follower may lag before it leaves the in-sync set."""

    lag_max_ms: Millis


class Proposal(NamedTuple):
    """A change of the in-sync set for the controller to commit."""

    isr: tuple[tuple[NodeId, int], ...]  # with the broker epoch under which each fetched
    leader_epoch: LeaderEpoch
    partition_epoch: int


class _Follower:
    """A follower as its fetches show it, in this leader epoch."""

    __slots__ = (
        "behind_since",
        "broker_epoch",
        "caught_up_at",
        "end_offset",
        "fetched_at",
        "is_caught_up",
        "leader_end_at_fetch",
        "start_offset",
    )

    def __init__(self) -> None:
        self.end_offset = NO_OFFSET  # unknown: it has not fetched in this epoch
        self.start_offset = NO_OFFSET
        self.broker_epoch = NO_BROKER_EPOCH
        self.fetched_at: Millis | None = None
        self.leader_end_at_fetch = NO_OFFSET
        self.caught_up_at: Millis | None = None  # by its fetches
        self.is_caught_up = False  # since then no check has found that it lags
        self.behind_since: Millis | None = None  # by the checks for lag; None: it was at the end


class InSyncReplicas:
    """The in-sync set of a partition that this broker leads. Never less than the leader alone."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        leader_epoch: LeaderEpoch,
        partition_epoch: int,
        replicas: Iterable[NodeId],
        isr: Iterable[NodeId],
        min_insync: int,
        high_watermark: Offset,
        epoch_start_offset: Offset,
        settings: ReplicaSettings,
        is_eligible: IsEligible,
    ) -> None:
        self.node_id = node_id
        self.leader_epoch = leader_epoch
        self.partition_epoch: int = partition_epoch
        self.isr: tuple[NodeId, ...] = tuple(isr)
        self.high_watermark: Offset = high_watermark
        self._epoch_start_offset = epoch_start_offset
        self._settings = settings
        self._is_eligible = is_eligible
        self._leader_end_offset = (
            high_watermark  # as far as it counts: under a flush policy, synced
        )
        self._proposed: tuple[NodeId, ...] | None = None
        self._followers: dict[NodeId, _Follower] = {}
        self._min_insync = 1
        self.set_replicas(replicas, min_insync)

    # What is known.

    @property
    def has_min_insync(self) -> bool:
        """Whether writes with acks=all may be taken: by the committed set alone."""
        return len(self.isr) >= self._min_insync

    @property
    def is_high_watermark_certain(self) -> bool:
        """Whether it has reached this epoch's start: before, it may lag what was committed."""
        return self.high_watermark >= self._epoch_start_offset

    def end_offset_of(self, replica: NodeId) -> Offset:
        """Where a follower's log ends; NO_OFFSET before its first fetch in this epoch."""
        follower = self._followers.get(replica)
        return NO_OFFSET if follower is None else follower.end_offset

    def least_start_offset(self, leader_start_offset: Offset) -> Offset:
        """Where the log starts that starts first, of those in sync."""
        starts = [
            follower.start_offset
            for replica, follower in self._followers.items()
            if replica in self.isr
        ]
        return min((leader_start_offset, *starts))

    def most_lag(self, leader_start_offset: Offset, leader_end_offset: Offset) -> int:
        """How many records the follower lacks that lacks most; at most the whole log.

        Before its first fetch in this epoch, one in sync is known to have what is committed.
        """
        ends = [
            max(follower.end_offset, self.high_watermark if replica in self.isr else NO_OFFSET)
            for replica, follower in self._followers.items()
        ]
        return leader_end_offset - max(leader_start_offset, min(ends, default=leader_end_offset))

    # What happened. Each method returns the high watermark that follows.

    def on_leader_end(self, end_offset: Offset) -> Offset:
        """The leader's own log counts up to here: appended, or synced under a flush policy."""
        self._leader_end_offset = max(self._leader_end_offset, end_offset)
        return self._advance()

    def on_fetch(
        self,
        replica: NodeId,
        fetch_offset: Offset,
        *,
        broker_epoch: int,
        leader_end_offset: Offset,
        now: Millis,
        start_offset: Offset = NO_OFFSET,
    ) -> Offset:
        """A follower fetches from `fetch_offset`: it has everything below, from `start_offset` on.

        The caller has checked that its history does not diverge from the leader's.
        """
        follower = self._followers.get(replica)
        if follower is None:
            return self.high_watermark
        if fetch_offset >= leader_end_offset:
            follower.caught_up_at = now
            follower.is_caught_up = True
        elif follower.fetched_at is not None and fetch_offset >= follower.leader_end_at_fetch:
            # It has all that the leader had at its previous fetch.
            follower.caught_up_at = max(follower.caught_up_at or Millis(0), follower.fetched_at)
            follower.is_caught_up = True
        follower.fetched_at = now
        follower.leader_end_at_fetch = leader_end_offset
        follower.end_offset = fetch_offset
        follower.start_offset = start_offset
        follower.broker_epoch = broker_epoch
        return self._advance()

    def on_committed_isr(self, isr: Iterable[NodeId], partition_epoch: int) -> Offset:
        """The controller has committed a set, the proposed one or another."""
        if partition_epoch <= self.partition_epoch:
            return self.high_watermark
        last_isr, self.isr = self.isr, tuple(isr)
        for replica in set(last_isr) - set(self.isr):
            if replica in self._followers:
                self._followers[replica].is_caught_up = False
        self.partition_epoch = partition_epoch
        self._proposed = None
        return self._advance()

    def on_brokers_changed(self) -> Offset:
        """A follower outside the set that may no longer join does not hold anything back."""
        return self._advance()

    def set_replicas(self, replicas: Iterable[NodeId], min_insync: int) -> Offset:
        """Replicas or `min.insync.replicas` changed. Never are more replicas needed than exist."""
        others = [replica for replica in replicas if replica != self.node_id]
        self._followers = {
            replica: self._followers.get(replica) or _Follower() for replica in others
        }
        self._min_insync = min(min_insync, len(others) + 1)
        return self._advance()

    # Changing the in-sync set.

    def propose_joins(self) -> Proposal | None:
        """A larger set, if followers have caught up."""
        if self._proposed is not None:
            return None
        joining = [
            replica
            for replica, follower in self._followers.items()
            if replica not in self.isr
            and self._has_caught_up(follower)
            and self._is_eligible(replica, follower.broker_epoch)
        ]
        return self._propose((*self.isr, *joining)) if joining else None

    def propose_leaves(self, leader_end_offset: Offset, now: Millis) -> Proposal | None:
        """A smaller set, if a follower has lagged for too long. An idle one never does.

        To be called at intervals: a follower lags from the first check that finds it behind, so
        that a fetch need not mention partitions in which nothing happens.
        """
        lagging = [
            replica
            for replica, follower in self._followers.items()
            if self._lags(follower, leader_end_offset, now) and replica in self.isr
        ]
        if not lagging or self._proposed is not None:
            return None
        return self._propose(tuple(node for node in self.isr if node not in lagging))

    def _lags(self, follower: _Follower, leader_end_offset: Offset, now: Millis) -> bool:
        if follower.end_offset >= leader_end_offset:
            follower.behind_since = None
            return False
        if follower.behind_since is None:
            follower.behind_since = now
        since = max(follower.behind_since, follower.caught_up_at or follower.behind_since)
        is_lagging = now - since > self._settings.lag_max_ms
        if is_lagging:
            follower.is_caught_up = False
        return is_lagging

    def withdraw(self) -> Offset:
        """The controller certainly did not take the proposal: the committed set holds alone."""
        self._proposed = None
        return self._advance()

    def _propose(self, isr: tuple[NodeId, ...]) -> Proposal:
        self._proposed = isr
        return Proposal(
            tuple((node, self._broker_epoch(node)) for node in isr),
            self.leader_epoch,
            self.partition_epoch,
        )

    def _broker_epoch(self, node: NodeId) -> int:
        follower = self._followers.get(node)
        return NO_BROKER_EPOCH if follower is None else follower.broker_epoch

    # The high watermark.

    def _has_caught_up(self, follower: _Follower) -> bool:
        """Whether it holds all that is committed, and all that this epoch started with."""
        return (
            follower.fetched_at is not None
            and follower.end_offset >= self.high_watermark
            and follower.end_offset >= self._epoch_start_offset
        )

    def _advance(self) -> Offset:
        if len(self.isr) >= self._min_insync:
            least = self._leader_end_offset
            for replica, follower in self._followers.items():
                if follower.end_offset < least and self._counts(replica, follower):
                    least = follower.end_offset
            self.high_watermark = max(self.high_watermark, least)
        return self.high_watermark

    def _counts(self, replica: NodeId, follower: _Follower) -> bool:
        """In the maximal set, or about to join it: else it might never catch up with a busy log."""
        if replica in self.isr or (self._proposed is not None and replica in self._proposed):
            return True
        return (
            follower.is_caught_up
            and self._has_caught_up(follower)
            and self._is_eligible(replica, follower.broker_epoch)
        )
