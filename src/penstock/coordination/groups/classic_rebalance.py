"""The rebalance of a classic group: which members must join, and when it is complete.

Works on a draft: a copy of the group with all that must follow, which replaces the group whole. The
legal moves are in `group_moves`.
"""

from collections import Counter
from typing import Final

from penstock.coordination.groups.commands import JoinedMember, JoinReply, SyncReply
from penstock.coordination.groups.events import (
    ClassicGroupReplaced,
    ClassicGroupSet,
    Event,
    TimerSet,
    timer_set,
)
from penstock.coordination.groups.group_moves import CLASSIC_MOVES, ClassicState
from penstock.coordination.groups.members import names_of
from penstock.coordination.groups.removal_step import removal_step
from penstock.coordination.groups.settings import GroupSettings
from penstock.coordination.groups.state import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroup,
    ClassicMember,
)
from penstock.coordination.groups.subscriptions import subscribed_topics
from penstock.coordination.groups.timers import (
    INITIAL,
    JOIN,
    PENDING,
    SESSION,
    SYNC,
    TimerKey,
)
from penstock.errors import ErrorCode, Refused
from penstock.machine import CallerId, Outcome, Reply, Step
from penstock.model import Millis, Moment

NEW_MEMBER_MS: Final = 300_000  # the session of a member that waits for its first generation


class ClassicDraft:
    """A classic group being changed, and all that follows from the change."""

    __slots__ = ("first", "group", "is_stored", "now", "replies", "settings", "story", "timers")

    def __init__(self, group: ClassicGroup, settings: GroupSettings, now: Moment) -> None:
        self.group: ClassicGroup = group
        self.settings: GroupSettings = settings
        self.now: Moment = now
        self.first: list[Event] = []  # of the group that it replaces
        self.is_stored: bool = False  # the record must be written
        self.replies: list[Reply] = []
        self.timers: dict[TimerKey, TimerSet] = {}
        self.story: list[Step] = []

    def outcome(self, *leading: Event) -> Outcome[Event]:
        """The group as it is now, with what must be logged, replied and waited for."""
        group = self.group
        events = tuple(self.first)
        if self.is_stored:
            events += (ClassicGroupSet(group.group_id, group.stored()),)
        notes = (*leading, ClassicGroupReplaced(group.group_id, group), *self.timers.values())
        return Outcome(
            events=events, notes=notes, replies=tuple(self.replies), story=tuple(self.story)
        )

    def reply(self, caller: CallerId | None, body: object) -> None:
        """Reply to a caller, if there is one."""
        if caller is not None:
            self.replies.append(Reply(caller, body))

    def record(self, text: str, *values: object) -> None:
        """Something an operator may want to know later."""
        self.story.append(Step(self.group.group_id, text, values))

    def set_timer(self, kind: str, member_id: str, after_ms: int | None) -> None:
        """Set a deadline from now; None drops it."""
        timer = timer_set(kind, self.group.group_id, member_id, self.now, after_ms)
        self.timers[timer.key] = timer

    def renew_session(self, member: ClassicMember) -> None:
        """The member sent a request."""
        self.set_timer(SESSION, member.member_id, member.session_timeout_ms)

    def move(self, state: ClassicState) -> None:
        """The group enters a state."""
        CLASSIC_MOVES.check(self.group.state, state)
        self.group.state = state
        self.group.state_since = self.now.wall


# Members.


def add_member(draft: ClassicDraft, member: ClassicMember) -> None:
    """A member joins for the first time."""
    group = draft.group
    group.members[member.member_id] = member
    if member.instance_id is not None:
        group.static[member.instance_id] = member.member_id
    if group.leader is None:
        group.leader = member.member_id
    drop_pending(draft, member.member_id)
    draft.set_timer(SESSION, member.member_id, NEW_MEMBER_MS)
    if group.state is ClassicState.PREPARING:
        group.has_new_members = True
    draft.record("member {} of client {} joins", member.member_id, member.client_id)


def drop_pending(draft: ClassicDraft, member_id: str) -> None:
    """The id that was given out is used, or not valid any more."""
    if member_id in draft.group.pending:
        draft.group.pending -= {member_id}
        draft.set_timer(PENDING, member_id, None)


