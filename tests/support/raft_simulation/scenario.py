"""A cluster for case files: nothing moves unless a step says so, and steps say what happened.

`run` delivers all messages and ends all syncs, without time passing; `wait` lets time pass and runs
after each tick. Both report only what matters; `deliver` and `tick` report everything.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from penstock.consensus.raft import (
    AddVoter,
    Effects,
    OffsetAndEpoch,
    QuorumState,
    RaftSettings,
    RemoveVoter,
    ReplicaKey,
    Reply,
    Request,
    Role,
    SyncPoint,
    Voter,
    VoterSet,
)
from penstock.errors import Refused
from penstock.machine import CallerId
from penstock.model import Millis, NodeId, Offset
from tests.support.raft_simulation.checker import Checker
from tests.support.raft_simulation.describe import describe, headlines, status
from tests.support.raft_simulation.disk import Disk
from tests.support.raft_simulation.host import Caller, Host, make_voter
from tests.support.raft_simulation.network import Link, Network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Message:
    """On its way from one host to another."""

    def __init__(self, source: NodeId, target: NodeId, text: str, arrive: Callable[[], None]):
        self.link = (source, target)
        self.text = text
        self.arrive = arrive


class Scenario:
    """The bus of a case file, and the words of its steps."""

    def __init__(self) -> None:
        self.now = Millis(1_000)
        self.hosts: dict[NodeId, Host] = {}
        self.checker = Checker(self.hosts)
        self.network = Network()
        self.messages: list[Message] = []
        self.disk_work: list[tuple[str, NodeId, Callable[[], None]]] = []
        self.held: dict[str, bool] = {}  # "sync 1": not ended by `run`
        self.lines: list[str] = []
        self.is_quiet = False
        self._caller = 0
        self._proposed = 0
        self._is_damaged = False

    # Steps

    def say(self, step: str) -> str:
        """Carry out one step; what happened, a line each."""
        self.lines = []
        self.is_quiet = False
        word, *arguments = step.split()
        getattr(self, f"step_{word.replace('-', '_')}")(*arguments)
        return "\n".join(self.lines) or "nothing"

    def step_cluster(self, voters: str, *rest: str) -> None:
        """cluster 3 [static] [observers 2]: node 1 draws the shortest jitter."""
        count = int(voters)
        observers = int(rest[-1]) if "observers" in rest else 0
        members = [make_voter(NodeId(number)) for number in range(1, count + 1)]
        if "static" in rest:
            members = [Voter(ReplicaKey(member.key.node_id)) for member in members]
        for number in range(1, count + observers + 1):
            configured = VoterSet(members if number <= count else ())
            voter = make_voter(NodeId(number))
            jitter = partial(Millis, (number - 1) * 50)
            self.hosts[NodeId(number)] = Host(voter, configured, RaftSettings(), self, jitter)

    def step_quorum(self, voters: str, *rest: str) -> None:
        """As `cluster`, running, with node 1 as its leader."""
        self.step_cluster(voters, *rest)
        self.step_start("all")
        self.step_elect("1")
        self.lines = [line for line in self.lines if line.startswith("1 ")][-3:]

    def step_start(self, *names: str) -> None:
        for host in self._named(names):
            host.start(self.now)

    def step_crash(self, *names: str) -> None:
        """The process ends; what it wrote stays."""
        for host in self._named(names):
            host.stop()
            host.disk.crash_process()
            self._drop_work(host)

    def step_power_crash(self, *names: str) -> None:
        """The machine ends; all that was not synced is lost."""
        for host in self._named(names):
            host.stop()
            host.disk.crash_power(_LoseAll())
            self._drop_work(host)

    def step_wipe(self, name: str) -> None:
        """A new disk under the same node id."""
        self.step_crash(name)
        host = self._host(name)
        host.voter = make_voter(host.voter.key.node_id, life=1)
        host.disk = Disk()

    def step_roll_back(self, name: str, end_offset: str) -> None:
        """A disk loses what it had promised to keep; no checker could agree with what follows."""
        self.checker.committed.clear()
        self.checker.commit_ends.clear()
        host = self._host(name)
        host.disk.truncate(Offset(int(end_offset)))
        host.disk.crash_process()

    def step_run(self) -> None:
        self.is_quiet = True
        self._settle()

    def step_wait(self, span: str) -> None:
        self.is_quiet = True
        end = self.now + int(span)
        while True:
            due = [(wake, host) for host, wake in self._wakes() if wake <= end]
            if not due:
                break
            wake, host = min(due, key=lambda row: row[0])
            self.now = Millis(max(self.now, wake))
            self._tick(host)
            self._settle()
        self.now = Millis(end)

    def step_tick(self, name: str) -> None:
        """Let time pass until this node has something to do, for it alone."""
        host = self._host(name)
        wake_at = None if host.node is None else host.node.wake_at()
        if wake_at is not None:
            self.now = max(self.now, wake_at)
            self._tick(host)

    def step_elect(self, name: str) -> None:
        """Every follower loses its connection to its leader; this one stands, and all run."""
        self.is_quiet = True
        host = self._host(name)
        for follower in self.hosts.values():
            if follower.node is not None and follower.node.role is Role.FOLLOWER:
                self._call(follower, "on_peer_lost", follower.node.leader_id)
        stood = (Role.PROSPECTIVE, Role.CANDIDATE, Role.LEADER)
        while host.node is not None and host.node.role not in stood:
            self.step_tick(name)
        self._settle()

    def step_deliver(self, source: str, target: str, *rest: str) -> None:
        """deliver 1 2 [newest]: a message between two nodes arrives, the oldest if not said."""
        link = (NodeId(int(source)), NodeId(int(target)))
        messages = [message for message in self.messages if message.link == link]
        message = messages[-1 if rest else 0]
        self.messages.remove(message)
        self._arrive(message)

    def step_drop(self, source: str, target: str) -> None:
        link = (NodeId(int(source)), NodeId(int(target)))
        message = next(message for message in self.messages if message.link == link)
        self.messages.remove(message)
        self.lines.append(f"lost: {message.text}")

    def step_drop_all(self) -> None:
        self.messages.clear()

    def step_cut(self, *links: str) -> None:
        self.network.cut([link for name in links for link in _links(name)])

    def step_restore(self, *links: str) -> None:
        self.network.restore([link for name in links for link in _links(name)])

    def step_hold(self, *names: str) -> None:
        """hold sync-1: that disk takes its time from now on."""
        self.held |= dict.fromkeys(names, True)

    def step_sync(self, name: str) -> None:
        self._finish(f"sync-{name}")

    def step_save(self, name: str) -> None:
        self._finish(f"save-{name}")

    def step_release(self, *names: str) -> None:
        for name in names:
            del self.held[name]

    def step_append(self, name: str, count: str = "1") -> None:
        host = self._host(name)
        values: list[object] = []
        for _ in range(int(count)):
            self._proposed += 1
            values.append(self._proposed)
        host.append(values, self.now)

    def step_add(self, name: str, at: str, leader: str) -> None:
        """add 4 at 1"""
        voter = self._host(name).voter
        self._call(self._host(leader), "propose_voters", AddVoter(voter))

    def step_remove(self, name: str, at: str, leader: str) -> None:
        """remove 2 at 1"""
        key = self._host(name).voter.key
        self._call(self._host(leader), "propose_voters", RemoveVoter(key))

    def step_remove_disk(self, name: str, at: str, leader: str) -> None:
        """remove-disk 2 at 1: the first disk of node 2, which was replaced."""
        key = make_voter(NodeId(int(name))).key
        self._call(self._host(leader), "propose_voters", RemoveVoter(key))

    def step_resign(self, name: str) -> None:
        self._call(self._host(name), "resign")

    def step_lost(self, name: str, by: str, observer: str) -> None:
        """lost 1 by 2: the connection from 2 to 1 has ended."""
        self._call(self._host(observer), "on_peer_lost", NodeId(int(name)))

    def step_batch(self, name: str, count: str) -> None:
        """batch 1 2: this leader sends at most two records in a reply."""
        self._host(name).fetch_count_max = int(count)

    def step_damage(self) -> None:
        """The next records, or the next snapshot, cannot be used where they arrive."""
        self._is_damaged = True

    def step_snapshot(self, name: str, end_offset: str, *rest: str) -> None:
        """snapshot 1 5 [clean]"""
        host = self._host(name)
        host.take_snapshot(Offset(int(end_offset)))
        if rest:
            host.disk.clean()

    def step_show(self, *names: str) -> None:
        for host in self._named(names or ("all",)):
            self.lines.append(status(host))

    def step_statuses(self, name: str) -> None:
        node = self._host(name).node
        assert node is not None
        for row in node.statuses(self.now):
            kind = "voter" if row.is_voter else "observer"
            ago = self.now - row.fetched_at if row.fetched_at >= 0 else "never"
            self.lines.append(f"{row.key.node_id} {kind} end={row.end_offset} fetched={ago}")

    # The bus

    def send(self, host: Host, to: NodeId | None, request: Request) -> None:
        source, incarnation = host.voter.key.node_id, host.incarnation
        target = NodeId(1) if to is None else to
        text = f"{source} to {target}: {describe(request)}"
        self._report(text)

        def arrive() -> None:
            receiver = self.hosts[target]
            if receiver.node is not None:
                self._caller += 1
                caller = CallerId(self._caller)
                receiver.callers[caller] = Caller(source, incarnation, request, to)
                self._call(receiver, "on_request", request, caller)

        self.messages.append(Message(source, target, text, arrive))

    def reply(self, host: Host, caller: CallerId, reply: Reply) -> None:
        source, incarnation, request, sender = host.callers.pop(caller)
        text = f"{host.voter.key.node_id} to {source}: {describe(reply)}"
        self._report(text)

        def arrive() -> None:
            receiver = self.hosts[source]
            if receiver.node is not None and receiver.incarnation == incarnation:
                self._call(receiver, "on_reply", sender, request, reply)

        self.messages.append(Message(host.voter.key.node_id, source, text, arrive))

    def save(self, host: Host, state: QuorumState) -> None:
        host.disk.state = state
        voted = "" if state.voted is None else f" vote {state.voted.node_id}"
        leader = "" if state.leader_id is None else f" leader {state.leader_id}"
        self._report(f"{host.voter.key.node_id} saves epoch {state.epoch}{voted}{leader}")

        def finish() -> None:
            host.disk.synced_state = state
            self._call(host, "on_state_saved", state)

        self._add_work("save", host, finish)

    def sync(self, host: Host) -> None:
        def finish() -> None:
            assert host.node is not None
            point: SyncPoint = host.node.sync_point()
            host.disk.on_synced(point.end_offset, host.disk.cuts)
            self._call(host, "on_synced", point)

        self._add_work("sync", host, finish)

    def store_snapshot(self, host: Host, snapshot: OffsetAndEpoch) -> None:
        self._add_work("store", host, partial(self._on_stored, host, snapshot))

    def _on_stored(self, host: Host, snapshot: OffsetAndEpoch) -> None:
        assert host.node is not None
        is_valid = not self.is_damaged()
        effects = host.node.on_snapshot_stored(snapshot, self.now, is_valid=is_valid)
        host.carry_out(effects, self.now)

    def is_damaged(self) -> bool:
        is_damaged, self._is_damaged = self._is_damaged, False
        return is_damaged

    def fault(self, host: Host, reason: str) -> None:
        self.lines.append(f"{host.voter.key.node_id} stops: {reason}")

    def note(self, host: Host, effects: Effects) -> None:
        self.lines += headlines(host, effects)

    # Below

    def _report(self, text: str) -> None:
        if not self.is_quiet:
            self.lines.append(text)

    def _call(self, host: Host, method: str, *arguments: Any) -> None:
        try:
            effects = getattr(host.node, method)(*arguments, self.now)
        except Refused as refusal:
            self.lines.append(f"refused: {refusal}")
            return
        host.carry_out(effects, self.now)

    def _tick(self, host: Host) -> None:
        self._call(host, "on_tick")

    def _wakes(self) -> Iterator[tuple[Host, Millis]]:
        for host in self.hosts.values():
            wake_at = None if host.node is None else host.node.wake_at()
            if wake_at is not None:
                yield host, wake_at

    def _settle(self) -> None:
        """Until nothing is left to deliver or to sync."""
        while True:
            work = [row for row in self.disk_work if f"{row[0]}-{row[1]}" not in self.held]
            if work:
                self.disk_work.remove(work[0])
                work[0][2]()
            elif self.messages:
                self._arrive(self.messages.pop(0))
            else:
                return

    def _arrive(self, message: Message) -> None:
        if not self.network.is_cut(message.link):
            message.arrive()

    def _add_work(self, kind: str, host: Host, finish: Callable[[], None]) -> None:
        self.disk_work.append((kind, host.voter.key.node_id, finish))

    def _drop_work(self, host: Host) -> None:
        node_id = host.voter.key.node_id
        self.disk_work = [row for row in self.disk_work if row[1] != node_id]

    def _finish(self, name: str) -> None:
        work = [row for row in self.disk_work if f"{row[0]}-{row[1]}" == name]
        for row in work:
            self.disk_work.remove(row)
        if work:
            work[-1][2]()

    def _host(self, name: str) -> Host:
        return self.hosts[NodeId(int(name))]

    def _named(self, names: tuple[str, ...]) -> list[Host]:
        if names == ("all",):
            return list(self.hosts.values())
        return [self._host(name) for name in names]


class _LoseAll(Random):
    """A power crash at its worst, without luck."""

    def random(self) -> float:
        return 0.0

    def randint(self, a: int, b: int) -> int:
        return a


def _links(name: str) -> list[Link]:
    """1-2: both ways; 1>2: one way."""
    source, target = [NodeId(int(end)) for end in name.replace(">", "-").split("-")]
    return [(source, target)] if ">" in name else [(source, target), (target, source)]
