"""The consumer protocol (KIP-848): one heartbeat to join, live, change, reconcile and leave.

    group epoch    grows whenever members, subscriptions or topics change
    target epoch   of the assignment computed for a group epoch
    member epoch   of the assignment a member has reached; it lags while it must give something back
A heartbeat that changes nothing costs a look-up and a timer.
"""

from hashlib import blake2b
from typing import Final

from penstock.coordination.groups.apply import apply_event
from penstock.coordination.groups.assignment import ASSIGNORS, Subscriber, reconcile
from penstock.coordination.groups.codec_consumer import (
    Assignment,
    MemberState,
    StoredCurrent,
    StoredRegex,
    StoredSubscription,
)
from penstock.coordination.groups.commands import ConsumerHeartbeat, ConsumerHeartbeatReply
from penstock.coordination.groups.events import (
    CurrentAssignmentSet,
    Event,
    GroupEpochSet,
    RegexSet,
    SubscriptionSet,
    TargetAssignmentSet,
    TargetEpochSet,
    TimerSet,
    TopicsChecked,
)
from penstock.coordination.groups.settings import GroupSettings
from penstock.coordination.groups.state import (
    LEFT_TEMPORARILY,
    ConsumerGroup,
    ConsumerMember,
    GroupsState,
    TopicCatalogue,
    free_of,
)
from penstock.coordination.groups.subscriptions import matching_topics
from penstock.coordination.groups.timers import TimerKey
from penstock.machine import Outcome, Reply
from penstock.model import Millis, Moment

SESSION: Final = "session"
REVOKE: Final = "revoke"  # the time a member has to give partitions back
REJOIN: Final = "rejoin"  # the time a classic member has to join again once it was told to
FETCH: Final = "fetch"  # the time a classic member has to ask for its assignment after a join
MEMBER_TIMERS: Final = (SESSION, REVOKE, REJOIN, FETCH)

# A member that waits for what others give back hears of it in its next heartbeat only, so it is
# asked for the next one soon; the more members, the less soon, for each of them costs the group.
WAITING_INTERVAL_MS_MIN: Final = 500
WAITING_INTERVAL_MS_PER_MEMBER: Final = 10


class ConsumerDraft:
    """A group being changed: each event takes effect on a copy at once, and is kept for the log."""

    __slots__ = ("_scratch", "events", "group_id", "notes", "now", "replies", "settings")

    def __init__(self, group: ConsumerGroup, settings: GroupSettings, now: Moment) -> None:
        self._scratch = GroupsState()
        self._scratch.groups[group.group_id] = group.copy()
        self.group_id = group.group_id
        self.settings = settings
        self.now = now
        self.events: list[Event] = []
        self.notes: list[Event] = []
        self.replies: list[Reply] = []

    @property
    def group(self) -> ConsumerGroup:
        """The group as it is after the events so far."""
        group = self._scratch.groups[self.group_id]
        assert isinstance(group, ConsumerGroup)
        return group

    def emit(self, event: Event) -> None:
        """Something happened to the group."""
        self.events.append(event)
        apply_event(self._scratch, event)

    def note(self, note: Event) -> None:
        """Something soft happened to the group."""
        self.notes.append(note)
        apply_event(self._scratch, note)

    def set_timer(self, kind: str, member_id: str, after_ms: int | None) -> None:
        """Set a deadline from now; None drops it."""
        at = None if after_ms is None else Millis(self.now.steady + after_ms)
        self.notes.append(TimerSet(TimerKey(kind, self.group_id, member_id), at))

    def outcome(self, *replies: Reply) -> Outcome[Event]:
        """All that follows."""
        return Outcome(
            events=tuple(self.events),
            notes=tuple(self.notes),
            replies=(*self.replies, *replies),
        )


def unchanged(group: ConsumerGroup, member: ConsumerMember, command: ConsumerHeartbeat) -> bool:
    """Whether a heartbeat says nothing new to a group that has nothing new to say."""
    return (
        command.member_epoch == member.current.member_epoch == group.target_epoch == group.epoch
        and member.current.state is MemberState.STABLE
        and member.subscription.classic is None
        and group.topics.version == command.topics.version
        and command.topic_names is None
        and command.topic_regex is None
        and command.rebalance_timeout_ms == -1
        and command.server_assignor is None
        and command.rack_id is None
    )


def beat_unchanged(command: ConsumerHeartbeat, now: Moment) -> Outcome[Event]:
    """The common heartbeat."""
    key = TimerKey(SESSION, command.group_id, command.member_id)
    return Outcome(
        notes=(TimerSet(key, Millis(now.steady + command.session_timeout_ms)),),
        replies=(
            Reply(
                command.caller,
                ConsumerHeartbeatReply(
                    command.member_id,
                    command.member_epoch,
                    command.heartbeat_interval_ms,
                    None,
                ),
            ),
        ),
    )


