"""A group with members changes its protocol: classic to consumer and back, without stopping.

*Upgrade*: the first member of the consumer protocol joins a classic group of consumers. The others
stay as classic members inside a group of the consumer protocol, with the generation as epoch and
what they have as their target. *Downgrade*: the last member of the consumer protocol is removed;
the classic ones rebalance among themselves. Offsets are not touched. Invariant: no member is
assigned a partition that another one may still be reading.
"""

from collections.abc import Collection, Iterable
from uuid import UUID

from penstock.coordination.groups.classic_rebalance import (
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
from penstock.coordination.groups.group_moves import CLASSIC_MOVES, ClassicState
from penstock.coordination.groups.removal_step import removal_step
from penstock.coordination.groups.settings import GroupSettings
from penstock.coordination.groups.state import (
    CONSUMER_PROTOCOL_TYPE,
    NEVER_CHECKED,
    ClassicGroup,
    ClassicMember,
    ConsumerGroup,
    ConsumerMember,
    TopicCatalogue,
    without_epochs,
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
from penstock.coordination.groups.timers import (
    INITIAL,
    JOIN,
    MEMBER_TIMERS,
    PENDING,
    SESSION,
    SYNC,
)
from penstock.errors import ErrorCode, Malformed, Refused
from penstock.machine import Outcome, Reply
from penstock.model import Moment

# Upgrade.


def upgrade(
    group: ClassicGroup, topics: TopicCatalogue, settings: GroupSettings, now: Moment
) -> ConsumerDraft:
    """The classic group as one of the consumer protocol. Refused when it cannot become one."""
    _check_upgrade(group, settings)
    try:
        members = _consumer_members(group, topics)
    except Malformed:
        raise _not_upgraded(group, "its members' metadata is not a consumer's") from None
    CLASSIC_MOVES.check(group.state, ClassicState.DEAD)
    draft = ConsumerDraft(ConsumerGroup(group.group_id), settings, now)
    draft.events.append(ClassicGroupSet(group.group_id, None))
    draft.record("changes to the consumer protocol at epoch {}", group.generation)
    _end_classic_rebalance(draft, group)
    group_id = group.group_id
    for member in members:
        draft.emit(SubscriptionSet(group_id, member.member_id, member.subscription))
    digest = metadata_hash(draft.group, topics)
    draft.emit(GroupEpochSet(group_id, group.generation, digest))
    for member in members:
        draft.emit(
            TargetAssignmentSet(group_id, member.member_id, without_epochs(member.current.assigned))
        )
    draft.emit(TargetEpochSet(group_id, group.generation))  # nothing was computed
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


def _not_upgraded(group: ClassicGroup, reason: str) -> Refused:
    return Refused(
        ErrorCode.group_id_not_found,
        f"the classic group {group.group_id!r} cannot change to the consumer protocol: {reason}",
    )


def _end_classic_rebalance(draft: ConsumerDraft, group: ClassicGroup) -> None:
    """Members that wait for the classic rebalance must join again, and its deadlines are void."""
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
    embedded = {
        member.member_id: read_embedded_subscription(member.metadata(protocol))
        for member in group.members.values()
    }
    owners: dict[tuple[UUID, int], str] = {}
    assigned: dict[str, Owned] = {}
    for member in group.members.values():
        claimed = by_topic_id(read_embedded_assignment(member.assignment), topics)
        assigned[member.member_id] = _own(member.member_id, claimed, owners, group.generation)
    return [
        ConsumerMember(
            member.member_id,
            stored_subscription(member, embedded[member.member_id]),
            _current(
                member, embedded[member.member_id], assigned, owners, topics, group.generation
            ),
        )
        for member in group.members.values()
    ]


def _own(
    member_id: str,
    claimed: dict[UUID, tuple[int, ...]],
    owners: dict[tuple[UUID, int], str],
    epoch: int,
) -> Owned:
    """What no other member owns, with the epoch; a faulty leader may assign partitions twice."""
    owned: dict[UUID, dict[int, int]] = {}
    for topic_id, partitions in claimed.items():
        for partition in partitions:
            if owners.setdefault((topic_id, partition), member_id) == member_id:
                owned.setdefault(topic_id, {})[partition] = epoch
    return owned


def _current(
    member: ClassicMember,
    embedded: EmbeddedSubscription,
    assigned: dict[str, Owned],
    owners: dict[tuple[UUID, int], str],
    topics: TopicCatalogue,
    epoch: int,
) -> StoredCurrent:
    """The member's assignment. A cooperative one may not know yet what it must give up.

    Such partitions stay its own until it joins again without them.
    """
    mine = assigned[member.member_id]
    owned = _own(member.member_id, by_topic_id(embedded.owned, topics), owners, epoch)
    extra = {
        topic_id: {p: since for p, since in epochs.items() if p not in mine.get(topic_id, {})}
        for topic_id, epochs in owned.items()
    }
    unrevoked = {topic_id: epochs for topic_id, epochs in extra.items() if epochs}
    state = MemberState.UNREVOKED_PARTITIONS if unrevoked else MemberState.STABLE
    return StoredCurrent(epoch, epoch, state, mine, unrevoked)


def stored_subscription(
    member: ClassicMember, embedded: EmbeddedSubscription
) -> StoredSubscription:
    """A classic member as a group of the consumer protocol keeps it."""
    return StoredSubscription(
        member.instance_id,
        embedded.rack_id,
        member.client_id,
        member.client_host,
        tuple(sorted(set(embedded.topics))),
        None,
        member.rebalance_timeout_ms,
        None,
        ClassicMemberMetadata(member.session_timeout_ms, member.protocols),
    )


# Downgrade.


def remove_or_downgrade(
    group: ConsumerGroup,
    leaving: list[str],
    reason: str,
    settings: GroupSettings,
    now: Moment,
    *replies: Reply,
) -> Outcome[Event]:
    """Members leave or are removed; if only classic ones remain, the group becomes classic."""
    draft = ConsumerDraft(group, settings, now)
    # After a restart the names of topics are not known until a join brings them.
    knows_topics = group.topics is not NEVER_CHECKED
    is_some_left = len(leaving) < len(group.members)
    if knows_topics and is_some_left and can_downgrade(group, leaving, settings):
        for member_id in leaving:
            draft.story.append(removal_step(draft.group_id, member_id, reason))
        return downgrade(draft, leaving, *replies, rebalances=True)
    remove_members(draft, leaving, reason)
    return draft.outcome(*replies)


def can_downgrade(group: ConsumerGroup, leaving: Collection[str], settings: GroupSettings) -> bool:
    """Whether all that remain are classic members, and may be a classic group."""
    remaining = [member for member in group.members.values() if member.member_id not in leaving]
    return (
        settings.may_downgrade
        and len(remaining) <= settings.members_max
        and all(member.subscription.classic is not None for member in remaining)
    )


def downgrade(
    draft: ConsumerDraft, leaving: Collection[str], *replies: Reply, rebalances: bool
) -> Outcome[Event]:
    """The group as a classic one, at the generation that its epoch was."""
    group = draft.group
    remaining = [member for member in group.members.values() if member.member_id not in leaving]
    classic = ClassicDraft(_classic_group(group, remaining, draft.now), draft.settings, draft.now)
    classic.first = [*draft.events, *consumer_tombstones(group)]
    classic.story += draft.story
    classic.record("changes to the classic protocol at generation {}", group.epoch)
    classic.is_stored = True
    for member_id in group.members:
        for kind in MEMBER_TIMERS:
            classic.set_timer(kind, member_id, None)
    for member in classic.group.members.values():
        classic.renew_session(member)
    if rebalances:
        prepare_rebalance(classic)
    else:
        classic.group.leader = remaining[0].member_id
    for reply in (*draft.replies, *replies):
        classic.reply(reply.to, reply.body)
    return classic.outcome(*draft.notes)


def _classic_group(
    group: ConsumerGroup, remaining: Iterable[ConsumerMember], now: Moment
) -> ClassicGroup:
    """Without a leader: in a record, that says that the rebalance was interrupted."""
    classic = ClassicGroup(group.group_id)
    classic.state, classic.state_since = ClassicState.STABLE, now.wall
    classic.generation = group.epoch
    classic.protocol_type = CONSUMER_PROTOCOL_TYPE
    for member in remaining:
        subscription = member.subscription
        assert subscription.classic is not None
        classic.members[member.member_id] = ClassicMember(
            member.member_id,
            subscription.instance_id,
            subscription.client_id,
            subscription.client_host,
            subscription.rebalance_timeout_ms,
            subscription.classic.session_timeout_ms,
            subscription.classic.protocols,
        )
        if subscription.instance_id is not None:
            classic.static[subscription.instance_id] = member.member_id
    classic.protocol = choose_protocol(classic)
    metadata = {m.member_id: m.metadata(classic.protocol) for m in classic.members.values()}
    classic.subscribed_topics = subscribed_topics(metadata.values())
    for member_id, known in tuple(classic.members.items()):
        assignment = by_topic_name(_all_owned(group.members[member_id].current), group.topics)
        packed = write_embedded_assignment(assignment, version_of(metadata[member_id]))
        classic.members[member_id] = known._replace(assignment=packed)
    return classic


def _all_owned(current: StoredCurrent) -> dict[UUID, tuple[int, ...]]:
    """All that a member may still be reading; the next leader decides what it shall have."""
    owned = {topic_id: set(epochs) for topic_id, epochs in current.assigned.items()}
    for topic_id, epochs in current.pending_revocation.items():
        owned.setdefault(topic_id, set()).update(epochs)
    return {topic_id: tuple(sorted(partitions)) for topic_id, partitions in owned.items()}
