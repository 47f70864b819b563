"""Members that speak the classic protocol in a group of the consumer protocol.

The broker assigns, so there is no leader and nothing to wait for: a join is replied to immediately
with the member's epoch as its generation, a sync with what the member has. When its assignment must
change, the reply to its heartbeat says so; it gives partitions back by joining again without them.
"""

from penstock.coordination.groups.codec_consumer import (
    ClassicMemberMetadata,
    MemberState,
    StoredSubscription,
)
from penstock.coordination.groups.commands import (
    Done,
    Heartbeat,
    Join,
    JoinReply,
    Leave,
    Sync,
    SyncReply,
)
from penstock.coordination.groups.consumer_draft import (
    ConsumerDraft,
    advance,
    assign,
    bump_epoch,
    refresh_topics,
    subscribe,
    succeed,
)
from penstock.coordination.groups.events import Event, timer_set
from penstock.coordination.groups.group_moves import ConsumerState
from penstock.coordination.groups.members import (
    check_protocol,
    check_session_timeout,
    check_size,
    known_member,
    leave_each,
    names_of,
    unknown_member,
)
from penstock.coordination.groups.protocol_switch import (
    can_downgrade,
    downgrade,
    remove_or_downgrade,
)
from penstock.coordination.groups.removal_step import LEFT
from penstock.coordination.groups.settings import GroupSettings
from penstock.coordination.groups.state import (
    CONSUMER_PROTOCOL_TYPE,
    ConsumerGroup,
    ConsumerMember,
    GroupsState,
    TopicCatalogue,
    without_epochs,
)
from penstock.coordination.groups.subscriptions import (
    EmbeddedSubscription,
    by_topic_id,
    by_topic_name,
    read_embedded_subscription,
    version_of,
    write_embedded_assignment,
)
from penstock.coordination.groups.timers import FETCH, REJOIN, REVOKE, SESSION, TimerKey
from penstock.errors import ErrorCode, Malformed, Refused
from penstock.machine import CallerId, Outcome, Reply
from penstock.model import Moment

# Joining.


def decide_bridged_join(
    group: ConsumerGroup, command: Join, settings: GroupSettings, now: Moment
) -> Outcome[Event]:
    """Let a classic member join, or take a step towards its target. The reply is immediate."""
    check_session_timeout(command.session_timeout_ms, settings)
    _check_may_join(group, command, settings)
    embedded = _embedded(command)
    if not command.member_id and command.instance_id is None and command.requires_member_id:
        body = JoinReply(ErrorCode.member_id_required, command.new_member_id)
        return Outcome(replies=(Reply(command.caller, body),))
    if any(embedded.owned.values()) and command.member_id not in group.members:
        # It was removed and does not know it yet: it must give up what others may have by now.
        raise unknown_member(command.group_id, command.member_id)
    draft = ConsumerDraft(group, settings, now)
    member_id = command.member_id or command.new_member_id
    replaced = _predecessor(group, command)
    if replaced is not None:
        succeed(draft, replaced, member_id)
    subscription = _subscription(draft.group, command, member_id, embedded)
    is_due = subscribe(draft, member_id, subscription)
    is_due = refresh_topics(draft, command.topics, is_due=is_due) or is_due
    if is_due:
        bump_epoch(draft, command.topics)
    if replaced is not None and can_downgrade(group, (replaced.member_id,), settings):
        return _downgrade_with(draft, command, member_id)
    if member_id in group.members and can_downgrade(draft.group, (), settings):
        # The last member of the consumer protocol left before this coordinator knew the topics.
        again = Refused(ErrorCode.rebalance_in_progress, "the group changed its protocol")
        return downgrade(draft, (), Reply(command.caller, again), rebalances=True)
    if draft.group.epoch > draft.group.target_epoch:
        assign(draft, command.topics)
    _, current = advance(draft, member_id, by_topic_id(embedded.owned, command.topics))
    draft.set_timer(REVOKE, member_id, None)
    draft.set_timer(REJOIN, member_id, None)
    draft.set_timer(SESSION, member_id, command.session_timeout_ms)
    draft.set_timer(FETCH, member_id, command.rebalance_timeout_ms)
    body = _join_reply(member_id, current.member_epoch, command.protocols[0][0])
    return draft.outcome(Reply(command.caller, body))