def remove_member(draft: ClassicDraft, member_id: str, reason: str) -> None:
    """A member leaves or is removed; if it waits for a reply, it is refused."""
    group = draft.group
    member = group.members.pop(member_id)
    if member.instance_id is not None and group.static.get(member.instance_id) == member_id:
        del group.static[member.instance_id]
    if group.leader == member_id:
        group.leader = next(iter(group.members), None)
    group.unsynced -= {member_id}
    draft.set_timer(SESSION, member_id, None)
    refuse_waiting(draft, member, ErrorCode.unknown_member_id)
    draft.story.append(removal_step(group.group_id, member_id, reason))


def refuse_waiting(draft: ClassicDraft, member: ClassicMember, code: ErrorCode) -> None:
    """The member waits for a reply that will not come."""
    refusal = Refused(code, "the member was removed from its group while it waited")
    draft.reply(member.joining, refusal)
    draft.reply(member.syncing, refusal)


# The rebalance.


def prepare_rebalance(draft: ClassicDraft) -> None:
    """All members must join again; those that wait for an assignment are refused."""
    group = draft.group
    for member in tuple(group.members.values()):
        if member.syncing is not None:
            draft.reply(
                member.syncing, Refused(ErrorCode.rebalance_in_progress, "the group rebalances")
            )
            group.members[member.member_id] = member._replace(syncing=None)
            draft.renew_session(member)
    group.unsynced = frozenset()
    draft.set_timer(SYNC, "", None)
    timeout_ms = rebalance_timeout_ms(group)
    draft.set_timer(JOIN, "", timeout_ms)
    delay_ms = draft.settings.initial_rebalance_delay_ms
    is_delayed = group.state is ClassicState.EMPTY and delay_ms > 0
    draft.move(ClassicState.PREPARING)
    if is_delayed:
        group.is_delayed, group.has_new_members = True, False
        draft.set_timer(INITIAL, "", min(delay_ms, timeout_ms))
    else:
        complete_join_if_all_came(draft)


def rebalance_timeout_ms(group: ClassicGroup) -> int:
    """The longest of all members."""
    return max((member.rebalance_timeout_ms for member in group.members.values()), default=0)


def rebalance_unless_preparing(draft: ClassicDraft) -> None:
    """Start a rebalance; one that members are joining already takes the change in."""
    if draft.group.state is not ClassicState.PREPARING:
        prepare_rebalance(draft)


def complete_join_if_all_came(draft: ClassicDraft) -> None:
    """The join ends when every known member waits for it, except during the initial delay."""
    group = draft.group
    if group.is_delayed or group.state is not ClassicState.PREPARING or group.pending:
        return
    if all(member.joining is not None for member in group.members.values()):
        complete_join(draft)


def complete_join(draft: ClassicDraft) -> None:
    """Members that have not joined are removed, unless static; the rest are a new generation."""
    group = draft.group
    for member in tuple(group.members.values()):
        if member.joining is None and member.instance_id is None:
            remove_member(draft, member.member_id, "it did not join the rebalance in time")
    group.is_delayed = False
    draft.set_timer(INITIAL, "", None)
    draft.set_timer(JOIN, "", None)
    joined = [member for member in group.members.values() if member.joining is not None]
    if group.members and not joined:
        # Only static members are left and none has rejoined: their sessions decide.
        draft.set_timer(JOIN, "", rebalance_timeout_ms(group))
        return
    group.generation += 1
    if not group.members:
        empty_group(draft)
        return
    if group.leader is None or group.members[group.leader].joining is None:
        group.leader = joined[0].member_id
    group.protocol = choose_protocol(group)
    group.subscribed_topics = _topics_of(group)
    draft.move(ClassicState.COMPLETING)
    group.unsynced = frozenset(group.members)
    draft.set_timer(SYNC, "", rebalance_timeout_ms(group))
    for member in joined:
        draft.reply(member.joining, join_reply(group, member))
        group.members[member.member_id] = member._replace(joining=None, is_new=False)
        draft.renew_session(member)
    draft.record(
        "generation {} with {} member(s), led by {}",
        group.generation,
        len(group.members),
        group.leader,
    )


def empty_group(draft: ClassicDraft) -> None:
    """No member is left: the record says so, and expiry counts from here."""
    group = draft.group
    group.protocol = None
    group.leader = None
    group.subscribed_topics = frozenset()
    group.unsynced = frozenset()
    draft.move(ClassicState.EMPTY)
    draft.set_timer(SYNC, "", None)
    draft.is_stored = True
    draft.record("generation {} is empty", group.generation)


