"""A group of the consumer protocol (KIP-848) being changed, and the steps that change it.

    group epoch    grows whenever members, subscriptions or topics change
    target epoch   of the assignment computed for a group epoch
    member epoch   of the assignment a member has reached; it lags until partitions are given back
The legal moves of groups and members are in `group_moves`.
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
from penstock.coordination.groups.events import (
    CurrentAssignmentSet,
    Event,
    GroupEpochSet,
    RegexSet,
    SubscriptionSet,
    TargetAssignmentSet,
    TargetEpochSet,
    TopicsChecked,
    timer_set,
)
from penstock.coordination.groups.group_moves import (
    CONSUMER_MOVES,
    MEMBER_MOVES,
    ConsumerState,
)
from penstock.coordination.groups.removal_step import removal_step
from penstock.coordination.groups.settings import GroupSettings
from penstock.coordination.groups.state import (
    LEFT_TEMPORARILY,
    ConsumerGroup,
    ConsumerMember,
    GroupsState,
    TopicCatalogue,
)
from penstock.coordination.groups.subscriptions import matching_topics
from penstock.coordination.groups.timers import MEMBER_TIMERS, REVOKE, SESSION
from penstock.machine import Outcome, Reply, Step
from penstock.model import Moment

# A member that waits for partitions of others learns of them in its next heartbeat only, so that
# one is requested soon; later in large groups, because each heartbeat costs the group.
WAITING_INTERVAL_MS_MIN: Final = 500
WAITING_INTERVAL_MS_PER_MEMBER: Final = 10


class ConsumerDraft:
    """A group being changed: each event is applied to a copy, and collected for the log."""

    __slots__ = (
        "_before",
        "_scratch",
        "events",
        "group_id",
        "notes",
        "now",
        "replies",
        "settings",
        "story",
    )

    def __init__(self, group: ConsumerGroup, settings: GroupSettings, now: Moment) -> None:
        self._before = group.state
        self._scratch = GroupsState()
        self._scratch.groups[group.group_id] = group.copy()
        self.group_id: str = group.group_id
        self.settings: GroupSettings = settings
        self.now: Moment = now
        self.events: list[Event] = []
        self.notes: list[Event] = []
        self.replies: list[Reply] = []
        self.story: list[Step] = []

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

    def record(self, text: str, *values: object) -> None:
        """Something an operator may want to know later."""
        self.story.append(Step(self.group_id, text, values))

    def set_timer(self, kind: str, member_id: str, after_ms: int | None) -> None:
        """Set a deadline from now; None drops it."""
        self.notes.append(timer_set(kind, self.group_id, member_id, self.now, after_ms))

    def outcome(self, *replies: Reply) -> Outcome[Event]:
        """All that follows."""
        CONSUMER_MOVES.check(self._before, self.group.state)
        return Outcome(
            events=tuple(self.events),
            notes=tuple(self.notes),
            replies=(*self.replies, *replies),
            story=tuple(self.story),
        )


def subscribe(draft: ConsumerDraft, member_id: str, subscription: StoredSubscription) -> bool:
    """Take in what a member says about itself; True when the group needs a new assignment."""
    known = draft.group.members.get(member_id)
    before = None if known is None else known.subscription
    if subscription != before:
        draft.emit(SubscriptionSet(draft.group_id, member_id, subscription))
    if before is None:
        draft.record("member {} of client {} joins", member_id, subscription.client_id)
        return True
    return (subscription.topic_names, subscription.topic_regex, subscription.server_assignor) != (
        before.topic_names,
        before.topic_regex,
        before.server_assignor,
    )


def refresh_topics(draft: ConsumerDraft, topics: TopicCatalogue, *, is_due: bool) -> bool:
    """Resolve patterns and check the subscribed topics; True when they are not as they were."""
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
    """Changes when a subscribed topic is created, deleted, or gets more partitions."""
    digest = blake2b(digest_size=8)
    for name in sorted(group.subscribed_topics() & topics.by_name.keys()):
        topic = topics.by_name[name]
        digest.update(b"%s\0%s%d\0" % (name.encode(), topic.topic_id.bytes, topic.partition_count))
    return int.from_bytes(digest.digest(), "big", signed=True)


def bump_epoch(draft: ConsumerDraft, topics: TopicCatalogue | None) -> None:
    """The group needs a new assignment. Without topics the next heartbeat checks them."""
    group = draft.group
    digest = group.metadata_hash if topics is None else metadata_hash(group, topics)
    draft.emit(GroupEpochSet(draft.group_id, group.epoch + 1, digest))


def assign(draft: ConsumerDraft, topics: TopicCatalogue) -> None:
    """Compute the target of the group's epoch; only members whose target changed are written."""
    group = draft.group
    subscribers = []
    for member in group.members.values():
        names = group.topics_of(member) & topics.by_name.keys()
        topic_ids = frozenset(topics.by_name[name].topic_id for name in names)
        previous = group.targets.get(member.member_id, {})
        instance_id = member.subscription.instance_id
        subscribers.append(Subscriber(member.member_id, instance_id, topic_ids, previous))
    counts = {
        topics.by_name[name].topic_id: topics.by_name[name].partition_count
        for name in sorted(group.subscribed_topics() & topics.by_name.keys())
    }
    assignor = chosen_assignor(group, draft.settings)
    targets = ASSIGNORS[assignor](subscribers, counts)
    for member_id, target in targets.items():
        if target != group.targets.get(member_id):
            draft.emit(TargetAssignmentSet(draft.group_id, member_id, target))
    draft.emit(TargetEpochSet(draft.group_id, group.epoch, draft.now.wall))
    draft.record("epoch {}: {} member(s) assigned by {}", group.epoch, len(group.members), assignor)


