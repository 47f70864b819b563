"""Groups under faults: members crash, stall, lose answers and return with old generations; the
coordinator restarts from its log. First faults, with checks after each step; then healed, and every
live member must end with its part. A failing seed replays exactly: `pytest -k "seed-<n>"`.
"""

from collections.abc import Callable, Sequence
from random import Random
from uuid import UUID

import pytest

from penstock.coordination.groups import GroupMachine, GroupSettings, Topic, TopicCatalogue
from penstock.coordination.groups.commands import (
    Beat,
    Command,
    CommitOffsets,
    Committed,
    ConsumerBeat,
    ConsumerBeaten,
    Done,
    Join,
    Joined,
    Leave,
    OffsetToCommit,
    Sync,
    Synced,
)
from penstock.coordination.groups.events import Event
from penstock.coordination.groups.offset_records import offset_of
from penstock.coordination.groups.state import ClassicGroup, ConsumerGroup, Groups
from penstock.errors import ErrorCode, Refused
from penstock.machine import CallerId, JournalRecord, Runner, TransactionStamp
from penstock.model import Millis, Offset

GROUP = "g"
PARTITIONS = 7
TOPIC_ID = UUID(int=7)
SETTINGS = GroupSettings(initial_rebalance_delay_ms=Millis(500))
TOPICS = TopicCatalogue(1, {"t": Topic(TOPIC_ID, PARTITIONS)}, {TOPIC_ID: "t"})
SESSION_MS = 10_000
REBALANCE_MS = 20_000
STEPS = 250
HEALED_MS = 240_000

Answer = Callable[[object], None]


class ListJournal:
    """The journal port over a list: everything is committed at once."""

    def __init__(self) -> None:
        self.records: list[tuple[JournalRecord, TransactionStamp | None]] = []

    @property
    def end_offset(self) -> Offset:
        return Offset(len(self.records))

    @property
    def committed_offset(self) -> Offset:
        return self.end_offset

    def append(
        self, records: Sequence[JournalRecord], stamp: TransactionStamp | None = None
    ) -> Offset:
        self.records += [(record, stamp) for record in records]
        return self.end_offset

    def compact(self) -> None:
        """Keep only the last record of each key, as the log's compaction may at any time."""
        last = {record.key: place for place, (record, _) in enumerate(self.records)}
        self.records = [
            stored for place, stored in enumerate(self.records) if last[stored[0].key] == place
        ]


