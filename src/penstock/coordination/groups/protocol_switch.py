"""A group with members changes its protocol: classic to consumer and back, without stopping.

*Upgrade*: the first member of the consumer protocol joins a classic group of consumers. The others
live on as classic members inside a group of the consumer protocol, with the generation as epoch and
what they have as their target. *Downgrade*: the last member of the consumer protocol is gone; the
classic ones rebalance among themselves. Offsets are not touched. Invariant: nobody is given a
partition that somebody else may still be reading.
"""

from collections.abc import Collection, Iterable
from uuid import UUID

from penstock.coordination.groups.classic_rebalance import (
    INITIAL,
    JOIN,
    PENDING,
    SYNC,
    ClassicDraft,
    choose_protocol,
    prepare_rebalance,
)
from penstock.coordination.groups.codec_consumer import (
    ClassicMemberMetadata,
    MemberState,
    Owned,
    StoredCurrent,
    StoredSubscription,
)
from penstock.coordination.groups.consumer_draft import (
    MEMBER_TIMERS,
    SESSION,
    ConsumerDraft,
    consumer_tombstones,
    metadata_hash,
    remove_members,
)
from penstock.coordination.groups.events import (
    ClassicGroupSet,
    CurrentAssignmentSet,
    Event,
    GroupEpochSet,
    SubscriptionSet,
    TargetAssignmentSet,
    TargetEpochSet,
)
from penstock.coordination.groups.settings import GroupSettings
from penstock.coordination.groups.state import (
    CONSUMER_PROTOCOL_TYPE,
    NEVER_CHECKED,
    ClassicGroup,
    ClassicMember,
    ClassicState,
    ConsumerGroup,
    ConsumerMember,
    TopicCatalogue,
    free_of,
)
from penstock.coordination.groups.subscriptions import (
    EmbeddedSubscription,
    by_topic_id,
    by_topic_name,
    read_embedded_assignment,
    read_embedded_subscription,
    subscribed_topics,
    version_of,
    write_embedded_assignment,
)
from penstock.errors import ErrorCode, Malformed, Refused
from penstock.machine import Outcome, Reply
from penstock.model import Moment

# Upgrade


def upgrade(
    group: ClassicGroup, topics: TopicCatalogue, settings: GroupSettings, now: Moment
) -> ConsumerDraft:
    """The classic group as one of the consumer protocol. Refused when it cannot become one."""
    _check_upgrade(group, settings)
    try:
        members = _consumer_members(group, topics)
    except Malformed:
        raise _not_upgraded(
            group, "what its members say is not a consumer's subscription"
        ) from None
    draft = ConsumerDraft(ConsumerGroup(group.group_id), settings, now)
    draft.events.append(ClassicGroupSet(group.group_id, None))
    _end_classic_life(draft, group)
    group_id = group.group_id
    for member in members:
        draft.emit(SubscriptionSet(group_id, member.member_id, member.subscription))
    seen = metadata_hash(draft.group, topics)
    draft.emit(GroupEpochSet(group_id, group.generation, seen))
    for member in members:
        draft.emit(
            TargetAssignmentSet(group_id, member.member_id, free_of(member.current.assigned))
        )
    draft.emit(TargetEpochSet(group_id, group.generation))  # nothing was worked out anew
    for member in members:
        draft.emit(CurrentAssignmentSet(group_id, member.member_id, member.current))
        assert member.subscription.classic is not None
        draft.set_timer(SESSION, member.member_id, member.subscription.classic.session_timeout_ms)
    return draft


def _check_upgrade(group: ClassicGroup, settings: GroupSettings) -> None:
    if not settings.may_upgrade:
        raise _not_upgraded(group, "group.consumer.migration.policy does not allow it")
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise _not_upgraded(group, f"it is of type {group.protocol_type!r}")
    if len(group.members) > settings.consumer_members_max:
        raise _not_upgraded(group, f"it has more than {settings.consumer_members_max} members")


def _not_upgraded(group: ClassicGroup, why: str) -> Refused:
    return Refused(
        ErrorCode.group_id_not_found,
        f"the classic group {group.group_id!r} cannot change to the consumer protocol: {why}",
    )


def _end_classic_life(draft: ConsumerDraft, group: ClassicGroup) -> None:
    """Whoever waits for the classic rebalance must join again, and its deadlines are void."""
    again = Refused(ErrorCode.rebalance_in_progress, "the group changed its protocol; join again")
    for member in group.members.values():
        for caller in (member.joining, member.syncing):
            if caller is not None:
                draft.replies.append(Reply(caller, again))
    for kind in (INITIAL, JOIN, SYNC):
        draft.set_timer(kind, "", None)
    for member_id in group.pending:
        draft.set_timer(PENDING, member_id, None)


def _consumer_members(group: ClassicGroup, topics: TopicCatalogue) -> list[ConsumerMember]:
    protocol = group.protocol if group.protocol is not None else choose_protocol(group)
    told = {
        member.member_id: read_embedded_subscription(member.metadata(protocol))
        for member in group.members.values()
    }
    owners: dict[tuple[UUID, int], str] = {}
    assigned: dict[str, Owned] = {}
    for member in group.members.values():
        parts = by_topic_id(read_embedded_assignment(member.assignment), topics)
        assigned[member.member_id] = _taken(member.member_id, parts, owners, group.generation)
    return [
        ConsumerMember(
            member.member_id,
            stored_subscription(member, told[member.member_id]),
            _current(member, told[member.member_id], assigned, owners, topics, group.generation),
        )
        for member in group.members.values()
    ]


