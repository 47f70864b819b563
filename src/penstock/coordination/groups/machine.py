"""The group coordinator as a machine: one for each led partition of `__consumer_offsets`.

Sessions are soft: after the log was read, the first tick gives every member a whole session.
Invariants: a partition has one owner per generation or epoch; a commit of a fenced member changes
nothing; what was committed stays until it is deleted or expires.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias, assert_never

from penstock.coordination.groups.apply import apply_event, replay_target
from penstock.coordination.groups.codec import OFFSET_KEY, read_events, write_event
from penstock.coordination.groups.commands import (
    Command,
    CommitOffsets,
    ConsumerHeartbeat,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    DropTopics,
    FetchOffsets,
    Heartbeat,
    Join,
    Leave,
    ListGroups,
    Sync,
)
from penstock.coordination.groups.decide_admin import (
    decide_delete_group,
    decide_describe,
    decide_list,
)
from penstock.coordination.groups.decide_bridged import (
    decide_bridged_heartbeat,
    decide_bridged_join,
    decide_bridged_leave,
    decide_bridged_sync,
)
from penstock.coordination.groups.decide_classic_join import decide_join
from penstock.coordination.groups.decide_classic_member import (
    decide_heartbeat,
    decide_leave,
    decide_sync,
)
from penstock.coordination.groups.decide_consumer_heartbeat import decide_consumer_heartbeat
from penstock.coordination.groups.decide_offsets import (
    decide_commit,
    decide_delete_offsets,
    decide_drop_topics,
    decide_fetch,
)
from penstock.coordination.groups.decide_timeouts import decide_tick
from penstock.coordination.groups.events import Event, TransactionEnded
from penstock.coordination.groups.state import ConsumerGroup, GroupsState
from penstock.coordination.groups.validate import validate
from penstock.machine import JournalRecord, Outcome, TransactionMark
from penstock.model import Millis, Moment, ProducerId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.coordination.groups.settings import GroupSettings

IMMEDIATELY: Final = Millis(0)

ClassicCommand: TypeAlias = Join | Sync | Heartbeat | Leave
AdminCommand: TypeAlias = DeleteOffsets | DropTopics | DeleteGroup | ListGroups | DescribeGroup


class GroupMachine:
    """The rules of all groups of one coordinator."""

    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings

    def fresh(self) -> GroupsState:
        """No group has members or offsets."""
        return GroupsState()

    def decide(self, state: GroupsState, command: Command, now: Moment) -> Outcome[Event]:
        """All rules, by type of command; the most frequent first."""
        match command:
            case CommitOffsets():
                return decide_commit(state, command, self.settings, now)
            case ConsumerHeartbeat():
                return decide_consumer_heartbeat(state, command, self.settings, now)
            case FetchOffsets():
                return decide_fetch(state, command)
            case Heartbeat() | Join() | Sync() | Leave():
                return self._decide_classic(state, command, now)
            case _:
                return self._decide_admin(state, command)

    def _decide_classic(
        self, state: GroupsState, command: ClassicCommand, now: Moment
    ) -> Outcome[Event]:
        """By the rules of the group that the member is in."""
        group = state.groups.get(command.group_id)
        if isinstance(group, ConsumerGroup) and (group.members or not isinstance(command, Join)):
            return self._decide_bridged(state, group, command, now)
        match command:
            case Heartbeat():
                return decide_heartbeat(state, command, now)
            case Join():
                return decide_join(state, command, self.settings, now)
            case Sync():
                return decide_sync(state, command, self.settings, now)
            case Leave():
                return decide_leave(state, command, self.settings, now)
            case _:
                assert_never(command)

    def _decide_bridged(
        self, state: GroupsState, group: ConsumerGroup, command: ClassicCommand, now: Moment
    ) -> Outcome[Event]:
        match command:
            case Heartbeat():
                return decide_bridged_heartbeat(state, group, command, now)
            case Join():
                return decide_bridged_join(group, command, self.settings, now)
            case Sync():
                return decide_bridged_sync(state, group, command, now)
            case Leave():
                return decide_bridged_leave(group, command, self.settings, now)
            case _:
                assert_never(command)

    def _decide_admin(self, state: GroupsState, command: AdminCommand) -> Outcome[Event]:
        match command:
            case DeleteOffsets():
                return decide_delete_offsets(state, command)
            case DropTopics():
                return decide_drop_topics(state, command)
            case DeleteGroup():
                return decide_delete_group(state, command)
            case ListGroups():
                return decide_list(state, command)
            case DescribeGroup():
                return decide_describe(state, command)
            case _:
                assert_never(command)

    # Each of these is one function; a method around it would be one more call per commit.
    apply: ClassVar[staticmethod[[GroupsState, Event], None]] = staticmethod(apply_event)
    write_event: ClassVar[staticmethod[[Event], JournalRecord]] = staticmethod(write_event)
    read_events: ClassVar[
        staticmethod[[JournalRecord, TransactionMark | None], Sequence[Event]]
    ] = staticmethod(read_events)
    validate: ClassVar[staticmethod[[GroupsState], None]] = staticmethod(validate)

    def wake_at(self, state: GroupsState) -> Millis | None:
        """Immediately after the log was read; then when something is due."""
        if not state.has_started_sessions:
            return IMMEDIATELY
        queue = state.timers.queue
        return queue[0][0] if queue else None

    def tick(self, state: GroupsState, now: Moment) -> Outcome[Event]:
        """What follows from the time that passed."""
        return decide_tick(state, self.settings, now)

    def replay_batch(
        self,
        state: GroupsState,
        records: Sequence[tuple[bytes | None, bytes | None]],
        mark: TransactionMark | None,
    ) -> None:
        """Apply stored records. Nearly all are commits outside of transactions: a shorter way."""
        is_short = mark is None and not state.unstable
        targets = state.replayed
        for key, value in records:
            if key is None:
                continue
            if is_short and value is not None and key[:2] == OFFSET_KEY:
                offsets, topic = targets.get(key[:-4]) or replay_target(state, key)
                offsets[topic, int.from_bytes(key[-4:], "big")] = value
                continue
            for event in read_events(JournalRecord(key, value), mark):
                apply_event(state, event)

    def on_marker(self, producer_id: ProducerId, *, is_commit: bool) -> Event:
        """What a transaction marker in this partition means."""
        return TransactionEnded(producer_id, is_commit)
