"""How far a partition is committed: pure rules, without a log."""

from penstock.broker.committer import FlushCommitter, InSyncCommitter, LocalCommitter
from penstock.model import NodeId, Offset


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


def test_with_followers_the_slowest_decides() -> None:
    committer = InSyncCommitter(LocalCommitter(), [NodeId(2), NodeId(3)])
    assert committer.on_appended(Offset(5)) < 0
    assert committer.on_replica_fetch(NodeId(2), Offset(5)) < 0
    assert committer.on_replica_fetch(NodeId(3), Offset(4)) == 4
    assert committer.on_replica_fetch(NodeId(3), Offset(3)) == 4  # an older fetch changes nothing
    assert committer.on_replica_fetch(NodeId(3), Offset(5)) == 5


def test_a_replica_that_is_not_in_sync_does_not_count() -> None:
    committer = InSyncCommitter(LocalCommitter(), [NodeId(2)])
    committer.on_appended(Offset(5))
    assert committer.on_replica_fetch(NodeId(9), Offset(5)) < 0
    assert committer.on_replica_fetch(NodeId(2), Offset(5)) == 5


def test_with_followers_the_leaders_own_flush_counts_too() -> None:
    committer = InSyncCommitter(FlushCommitter(1, Offset(0)), [NodeId(2)])
    committer.on_appended(Offset(1))
    assert committer.on_replica_fetch(NodeId(2), Offset(1)) < 1
    assert committer.waits_for_flush
    assert committer.on_flushed(Offset(1)) == 1