def _taken(
    member_id: str,
    parts: dict[UUID, tuple[int, ...]],
    owners: dict[tuple[UUID, int], str],
    epoch: int,
) -> Owned:
    """What nobody else has, with the epoch since when; a faulty leader may give things twice."""
    taken: dict[UUID, dict[int, int]] = {}
    for topic_id, partitions in parts.items():
        for partition in partitions:
            if owners.setdefault((topic_id, partition), member_id) == member_id:
                taken.setdefault(topic_id, {})[partition] = epoch
    return taken


def _current(
    member: ClassicMember,
    told: EmbeddedSubscription,
    assigned: dict[str, Owned],
    owners: dict[tuple[UUID, int], str],
    topics: TopicCatalogue,
    epoch: int,
) -> StoredCurrent:
    """Where the member is. A cooperative one may not have heard yet what it must give up.

    Such partitions stay its own until it joins again without them.
    """
    kept = assigned[member.member_id]
    claimed = by_topic_id(told.owned, topics)
    held = _taken(member.member_id, claimed, owners, epoch)
    left = {
        topic_id: {p: since for p, since in epochs.items() if p not in kept.get(topic_id, {})}
        for topic_id, epochs in held.items()
    }
    unrevoked = {topic_id: epochs for topic_id, epochs in left.items() if epochs}
    state = MemberState.UNREVOKED_PARTITIONS if unrevoked else MemberState.STABLE
    return StoredCurrent(epoch, epoch, state, kept, unrevoked)


def stored_subscription(member: ClassicMember, told: EmbeddedSubscription) -> StoredSubscription:
    """A classic member as a group of the consumer protocol keeps it."""
    return StoredSubscription(
        member.instance_id,
        told.rack_id,
        member.client_id,
        member.client_host,
        tuple(sorted(set(told.topics))),
        None,
        member.rebalance_timeout_ms,
        None,
        ClassicMemberMetadata(member.session_timeout_ms, member.protocols),
    )


# Downgrade


def remove_or_downgrade(
    group: ConsumerGroup,
    gone: list[str],
    settings: GroupSettings,
    now: Moment,
    *replies: Reply,
) -> Outcome[Event]:
    """Members leave or are put out; if only classic ones remain, the group is theirs again."""
    draft = ConsumerDraft(group, settings, now)
    # After a restart the names of topics are not known until somebody brings them: a join will.
    knows_topics = group.topics is not NEVER_CHECKED
    if knows_topics and len(gone) < len(group.members) and can_downgrade(group, gone, settings):
        return downgrade(draft, gone, *replies, rebalances=True)
    remove_members(draft, gone)
    return draft.outcome(*replies)


def can_downgrade(group: ConsumerGroup, gone: Collection[str], settings: GroupSettings) -> bool:
    """Whether all who remain are classic, and may be a classic group."""
    stay = [member for member in group.members.values() if member.member_id not in gone]
    return (
        settings.may_downgrade
        and len(stay) <= settings.members_max
        and all(member.subscription.classic is not None for member in stay)
    )


def downgrade(
    draft: ConsumerDraft, gone: Collection[str], *replies: Reply, rebalances: bool
) -> Outcome[Event]:
    """The group as a classic one, at the generation that its epoch was."""
    group = draft.group
    stay = [member for member in group.members.values() if member.member_id not in gone]
    classic = ClassicDraft(_classic_group(group, stay, draft.now), draft.settings, draft.now)
    classic.first = [*draft.events, *consumer_tombstones(group)]
    classic.is_stored = True
    for member_id in group.members:
        for kind in MEMBER_TIMERS:
            classic.set_timer(kind, member_id, None)
    for member in classic.group.members.values():
        classic.renew_session(member)
    if rebalances:
        prepare_rebalance(classic)
    else:
        classic.group.leader = stay[0].member_id
    for reply in (*draft.replies, *replies):
        classic.reply(reply.to, reply.body)
    return classic.outcome(*draft.notes)


def _classic_group(
    group: ConsumerGroup, stay: Iterable[ConsumerMember], now: Moment
) -> ClassicGroup:
    """Without a leader: whoever finds such a record knows that the rebalance was cut short."""
    classic = ClassicGroup(group.group_id)
    classic.state, classic.state_since = ClassicState.STABLE, now.wall
    classic.generation = group.epoch
    classic.protocol_type = CONSUMER_PROTOCOL_TYPE
    for member in stay:
        told = member.subscription
        assert told.classic is not None
        classic.members[member.member_id] = ClassicMember(
            member.member_id,
            told.instance_id,
            told.client_id,
            told.client_host,
            told.rebalance_timeout_ms,
            told.classic.session_timeout_ms,
            told.classic.protocols,
        )
        if told.instance_id is not None:
            classic.static[told.instance_id] = member.member_id
    classic.protocol = choose_protocol(classic)
    metadata = {m.member_id: m.metadata(classic.protocol) for m in classic.members.values()}
    classic.subscribed_topics = subscribed_topics(metadata.values())
    for member_id, known in tuple(classic.members.items()):
        parts = by_topic_name(_held(group.members[member_id].current), group.topics)
        packed = write_embedded_assignment(parts, version_of(metadata[member_id]))
        classic.members[member_id] = known._replace(assignment=packed)
    return classic


def _held(current: StoredCurrent) -> dict[UUID, tuple[int, ...]]:
    """All that a member may still be reading: what it shall have is the next leader's affair."""
    held = {topic_id: set(epochs) for topic_id, epochs in current.assigned.items()}
    for topic_id, epochs in current.pending_revocation.items():
        held.setdefault(topic_id, set()).update(epochs)
    return {topic_id: tuple(sorted(partitions)) for topic_id, partitions in held.items()}
