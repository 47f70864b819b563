"""The leader's in-sync set and high watermark."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from penstock.consensus.replica.leader import InSyncReplicas, ReplicaSettings
from penstock.model import LeaderEpoch, Millis, NodeId, Offset

LAG_MS = Millis(1000)
ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)


def anyone(_replica: NodeId, _broker_epoch: int) -> bool:
    return True


def leader(
    *,
    isr: tuple[NodeId, ...] = (ONE, TWO, THREE),
    min_insync: int = 2,
    high_watermark: int = 0,
    epoch_start: int = 0,
    is_eligible: Callable[[NodeId, int], bool] = anyone,
) -> InSyncReplicas:
    return InSyncReplicas(
        node_id=ONE,
        leader_epoch=LeaderEpoch(5),
        partition_epoch=10,
        replicas=(ONE, TWO, THREE),
        isr=isr,
        min_insync=min_insync,
        high_watermark=Offset(high_watermark),
        epoch_start_offset=Offset(epoch_start),
        settings=ReplicaSettings(LAG_MS),
        is_eligible=is_eligible,
    )


def fetch(
    replicas: InSyncReplicas, replica: NodeId, offset: int, *, leader_end: int, now: int = 0
) -> int:
    return replicas.on_fetch(
        replica,
        Offset(offset),
        broker_epoch=100 + replica,
        leader_end_offset=Offset(leader_end),
        now=Millis(now),
    )


def test_committed_is_what_every_in_sync_replica_has() -> None:
    replicas = leader()
    assert replicas.on_leader_end(Offset(10)) == 0
    assert fetch(replicas, TWO, 10, leader_end=10) == 0
    assert fetch(replicas, THREE, 7, leader_end=10) == 7


def test_lag_is_that_of_the_follower_that_lacks_most() -> None:
    replicas = leader(isr=(ONE, TWO), high_watermark=4)
    assert replicas.most_lag(Offset(2), Offset(10)) == 8  # THREE may have nothing
    fetch(replicas, THREE, 7, leader_end=10)
    assert replicas.most_lag(Offset(2), Offset(10)) == 6  # TWO has what is committed
    fetch(replicas, TWO, 9, leader_end=10)
    assert replicas.most_lag(Offset(2), Offset(10)) == 3
    fetch(replicas, THREE, 10, leader_end=10)
    assert replicas.most_lag(Offset(2), Offset(10)) == 1


def test_the_high_watermark_never_moves_back() -> None:
    replicas = leader(high_watermark=5)
    replicas.on_leader_end(Offset(10))
    fetch(replicas, TWO, 10, leader_end=10)
    assert fetch(replicas, THREE, 3, leader_end=10) == 5


def test_nothing_is_committed_while_too_few_replicas_are_in_sync() -> None:
    replicas = leader(isr=(ONE,))
    assert [replicas.has_min_insync] == [False]
    assert replicas.on_leader_end(Offset(10)) == 0
    replicas.on_committed_isr((ONE, TWO), 11)
    assert [replicas.has_min_insync] == [True]
    assert fetch(replicas, TWO, 10, leader_end=10) == 10


def test_no_more_replicas_are_needed_than_exist() -> None:
    replicas = leader(isr=(ONE,), min_insync=2)
    replicas.set_replicas((ONE,), 2)
    assert replicas.has_min_insync
    assert replicas.on_leader_end(Offset(10)) == 10


def test_a_follower_joins_once_it_has_all_that_is_committed_and_all_of_the_epochs_start() -> None:
    replicas = leader(isr=(ONE, TWO), high_watermark=5, epoch_start=8)
    replicas.on_leader_end(Offset(10))
    fetch(replicas, THREE, 5, leader_end=10)
    assert replicas.propose_joins() is None  # it may lack what an earlier leader committed

    fetch(replicas, THREE, 8, leader_end=10)
    proposal = replicas.propose_joins()
    assert proposal is not None
    assert proposal.isr == ((ONE, -1), (TWO, -1), (THREE, 103))
    assert (proposal.leader_epoch, proposal.partition_epoch) == (5, 10)


def test_a_fenced_follower_or_one_of_an_older_incarnation_does_not_join() -> None:
    live = {104}
    replicas = leader(isr=(ONE, TWO), is_eligible=lambda _replica, epoch: epoch in live)
    fetch(replicas, THREE, 0, leader_end=0)
    assert replicas.propose_joins() is None
    live.add(103)
    assert replicas.propose_joins() is not None


def test_a_follower_that_left_and_is_gone_is_not_waited_for() -> None:
    live = {102, 103}
    replicas = leader(min_insync=1, is_eligible=lambda _replica, epoch: epoch in live)
    fetch(replicas, TWO, 0, leader_end=0)
    fetch(replicas, THREE, 0, leader_end=0)
    replicas.on_committed_isr((ONE, TWO), 11)
    fetch(replicas, THREE, 0, leader_end=0)  # it stops in order: it fetches to its end
    live.remove(103)
    replicas.on_leader_end(Offset(10))
    assert fetch(replicas, TWO, 10, leader_end=10) == 10


def test_one_proposal_at_a_time() -> None:
    replicas = leader(isr=(ONE, TWO))
    fetch(replicas, THREE, 0, leader_end=0)
    assert replicas.propose_joins() is not None
    assert replicas.propose_joins() is None
    assert replicas.propose_leaves(Offset(10), Millis(5000)) is None
    replicas.withdraw()
    assert replicas.propose_leaves(Offset(10), Millis(7000)) is not None


def test_while_a_join_is_proposed_the_high_watermark_waits_for_the_joining_replica() -> None:
    replicas = leader(isr=(ONE, TWO), min_insync=1)
    fetch(replicas, THREE, 0, leader_end=0)
    replicas.propose_joins()
    replicas.on_leader_end(Offset(10))
    fetch(replicas, TWO, 10, leader_end=10, now=5000)
    assert replicas.high_watermark == 0  # the controller may have committed the larger set
    assert fetch(replicas, THREE, 9, leader_end=10, now=5000) == 9


def test_while_a_leave_is_proposed_the_high_watermark_waits_for_the_leaving_replica() -> None:
    replicas = leader()
    replicas.on_leader_end(Offset(10))
    assert replicas.propose_leaves(Offset(10), Millis(500)) is None
    fetch(replicas, TWO, 10, leader_end=10, now=2000)
    proposal = replicas.propose_leaves(Offset(10), Millis(2000))
    assert proposal is not None
    assert [node for node, _ in proposal.isr] == [ONE, TWO]
    assert replicas.high_watermark == 0
    assert replicas.on_committed_isr((ONE, TWO), 11) == 10


def test_a_follower_that_is_about_to_join_is_waited_for() -> None:
    replicas = leader(isr=(ONE, TWO), min_insync=1)
    fetch(replicas, THREE, 0, leader_end=0, now=100)
    replicas.on_leader_end(Offset(10))
    assert fetch(replicas, TWO, 10, leader_end=10, now=200) == 0


def test_a_follower_leaves_when_it_was_last_caught_up_too_long_ago() -> None:
    replicas = leader()
    for now in (0, 500, 1000, 1500):
        replicas.on_leader_end(Offset(now + 10))
        fetch(replicas, TWO, now + 10, leader_end=now + 10, now=now)
        fetch(replicas, THREE, now, leader_end=now + 10, now=now)
    # Three is behind at every fetch, but each time it has what the leader had one fetch before.
    assert replicas.propose_leaves(Offset(1510), Millis(1500)) is None
    fetch(replicas, TWO, 1510, leader_end=1510, now=2600)
    proposal = replicas.propose_leaves(Offset(1510), Millis(2600))
    assert proposal is not None
    assert [node for node, _ in proposal.isr] == [ONE, TWO]


def test_an_idle_partition_keeps_its_in_sync_set() -> None:
    replicas = leader()
    fetch(replicas, TWO, 0, leader_end=0)
    fetch(replicas, THREE, 0, leader_end=0)
    assert replicas.propose_leaves(Offset(0), Millis(100_000)) is None


def test_a_silent_in_sync_replica_of_a_new_leader_leaves_after_the_lag() -> None:
    replicas = leader(high_watermark=3)
    replicas.on_leader_end(Offset(3))
    assert replicas.propose_leaves(Offset(3), Millis(900)) is None
    assert replicas.propose_leaves(Offset(3), Millis(1900)) is None
    assert replicas.propose_leaves(Offset(3), Millis(1901)) is not None


def test_a_follower_lags_from_the_check_that_finds_it_behind_however_long_it_was_idle() -> None:
    replicas = leader()
    fetch(replicas, TWO, 0, leader_end=0)
    fetch(replicas, THREE, 0, leader_end=0)
    assert replicas.propose_leaves(Offset(0), Millis(100_000)) is None
    replicas.on_leader_end(Offset(5))
    assert replicas.propose_leaves(Offset(5), Millis(100_500)) is None
    assert replicas.propose_leaves(Offset(5), Millis(101_501)) is not None


def test_an_older_change_of_the_set_is_passed_over() -> None:
    replicas = leader()
    replicas.on_committed_isr((ONE,), 10)
    assert replicas.isr == (ONE, TWO, THREE)


def test_the_high_watermark_is_certain_once_it_reaches_the_epochs_start() -> None:
    replicas = leader(high_watermark=5, epoch_start=8)
    assert [replicas.is_high_watermark_certain] == [False]
    replicas.on_leader_end(Offset(8))
    fetch(replicas, TWO, 8, leader_end=8)
    fetch(replicas, THREE, 8, leader_end=8)
    assert replicas.is_high_watermark_certain


def test_a_fetch_of_a_broker_that_is_no_replica_changes_nothing() -> None:
    replicas = leader()
    assert fetch(replicas, NodeId(9), 10, leader_end=10) == 0


Step = Callable[[InSyncReplicas], object]


@st.composite
def steps(draw: st.DrawFn) -> Step:
    kind = draw(st.sampled_from(["append", "fetch", "join", "leave", "commit", "withdraw"]))
    now = draw(st.integers(0, 5000))
    offset = draw(st.integers(0, 30))
    replica = draw(st.sampled_from([TWO, THREE]))
    isr = draw(st.sampled_from([(ONE,), (ONE, TWO), (ONE, THREE), (ONE, TWO, THREE)]))
    return {
        "append": lambda it: it.on_leader_end(Offset(offset)),
        "fetch": lambda it: fetch(it, replica, offset, leader_end=30, now=now),
        "join": lambda it: it.propose_joins(),
        "leave": lambda it: it.propose_leaves(Offset(30), Millis(now)),
        "commit": lambda it: it.on_committed_isr(isr, it.partition_epoch + 1),
        "withdraw": lambda it: it.withdraw(),
    }[kind]


@given(st.lists(steps(), max_size=40), st.integers(1, 3))
def test_the_high_watermark_is_below_every_committed_in_sync_replica_when_it_moves(
    taken: list[Step], min_insync: int
) -> None:
    replicas = leader(min_insync=min_insync)
    for step in taken:
        before = replicas.high_watermark
        step(replicas)
        assert replicas.high_watermark >= before
        if replicas.high_watermark > before:
            ends = [replicas.end_offset_of(node) for node in replicas.isr if node != ONE]
            assert all(end >= replicas.high_watermark for end in ends)
            assert len(replicas.isr) >= min_insync


def test_a_follower_that_is_fenced_before_it_joins_holds_nothing_back() -> None:
    fenced: set[NodeId] = set()
    replicas = leader(isr=(ONE, TWO), is_eligible=lambda replica, _epoch: replica not in fenced)
    replicas.on_leader_end(Offset(10))
    fetch(replicas, TWO, 10, leader_end=10)
    fetch(replicas, THREE, 10, leader_end=10)
    replicas.on_leader_end(Offset(11))
    assert fetch(replicas, TWO, 11, leader_end=11) == 10

    fenced.add(THREE)
    assert replicas.on_brokers_changed() == 11