def choose_protocol(group: ClassicGroup) -> str:
    """Each member votes for its first choice among those that all support."""
    candidates = common_protocols(group)
    votes = Counter(
        next(name for name, _ in member.protocols if name in candidates)
        for member in group.members.values()
    )
    return votes.most_common(1)[0][0]


def common_protocols(group: ClassicGroup) -> frozenset[str]:
    """The protocols that every member supports."""
    offers = [names_of(member.protocols) for member in group.members.values()]
    return offers[0].intersection(*offers[1:]) if offers else frozenset()


def _topics_of(group: ClassicGroup) -> frozenset[str] | None:
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    return subscribed_topics(m.metadata(group.protocol) for m in group.members.values())


def join_reply(group: ClassicGroup, member: ClassicMember) -> JoinReply:
    """The reply to a member at the end of a join; the leader gets the list of members."""
    is_leader = member.member_id == group.leader
    return JoinReply(
        ErrorCode.none,
        member.member_id,
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader or "",
        members=members_for_leader(group) if is_leader else (),
    )


def members_for_leader(group: ClassicGroup) -> tuple[JoinedMember, ...]:
    """All members, with their metadata for the chosen protocol."""
    return tuple(
        JoinedMember(m.member_id, m.instance_id, m.metadata(group.protocol))
        for m in group.members.values()
    )


def distribute_assignment(draft: ClassicDraft) -> None:
    """The leader has decided: the group is stable, and members that wait get their assignment."""
    group = draft.group
    draft.move(ClassicState.STABLE)
    draft.is_stored = True
    for member in tuple(group.members.values()):
        if member.syncing is not None:
            draft.reply(member.syncing, sync_reply(group, member))
            group.members[member.member_id] = member._replace(syncing=None)
            draft.renew_session(member)
    draft.record("generation {} is stable", group.generation)


def sync_reply(group: ClassicGroup, member: ClassicMember) -> SyncReply:
    """The member's own assignment."""
    return SyncReply(group.protocol_type, group.protocol, member.assignment)


# Time.


def on_initial_delay(draft: ClassicDraft, join_by: Millis | None) -> None:
    """The first delay is over; while new members keep joining it starts again, up to a limit."""
    group = draft.group
    if group.state is not ClassicState.PREPARING:
        return
    left_ms = 0 if join_by is None else join_by - draft.now.steady
    if group.has_new_members and left_ms > 0:
        group.has_new_members = False
        delay_ms = min(draft.settings.initial_rebalance_delay_ms, left_ms)
        draft.set_timer(INITIAL, "", delay_ms)
        return
    complete_join(draft)


def on_join_timeout(draft: ClassicDraft) -> None:
    """Members that have not joined are removed."""
    if draft.group.state is ClassicState.PREPARING:
        for member_id in draft.group.pending:
            draft.set_timer(PENDING, member_id, None)
        draft.group.pending = frozenset()
        complete_join(draft)


def on_sync_timeout(draft: ClassicDraft) -> None:
    """Members that have not requested their assignment are removed, and the rest rebalance."""
    group = draft.group
    if group.state not in (ClassicState.COMPLETING, ClassicState.STABLE) or not group.unsynced:
        return
    for member_id in group.unsynced & group.members.keys():
        remove_member(draft, member_id, "it did not request its assignment in time")
    prepare_rebalance(draft)


def on_session_end(draft: ClassicDraft, member_id: str) -> None:
    """A member sent nothing for too long. One that waits for a reply is known to be connected."""
    member = draft.group.members.get(member_id)
    if member is None:
        return
    if not member.is_new and (member.joining is not None or member.syncing is not None):
        draft.renew_session(member)
        return
    remove_member(draft, member_id, f"no heartbeat for {member.session_timeout_ms} ms")
    rebalance_after_loss(draft)


def rebalance_after_loss(draft: ClassicDraft) -> None:
    """A member is removed: start a rebalance, or go on with the one that runs."""
    if draft.group.state is ClassicState.PREPARING:
        complete_join_if_all_came(draft)
    elif draft.group.state is not ClassicState.EMPTY:
        prepare_rebalance(draft)