def subscription_of(
    command: ConsumerHeartbeat, known: StoredSubscription | None
) -> StoredSubscription:
    """What the member says now, over what it said before."""
    names, regex = command.topic_names, command.topic_regex
    assignor, rack_id = command.server_assignor, command.rack_id
    timeout_ms = command.rebalance_timeout_ms
    if known is not None:
        names = known.topic_names if names is None else names
        regex = known.topic_regex if regex is None else regex
        assignor = known.server_assignor if assignor is None else assignor
        rack_id = known.rack_id if rack_id is None else rack_id
        timeout_ms = known.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms
    return StoredSubscription(
        command.instance_id if known is None else known.instance_id,
        rack_id,
        command.client_id,
        command.client_host,
        tuple(sorted(set(names or ()))),
        regex or None,
        timeout_ms,
        assignor,
        None,
    )


def subscribe(draft: ConsumerDraft, member_id: str, wanted: StoredSubscription) -> bool:
    """Take in what a member says of itself; True when the group must be assigned anew."""
    known = draft.group.members.get(member_id)
    before = None if known is None else known.subscription
    if wanted != before:
        draft.emit(SubscriptionSet(draft.group_id, member_id, wanted))
    return before is None or (
        (wanted.topic_names, wanted.topic_regex, wanted.server_assignor)
        != (before.topic_names, before.topic_regex, before.server_assignor)
    )


def refresh_topics(draft: ConsumerDraft, topics: TopicCatalogue, *, is_due: bool) -> bool:
    """Resolve patterns and look at the subscribed topics; True when they are not as they were."""
    group = draft.group
    is_new = group.topics.version != topics.version
    if not is_new and not is_due:
        return False
    _resolve_regexes(draft, topics, everything=is_new)
    if is_new:
        draft.note(TopicsChecked(draft.group_id, topics))
    return metadata_hash(group, topics) != group.metadata_hash


def _resolve_regexes(draft: ConsumerDraft, topics: TopicCatalogue, *, everything: bool) -> None:
    group = draft.group
    used = {m.subscription.topic_regex for m in group.members.values()} - {None}
    for regex in group.regexes.keys() - used:
        draft.emit(RegexSet(draft.group_id, regex, None))
    for regex in sorted(name for name in used if name is not None):
        known = group.regexes.get(regex)
        if known is not None and not everything:
            continue
        matched = matching_topics(regex, topics.by_name)
        if known is None or known.topics != matched:
            resolved = StoredRegex(matched, topics.version, draft.now.wall)
            draft.emit(RegexSet(draft.group_id, regex, resolved))


def metadata_hash(group: ConsumerGroup, topics: TopicCatalogue) -> int:
    """Changes when a subscribed topic appears, goes, or gets more partitions."""
    digest = blake2b(digest_size=8)
    for name in sorted(group.subscribed_topics() & topics.by_name.keys()):
        topic = topics.by_name[name]
        digest.update(b"%s\0%s%d\0" % (name.encode(), topic.topic_id.bytes, topic.partition_count))
    return int.from_bytes(digest.digest(), "big", signed=True)


def bump_epoch(draft: ConsumerDraft, topics: TopicCatalogue | None) -> None:
    """The group must be assigned anew. Without topics at hand the next heartbeat looks again."""
    group = draft.group
    seen = group.metadata_hash if topics is None else metadata_hash(group, topics)
    draft.emit(GroupEpochSet(draft.group_id, group.epoch + 1, seen))


def assign(draft: ConsumerDraft, topics: TopicCatalogue) -> None:
    """Work out the target of the group's epoch; only members whose part changed are written."""
    group = draft.group
    subscribers = []
    for member in group.members.values():
        names = group.topics_of(member) & topics.by_name.keys()
        wanted = frozenset(topics.by_name[name].topic_id for name in names)
        previous = group.targets.get(member.member_id, {})
        instance_id = member.subscription.instance_id
        subscribers.append(Subscriber(member.member_id, instance_id, wanted, previous))
    counts = {
        topics.by_name[name].topic_id: topics.by_name[name].partition_count
        for name in sorted(group.subscribed_topics() & topics.by_name.keys())
    }
    targets = ASSIGNORS[chosen_assignor(group, draft.settings)](subscribers, counts)
    for member_id, target in targets.items():
        if target != group.targets.get(member_id):
            draft.emit(TargetAssignmentSet(draft.group_id, member_id, target))
    draft.emit(TargetEpochSet(draft.group_id, group.epoch, draft.now.wall))


def chosen_assignor(group: ConsumerGroup, settings: GroupSettings) -> str:
    """The one most members ask for; the broker's first when nobody asks."""
    votes: dict[str, int] = {}
    for member in group.members.values():
        name = member.subscription.server_assignor
        if name is not None:
            votes[name] = votes.get(name, 0) + 1
    return max(sorted(votes), key=votes.__getitem__) if votes else settings.assignors[0]


