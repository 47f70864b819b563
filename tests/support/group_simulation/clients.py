"""Clients of a simulated group: what they know, what they do next, and how they fail.

`owned` is what the process really reads. A client never uses the coordinator's state to decide what
to do; only the checks of replies do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from penstock.coordination.groups.commands import (
    Command,
    CommitOffsets,
    CommitReply,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    Done,
    Heartbeat,
    Join,
    JoinReply,
    Leave,
    OffsetToCommit,
    Sync,
    SyncReply,
)
from penstock.coordination.groups.state import ClassicGroup, ConsumerGroup
from penstock.coordination.groups.subscriptions import (
    read_embedded_assignment,
    read_embedded_subscription,
    write_embedded_assignment,
)
from penstock.errors import ErrorCode, Refused
from tests.support.group_simulation.coordinator import (
    GROUP,
    PARTITIONS,
    REBALANCE_MS,
    SESSION_MS,
    TOPIC,
    TOPIC_ID,
    TOPICS,
    OnReply,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.machine import CallerId
    from tests.support.group_simulation.world import World

NOTHING: Final[frozenset[int]] = frozenset()
RETRIED: Final = (ErrorCode.not_coordinator, ErrorCode.coordinator_not_available)


class Client(ABC):
    """What members of both protocols have in common: failures, and commits."""

    def __init__(self, name: str, world: World, instance_id: str | None) -> None:
        self.name = name
        self.world = world
        self.instance_id = instance_id
        self.rng = world.rng
        self.coordinator = world.coordinator
        self.is_alive = True
        self.paused_until = 0  # its process is stopped
        self.busy_until = 0  # it sends heartbeats, but does not join again
        self.must_rejoin_since: int | None = None  # when it learned that it must join again
        self.member_id = ""
        self.generation = -1
        self.owned = NOTHING

    @property
    def can_act(self) -> bool:
        """Neither crashed nor paused."""
        return self.is_alive and self.coordinator.now >= self.paused_until

    @abstractmethod
    def act(self) -> None:
        """The next thing the client would do."""

    @abstractmethod
    def leave(self) -> None:
        """Leave the group."""

    @abstractmethod
    def pretend(self) -> None:
        """Send a generation that is not the member's: must be refused."""

    def commit(self, generation: int) -> None:
        """Commit an owned partition, or any: that must be refused."""
        partition = self.rng.choice(sorted(self.owned) or range(PARTITIONS))
        offset = self.coordinator.committed.get(partition, 0) + 1
        entry = OffsetToCommit(TOPIC, partition, offset, -1, "", TOPIC_ID)
        member_id, instance_id = self.member_id, self.instance_id

        def on_reply(body: object) -> None:
            if isinstance(body, CommitReply) and body.codes == (ErrorCode.none,):
                self._check_may_commit(member_id, generation, partition)
                self.coordinator.committed[partition] = offset

        self.coordinator.submit(
            lambda caller: CommitOffsets(
                caller, GROUP, generation, member_id, instance_id, (entry,)
            ),
            on_reply,
        )

    def _check_may_commit(self, member_id: str, generation: int, partition: int) -> None:
        group = self.coordinator.group
        if group is None or not group.members:
            return
        assert member_id in group.members, "a commit by a client that is not a member"
        if isinstance(group, ClassicGroup):
            assert generation == group.generation, "a commit of an old generation"
            return
        member = group.members[member_id]
        if generation == member.current.member_epoch:
            return
        assert member.subscription.classic is None, "a commit of an old generation"
        assigned, revoked = member.current.assigned, member.current.pending_revocation
        owned = {**assigned.get(TOPIC_ID, {}), **revoked.get(TOPIC_ID, {})}
        assert partition in owned, "a late commit of what it no longer owns"
        assert owned[partition] <= generation, "a late commit of what it did not own then"

    def epoch_now(self) -> int | None:
        """The generation that the coordinator accepts from this member; None: it is not one."""
        group = self.coordinator.group
        if group is None or self.member_id not in group.members:
            return None
        if isinstance(group, ConsumerGroup):
            return group.members[self.member_id].current.member_epoch
        return group.generation

    def _other_generation(self) -> int:
        around = {self.generation + step for step in (-3, -2, -1, 1, 2)}
        group = self.coordinator.group
        if isinstance(group, ConsumerGroup) and self.member_id in group.members:
            around.discard(group.members[self.member_id].current.previous_member_epoch)
        around.discard(self.epoch_now() or 0)
        return self.rng.choice(sorted(epoch for epoch in around if epoch > 0) or [999])


