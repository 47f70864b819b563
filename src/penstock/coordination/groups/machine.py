"""The group coordinator as a machine: one for each led partition of `__consumer_offsets`.

Sessions are soft: after the log was read, the first tick gives every member a whole session to be
heard of. Invariants: a partition has one owner per generation or epoch; a commit of a fenced member
changes nothing; what was committed stays until it is deleted or expires.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.coordination.groups.apply import apply_event, replay_place
from penstock.coordination.groups.classic_rebalance import (
    INITIAL,
    JOIN,
    PENDING,
    SESSION,
    SYNC,
    ClassicDraft,
    drop_pending,
    on_initial_delay,
    on_join_timeout,
    on_session_end,
    on_sync_timeout,
    prepare_rebalance,
    rebalance_after_loss,
)
from penstock.coordination.groups.codec import OFFSET_KEY, read_events, write_event
from penstock.coordination.groups.codec_consumer import MemberState
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
from penstock.coordination.groups.consumer_draft import MEMBER_TIMERS, REVOKE
from penstock.coordination.groups.decide_admin import (
    decide_delete_group,
    decide_describe,
    decide_list,
    group_tombstones,
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
    expired_offsets,
)
from penstock.coordination.groups.events import (
    ClassicGroupReplaced,
    Event,
    SessionsStarted,
    TimersAdvanced,
    TimerSet,
    TransactionEnded,
)
from penstock.coordination.groups.protocol_switch import remove_or_downgrade
from penstock.coordination.groups.settings import GroupSettings
from penstock.coordination.groups.state import (
    ClassicGroup,
    ClassicState,
    ConsumerGroup,
    GroupsState,
)
from penstock.coordination.groups.timers import TimerKey
from penstock.coordination.groups.validate import validate
from penstock.machine import JournalRecord, Outcome, TransactionMark
from penstock.model import Millis, Moment, ProducerId

EXPIRY: Final = TimerKey("expiry", "")


class GroupMachine:
    """The rules of all groups of one coordinator."""

    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings
        self._rules: dict[type, Callable[[GroupsState, Any, Moment], Outcome[Event]]] = {
            Join: self._join,
            Sync: self._sync,
            Heartbeat: self._beat,
            Leave: self._leave,
            ConsumerHeartbeat: lambda s, c, now: decide_consumer_heartbeat(
                s, c, self.settings, now
            ),
            CommitOffsets: lambda s, c, now: decide_commit(s, c, self.settings, now),
            FetchOffsets: lambda s, c, now: decide_fetch(s, c),
            DeleteOffsets: lambda s, c, now: decide_delete_offsets(s, c),
            DropTopics: lambda s, c, now: decide_drop_topics(s, c),
            DeleteGroup: lambda s, c, now: decide_delete_group(s, c),
            ListGroups: lambda s, c, now: decide_list(s, c),
            DescribeGroup: lambda s, c, now: decide_describe(s, c),
        }

    def fresh(self) -> GroupsState:
        """Nobody has joined and nothing is committed."""
        return GroupsState()

    def decide(self, state: GroupsState, command: Command, now: Moment) -> Outcome[Event]:
        """All rules, by kind of command."""
        return self._rules[type(command)](state, command, now)

    # What classic members ask goes to the rules of the group they are in.

    def _join(self, state: GroupsState, command: Join, now: Moment) -> Outcome[Event]:
        group = state.groups.get(command.group_id)
        if isinstance(group, ConsumerGroup) and group.members:
            return decide_bridged_join(group, command, self.settings, now)
        return decide_join(state, command, self.settings, now)

    def _sync(self, state: GroupsState, command: Sync, now: Moment) -> Outcome[Event]:
        group = state.groups.get(command.group_id)
        if isinstance(group, ConsumerGroup):
            return decide_bridged_sync(state, group, command, now)
        return decide_sync(state, command, self.settings, now)

    def _beat(self, state: GroupsState, command: Heartbeat, now: Moment) -> Outcome[Event]:
        group = state.groups.get(command.group_id)
        if isinstance(group, ConsumerGroup):
            return decide_bridged_heartbeat(state, group, command, now)
        return decide_heartbeat(state, command, self.settings, now)

    def _leave(self, state: GroupsState, command: Leave, now: Moment) -> Outcome[Event]:
        group = state.groups.get(command.group_id)
        if isinstance(group, ConsumerGroup):
            return decide_bridged_leave(group, command, self.settings, now)
        return decide_leave(state, command, self.settings, now)

    # Each of these is one function; a method around it would be one call more for every commit.
    apply = staticmethod(apply_event)
    write_event = staticmethod(write_event)
    read_events = staticmethod(read_events)
    validate = staticmethod(validate)

    def wake_at(self, state: GroupsState) -> Millis | None:
        """At once after the log was read; then when something is due."""
        return state.timers.wake_at() if state.has_started_sessions else Millis(0)

    def tick(self, state: GroupsState, now: Moment) -> Outcome[Event]:
        """The first thing that is due; the rest follows in the next tick, which is at once.

        One at a time, because each may change what the others mean.
        """
        if not state.has_started_sessions:
            return _wake(state, self.settings, now)
        due = state.timers.due(now.steady)
        if not due:
            return Outcome(notes=(TimersAdvanced(now.steady),))
        outcome = self._on_due(state, due[0], now)
        dropped = TimerSet(due[0], None)
        return Outcome(
            events=outcome.events, notes=(dropped, *outcome.notes), replies=outcome.replies
        )

    def _on_due(self, state: GroupsState, key: TimerKey, now: Moment) -> Outcome[Event]:
        if key == EXPIRY:
            return _expire(state, self.settings, now)
        group = state.groups.get(key.group_id)
        if isinstance(group, ClassicGroup):
            return _on_classic_due(state, group, key, self.settings, now)
        if isinstance(group, ConsumerGroup):
            return _on_consumer_due(group, key, self.settings, now)
        return Outcome()

    def replay_batch(
        self,
        state: GroupsState,
        records: Sequence[tuple[bytes | None, bytes | None]],
        mark: TransactionMark | None,
    ) -> None:
        """Apply stored records. Nearly all are plain commits, which go the short way."""
        is_plain = mark is None and not state.unstable
        places = state.replayed
        for key, value in records:
            if key is None:
                continue
            if is_plain and value is not None and key[:2] == OFFSET_KEY:
                offsets, topic = places.get(key[:-4]) or replay_place(state, key)
                offsets[topic, int.from_bytes(key[-4:], "big")] = value
                continue
            for event in read_events(JournalRecord(key, value), mark):
                apply_event(state, event)

    def on_marker(self, producer_id: ProducerId, *, is_commit: bool) -> Event:
        """What a transaction marker in this partition means."""
        return TransactionEnded(producer_id, is_commit)


def _wake(state: GroupsState, settings: GroupSettings, now: Moment) -> Outcome[Event]:
    """Every member has a whole session from now; a revocation its whole time."""
    notes: list[Event] = [
        SessionsStarted(),
        TimerSet(EXPIRY, Millis(now.steady + settings.offsets_retention_check_ms)),
    ]
    for group in state.groups.values():
        if isinstance(group, ClassicGroup):
            notes += _wake_classic(group, settings, now)
        else:
            notes += _wake_consumer(group, settings, now)
    return Outcome(notes=tuple(notes))


def _wake_classic(group: ClassicGroup, settings: GroupSettings, now: Moment) -> Sequence[Event]:
    draft = ClassicDraft(group.copy(), settings, now)
    for member in group.members.values():
        draft.renew_session(member)
    if group.members and group.leader is None:
        prepare_rebalance(draft)  # the one after a change of protocol, which was cut short
    return draft.outcome().notes


def _wake_consumer(group: ConsumerGroup, settings: GroupSettings, now: Moment) -> list[Event]:
    notes: list[Event] = []
    for member in group.members.values():
        classic = member.subscription.classic
        session_ms = settings.consumer_session_timeout_ms
        key = TimerKey(SESSION, group.group_id, member.member_id)
        span_ms = session_ms if classic is None else classic.session_timeout_ms
        notes.append(TimerSet(key, Millis(now.steady + span_ms)))
        if member.current.state is MemberState.UNREVOKED_PARTITIONS and classic is None:
            key = TimerKey(REVOKE, group.group_id, member.member_id)
            timeout_ms = member.subscription.rebalance_timeout_ms
            notes.append(TimerSet(key, Millis(now.steady + timeout_ms)))
    return notes


def _on_classic_due(
    state: GroupsState, group: ClassicGroup, key: TimerKey, settings: GroupSettings, now: Moment
) -> Outcome[Event]:
    draft = ClassicDraft(group.copy(), settings, now)
    if key.kind == SESSION:
        on_session_end(draft, key.member_id)
    elif key.kind == PENDING:
        drop_pending(draft, key.member_id)
        rebalance_after_loss(draft)
    elif key.kind == INITIAL:
        on_initial_delay(draft, state.timers.at(TimerKey(JOIN, group.group_id)))
    elif key.kind == JOIN:
        on_join_timeout(draft)
    elif key.kind == SYNC:
        on_sync_timeout(draft)
    return draft.outcome()


def _on_consumer_due(
    group: ConsumerGroup, key: TimerKey, settings: GroupSettings, now: Moment
) -> Outcome[Event]:
    member = group.members.get(key.member_id)
    if member is None or key.kind not in MEMBER_TIMERS:
        return Outcome()
    if key.kind == REVOKE and member.current.state is not MemberState.UNREVOKED_PARTITIONS:
        return Outcome()
    return remove_or_downgrade(group, [key.member_id], settings, now)


def _expire(state: GroupsState, settings: GroupSettings, now: Moment) -> Outcome[Event]:
    """Old offsets go, and with its last offset an empty group."""
    events: list[Event] = []
    notes: list[Event] = [
        TimerSet(EXPIRY, Millis(now.steady + settings.offsets_retention_check_ms))
    ]
    for group_id in tuple(state.group_ids()):
        expired = expired_offsets(state, group_id, settings, now)
        events += expired
        if len(expired) < len(state.offsets.get(group_id, {})) or group_id in state.unstable:
            continue
        if _is_over(state, group_id):
            events += group_tombstones(state, group_id)
            notes.append(ClassicGroupReplaced(group_id, None))
    return Outcome(events=tuple(events), notes=tuple(notes))


def _is_over(state: GroupsState, group_id: str) -> bool:
    group = state.groups.get(group_id)
    if isinstance(group, ClassicGroup):
        return group.state is ClassicState.EMPTY and not group.pending
    return group is None or not group.members
