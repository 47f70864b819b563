"""Hosts on one bus with virtual time: events in order, and a step at a time."""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random
from typing import TYPE_CHECKING, Any

from penstock.consensus.raft import (
    Effects,
    OffsetAndEpoch,
    QuorumState,
    RaftNode,
    ReplicaKey,
    Reply,
    Request,
    Role,
    SyncPoint,
    Voter,
    VoterSet,
)
from penstock.machine import CallerId
from penstock.model import Millis, NodeId
from tests.support.raft_simulation.checker import Checker
from tests.support.raft_simulation.host import Caller, Host, make_voter
from tests.support.raft_simulation.network import Network
from tests.support.raft_simulation.options import Options

if TYPE_CHECKING:
    from collections.abc import Callable


class World:
    """The bus of a simulation. Everything that is random comes from one seed."""

    def __init__(
        self, seed: int, options: Options | None = None, *, is_traced: bool = False
    ) -> None:
        self.rng = Random(seed)
        self.options = options = options or Options.draw(self.rng)
        self.now = 0
        self.trace: list[str] | None = [] if is_traced else None
        self.network = Network()
        self.hosts: dict[NodeId, Host] = {}
        self.checker = Checker(self.hosts)
        self.steps = 0
        self.proposed = 0
        self.on_new_leader: Callable[[Host], None] = lambda host: None
        self.is_healing = False
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0
        self._caller = 0
        ids = [NodeId(number + 1) for number in range(options.voters + options.observers)]
        members = [make_voter(node_id) for node_id in ids[: options.voters]]
        if options.is_static:
            members = [
                Voter(ReplicaKey(member.key.node_id), member.endpoints) for member in members
            ]
        for node_id in ids:
            configured = VoterSet(members if node_id <= options.voters else ())
            host = Host(make_voter(node_id), configured, options.settings, self, self._draw_jitter)
            host.clock_offset = self.rng.randrange(10_000)
            host.sync_max_ms = options.sync_max_ms
            host.fetch_count_max = options.fetch_count_max
            self.hosts[node_id] = host
            self.at(self.rng.randrange(200), self.start, host)

    def _draw_jitter(self) -> Millis:
        return Millis(int(self.rng.random() * 300))

    # Time

    def at(self, time: int, function: Callable[..., None], *arguments: Any) -> None:
        self._sequence += 1
        heappush(self._events, (time, self._sequence, function, arguments))

    def after(self, delay: int, function: Callable[..., None], *arguments: Any) -> None:
        self.at(self.now + delay, function, *arguments)

    def run_until(self, time: int, is_done: Callable[[], bool] | None = None) -> None:
        """Take events in order of time; stop early when `is_done`."""
        events = self._events
        while events and events[0][0] <= time:
            self.now, _, function, arguments = heappop(events)
            function(*arguments)
            if is_done is not None and is_done():
                return
        self.now = time

    def local_time(self, host: Host) -> Millis:
        return Millis(self.now + host.clock_offset)

    def note(self, host: Host, effects: Effects) -> None:
        self.steps += 1
        if effects.role is not None and effects.role.role is Role.LEADER:
            self.on_new_leader(host)
        if self.trace is not None:
            shown = {name: value for name, value in effects._asdict().items() if value}
            self.trace.append(f"{self.now} {host.voter.key.node_id}: {shown}")

    def fault(self, host: Host, reason: str) -> None:
        raise AssertionError(f"{host.voter.key.node_id} stops: {reason}")

    def remark(self, text: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.now} {text}")

    # Processes

    def start(self, host: Host) -> None:
        if host.node is None and not host.is_dead:
            self.remark(f"start {host.voter.key.node_id}")
            host.is_syncing = host.is_saving = False
            host.timer_at = None
            host.start(self.local_time(host))
            self.schedule(host)

    def step(
        self, host: Host, incarnation: int, method: Callable[..., Effects], *arguments: Any
    ) -> None:
        """Call the node, unless its process ended; later, if it is paused."""
        node = host.node
        if node is None or host.incarnation != incarnation:
            return
        if host.paused_until > self.now:
            self.at(host.paused_until, self.step, host, incarnation, method, *arguments)
            return
        now = self.local_time(host)
        if self.trace is not None:
            self.remark(f"{host.voter.key.node_id} {method.__name__} {arguments}")
        host.carry_out(method(node, *arguments, now), now)
        self.schedule(host)

    def schedule(self, host: Host) -> None:
        """One pending tick per host: if it comes too early it is put off then."""
        node = host.node
        wake_at = None if node is None else node.wake_at()
        if wake_at is not None:
            time = max(wake_at - host.clock_offset, self.now)
            if host.timer_at is None or time < host.timer_at:
                host.timer_at = time
                self.at(time, self._tick, host, host.incarnation, time)

    def _tick(self, host: Host, incarnation: int, time: int) -> None:
        if host.incarnation != incarnation or host.node is None or host.timer_at != time:
            return
        if host.paused_until > self.now:
            host.timer_at = host.paused_until
            self.at(host.paused_until, self._tick, host, incarnation, host.paused_until)
            return
        host.timer_at = None
        wake_at = host.node.wake_at()
        if wake_at is not None and wake_at <= self.local_time(host):
            self.step(host, incarnation, RaftNode.on_tick)
            wake_at = host.node.wake_at()
            assert wake_at is None or wake_at > self.local_time(host), "a timer that spins"
        else:
            self.schedule(host)

    # Network

    def send(self, host: Host, to: NodeId | None, request: Request) -> None:
        source = host.voter.key.node_id
        target = self.rng.choice(list(self.hosts)) if to is None else to
        if target != source and target in self.hosts:
            self.transmit(
                (source, target), self._on_request, source, host.incarnation, target, to, request
            )

    def transmit(
        self, link: tuple[NodeId, NodeId], function: Callable[..., None], *arguments: Any
    ) -> None:
        options, random = self.options, self.rng.random
        delay = int(random() * options.delay_max_ms)
        if self.is_healing:
            self.after(min(delay, 10), self._arrive, link, function, arguments)
            return
        if options.drop_rate and random() < options.drop_rate:
            return
        if options.long_delay_rate and random() < options.long_delay_rate:
            delay += int(random() * 1_500)
        self.after(delay, self._arrive, link, function, arguments)
        if options.duplicate_rate and random() < options.duplicate_rate:
            self.after(delay + int(random() * 400), self._arrive, link, function, arguments)

    def _arrive(
        self,
        link: tuple[NodeId, NodeId],
        function: Callable[..., None],
        arguments: tuple[Any, ...],
    ) -> None:
        waiting = self.network.waiting_on(link)
        if waiting is not None:
            waiting.append((link, function, arguments))
        elif not self.network.is_cut(link):
            function(*arguments)

    def arrive_late(self, waiting: list[Any]) -> None:
        for link, function, arguments in waiting:
            self.after(int(self.rng.random() * 20), self._arrive, link, function, arguments)

    def _on_request(
        self,
        source: NodeId,
        incarnation: int,
        target: NodeId,
        to: NodeId | None,
        request: Request,
    ) -> None:
        host = self.hosts[target]
        if host.node is None:
            return
        self._caller += 1
        caller = CallerId(self._caller)
        sender = None if to is None else target
        host.callers[caller] = Caller(source, incarnation, request, sender)
        self.step(host, host.incarnation, RaftNode.on_request, request, caller)

    def reply(self, host: Host, caller: CallerId, reply: Reply) -> None:
        source, incarnation, request, sender = host.callers.pop(caller)
        target = host.voter.key.node_id
        self.transmit(
            (target, source),
            self.step,
            self.hosts[source],
            incarnation,
            RaftNode.on_reply,
            sender,
            request,
            reply,
        )

    # Disks

    def save(self, host: Host, state: QuorumState) -> None:
        host.disk.state = state
        if not host.is_saving:
            host.is_saving = True
            self.after(self._disk_delay(host), self._saved, host, host.incarnation, state)

    def _saved(self, host: Host, incarnation: int, state: QuorumState) -> None:
        if host.incarnation != incarnation or host.node is None:
            return
        if host.is_disk_stuck:
            self.after(100, self._saved, host, incarnation, state)
            return
        host.disk.synced_state = state
        newest = host.disk.state
        host.is_saving = newest != state
        if host.is_saving:
            self.after(self._disk_delay(host), self._saved, host, incarnation, newest)
        self.step(host, incarnation, RaftNode.on_state_saved, state)

    def sync(self, host: Host) -> None:
        if not host.is_syncing:
            host.is_syncing = True
            self.after(0, self._start_sync, host, host.incarnation)

    def _start_sync(self, host: Host, incarnation: int) -> None:
        if host.incarnation == incarnation and host.node is not None:
            self.after(
                self._disk_delay(host),
                self._synced,
                host,
                incarnation,
                host.node.sync_point(),
                host.disk.cuts,
            )

    def _synced(self, host: Host, incarnation: int, point: SyncPoint, cuts: int) -> None:
        if host.incarnation != incarnation or host.node is None:
            return
        if host.is_disk_stuck:
            self.after(100, self._synced, host, incarnation, point, cuts)
            return
        disk = host.disk
        disk.on_synced(point.end_offset, cuts)
        host.is_syncing = disk.synced_offset < disk.end_offset or disk.cuts != cuts
        if host.is_syncing:
            self._start_sync(host, incarnation)
        self.step(host, incarnation, RaftNode.on_synced, point)

    def store_snapshot(self, host: Host, snapshot: OffsetAndEpoch) -> None:
        is_valid = not self.is_damaged()
        delay = self._disk_delay(host)
        self.after(delay, self.step, host, host.incarnation, _on_stored, snapshot, is_valid)

    def is_damaged(self) -> bool:
        rate = self.options.damage_rate
        return rate > 0 and not self.is_healing and self.rng.random() < rate

    def _disk_delay(self, host: Host) -> int:
        return int(self.rng.random() * host.sync_max_ms)

    # Clients

    def propose(self, host: Host) -> bool:
        """Append a record if this host believes that it leads."""
        node = host.node
        if node is None or node.role is not Role.LEADER or host.paused_until > self.now:
            return False
        self.proposed += 1
        host.append([self.proposed], self.local_time(host))
        self.schedule(host)
        return True


def _on_stored(node: RaftNode, snapshot: OffsetAndEpoch, is_valid: bool, now: Millis) -> Effects:
    return node.on_snapshot_stored(snapshot, now, is_valid=is_valid)
