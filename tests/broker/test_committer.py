"""How far a partition is committed: pure rules, without a log."""

from penstock.broker.committer import (
    Committer,
    FlushCommitter,
    LocalCommitter,
    ReplicatedCommitter,
)
from penstock.consensus.replica.leader import InSyncReplicas, ReplicaSettings
from penstock.model import LeaderEpoch, Millis, NodeId, Offset


def test_alone_in_sync_appended_is_committed() -> None:
    committer = LocalCommitter()
    assert committer.on_appended(Offset(7)) == 7
    assert not committer.waits_for_flush


def test_under_flush_messages_nothing_is_committed_that_needs_a_flush() -> None:
    committer = FlushCommitter(3, Offset(10))
    assert committer.on_appended(Offset(12)) == 12  # two unflushed: fewer than three
    assert committer.on_appended(Offset(13)) < 12
    assert committer.waits_for_flush
    assert committer.on_flushed(Offset(13)) == 13
    assert not committer.waits_for_flush


def test_what_was_appended_during_a_flush_may_need_the_next() -> None:
    committer = FlushCommitter(1, Offset(0))
    committer.on_appended(Offset(1))
    committer.on_appended(Offset(2))
    assert committer.on_flushed(Offset(1)) == 1
    assert committer.waits_for_flush
    assert committer.on_flushed(Offset(2)) == 2


def with_followers(local: Committer, min_insync: int = 1) -> tuple[Committer, InSyncReplicas]:
    in_sync = InSyncReplicas(
        node_id=NodeId(1),
        leader_epoch=LeaderEpoch(0),
        partition_epoch=0,
        replicas=(NodeId(1), NodeId(2)),
        isr=(NodeId(1), NodeId(2)),
        min_insync=min_insync,
        high_watermark=Offset(0),
        epoch_start_offset=Offset(0),
        settings=ReplicaSettings(Millis(1000)),
        is_eligible=lambda _replica, _epoch: True,
    )
    return ReplicatedCommitter(local, in_sync), in_sync


def fetch(in_sync: InSyncReplicas, offset: int) -> Offset:
    return in_sync.on_fetch(
        NodeId(2),
        Offset(offset),
        broker_epoch=1,
        leader_end_offset=Offset(offset),
        now=Millis(0),
    )


def test_with_followers_what_all_have_is_committed() -> None:
    committer, in_sync = with_followers(LocalCommitter())
    assert committer.on_appended(Offset(5)) == 0
    assert fetch(in_sync, 4) == 4


def test_with_followers_the_leaders_own_flush_counts_too() -> None:
    committer, in_sync = with_followers(FlushCommitter(1, Offset(0)))
    committer.on_appended(Offset(1))
    assert fetch(in_sync, 1) == 0
    assert committer.waits_for_flush
    assert committer.on_flushed(Offset(1)) == 1
