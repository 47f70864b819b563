"""What follows from time alone: sessions that start after loading, deadlines, expired offsets."""

from collections.abc import Sequence

from penstock.coordination.groups.classic_rebalance import (
    ClassicDraft,
    drop_pending,
    on_initial_delay,
    on_join_timeout,
    on_session_end,
    on_sync_timeout,
    rebalance_after_loss,
    rebalance_unless_preparing,
)
from penstock.coordination.groups.codec_consumer import MemberState
from penstock.coordination.groups.decide_admin import group_tombstones
from penstock.coordination.groups.decide_offsets import expired_offsets
from penstock.coordination.groups.events import (
    ClassicGroupReplaced,
    Event,
    SessionsStarted,
    TimersAdvanced,
    TimerSet,
    timer_set,
)
from penstock.coordination.groups.group_moves import ClassicState
from penstock.coordination.groups.protocol_switch import remove_or_downgrade
from penstock.coordination.groups.settings import GroupSettings
from penstock.coordination.groups.state import ClassicGroup, ConsumerGroup, GroupsState
from penstock.coordination.groups.timers import (
    EXPIRY,
    INITIAL,
    JOIN,
    MEMBER_TIMERS,
    PENDING,
    REVOKE,
    SESSION,
    SYNC,
    TimerKey,
)
from penstock.machine import Outcome, Step
from penstock.model import Moment

_REASONS = {  # why a member of the consumer protocol is removed
    SESSION: "its session timed out",
    REVOKE: "it did not give partitions back in time",
}
_CLASSIC_REASON = "it did not join the rebalance in time"


def decide_tick(state: GroupsState, settings: GroupSettings, now: Moment) -> Outcome[Event]:
    """The first thing that is due; the next tick is immediate and takes the next.

    One at a time, because each may change what the others mean.
    """
    if not state.has_started_sessions:
        return _start_sessions(state, settings, now)
    due = state.timers.due(now.steady)
    if not due:
        return Outcome(notes=(TimersAdvanced(now.steady),))
    outcome = _on_due(state, due[0], settings, now)
    return outcome._replace(notes=(TimerSet(due[0], None), *outcome.notes))


def _on_due(
    state: GroupsState, key: TimerKey, settings: GroupSettings, now: Moment
) -> Outcome[Event]:
    if key.kind == EXPIRY:
        return _expire(state, settings, now)
    group = state.groups.get(key.group_id)
    if isinstance(group, ClassicGroup):
        return _on_classic_due(state, group, key, settings, now)
    if isinstance(group, ConsumerGroup):
        return _on_consumer_due(group, key, settings, now)
    return Outcome()


def _start_sessions(state: GroupsState, settings: GroupSettings, now: Moment) -> Outcome[Event]:
    """Every member has a whole session from now; a revocation its whole time."""
    notes: list[Event] = [SessionsStarted(), _next_expiry(settings, now)]
    for group in state.groups.values():
        if isinstance(group, ClassicGroup):
            notes += _start_classic(group, settings, now)
        else:
            notes += _start_consumer(group, settings, now)
    return Outcome(notes=tuple(notes))


def _start_classic(group: ClassicGroup, settings: GroupSettings, now: Moment) -> Sequence[Event]:
    draft = ClassicDraft(group.copy(), settings, now)
    for member in group.members.values():
        draft.renew_session(member)
    if group.members and group.leader is None:
        rebalance_unless_preparing(draft)  # after a change of protocol that was interrupted
    return draft.outcome().notes


def _start_consumer(group: ConsumerGroup, settings: GroupSettings, now: Moment) -> list[Event]:
    notes: list[Event] = []
    for member in group.members.values():
        classic = member.subscription.classic
        session_ms = settings.consumer_session_timeout_ms
        after_ms = session_ms if classic is None else classic.session_timeout_ms
        notes.append(timer_set(SESSION, group.group_id, member.member_id, now, after_ms))
        if member.current.state is MemberState.UNREVOKED_PARTITIONS and classic is None:
            timeout_ms = member.subscription.rebalance_timeout_ms
            notes.append(timer_set(REVOKE, group.group_id, member.member_id, now, timeout_ms))
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
    reason = _REASONS.get(key.kind, _CLASSIC_REASON)
    return remove_or_downgrade(group, [key.member_id], reason, settings, now)


def _next_expiry(settings: GroupSettings, now: Moment) -> Event:
    return timer_set(EXPIRY, "", "", now, settings.offsets_retention_check_ms)


def _expire(state: GroupsState, settings: GroupSettings, now: Moment) -> Outcome[Event]:
    """Old offsets are removed, and with its last offset an empty group."""
    events: list[Event] = []
    notes: list[Event] = [_next_expiry(settings, now)]
    story: list[Step] = []
    for group_id in tuple(state.group_ids()):
        expired = expired_offsets(state, group_id, settings, now)
        events += expired
        if expired:
            story.append(Step(group_id, "{} offsets expired", (len(expired),)))
        if len(expired) < len(state.offsets.get(group_id, {})) or group_id in state.unstable:
            continue
        if _is_unused(state, group_id):
            events += group_tombstones(state, group_id)
            notes.append(ClassicGroupReplaced(group_id, None))
    return Outcome(events=tuple(events), notes=tuple(notes), story=tuple(story))


def _is_unused(state: GroupsState, group_id: str) -> bool:
    group = state.groups.get(group_id)
    if isinstance(group, ClassicGroup):
        return group.state is ClassicState.EMPTY and not group.pending
    return group is None or not group.members
