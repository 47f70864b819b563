"""Members that speak the classic protocol in a group of the consumer protocol.

The broker assigns, so nobody leads and nobody waits: a join is answered at once with the member's
epoch as its generation, a sync with what it has. When its assignment must change, its heartbeat
says so; it gives partitions back by joining again without them.
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
    LeaveReply,
    Sync,
    SyncReply,
)
from penstock.coordination.groups.consumer_draft import (
    FETCH,
    REJOIN,
    REVOKE,
    SESSION,
    ConsumerDraft,
    advance,
    assign,
    bump_epoch,
    refresh_topics,
    subscribe,
    succeed,
)
from penstock.coordination.groups.decide_classic_join import check_session_timeout, unknown_member
from penstock.coordination.groups.events import Event, TimerSet
from penstock.coordination.groups.protocol_switch import (
    can_downgrade,
    downgrade,
    remove_or_downgrade,
)
from penstock.coordination.groups.settings import GroupSettings
from penstock.coordination.groups.state import (
    CONSUMER_PROTOCOL_TYPE,
    ConsumerGroup,
    ConsumerMember,
    GroupsState,
    TopicCatalogue,
    free_of,
)
from penstock.coordination.groups.subscriptions import (
    EmbeddedSubscription,
    by_topic_id,
    by_topic_name,
    read_embedded_subscription,
    version_of,
    write_embedded_assignment,
)
from penstock.coordination.groups.timers import TimerKey
from penstock.errors import ErrorCode, Malformed, Refused
from penstock.machine import CallerId, Outcome, Reply
from penstock.model import Millis, Moment

# Joining


def decide_bridged_join(
    group: ConsumerGroup, command: Join, settings: GroupSettings, now: Moment
) -> Outcome[Event]:
    """Take a classic member in, or a step towards its target. Answered at once."""
    check_session_timeout(command.session_timeout_ms, settings)
    _check_may_join(group, command, settings)
    told = _embedded(command)
    if not command.member_id and command.instance_id is None and command.requires_member_id:
        body = JoinReply(ErrorCode.member_id_required, command.new_member_id)
        return Outcome(replies=(Reply(command.caller, body),))
    if any(told.owned.values()) and command.member_id not in group.members:
        # It was put out and has not heard of it: it must give up what others may have by now.
        raise unknown_member(command.group_id, command.member_id)
    draft = ConsumerDraft(group, settings, now)
    member_id = command.member_id or command.new_member_id
    replaced = _predecessor(group, command)
    if replaced is not None:
        succeed(draft, replaced, member_id)
    is_due = subscribe(draft, member_id, _subscription(draft.group, command, member_id, told))
    is_due = refresh_topics(draft, command.topics, is_due=is_due) or is_due
    if is_due:
        bump_epoch(draft, command.topics)
    if replaced is not None and can_downgrade(group, (replaced.member_id,), settings):
        return _downgrade_with(draft, command, member_id)
    if member_id in group.members and can_downgrade(draft.group, (), settings):
        # The last member of the consumer protocol went before this coordinator knew the topics.
        again = Refused(ErrorCode.rebalance_in_progress, "the group changed its protocol")
        return downgrade(draft, (), Reply(command.caller, again), rebalances=True)
    if draft.group.epoch > draft.group.target_epoch:
        assign(draft, command.topics)
    _, current = advance(draft, member_id, by_topic_id(told.owned, command.topics))
    draft.set_timer(REVOKE, member_id, None)
    draft.set_timer(REJOIN, member_id, None)
    draft.set_timer(SESSION, member_id, command.session_timeout_ms)
    draft.set_timer(FETCH, member_id, command.rebalance_timeout_ms)
    body = _joined(member_id, current.member_epoch, command.protocols[0][0])
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
    if not is_known and len(group.members) >= settings.consumer_members_max:
        raise Refused(
            ErrorCode.group_max_size_reached,
            f"the group has {settings.consumer_members_max} members",
        )
    offered = {name for name, _ in command.protocols}
    for member in group.classic_members():
        assert member.subscription.classic is not None
        offered &= {name for name, _ in member.subscription.classic.protocols}
    if command.protocol_type != CONSUMER_PROTOCOL_TYPE or not offered:
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
    """The static member that one without an id takes over from; one with an id must be it."""
    if command.instance_id is None:
        return None
    if command.member_id:
        _known(group, command.member_id, command.instance_id)
        return None
    current_id = group.static.get(command.instance_id)
    return None if current_id is None else group.members[current_id]


def _subscription(
    group: ConsumerGroup, command: Join, member_id: str, told: EmbeddedSubscription
) -> StoredSubscription:
    known = group.members.get(member_id)
    before = None if known is None else known.subscription
    return StoredSubscription(
        command.instance_id if before is None else before.instance_id,
        told.rack_id or (None if before is None else before.rack_id),
        command.client_id,
        command.client_host,
        tuple(sorted(set(told.topics))),
        None,
        command.rebalance_timeout_ms,
        None if before is None else before.server_assignor,
        ClassicMemberMetadata(command.session_timeout_ms, command.protocols),
    )


def _downgrade_with(draft: ConsumerDraft, command: Join, member_id: str) -> Outcome[Event]:
    """The last member of the consumer protocol came back as a classic one, under its static name.

    When everybody had its part, it stays so without a rebalance.
    """
    rebalances = draft.group.epoch > draft.group.target_epoch
    if not rebalances:
        advance(draft, member_id, {})
        rebalances = draft.group.state_name != "Stable"
    body = _joined(member_id, draft.group.epoch, command.protocols[0][0])
    return downgrade(draft, (), Reply(command.caller, body), rebalances=rebalances)


def _joined(member_id: str, epoch: int, protocol: str) -> JoinReply:
    return JoinReply(ErrorCode.none, member_id, epoch, CONSUMER_PROTOCOL_TYPE, protocol)


# Life after the join


def decide_bridged_sync(
    state: GroupsState, group: ConsumerGroup, command: Sync, now: Moment
) -> Outcome[Event]:
    """What the member has, in the words of the classic protocol."""
    member = _known(group, command.member_id, command.instance_id)
    classic = _classic_at(member, command.generation)
    protocol, metadata = classic.protocols[0]
    if (command.protocol_type or CONSUMER_PROTOCOL_TYPE) != CONSUMER_PROTOCOL_TYPE or (
        command.protocol or protocol
    ) != protocol:
        raise Refused(
            ErrorCode.inconsistent_group_protocol,
            f"the group is of consumers and the member chose {protocol!r}",
        )
    is_revoking = member.current.state is MemberState.UNREVOKED_PARTITIONS
    if group.epoch > member.current.member_epoch and not is_revoking:
        return _told_to_rejoin(state, group, member, command.caller, now)
    packed = _packed(member, command.topics, version_of(metadata))
    notes = (
        TimerSet(TimerKey(FETCH, group.group_id, member.member_id), None),
        _renewed(group, member, classic, now),
    )
    body = SyncReply(CONSUMER_PROTOCOL_TYPE, protocol, packed)
    return Outcome(notes=notes, replies=(Reply(command.caller, body),))


def _packed(member: ConsumerMember, topics: TopicCatalogue, version: int) -> bytes:
    return write_embedded_assignment(
        by_topic_name(free_of(member.current.assigned), topics), version
    )


def decide_bridged_heartbeat(
    state: GroupsState, group: ConsumerGroup, command: Heartbeat, now: Moment
) -> Outcome[Event]:
    """A classic member is alive; it is told to join again when its assignment must change."""
    member = _known(group, command.member_id, command.instance_id)
    classic = _classic_at(member, command.generation)
    renewed = _renewed(group, member, classic, now)
    if _must_rejoin(group, member):
        return _told_to_rejoin(state, group, member, command.caller, now, renewed)
    return Outcome(notes=(renewed,), replies=(Reply(command.caller, Done()),))


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


def _told_to_rejoin(
    state: GroupsState,
    group: ConsumerGroup,
    member: ConsumerMember,
    caller: CallerId,
    now: Moment,
    *notes: Event,
) -> Outcome[Event]:
    """It has its rebalance time-out from when it is told first."""
    key = TimerKey(REJOIN, group.group_id, member.member_id)
    if state.timers.at(key) is None:
        notes = (
            *notes,
            TimerSet(key, Millis(now.steady + member.subscription.rebalance_timeout_ms)),
        )
    again = Refused(ErrorCode.rebalance_in_progress, "the assignment changes; join again")
    return Outcome(notes=notes, replies=(Reply(caller, again),))


def _renewed(
    group: ConsumerGroup, member: ConsumerMember, classic: ClassicMemberMetadata, now: Moment
) -> TimerSet:
    key = TimerKey(SESSION, group.group_id, member.member_id)
    return TimerSet(key, Millis(now.steady + classic.session_timeout_ms))


def _known(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """The member of that id, or a refusal; a static one must be the last that came as it."""
    if instance_id is not None:
        current_id = group.static.get(instance_id)
        if current_id is None:
            raise unknown_member(group.group_id, instance_id)
        if current_id != member_id:
            raise Refused(
                ErrorCode.fenced_instance_id,
                f"another process has joined as group.instance.id {instance_id!r}",
            )
    member = group.members.get(member_id)
    if member is None:
        raise unknown_member(group.group_id, member_id)
    return member


def _classic_at(member: ConsumerMember, generation: int) -> ClassicMemberMetadata:
    """What the member brought along, if it is classic and knows its epoch."""
    classic, epoch = member.subscription.classic, member.current.member_epoch
    if classic is None:
        raise Refused(ErrorCode.unknown_member_id, "the member speaks the consumer protocol")
    if generation != epoch:
        raise Refused(ErrorCode.illegal_generation, f"the member is at generation {epoch}")
    return classic


# Leaving


def decide_bridged_leave(
    group: ConsumerGroup, command: Leave, settings: GroupSettings, now: Moment
) -> Outcome[Event]:
    """Members go: each is answered for itself. An administrator may name any, by static name."""
    gone: dict[str, None] = {}
    rows: list[tuple[str, str | None, ErrorCode]] = []
    for member_id, instance_id in command.members:
        named = member_id
        if instance_id is not None and not member_id:
            named = group.static.get(instance_id, "")
        try:
            gone[_known(group, named, instance_id).member_id] = None
        except Refused as refusal:
            rows.append((member_id, instance_id, refusal.code))
        else:
            rows.append((member_id, instance_id, ErrorCode.none))
    reply = Reply(command.caller, LeaveReply(tuple(rows)))
    if not gone:
        return Outcome(replies=(reply,))
    return remove_or_downgrade(group, list(gone), settings, now, reply)
