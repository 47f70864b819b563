"""The controller of the cluster, while this broker leads the metadata quorum.

It becomes active once this broker has applied everything before its epoch, and decides on a state
of its own that starts as a copy of the image. When the epoch ends it is dropped with all it decided
that was not committed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from penstock.broker.handler import result_of
from penstock.broker.quorum.raft_journal import RaftJournal
from penstock.broker.runner_host import RunnerHost
from penstock.consensus.raft import Role
from penstock.coordination.controller.commands import ConfirmActive, StartSessions
from penstock.coordination.controller.decide_brokers import broker_story_key
from penstock.errors import ErrorCode, Refused
from penstock.machine import Runner
from penstock.model import Offset

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.broker.metadata_follower import MetadataFollower
    from penstock.broker.quorum.quorum_node import QuorumNode
    from penstock.consensus.raft import RoleChange, VoterChange
    from penstock.coordination.controller import ClusterState, ControllerMachine
    from penstock.coordination.controller.commands import Command
    from penstock.coordination.controller.events import Event
    from penstock.machine import CallerId
    from penstock.machine.journal import OnCommitted
    from penstock.model import LeaderEpoch, Moment, NodeId

logger: Final = logging.getLogger(__name__)


class ActiveController:
    """The controller machine of this broker: active in the epochs that it leads."""

    def __init__(
        self,
        machine: ControllerMachine,
        follower: MetadataFollower,
        clock: Callable[[], Moment],
    ) -> None:
        self._machine = machine
        self._follower = follower
        self._clock = clock
        self._quorum: QuorumNode | None = None
        self._host: RunnerHost[ClusterState, Command, Event] | None = None
        self._epoch: LeaderEpoch | None = None  # that this replica leads
        self._voter_changes: list[OnCommitted] = []  # not committed yet: one at a time, as a rule
        self.on_active: Callable[[], None] = lambda: None

    def attach(self, quorum: QuorumNode) -> None:
        """The quorum that decides who is active."""
        self._quorum = quorum

    @property
    def is_active(self) -> bool:
        """Whether commands are decided here."""
        return self._host is not None

    @property
    def end_offset(self) -> Offset:
        """Where the next record of the metadata would go."""
        assert self._quorum is not None
        return self._quorum.log.end_offset

    def submit(self, command: Callable[[CallerId], Command]) -> object:
        """Decide a command: its reply, a Refused, or a Deferred of that."""
        if self._host is None:
            return _not_active()
        return self._host.submit(command)

    async def confirm(self) -> bool:
        """Whether it is still active: a majority has committed a record since this was called."""
        try:
            await result_of(self.submit(ConfirmActive))
        except Refused:
            return False
        return True

    def change_voters(self, change: VoterChange, call: OnCommitted) -> None:
        """Call when the change is committed, or when this controller is active no more."""
        if self._epoch is None or self._quorum is None:
            raise _not_active()
        end_offset = self._quorum.propose_voters(change)
        self._voter_changes.append(call)

        def on_applied(refusal: Refused | None) -> None:
            if call in self._voter_changes:  # else its epoch has ended, and it was refused
                self._voter_changes.remove(call)
                call(refusal)

        self._follower.call_when_applied(end_offset, on_applied)

    def last_step(self, node_id: NodeId) -> str:
        """The last thing that happened to a broker, in words; empty if it is not known."""
        steps = () if self._host is None else self._host.story(broker_story_key(node_id))
        return steps[-1][1] if steps else ""

    def on_role(self, change: RoleChange) -> None:
        """This replica leads an epoch, or does no more."""
        if change.role is Role.LEADER and change.epoch == self._epoch:
            return
        self.close()
        if change.role is not Role.LEADER:
            return
        assert change.start_offset is not None
        self._epoch = epoch = change.epoch
        # The first record of the epoch: once it is applied, so is everything before it.
        self._follower.call_when_applied(
            Offset(change.start_offset + 1), lambda refusal: self._activate(epoch, refusal)
        )

    def close(self) -> None:
        """Decide nothing more; what was not committed is dropped."""
        self._epoch = None
        host, self._host = self._host, None
        changes, self._voter_changes = self._voter_changes, []
        for call in changes:
            call(_not_active())
        if host is not None:
            logger.info("this broker is no longer the active controller")
            host.resign(_not_active())

    def _activate(self, epoch: LeaderEpoch, refusal: Refused | None) -> None:
        if refusal is not None or epoch != self._epoch or self._host is not None:
            return
        assert self._quorum is not None
        state = self._follower.image.state.fork()
        runner: Runner[ClusterState, Command, Event] = Runner(self._machine, state=state)
        runner.start(RaftJournal(self._quorum, self._follower, epoch))
        self._host = RunnerHost(runner, self._clock)
        self._host.submit(StartSessions)
        self._host.set_timer()
        logger.info("this broker is the active controller in epoch %d", epoch)
        self.on_active()


def _not_active() -> Refused:
    return Refused(ErrorCode.not_controller, "this broker is not the active controller; try again")
