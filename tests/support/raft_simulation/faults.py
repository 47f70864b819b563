"""The faults of a simulation, one function each. A fault heals by an event that it schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.consensus.raft import NO_DIRECTORY, AddVoter, RaftNode, RemoveVoter, Role, VoterChange
from penstock.errors import Refused
from penstock.model import NodeId, Offset
from tests.support.raft_simulation.disk import Disk
from tests.support.raft_simulation.host import Host, make_voter

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.raft_simulation.network import Link
    from tests.support.raft_simulation.world import World


def crash(world: World, host: Host, *, is_power: bool) -> None:
    """End the process; the others may notice that their connections ended."""
    if host.node is None:
        return
    world.remark(f"crash {host.voter.key.node_id} {'power' if is_power else 'process'}")
    host.stop()
    host.paused_until = 0
    if is_power:
        host.disk.crash_power(world.rng)
    else:
        host.disk.crash_process()
    for other in world.hosts.values():
        if other.node is not None and world.rng.random() < world.options.hint_rate:
            lose_connection(world, other, host)


def lose_connection(world: World, host: Host, lost: Host) -> None:
    delay = world.rng.randrange(20)
    node_id = lost.voter.key.node_id
    world.after(delay, world.step, host, host.incarnation, RaftNode.on_peer_lost, node_id)


def _pick(world: World) -> Host:
    """Any host; leaders and candidates more often, because most rules are about them."""
    hosts = list(world.hosts.values())
    if world.rng.random() < 0.5:
        role = world.rng.choice((Role.LEADER, Role.LEADER, Role.CANDIDATE, Role.UNATTACHED))
        chosen = [host for host in hosts if host.node is not None and host.node.role is role]
        if chosen:
            return world.rng.choice(chosen)
    return world.rng.choice(hosts)


def _span(world: World) -> int:
    """How long a fault lasts: mostly less than the time-outs, sometimes much more."""
    return world.rng.choice((0, 0, 50, 300, 800, 2_500)) + world.rng.randrange(100)


def _crash_process(world: World) -> None:
    host = _pick(world)
    crash(world, host, is_power=False)
    world.after(_span(world), world.start, host)


def _crash_power(world: World) -> None:
    host = _pick(world)
    crash(world, host, is_power=True)
    world.after(_span(world), world.start, host)


def _crash_all(world: World) -> None:
    is_power = world.rng.random() < 0.7
    for host in world.hosts.values():
        crash(world, host, is_power=is_power)
        world.after(world.rng.randrange(500), world.start, host)


def _pause(world: World) -> None:
    host = _pick(world)
    host.paused_until = max(host.paused_until, world.now + _span(world))
    world.remark(f"pause {host.voter.key.node_id} until {host.paused_until}")


def _cut(world: World, links: list[Link]) -> None:
    world.remark(f"cut {links}")
    world.network.cut(links)
    world.after(_span(world), world.network.restore, links)


def _cut_one_way(world: World) -> None:
    source, target = _pick(world).voter.key.node_id, _pick(world).voter.key.node_id
    _cut(world, [(source, target)])


def _isolate(world: World) -> None:
    """Cut a host off, in both directions or in one."""
    host = _pick(world).voter.key.node_id
    others = [node_id for node_id in world.hosts if node_id != host]
    links = [(host, other) for other in others]
    back = [(other, host) for other in others]
    _cut(world, world.rng.choice((links, back, links + back)))


def _partition(world: World) -> None:
    ids = list(world.hosts)
    world.rng.shuffle(ids)
    middle = world.rng.randrange(len(ids))
    left, right = ids[:middle], ids[middle:]
    links = [(a, b) for a in left for b in right] + [(b, a) for a in left for b in right]
    _cut(world, links)


def _swizzle_clog(world: World) -> None:
    """Clog the links of some hosts one by one, and open them in another order."""
    ids = [node_id for node_id in world.hosts if world.rng.random() < 0.6]
    links = [(a, b) for a in ids for b in world.hosts if a != b]
    links += [(b, a) for a, b in links if b not in ids]
    world.rng.shuffle(links)
    time = 0
    for link in links:
        time += world.rng.randrange(100)
        world.after(time, world.network.clog, link)
    world.rng.shuffle(links)
    time += world.rng.randrange(500)
    for link in links:
        time += world.rng.randrange(100)
        world.after(time, _unclog, world, link)


def _unclog(world: World, link: Link) -> None:
    world.arrive_late(world.network.unclog(link))


def _jump_clock(world: World) -> None:
    """Forward only: a steady clock is never set back."""
    host = _pick(world)
    host.clock_offset += world.rng.choice((100, 700, 5_000))
    world.remark(f"clock of {host.voter.key.node_id} jumps")
    world.schedule(host)


def _slow_disk(world: World) -> None:
    host = _pick(world)
    host.sync_max_ms = world.rng.choice((200, 1_500))
    world.after(_span(world), _repair_disk, world, host)


def _repair_disk(world: World, host: Host) -> None:
    if not world.is_healing:
        host.sync_max_ms = world.options.sync_max_ms


def _change_voters(world: World) -> None:
    """Try to add, remove or replace a voter, at whichever host leads or believes so."""
    host = _pick(world)
    other = world.rng.choice(list(world.hosts.values()))
    node = host.node
    if node is None or node.role is not Role.LEADER or host.paused_until > world.now:
        return
    change: VoterChange = AddVoter(other.voter)
    known = node.voters.find(other.voter.key.node_id)
    if known is not None:
        change = RemoveVoter(known.key)
    now = world.local_time(host)
    try:
        effects = node.propose_voters(change, now)
    except Refused as refusal:
        world.remark(f"{host.voter.key.node_id} refuses {change}: {refusal}")
        return
    world.remark(f"{host.voter.key.node_id} accepts {change}")
    host.carry_out(effects, now)
    world.schedule(host)


def _snapshot(world: World) -> None:
    """At a few hosts, of all or part of what is committed; the log before it may go."""
    for host in world.hosts.values():
        node, disk = host.node, host.disk
        if node is None or world.rng.random() < 0.4:
            continue
        if disk.snapshot is not None:
            first = disk.snapshot.end.offset + 1
        elif disk.voter_records:
            first = disk.voter_records[0][0] + 1
        else:
            continue
        if first <= node.snapshot_limit:
            host.take_snapshot(Offset(world.rng.randint(first, node.snapshot_limit)))
        if disk.may_clean and world.rng.random() < 0.7:
            disk.clean()


def _resign(world: World) -> None:
    host = _pick(world)
    world.step(host, host.incarnation, RaftNode.resign)


def _lose_connection(world: World) -> None:
    """Without any reason: a hint may be false."""
    lose_connection(world, _pick(world), _pick(world))


def _wipe_disk(world: World) -> None:
    """Once per history, and only when every log knows every voter's disk: before that a wiped disk
    cannot be distinguished from the one it replaces.
    """
    host = _pick(world)
    if world.checker.lost_disks or world.options.voters < 3:
        return
    for other in world.hosts.values():
        voters = other.disk.voter_sets(other.configured)[-1][1].voters
        if any(voter.key.directory_id == NO_DIRECTORY for voter in voters) or len(voters) < 3:
            return
    crash(world, host, is_power=True)
    world.checker.lost_disks += 1
    world.remark(f"wipe {host.voter.key.node_id}")
    host.voter = make_voter(host.voter.key.node_id, life=1)
    host.disk = Disk()
    world.after(_span(world), world.start, host)


def _move_host(world: World) -> None:
    """Restart a process at another address."""
    host = _pick(world)
    crash(world, host, is_power=False)
    endpoint = host.voter.endpoints[0]
    moved = endpoint._replace(port=endpoint.port + 1_000)
    host.voter = host.voter._replace(endpoints=(moved,))
    world.after(_span(world), world.start, host)


def overthrow(world: World, host: Host) -> None:
    """End a leadership, by a crash or by a cut, for as long as an election takes or longer."""
    span = world.rng.randrange(1_500)
    if world.is_healing:
        return
    if world.rng.random() < 0.5:
        crash(world, host, is_power=world.rng.random() < 0.5)
        world.after(span, world.start, host)
    else:
        node_id = host.voter.key.node_id
        links = [(node_id, other) for other in world.hosts]
        links += [(other, node_id) for other in world.hosts]
        world.network.cut(links)
        world.after(span, world.network.restore, links)


INJECT: Final[dict[str, Callable[[World], None]]] = {
    "crash_process": _crash_process,
    "crash_power": _crash_power,
    "crash_all": _crash_all,
    "pause": _pause,
    "cut_one_way": _cut_one_way,
    "isolate": _isolate,
    "partition": _partition,
    "swizzle_clog": _swizzle_clog,
    "jump_clock": _jump_clock,
    "slow_disk": _slow_disk,
    "change_voters": _change_voters,
    "snapshot": _snapshot,
    "resign": _resign,
    "lose_connection": _lose_connection,
    "wipe_disk": _wipe_disk,
    "move_host": _move_host,
}


def heal(world: World, healed: list[NodeId]) -> None:
    """Repair these hosts and the links between them; break the others for good."""
    world.is_healing = True
    world.arrive_late(world.network.restore_among(healed))
    for node_id, host in world.hosts.items():
        if node_id in healed:
            host.paused_until = min(host.paused_until, world.now)
            host.sync_max_ms = 5
            world.start(host)
        else:
            _break(world, host, healed)


def _break(world: World, host: Host, healed: list[NodeId]) -> None:
    """The same towards every healed host: a leader that only some of them reach is another story,
    for those who reach it may keep it, and the others cannot win without them.
    """
    node_id = host.voter.key.node_id
    outward = [(node_id, other) for other in healed]
    inward = [(other, node_id) for other in healed]
    for link in outward + inward:
        world.network.unclog(link)
    match world.rng.choice(
        ("dead", "cut", "cannot receive", "cannot send", "paused", "stuck disk")
    ):
        case "dead":
            crash(world, host, is_power=True)
            host.is_dead = True
        case "cut":
            world.network.cut(outward + inward)
        case "cannot receive":
            world.network.cut(inward)
        case "cannot send":
            world.network.cut(outward)
        case "paused":
            host.paused_until = 2**60
        case _:
            host.is_disk_stuck = True