class ClassicClient(Client):
    """A consumer of the classic protocol, which assigns when it leads."""

    def __init__(self, name: str, world: World, instance_id: str | None) -> None:
        super().__init__(name, world, instance_id)
        self.is_cooperative = world.is_cooperative
        self.protocol = "cooperative-sticky" if self.is_cooperative else "range"
        self.phase = "join"
        self.members: dict[str, bytes] = {}  # what the leader gets

    def act(self) -> None:
        """Join, request the assignment, or send a heartbeat."""
        if not self.can_act:
            return
        if self.phase == "join" and self.coordinator.now < self.busy_until:
            if self.generation > 0 and self.member_id:
                self._heartbeat()
        elif self.phase == "join":
            self._join()
        elif self.phase == "sync":
            self._sync()
        elif self.phase == "live":
            self._heartbeat()

    def _send(self, command: Callable[[CallerId], Command], on_reply: OnReply) -> None:
        """Replies to a crashed process are lost."""
        self.phase = "waiting"

        def receive(body: object) -> None:
            if isinstance(body, JoinReply):
                self.world.on_joined(body)
            if self.is_alive:
                on_reply(body)

        self.coordinator.submit(command, receive)

    def _join(self) -> None:
        if not self.is_cooperative:
            self.owned = NOTHING  # eager: everything is given up first
        self.must_rejoin_since = None
        new_member_id = f"{self.name}-{self.rng.getrandbits(64):x}"
        self.world.on_join_requested(self.member_id or new_member_id)
        packed = b"\x00\x01" + b"\x00\x00\x00\x01\x00\x01" + TOPIC.encode() + b"\xff\xff\xff\xff"
        packed += write_embedded_assignment({TOPIC: sorted(self.owned)}, 1)[2:-4]
        self._send(
            lambda caller: Join(
                caller,
                GROUP,
                self.member_id,
                self.instance_id,
                new_member_id,
                self.name,
                "/h",
                SESSION_MS,
                REBALANCE_MS,
                "consumer",
                ((self.protocol, packed),),
                True,
                True,
                TOPICS,
            ),
            self._on_joined,
        )

    def _on_joined(self, body: object) -> None:
        self.phase = "join"
        if isinstance(body, Refused):
            self._on_refused(body)
            return
        assert isinstance(body, JoinReply)
        self.member_id = body.member_id
        if body.code is ErrorCode.none:
            self.generation, self.phase = body.generation, "sync"
            self.members = {member.member_id: member.metadata for member in body.members}
            if body.skip_assignment:
                self.members = {}

    def _on_refused(self, refusal: Refused) -> None:
        self.phase = "join"
        if refusal.code is ErrorCode.unknown_member_id:
            self.member_id, self.owned, self.must_rejoin_since = "", NOTHING, None
        elif refusal.code is ErrorCode.illegal_generation:
            self.owned, self.must_rejoin_since = NOTHING, None  # lost: another member may have them
        elif refusal.code is ErrorCode.fenced_instance_id:
            self.is_alive = False  # fatal for a client: another process has its name

    def _sync(self) -> None:
        assignments = self._assign() if self.members else {}
        self._send(
            lambda caller: self._sync_command(caller, self.generation, assignments), self._on_synced
        )

    def _sync_command(
        self, caller: CallerId, generation: int, assignments: dict[str, bytes]
    ) -> Sync:
        return Sync(
            caller,
            GROUP,
            generation,
            self.member_id,
            self.instance_id,
            "consumer",
            self.protocol,
            assignments,
            TOPICS,
        )

    def _assign(self) -> dict[str, bytes]:
        """Sticky and balanced; a cooperative leader withholds what its owner must give up first."""
        claims = {
            member_id: read_embedded_subscription(packed).owned.get(TOPIC, ())
            for member_id, packed in self.members.items()
        }
        free = set(range(PARTITIONS))
        maximum = -(-PARTITIONS // len(claims))
        assigned: dict[str, list[int]] = {}
        for member_id, claimed in claims.items():
            assigned[member_id] = [partition for partition in claimed if partition in free][
                :maximum
            ]
            free -= set(assigned[member_id])
        for partition in sorted(free):
            min(assigned.values(), key=len).append(partition)
        for member_id, mine in assigned.items():
            others = {p for name, claimed in claims.items() if name != member_id for p in claimed}
            assigned[member_id] = [partition for partition in mine if partition not in others]
        return {
            name: write_embedded_assignment({TOPIC: sorted(mine)}, 1)
            for name, mine in assigned.items()
        }

    def _on_synced(self, body: object) -> None:
        if isinstance(body, Refused):
            self._on_refused(body)
            return
        assert isinstance(body, SyncReply)
        assigned = frozenset(read_embedded_assignment(body.assignment).get(TOPIC, ()))
        self.phase = "join" if self.is_cooperative and self.owned - assigned else "live"
        self.owned = assigned
        self.world.on_assigned(self)

    def _heartbeat(self) -> None:
        self._send(
            lambda caller: Heartbeat(
                caller, GROUP, self.generation, self.member_id, self.instance_id
            ),
            self._on_heartbeat_reply,
        )

    def _on_heartbeat_reply(self, body: object) -> None:
        self.phase = "live"
        if isinstance(body, Refused) and body.code not in RETRIED:
            if body.code is ErrorCode.rebalance_in_progress and self.must_rejoin_since is None:
                self.must_rejoin_since = self.coordinator.now
            self._on_refused(body)

    def leave(self) -> None:
        """As close() does."""
        leaving = ((self.member_id, self.instance_id),)
        self.coordinator.submit(lambda caller: Leave(caller, GROUP, leaving), lambda body: None)
        self.is_alive = False

    def pretend(self) -> None:
        """Heartbeat or sync with a generation that is not the member's."""
        other = self._other_generation()

        def on_reply(body: object) -> None:
            assert not isinstance(body, Done | SyncReply), f"accepted at generation {other}"

        command: Callable[[CallerId], Command] = lambda caller: Heartbeat(  # noqa: E731  # typed here
            caller, GROUP, other, self.member_id, self.instance_id
        )
        if self.rng.random() < 0.5:
            command = lambda caller: self._sync_command(caller, other, {})  # noqa: E731  # as above
        self.coordinator.submit(command, on_reply)


class ConsumerClient(Client):
    """A consumer of the consumer protocol: heartbeats, and takes its time to give partitions up."""

    def __init__(self, name: str, world: World, instance_id: str | None) -> None:
        super().__init__(name, world, instance_id)
        self.generation = 0
        self.member_id = f"{self.name}-{self.rng.getrandbits(64):x}"
        self.assigned = NOTHING  # its last assignment
        self.sends_full = True  # the next heartbeat has all fields

    def act(self) -> None:
        """A heartbeat; its reply may be lost."""
        if not self.can_act:
            return
        if self.rng.random() < 0.6:
            self.owned = self.assigned  # it has revoked and taken what it should
        is_lost = self.rng.random() < self.world.loss
        is_full = self.sends_full or self.generation == 0
        owned = self.owned if self.generation else NOTHING

        def receive(body: object) -> None:
            if self.is_alive and not is_lost:
                self._on_heartbeat_reply(body)
            else:
                self.sends_full = True  # after a time-out the client sends all fields again

        self.coordinator.submit(
            lambda caller: self._command(caller, self.generation, owned, is_full), receive
        )

    def _command(
        self, caller: CallerId, epoch: int, owned: frozenset[int], is_full: bool
    ) -> ConsumerHeartbeat:
        return ConsumerHeartbeat(
            caller,
            GROUP,
            self.member_id,
            epoch,
            self.instance_id,
            None,
            REBALANCE_MS if is_full else -1,
            (TOPIC,) if is_full else None,
            None,
            None,
            {TOPIC_ID: tuple(sorted(owned))} if owned else {},
            self.name,
            "/h",
            TOPICS,
            SESSION_MS,
            1_000,
        )

    def _on_heartbeat_reply(self, body: object) -> None:
        if isinstance(body, Refused):
            if body.code is ErrorCode.fenced_instance_id:
                self.is_alive = False
            if body.code not in RETRIED:
                self.generation, self.owned, self.assigned = 0, NOTHING, NOTHING
            self.sends_full = True
            return
        assert isinstance(body, ConsumerHeartbeatReply)
        self.sends_full = False
        self.generation = body.member_epoch
        if body.assignment is not None:
            self.assigned = frozenset(body.assignment.get(TOPIC_ID, ()))
            self.owned |= self.assigned

    def leave(self) -> None:
        """For good; a static member may leave temporarily."""
        epoch = -1
        if self.instance_id is not None and self.rng.random() < 0.5:
            epoch = -2
        self.coordinator.submit(
            lambda caller: self._command(caller, epoch, NOTHING, False), lambda body: None
        )
        self.is_alive = False

    def pretend(self) -> None:
        """Heartbeat with an epoch that is not the member's."""
        other = self._other_generation()

        def on_reply(body: object) -> None:
            assert isinstance(body, Refused), f"accepted at epoch {other}"

        self.coordinator.submit(
            lambda caller: self._command(caller, other, self.owned, False), on_reply
        )