class Coordinator:
    """The machine over a log that survives it, and a clock."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.journal = ListJournal()
        self.machine = GroupMachine(SETTINGS)
        self.now = Millis(1_000_000)
        self.waiting: dict[CallerId, Answer] = {}
        self.callers = 0
        self.committed: dict[int, int] = {}  # partition -> the last offset that was accepted
        self.runner = self._runner()

    def _runner(self) -> Runner[Groups, Command, Event]:
        runner = Runner(self.machine, self.journal, answer=self._answer, send=lambda message: None)
        runner.replay(self.journal.records)
        return runner

    @property
    def state(self) -> Groups:
        return self.runner.state

    def ask(self, command: Callable[[CallerId], Command], answer: Answer) -> None:
        self.callers += 1
        caller = CallerId(self.callers)
        self.waiting[caller] = answer
        self.runner.submit(command(caller), caller, self.now)

    def _answer(self, caller: CallerId, body: object) -> None:
        self.waiting.pop(caller)(body)

    def restart(self) -> None:
        if self.random.random() < 0.5:
            self.journal.compact()
        self.runner = self._runner()
        waiting, self.waiting = self.waiting, {}
        for answer in waiting.values():
            answer(Refused(ErrorCode.not_coordinator, "restarted"))

    def pass_time(self, span_ms: int) -> None:
        until = Millis(self.now + span_ms)
        while (wake_at := self.runner.wake_at()) is not None and wake_at <= until:
            self.now = Millis(max(self.now, wake_at))
            self.runner.tick(self.now)
        self.now = until

    def check_offsets(self) -> None:
        held = self.state.offsets.get(GROUP, {})
        assert {key[1]: offset_of(value) for key, value in held.items()} == self.committed


class Client:
    """What both kinds of members have in common: a life, and commits."""

    member_id = ""
    generation = -1
    instance_id: str | None = None
    is_alive = True
    silent_until = 0  # stalled: a long pause of its process
    has_commit_in_flight = False

    def __init__(self, name: str, coordinator: Coordinator) -> None:
        self.name = name
        self.coordinator = coordinator
        self.owned: frozenset[int] = frozenset()

    def crash(self) -> None:
        self.is_alive = False

    def act(self) -> None:
        """The next thing the client would do."""

    def commit(self, generation: int) -> None:
        """Commit something owned, or anything: a confused client must not get through either."""
        random = self.coordinator.random
        partition = random.choice(sorted(self.owned) or range(PARTITIONS))
        offset = self.coordinator.committed.get(partition, 0) + 1
        entry = OffsetToCommit("t", partition, offset, -1, "", TOPIC_ID)
        member_id = self.member_id

        def on_answer(body: object) -> None:
            if isinstance(body, Committed) and body.codes == (ErrorCode.none,):
                self.check_may_commit(member_id, generation, partition)
                self.coordinator.committed[partition] = offset

        self.coordinator.ask(
            lambda caller: CommitOffsets(
                caller, GROUP, generation, member_id, self.instance_id, (entry,)
            ),
            on_answer,
        )

    def check_may_commit(self, member_id: str, generation: int, partition: int) -> None:
        """Called when a commit was accepted."""


class ClassicClient(Client):
    """A consumer of the classic protocol, which assigns when it leads."""

    def __init__(self, name: str, world: "ClassicWorld") -> None:
        super().__init__(name, world.coordinator)
        self.world = world
        self.phase = "join"
        self.members: dict[str, bytes] = {}  # what the leader is told
        self.incarnation = 0

    def act(self) -> None:
        if not self.is_alive or self.coordinator.now < self.silent_until:
            return
        if self.phase == "join":
            self._join()
        elif self.phase == "sync":
            self._sync()
        elif self.phase == "live":
            self._beat()

    def _ask(self, command: Callable[[CallerId], Command], on_answer: Answer) -> None:
        """Answers to what a crashed process asked reach nobody."""
        incarnation, self.phase = self.incarnation, "waiting"

        def hear(body: object) -> None:
            if self.is_alive and self.incarnation == incarnation:
                on_answer(body)

        self.coordinator.ask(command, hear)

    def _join(self) -> None:
        random = self.coordinator.random
        minted = f"{self.name}-{random.getrandbits(64):x}"
        metadata = ",".join(map(str, sorted(self.owned))).encode()
        self._ask(
            lambda caller: Join(
                caller,
                GROUP,
                self.member_id,
                self.instance_id,
                minted,
                self.name,
                "/h",
                SESSION_MS,
                REBALANCE_MS,
                "consumer",
                (("sticky", metadata),),
                True,
                True,
            ),
            self._on_joined,
        )

    def _on_joined(self, body: object) -> None:
        self.phase = "join"
        if isinstance(body, Joined):
            self.member_id = body.member_id
            if body.code is ErrorCode.none:
                self.generation, self.phase = body.generation, "sync"
                self.members = {member.member_id: member.metadata for member in body.members}
                if body.skip_assignment:
                    self.members = {}
        elif isinstance(body, Refused):
            self._on_refused(body)

    def _on_refused(self, refusal: Refused) -> None:
        self.phase = "join"
        if refusal.code is ErrorCode.unknown_member_id:
            self.member_id, self.owned = "", frozenset()
        elif refusal.code is ErrorCode.fenced_instance_id:
            self.is_alive = False  # fatal for a client: another process has its name

    def _sync(self) -> None:
        assignments = self._assign() if self.members else {}
        self._ask(
            lambda caller: Sync(
                caller,
                GROUP,
                self.generation,
                self.member_id,
                self.instance_id,
                "consumer",
                "sticky",
                assignments,
            ),
            self._on_synced,
        )

    def _assign(self) -> dict[str, bytes]:
        """Sticky and even: keep what one has up to the quota, spread the rest."""
        free = set(range(PARTITIONS))
        most = -(-PARTITIONS // len(self.members))
        parts: dict[str, list[int]] = {}
        for member_id in self.members:
            claimed = self.members[member_id].decode().split(",")
            mine = [int(text) for text in claimed if text and int(text) in free][:most]
            free -= set(mine)
            parts[member_id] = mine
        for partition in sorted(free):
            min(parts.values(), key=len).append(partition)
        return {name: ",".join(map(str, mine)).encode() for name, mine in parts.items()}

    def _on_synced(self, body: object) -> None:
        if isinstance(body, Refused):
            self._on_refused(body)
            return
        assert isinstance(body, Synced)
        self.phase = "live"
        self.owned = frozenset(int(text) for text in body.assignment.decode().split(",") if text)
        self.world.on_assigned(self)

    def _beat(self) -> None:
        self._ask(
            lambda caller: Beat(caller, GROUP, self.generation, self.member_id, self.instance_id),
            self._on_beaten,
        )

    def _on_beaten(self, body: object) -> None:
        if isinstance(body, Done):
            self.phase = "live"
        else:
            assert isinstance(body, Refused)
            self.phase = "live" if body.code is ErrorCode.not_coordinator else "join"
            if self.phase == "join":
                self._on_refused(body)

    def leave(self) -> None:
        gone = ((self.member_id, self.instance_id),)
        self.coordinator.ask(lambda caller: Leave(caller, GROUP, gone), lambda body: None)
        self.is_alive = False

    def restart(self) -> None:
        """A new process: it remembers nothing but its static name."""
        self.incarnation += 1
        self.is_alive, self.phase = True, "join"
        self.member_id, self.generation, self.owned = "", -1, frozenset()

    def check_may_commit(self, member_id: str, generation: int, partition: int) -> None:
        group = self.coordinator.state.groups.get(GROUP)
        if isinstance(group, ClassicGroup) and group.members:
            assert member_id in group.members, "a commit of one that is not a member"
            assert generation == group.generation, "a commit of an old generation"


class ClassicWorld:
    """One classic group."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.coordinator = Coordinator(self.random)
        self.assigned: dict[int, dict[int, str]] = {}  # generation -> partition -> member
        self.clients = [ClassicClient(f"c{number}", self) for number in range(5)]
        for client in self.clients[:2]:
            client.instance_id = f"static-{client.name}"

    def on_assigned(self, client: ClassicClient) -> None:
        """One owner per partition per generation. A static successor is the same owner."""
        owners = self.assigned.setdefault(client.generation, {})
        for partition in client.owned:
            assert owners.setdefault(partition, client.name) == client.name

    def step(self) -> None:
        random, client = self.random, self.random.choice(self.clients)
        choice = random.random()
        if choice < 0.55:
            client.act()
        elif choice < 0.75:
            self.coordinator.pass_time(random.choice((1, 50, 500, 3_000)))
        elif choice < 0.85 and client.is_alive:
            stale = random.random() < 0.3
            client.commit(client.generation - 1 if stale else client.generation)
        elif choice < 0.89:
            client.crash()
        elif choice < 0.94 and not client.is_alive:
            client.restart()
        elif choice < 0.96:
            client.silent_until = self.coordinator.now + random.choice((2_000, 30_000))
        elif choice < 0.97 and client.is_alive:
            client.leave()
        elif choice < 0.985:
            self.coordinator.restart()
        else:
            self.coordinator.pass_time(12_000)
        self.coordinator.check_offsets()

    def heal(self) -> None:
        for client in self.clients[:3]:
            if not client.is_alive:
                client.restart()
        for _ in range(HEALED_MS // 500):
            for client in self.clients:
                client.silent_until = 0
                client.act()
            self.coordinator.pass_time(500)
            self.coordinator.check_offsets()

    def check_healed(self) -> None:
        living = [client for client in self.clients if client.is_alive]
        assert len({client.generation for client in living}) == 1
        owned = [partition for client in living for partition in client.owned]
        assert sorted(owned) == list(range(PARTITIONS))
        assert max(len(c.owned) for c in living) - min(len(c.owned) for c in living) <= 2


class ConsumerClient(Client):
    """A consumer of the consumer protocol: heartbeats, and takes its time to give partitions up."""

    def __init__(self, name: str, coordinator: Coordinator) -> None:
        super().__init__(name, coordinator)
        self.restart()

    def restart(self) -> None:
        self.is_alive = True
        self.generation = 0
        self.member_id = f"{self.name}-{self.coordinator.random.getrandbits(64):x}"
        self.owned: frozenset[int] = frozenset()
        self.told: frozenset[int] = frozenset()
        self.is_fresh = True  # must say everything

    def act(self) -> None:
        if not self.is_alive or self.coordinator.now < self.silent_until:
            return
        if self.coordinator.random.random() < 0.6:
            self.owned = self.told  # revoked what it must, took up what it may
        epoch, member_id = self.generation, self.member_id
        is_lost = self.coordinator.random.random() < self.loss
        owned = {TOPIC_ID: tuple(sorted(self.owned))} if self.owned and epoch else {}
        is_full = self.is_fresh or epoch == 0

        def hear(body: object) -> None:
            if self.is_alive and self.member_id == member_id and not is_lost:
                self._on_beaten(body)
            else:
                self.is_fresh = True  # after a time-out the client says everything again

        self.coordinator.ask(
            lambda caller: ConsumerBeat(
                caller,
                GROUP,
                member_id,
                epoch,
                None,
                None,
                REBALANCE_MS if is_full else -1,
                ("t",) if is_full else None,
                None,
                None,
                owned,
                self.name,
                "/h",
                TOPICS,
                SESSION_MS,
                1_000,
            ),
            hear,
        )

    loss = 0.1

    def _on_beaten(self, body: object) -> None:
        if isinstance(body, Refused):
            if body.code is not ErrorCode.not_coordinator:
                self.generation, self.owned, self.told = 0, frozenset(), frozenset()
            self.is_fresh = True
            return
        assert isinstance(body, ConsumerBeaten)
        self.is_fresh = False
        self.generation = body.member_epoch
        if body.assignment is not None:
            self.told = frozenset(body.assignment.get(TOPIC_ID, ()))
            self.owned |= self.told

    def leave(self) -> None:
        self.generation = -1
        self.act()
        self.is_alive = False

    def check_may_commit(self, member_id: str, generation: int, partition: int) -> None:
        group = self.coordinator.state.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        current = group.members[member_id].current
        held = {
            **current.assigned.get(TOPIC_ID, {}),
            **current.pending_revocation.get(TOPIC_ID, {}),
        }
        assert generation == current.member_epoch or generation >= held[partition]


class ConsumerWorld:
    """One group of the consumer protocol."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.coordinator = Coordinator(self.random)
        self.clients = [ConsumerClient(f"c{number}", self.coordinator) for number in range(5)]

    def step(self) -> None:
        random, client = self.random, self.random.choice(self.clients)
        choice = random.random()
        if choice < 0.6:
            client.act()
        elif choice < 0.78:
            self.coordinator.pass_time(random.choice((1, 50, 500, 2_000)))
        elif choice < 0.86 and client.is_alive and client.generation > 0:
            stale = random.random() < 0.3
            client.commit(client.generation - 1 if stale else client.generation)
        elif choice < 0.9:
            client.crash()
        elif choice < 0.95 and not client.is_alive:
            client.restart()
        elif choice < 0.97:
            client.silent_until = self.coordinator.now + random.choice((2_000, 30_000))
        elif choice < 0.98 and client.is_alive and client.generation > 0:
            client.leave()
        elif choice < 0.99:
            self.coordinator.restart()
        else:
            self.coordinator.pass_time(12_000)
        self.check()

    def check(self) -> None:
        """One owner per partition, in the coordinator's eyes and in its members'."""
        self.coordinator.check_offsets()
        group = self.coordinator.state.groups.get(GROUP)
        if group is None:
            return
        assert isinstance(group, ConsumerGroup)
        owners: dict[int, str] = {}
        for member in group.members.values():
            for held in (member.current.assigned, member.current.pending_revocation):
                for partition in held.get(TOPIC_ID, {}):
                    assert owners.setdefault(partition, member.member_id) == member.member_id
        assert {key[1]: owner for key, owner in group.owners.items()} == owners
        for client in self.clients:
            if client.member_id in group.members and client.generation > 0:
                assert {owners.get(partition) for partition in client.owned} <= {client.member_id}

    def heal(self) -> None:
        for client in self.clients:
            client.loss = 0.0
            client.silent_until = 0
        for client in self.clients[:3]:
            if not client.is_alive:
                client.restart()
        for _ in range(HEALED_MS // 1_000):
            for client in self.clients:
                client.act()
            self.coordinator.pass_time(1_000)
            self.check()

    def check_healed(self) -> None:
        living = [client for client in self.clients if client.is_alive]
        group = self.coordinator.state.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        assert group.state_name == "Stable"
        assert {client.generation for client in living} == {group.epoch}
        owned = [partition for client in living for partition in client.owned]
        assert sorted(owned) == list(range(PARTITIONS))
        assert max(len(c.owned) for c in living) - min(len(c.owned) for c in living) <= 1


SEEDS = 150  # of each protocol


@pytest.mark.parametrize("first", range(0, SEEDS, 10), ids=lambda seed: f"seed-{seed}")
@pytest.mark.parametrize("world_type", [ClassicWorld, ConsumerWorld])
def test_faults_break_no_promise_and_healing_gives_everybody_a_part(
    world_type: type[ClassicWorld] | type[ConsumerWorld], first: int
) -> None:
    for seed in range(first, first + 10):
        world = world_type(seed)
        try:
            for _ in range(STEPS):
                world.step()
            world.heal()
            world.check_healed()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