def advance_member(draft: ConsumerDraft, command: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
    """Take the member a step towards its target, and tell it where it is."""
    before, current = advance(draft, command.member_id, command.owned)
    draft.set_timer(SESSION, command.member_id, command.session_timeout_ms)
    interval_ms = command.heartbeat_interval_ms
    if current.state is MemberState.UNRELEASED_PARTITIONS:
        interval_ms = min(interval_ms, waiting_interval_ms(len(draft.group.members)))
    return ConsumerHeartbeatReply(
        command.member_id,
        current.member_epoch,
        interval_ms,
        free_of(current.assigned) if _must_tell(command, before, current) else None,
    )


def waiting_interval_ms(members: int) -> int:
    """How soon a member comes back whose partitions are still another's."""
    return max(WAITING_INTERVAL_MS_MIN, WAITING_INTERVAL_MS_PER_MEMBER * members)


def advance(
    draft: ConsumerDraft, member_id: str, owned: Assignment | None
) -> tuple[StoredCurrent, StoredCurrent]:
    """Take a member of either protocol a step towards its target; where it was, and where it is."""
    group = draft.group
    member = group.members[member_id]
    target = group.targets.get(member_id, {})
    current = reconcile(member_id, member.current, group.target_epoch, target, group.owners, owned)
    if current != member.current:
        draft.emit(CurrentAssignmentSet(draft.group_id, member_id, current))
        revokes = current.state is MemberState.UNREVOKED_PARTITIONS
        timeout_ms = member.subscription.rebalance_timeout_ms
        # A classic member has other deadlines: to join again, and to ask for its assignment.
        is_timed = revokes and member.subscription.classic is None
        draft.set_timer(REVOKE, member_id, timeout_ms if is_timed else None)
    return member.current, current


def _must_tell(command: ConsumerHeartbeat, before: StoredCurrent, current: StoredCurrent) -> bool:
    """A full request (the first, or one after an error) is answered in full."""
    is_full = command.rebalance_timeout_ms != -1 and command.owned is not None
    is_full = is_full and (command.topic_names is not None or command.topic_regex is not None)
    return (
        command.member_epoch == 0
        or is_full
        or free_of(before.assigned) != free_of(current.assigned)
    )


def remove_members(draft: ConsumerDraft, member_ids: list[str]) -> None:
    """Members are gone: what they had is free, and the group must be assigned anew."""
    for member_id in member_ids:
        draft.emit(CurrentAssignmentSet(draft.group_id, member_id, None))
        draft.emit(TargetAssignmentSet(draft.group_id, member_id, None))
        draft.emit(SubscriptionSet(draft.group_id, member_id, None))
        for kind in MEMBER_TIMERS:
            draft.set_timer(kind, member_id, None)
    used = {m.subscription.topic_regex for m in draft.group.members.values()}
    for regex in draft.group.regexes.keys() - used:
        draft.emit(RegexSet(draft.group_id, regex, None))
    bump_epoch(draft, None)


def leave_temporarily(
    draft: ConsumerDraft, member: ConsumerMember, session_timeout_ms: int
) -> None:
    """A static member will be back: it keeps what it has until its session ends."""
    left = member.current._replace(
        member_epoch=LEFT_TEMPORARILY, state=MemberState.STABLE, pending_revocation={}
    )
    draft.emit(CurrentAssignmentSet(draft.group_id, member.member_id, left))
    draft.set_timer(REVOKE, member.member_id, None)
    draft.set_timer(SESSION, member.member_id, session_timeout_ms)


def succeed(draft: ConsumerDraft, old: ConsumerMember, member_id: str) -> None:
    """A static member is back under a new member id: it takes everything over, nothing moves."""
    target = draft.group.targets.get(old.member_id, {})
    for event in (
        CurrentAssignmentSet(draft.group_id, old.member_id, None),
        TargetAssignmentSet(draft.group_id, old.member_id, None),
        SubscriptionSet(draft.group_id, old.member_id, None),
        SubscriptionSet(draft.group_id, member_id, old.subscription),
        TargetAssignmentSet(draft.group_id, member_id, target),
    ):
        draft.emit(event)
    current = StoredCurrent(0, 0, MemberState.STABLE, old.current.assigned, {})
    draft.emit(CurrentAssignmentSet(draft.group_id, member_id, current))
    for kind in MEMBER_TIMERS:
        draft.set_timer(kind, old.member_id, None)


def consumer_tombstones(group: ConsumerGroup) -> list[Event]:
    """Every record of a group goes, in Kafka's order."""
    group_id = group.group_id
    return [
        *(CurrentAssignmentSet(group_id, member_id, None) for member_id in group.members),
        *(TargetAssignmentSet(group_id, member_id, None) for member_id in group.members),
        TargetEpochSet(group_id, None),
        *(SubscriptionSet(group_id, member_id, None) for member_id in group.members),
        *(RegexSet(group_id, regex, None) for regex in group.regexes),
        GroupEpochSet(group_id, None),
    ]