def _check_may_join(group: ConsumerGroup, command: Join, settings: GroupSettings) -> None:
    if not (settings.may_upgrade or settings.may_downgrade):
        raise Refused(
            ErrorCode.inconsistent_group_protocol,
            "the group uses the consumer protocol and group.consumer.migration.policy is disabled; "
            "set group.protocol=consumer",
        )
    is_known = command.member_id in group.members or (
        command.instance_id is not None and command.instance_id in group.static
    )
    if not is_known:
        check_size(len(group.members), settings.consumer_members_max)
    common = names_of(command.protocols)
    for member in group.classic_members():
        assert member.subscription.classic is not None
        common &= names_of(member.subscription.classic.protocols)
    if command.protocol_type != CONSUMER_PROTOCOL_TYPE or not common:
        raise Refused(
            ErrorCode.inconsistent_group_protocol,
            "the group is of consumers, and its classic members have no protocol in common with "
            f"{', '.join(name for name, _ in command.protocols) or 'nothing'}",
        )


def _embedded(command: Join) -> EmbeddedSubscription:
    try:
        return read_embedded_subscription(command.protocols[0][1])
    except Malformed:
        raise Refused(
            ErrorCode.inconsistent_group_protocol, "the metadata is not a consumer's subscription"
        ) from None


def _predecessor(group: ConsumerGroup, command: Join) -> ConsumerMember | None:
    """The static member that a member without an id replaces; one with an id must be it."""
    if command.instance_id is None:
        return None
    if command.member_id:
        known_member(group, command.member_id, command.instance_id)
        return None
    current_id = group.static.get(command.instance_id)
    return None if current_id is None else group.members[current_id]


def _subscription(
    group: ConsumerGroup, command: Join, member_id: str, embedded: EmbeddedSubscription
) -> StoredSubscription:
    known = group.members.get(member_id)
    before = None if known is None else known.subscription
    return StoredSubscription(
        command.instance_id if before is None else before.instance_id,
        embedded.rack_id or (None if before is None else before.rack_id),
        command.client_id,
        command.client_host,
        tuple(sorted(set(embedded.topics))),
        None,
        command.rebalance_timeout_ms,
        None if before is None else before.server_assignor,
        ClassicMemberMetadata(command.session_timeout_ms, command.protocols),
    )


def _downgrade_with(draft: ConsumerDraft, command: Join, member_id: str) -> Outcome[Event]:
    """The last member of the consumer protocol came back as a classic one, under its static name.

    When all members had their target assignment, they keep it without a rebalance.
    """
    rebalances = draft.group.epoch > draft.group.target_epoch
    if not rebalances:
        advance(draft, member_id, {})
        rebalances = draft.group.state is not ConsumerState.STABLE
    body = _join_reply(member_id, draft.group.epoch, command.protocols[0][0])
    return downgrade(draft, (), Reply(command.caller, body), rebalances=rebalances)


def _join_reply(member_id: str, epoch: int, protocol: str) -> JoinReply:
    return JoinReply(ErrorCode.none, member_id, epoch, CONSUMER_PROTOCOL_TYPE, protocol)


# After the join.


