"""How long a quorum is without a leader, in virtual time, on a quick network."""

from penstock.consensus.raft import RaftNode, RaftSettings, Role
from tests.support.raft_simulation.faults import crash
from tests.support.raft_simulation.host import Host
from tests.support.raft_simulation.options import Options
from tests.support.raft_simulation.world import World

CALM = Options(
    voters=3,
    observers=0,
    is_static=True,
    is_single_broker=False,
    duration_ms=0,
    fault_interval_ms=0,
    proposal_interval_ms=0,
    delay_max_ms=3,
    long_delay_rate=0,
    drop_rate=0,
    duplicate_rate=0,
    sync_max_ms=10,
    fetch_count_max=100,
    damage_rate=0,
    hint_rate=1,
    coup_rate=0,
    settings=RaftSettings(),
    faults=(),
)


def leader_of(world: World) -> Host:
    (leader,) = [
        host
        for host in world.hosts.values()
        if host.node is not None and host.node.role is Role.LEADER
    ]
    return leader


def time_without_commits(world: World) -> int:
    """Clients try every 10 ms; until a record of theirs is committed."""
    started_at, committed = world.now, len(world.checker.committed)
    value = world.proposed + 1

    def has_committed() -> bool:
        return any(entry[1] == value for entry in world.checker.committed[committed:])

    while not has_committed():
        for host in world.hosts.values():
            if world.proposed < value:
                world.propose(host)
        world.run_until(world.now + 10, has_committed)
        assert world.now < started_at + 10_000, "no leader"
    return world.now - started_at


def test_a_killed_leader_costs_less_than_a_second_and_a_half() -> None:
    spans = []
    for seed in range(200):
        world = World(seed, CALM)
        world.run_until(3_000)
        crash(world, leader_of(world), is_power=False)
        spans.append(time_without_commits(world))
    assert max(spans) < 1_500


def test_a_leader_that_is_paused_is_replaced_within_two_seconds() -> None:
    """No connection ends then: the followers have their time-outs only."""
    for seed in range(50):
        world = World(seed, CALM)
        world.run_until(3_000)
        leader_of(world).paused_until = world.now + 60_000
        assert time_without_commits(world) < 2_000


def test_a_leader_that_resigns_is_replaced_without_any_timeout() -> None:
    for seed in range(50):
        world = World(seed, CALM)
        world.run_until(3_000)
        leader = leader_of(world)
        world.step(leader, leader.incarnation, RaftNode.resign)
        assert time_without_commits(world) < 200


def test_one_record_is_committed_in_two_round_trips_and_two_syncs() -> None:
    """No poll interval is in it."""
    world = World(1, CALM)
    world.run_until(3_000)
    assert time_without_commits(world) <= 4 * CALM.delay_max_ms + 2 * CALM.sync_max_ms