def chosen_assignor(group: ConsumerGroup, settings: GroupSettings) -> str:
    """The one most members request; the broker's first when none is requested."""
    votes: dict[str, int] = {}
    for member in group.members.values():
        name = member.subscription.server_assignor
        if name is not None:
            votes[name] = votes.get(name, 0) + 1
    return max(sorted(votes), key=votes.__getitem__) if votes else settings.assignors[0]


def waiting_interval_ms(members: int) -> int:
    """When a member sends its next heartbeat whose partitions still have another owner."""
    return max(WAITING_INTERVAL_MS_MIN, WAITING_INTERVAL_MS_PER_MEMBER * members)


def advance(
    draft: ConsumerDraft, member_id: str, owned: Assignment | None
) -> tuple[StoredCurrent, StoredCurrent]:
    """Take a member of either protocol a step towards its target: before, and after."""
    group = draft.group
    member = group.members[member_id]
    target = group.targets.get(member_id, {})
    current = reconcile(member_id, member.current, group.target_epoch, target, group.owners, owned)
    if current != member.current:
        revokes = current.state is MemberState.UNREVOKED_PARTITIONS
        MEMBER_MOVES.check(member.current.state, current.state)
        epoch = member.current.member_epoch if revokes else group.target_epoch
        assert current.member_epoch == epoch, "revocation comes before the next epoch"
        draft.emit(CurrentAssignmentSet(draft.group_id, member_id, current))
        timeout_ms = member.subscription.rebalance_timeout_ms
        # A classic member has other deadlines: to join again, and to request its assignment.
        is_timed = revokes and member.subscription.classic is None
        draft.set_timer(REVOKE, member_id, timeout_ms if is_timed else None)
    return member.current, current


def remove_members(draft: ConsumerDraft, member_ids: list[str], reason: str) -> None:
    """Members are removed: their partitions are free, and the group needs a new assignment."""
    for member_id in member_ids:
        draft.emit(CurrentAssignmentSet(draft.group_id, member_id, None))
        draft.emit(TargetAssignmentSet(draft.group_id, member_id, None))
        draft.emit(SubscriptionSet(draft.group_id, member_id, None))
        for kind in MEMBER_TIMERS:
            draft.set_timer(kind, member_id, None)
        draft.story.append(removal_step(draft.group_id, member_id, reason))
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
    draft.record("static member {} left temporarily", member.member_id)


def succeed(draft: ConsumerDraft, old: ConsumerMember, member_id: str) -> None:
    """A static member is back under a new member id, with everything it had."""
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
    instance_id = old.subscription.instance_id
    draft.record("member {} replaces {}: both are {}", member_id, old.member_id, instance_id)


def consumer_tombstones(group: ConsumerGroup) -> list[Event]:
    """A tombstone for every record of a group, in Kafka's order."""
    CONSUMER_MOVES.check(group.state, ConsumerState.DEAD)
    group_id = group.group_id
    return [
        *(CurrentAssignmentSet(group_id, member_id, None) for member_id in group.members),
        *(TargetAssignmentSet(group_id, member_id, None) for member_id in group.members),
        TargetEpochSet(group_id, None),
        *(SubscriptionSet(group_id, member_id, None) for member_id in group.members),
        *(RegexSet(group_id, regex, None) for regex in group.regexes),
        GroupEpochSet(group_id, None),
    ]
