"""The group machine over a log that survives restarts, with a simulated clock."""

from collections.abc import Callable
from random import Random
from typing import Final
from uuid import UUID

from penstock.coordination.groups import GroupMachine, GroupSettings, TopicCatalogue, TopicInfo
from penstock.coordination.groups.codec import offset_of
from penstock.coordination.groups.commands import Command
from penstock.coordination.groups.events import Event
from penstock.coordination.groups.state import Group, GroupsState
from penstock.errors import ErrorCode, Refused
from penstock.machine import CallerId, Deferred, Runner
from penstock.model import Millis, Moment
from tests.support.memory_journal import MemoryJournal
from tests.support.settings import default_settings

GROUP: Final = "g"
TOPIC: Final = "t"
PARTITIONS: Final = 7
TOPIC_ID: Final = UUID(int=7)
TOPICS: Final = TopicCatalogue(1, {TOPIC: TopicInfo(TOPIC_ID, PARTITIONS)}, {TOPIC_ID: TOPIC})
SESSION_MS: Final = 10_000
REBALANCE_MS: Final = 20_000
SETTINGS: Final = default_settings(GroupSettings, initial_rebalance_delay_ms=Millis(500))

OnReply = Callable[[object], None]


class Coordinator:
    """One coordinator with one group, and the offsets that it acknowledged."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.refusals = 0.02  # share of writes that the journal refuses
        self.now = Millis(1_000_000)
        self.committed: dict[int, int] = {}  # partition -> the last offset that was accepted
        self._journal = MemoryJournal()
        self._journal.failure = self._refusal
        self._machine = GroupMachine(SETTINGS)
        self._runner = self._load()

    def _refusal(self) -> Refused | None:
        if self.rng.random() >= self.refusals:
            return None
        return Refused(ErrorCode.coordinator_not_available, "too few replicas are in sync")

    def _load(self) -> Runner[GroupsState, Command, Event]:
        runner = Runner(self._machine)
        for record, mark in self._journal.records:
            runner.replay((record,), mark)
        runner.start(self._journal)
        return runner

    def _moment(self) -> Moment:
        """The time of day is set back or forward by an hour every ten seconds."""
        hours = self.now // 10_000 % 3 - 1
        return Moment(self.now, Millis(1_000_000_000 + self.now + hours * 3_600_000))

    @property
    def group(self) -> Group | None:
        """The group as it is now."""
        return self._runner.state.groups.get(GROUP)

    def submit(self, command: Callable[[CallerId], Command], on_reply: OnReply) -> None:
        """The reply comes now or later."""
        reply = self._runner.submit(command, self._moment())
        if isinstance(reply, Deferred):
            reply.listen(on_reply)
        else:
            on_reply(reply)

    def restart(self) -> None:
        """Everything soft is lost; the log may have been compacted."""
        if self.rng.random() < 0.5:
            self._journal.compact()
        resigned, self._runner = self._runner, self._load()
        resigned.resign(Refused(ErrorCode.not_coordinator, "restarted"))

    def pass_time(self, span_ms: int) -> None:
        """Let the machine act whenever something is due."""
        until = Millis(self.now + span_ms)
        while (wake_at := self._runner.wake_at()) is not None and wake_at <= until:
            self.now = Millis(max(self.now, wake_at))
            self._runner.tick(self._moment())
        self.now = until

    def check_offsets(self) -> None:
        """What was accepted is there, and nothing else."""
        self._machine.validate(self._runner.state)
        held = self._runner.state.offsets.get(GROUP, {})
        assert {key[1]: offset_of(value) for key, value in held.items()} == self.committed
