"""A simulated group under faults, from a seed: checks after each step; then everything heals.

Checked: what was committed stays; a partition is read by one member whose requests are accepted; no
member is accepted at another generation than its own; a member that must join again and does not is
removed in time; a generation consists of members that joined it.
"""

from random import Random
from typing import Final

from penstock.coordination.groups.commands import JoinReply
from penstock.coordination.groups.group_moves import ClassicState, ConsumerState
from penstock.coordination.groups.state import ClassicGroup, ConsumerGroup
from tests.support.group_simulation.clients import ClassicClient, Client, ConsumerClient
from tests.support.group_simulation.coordinator import (
    PARTITIONS,
    REBALANCE_MS,
    TOPIC_ID,
    Coordinator,
)

CLIENTS: Final = 5
STATIC: Final = 2  # clients with a group.instance.id
LIVING: Final = 3  # clients at the end, at least
STEPS: Final = 250
HEALED_MS: Final = 240_000
LATE_MS: Final = 1_000  # a refused write delays what is due
_WEIGHTS: Final = (55, 17, 2, 8, 4, 3, 6, 4, 1, 2, 1)  # of the actions, in their order


class World:
    """One group. `protocols` are those of its clients: classic, consumer, or both."""

    def __init__(self, seed: int, protocols: tuple[str, ...]) -> None:
        self.rng = Random(seed)
        self.protocols = protocols
        self.is_cooperative = self.rng.random() < 0.5
        self.loss = 0.1  # of replies to heartbeats of the consumer protocol
        self.coordinator = Coordinator(self.rng)
        self.assigned: dict[tuple[int, int], dict[int, str]] = {}  # round, generation -> owners
        self._joins: dict[str, int] = {}  # member id -> its last join
        self._clock = 0  # counts joins
        self._rounds = 0  # a generation number may repeat in another round
        self._generation = -1
        self._round_began = self._round_ended = -1
        self._group_type: type | None = None
        self._actions = (
            self._act,
            self._wait,
            self._wait_long,
            self._commit,
            self._pretend,
            self._crash,
            self._revive,
            self._leave,
            self._roll,
            self._stall,
            self._restart,
        )
        self._rollout = self.rng.choice(protocols)  # the protocol that is being rolled out
        self.clients = [self._client(number) for number in range(CLIENTS)]

    def _client(self, number: int) -> Client:
        name, protocol = f"c{number}", self._rollout
        if self.rng.random() < 0.15:
            protocol = self.rng.choice(self.protocols)
        instance_id = f"static-{name}" if number < STATIC else None
        kind = ClassicClient if protocol == "classic" else ConsumerClient
        return kind(name, self, instance_id)

    # Reports of clients.

    def on_join_requested(self, member_id: str) -> None:
        """A client sent a join."""
        self._clock += 1
        self._joins[member_id] = self._clock

    def on_joined(self, body: JoinReply) -> None:
        """A classic generation has begun: all of its dynamic members must have joined it."""
        group = self.coordinator.group
        if body.generation < 0 or not isinstance(group, ClassicGroup):
            return
        if group.state is not ClassicState.COMPLETING:
            return  # a static member returned to the present generation
        if body.generation != self._generation:
            self._generation = body.generation
            self._round_began, self._round_ended = self._round_ended, self._clock
        for member in body.members:
            if member.instance_id is None:
                joined = self._joins[member.member_id]
                assert joined > self._round_began, "a member that did not join again"

    def on_assigned(self, client: ClassicClient) -> None:
        """One owner per partition per generation. A static successor is the same owner."""
        if not isinstance(self.coordinator.group, ClassicGroup):
            return
        owners = self.assigned.setdefault((self._rounds, client.generation), {})
        for partition in client.owned:
            assert owners.setdefault(partition, client.name) == client.name, "two owners"

    # Faults.

    def step(self) -> None:
        """One random action, and all checks."""
        number = self.rng.randrange(CLIENTS)
        (action,) = self.rng.choices(self._actions, _WEIGHTS)
        action(number)
        self.check()

    def _act(self, number: int) -> None:
        self.clients[number].act()

    def _wait(self, number: int) -> None:
        self._pass_time(self.rng.choice((1, 50, 500, 3_000)))

    def _wait_long(self, number: int) -> None:
        self._pass_time(12_000)

    def _commit(self, number: int) -> None:
        client = self.clients[number]
        if client.is_alive:
            is_other = self.rng.random() < 0.4
            client.commit(client.generation - self.rng.randint(-1, 3) * is_other)

    def _pretend(self, number: int) -> None:
        client = self.clients[number]
        if client.is_alive and client.member_id:
            client.pretend()

    def _crash(self, number: int) -> None:
        self.clients[number].is_alive = False

    def _revive(self, number: int) -> None:
        if not self.clients[number].is_alive:
            self.clients[number] = self._client(number)

    def _leave(self, number: int) -> None:
        """Leave; in a rolling restart the next one joins immediately."""
        client = self.clients[number]
        if client.is_alive and client.generation > 0:
            client.leave()
            if self.rng.random() < 0.6:
                self.clients[number] = self._client(number)

    def _roll(self, number: int) -> None:
        self._rollout = self.rng.choice(self.protocols)

    def _restart(self, number: int) -> None:
        self.coordinator.restart()
        self._generation = -1  # one that was not written yet is used again
        self._rounds += 1
        self._clear_deadlines()

    def _stall(self, number: int) -> None:
        client, now = self.clients[number], self.coordinator.now
        if self.rng.random() < 0.5:
            client.paused_until = now + self.rng.choice((2_000, 30_000))
        else:
            client.busy_until = now + self.rng.choice((5_000, 40_000))

    def _pass_time(self, span_ms: int) -> None:
        """In small steps: busy clients go on sending heartbeats."""
        while span_ms > 0:
            self.coordinator.pass_time(min(span_ms, 3_000))
            span_ms -= 3_000
            for client in self.clients:
                if self.coordinator.now < client.busy_until:
                    client.act()

    def _clear_deadlines(self) -> None:
        for client in self.clients:
            client.must_rejoin_since = None

    # Checks.

    def check(self) -> None:
        """After each step."""
        self.coordinator.check_offsets()
        group = self.coordinator.group
        if type(group) is not self._group_type:
            self._group_type = type(group)
            self._round_ended = self._clock
            self._rounds += 1
            self._clear_deadlines()
        if isinstance(group, ConsumerGroup):
            self._check_owners(group)
        self._check_readers()
        self._check_deadlines()

    def _check_owners(self, group: ConsumerGroup) -> None:
        owners: dict[int, str] = {}
        for member in group.members.values():
            for owned in (member.current.assigned, member.current.pending_revocation):
                for partition in owned.get(TOPIC_ID, {}):
                    assert owners.setdefault(partition, member.member_id) == member.member_id
        assert {key[1]: owner for key, owner in group.owners.items()} == owners

    def _check_readers(self) -> None:
        """No two members whose requests are accepted read the same partition."""
        group = self.coordinator.group
        readers: dict[int, str] = {}
        for client in self.clients:
            if client.generation <= 0 or client.epoch_now() != client.generation:
                continue
            for partition in client.owned:
                assert readers.setdefault(partition, client.name) == client.name, "read twice"
                if isinstance(group, ConsumerGroup):
                    owner = group.owners.get((TOPIC_ID, partition))
                    assert owner == client.member_id, "read without owning it"

    def _check_deadlines(self) -> None:
        group = self.coordinator.group
        for client in self.clients:
            if (
                client.must_rejoin_since is None
                or group is None
                or client.member_id not in group.members
            ):
                continue
            if isinstance(group, ClassicGroup) and client.instance_id is not None:
                continue  # its session decides
            late_ms = self.coordinator.now - client.must_rejoin_since - REBALANCE_MS - LATE_MS
            assert late_ms <= 0, f"{client.name} should have been removed {late_ms} ms ago"

    # Healing.

    def heal(self) -> None:
        """No more faults; enough clients run, and have all the time they need."""
        self.loss = self.coordinator.refusals = 0.0
        for number, client in enumerate(self.clients):
            client.paused_until = client.busy_until = 0
            if number < LIVING and not client.is_alive:
                self.clients[number] = self._client(number)
        for _ in range(HEALED_MS // 500):
            for number in range(CLIENTS):
                if number < LIVING and not self.clients[number].is_alive:  # fenced
                    self.clients[number] = self._client(number)
                self.clients[number].act()
                self.check()
            self.coordinator.pass_time(500)
            self.check()

    def check_healed(self) -> None:
        """Every living client has its share, in a group of the right protocol."""
        living = [client for client in self.clients if client.is_alive]
        group = self.coordinator.group
        if any(isinstance(client, ConsumerClient) for client in living):
            assert isinstance(group, ConsumerGroup)
            assert group.state is ConsumerState.STABLE
            assert {client.generation for client in living} == {group.epoch}
        else:
            assert isinstance(group, ClassicGroup)
            assert group.state is ClassicState.STABLE
            assert {client.generation for client in living} == {group.generation}
        assert group.members.keys() == {client.member_id for client in living}
        owned = [partition for client in living for partition in client.owned]
        assert sorted(owned) == list(range(PARTITIONS))
        sizes = [len(client.owned) for client in living]
        assert max(sizes) - min(sizes) <= (1 if isinstance(group, ConsumerGroup) else 2)

    def run(self) -> None:
        """Faults, then healing."""
        for _ in range(STEPS):
            self.step()
        self.heal()
        self.check_healed()