def decide_bridged_sync(
    state: GroupsState, group: ConsumerGroup, command: Sync, now: Moment
) -> Outcome[Event]:
    """What the member has, as an assignment of the classic protocol."""
    member: ConsumerMember = known_member(group, command.member_id, command.instance_id)
    classic = _classic_at(member, command.generation)
    protocol, metadata = classic.protocols[0]
    check_protocol(command, CONSUMER_PROTOCOL_TYPE, protocol)
    is_revoking = member.current.state is MemberState.UNREVOKED_PARTITIONS
    if group.epoch > member.current.member_epoch and not is_revoking:
        return _rejoin_reply(state, group, member, command.caller, now)
    packed = _packed(member, command.topics, version_of(metadata))
    notes = (
        timer_set(FETCH, group.group_id, member.member_id, now, None),
        _session(group, member, classic, now),
    )
    body = SyncReply(CONSUMER_PROTOCOL_TYPE, protocol, packed)
    return Outcome(notes=notes, replies=(Reply(command.caller, body),))


def _packed(member: ConsumerMember, topics: TopicCatalogue, version: int) -> bytes:
    assigned = by_topic_name(without_epochs(member.current.assigned), topics)
    return write_embedded_assignment(assigned, version)


def decide_bridged_heartbeat(
    state: GroupsState, group: ConsumerGroup, command: Heartbeat, now: Moment
) -> Outcome[Event]:
    """A classic member is alive; it must join again when its assignment must change."""
    member: ConsumerMember = known_member(group, command.member_id, command.instance_id)
    classic = _classic_at(member, command.generation)
    session = _session(group, member, classic, now)
    if _must_rejoin(group, member):
        return _rejoin_reply(state, group, member, command.caller, now, session)
    return Outcome(notes=(session,), replies=(Reply(command.caller, Done()),))


def _must_rejoin(group: ConsumerGroup, member: ConsumerMember) -> bool:
    current = member.current
    if current.state is MemberState.UNRELEASED_PARTITIONS and current.member_epoch == group.epoch:
        return not _waits_for_others(group, member)
    return current.member_epoch < group.epoch or current.state is not MemberState.STABLE


def _waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    return any(
        (topic_id, partition) in group.owners
        and partition not in member.current.assigned.get(topic_id, {})
        for topic_id, partitions in group.targets.get(member.member_id, {}).items()
        for partition in partitions
    )


def _rejoin_reply(
    state: GroupsState,
    group: ConsumerGroup,
    member: ConsumerMember,
    caller: CallerId,
    now: Moment,
    *notes: Event,
) -> Outcome[Event]:
    """The member has its rebalance time-out from the first such reply on."""
    if state.timers.at(TimerKey(REJOIN, group.group_id, member.member_id)) is None:
        timeout_ms = member.subscription.rebalance_timeout_ms
        notes = (*notes, timer_set(REJOIN, group.group_id, member.member_id, now, timeout_ms))
    again = Refused(ErrorCode.rebalance_in_progress, "the assignment changes; join again")
    return Outcome(notes=notes, replies=(Reply(caller, again),))


def _session(
    group: ConsumerGroup, member: ConsumerMember, classic: ClassicMemberMetadata, now: Moment
) -> Event:
    return timer_set(SESSION, group.group_id, member.member_id, now, classic.session_timeout_ms)


def _classic_at(member: ConsumerMember, generation: int) -> ClassicMemberMetadata:
    """The classic side of a member, if it has one and knows its epoch."""
    classic, epoch = member.subscription.classic, member.current.member_epoch
    if classic is None:
        raise Refused(ErrorCode.unknown_member_id, "the member uses the consumer protocol")
    if generation != epoch:
        raise Refused(ErrorCode.illegal_generation, f"the member is at generation {epoch}")
    return classic


# Leaving.


def decide_bridged_leave(
    group: ConsumerGroup, command: Leave, settings: GroupSettings, now: Moment
) -> Outcome[Event]:
    """Members leave: each has its own result."""
    leaving: dict[str, None] = {}

    def leave(member_id: str, instance_id: str | None) -> None:
        known_member(group, member_id, instance_id)
        leaving[member_id] = None

    reply = Reply(command.caller, leave_each(command, group.static, leave))
    if not leaving:
        return Outcome(replies=(reply,))
    return remove_or_downgrade(group, list(leaving), LEFT, settings, now, reply)
