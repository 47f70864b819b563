"""CommitReply offsets: commit, fetch, delete, and expiry.

A commit is accepted from a live member of the current generation, from any client into a group
without members, and inside a transaction from the producer; from a fenced member never.
"""

from typing import TYPE_CHECKING, Final

from penstock.coordination.groups.codec import offset_of, read_offset_value, write_offset_value
from penstock.coordination.groups.codec_consumer import StoredCurrent
from penstock.coordination.groups.commands import (
    CommitOffsets,
    CommitReply,
    DeleteOffsets,
    Done,
    DropTopics,
    FetchedOffset,
    FetchOffsets,
    FetchOffsetsReply,
    OffsetToCommit,
)
from penstock.coordination.groups.events import (
    Event,
    OffsetSet,
    PendingOffsetSet,
    TimerSet,
)
from penstock.coordination.groups.group_moves import ClassicState
from penstock.coordination.groups.members import check_group_id, known_member, unknown_member
from penstock.coordination.groups.settings import GroupSettings
from penstock.coordination.groups.state import (
    ClassicGroup,
    ConsumerGroup,
    GroupsState,
    PartitionKey,
)
from penstock.coordination.groups.timers import SESSION, TimerKey
from penstock.errors import ErrorCode, Refused
from penstock.machine import Outcome, Reply, Step
from penstock.model import Millis, Moment

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_GENERATION: Final = -1
_ACCEPTED: Final = CommitReply((ErrorCode.none,))  # a commit of one offset, as most are


def decide_commit(
    state: GroupsState, command: CommitOffsets, settings: GroupSettings, now: Moment
) -> Outcome[Event]:
    """Store what may be stored; each offset has its own error code."""
    if not command.group_id:
        check_group_id(command.group_id)
    group = state.groups.get(command.group_id)
    notes: tuple[Event, ...] = ()
    stale: StoredCurrent | None = None
    if group is None:
        if command.generation >= 0:
            raise _not_a_member(state, command)
    elif isinstance(group, ClassicGroup):
        notes = _check_classic(group, command, now)
    else:
        stale = _check_consumer(group, command)
    if len(command.offsets) == 1 and stale is None and not command.is_monotonic:
        (offset,) = command.offsets
        if not offset.metadata:  # nothing is left to check
            event = _commit_event(command, offset, now)
            return Outcome((event,), notes, (Reply(command.caller, _ACCEPTED),), (), command.mark)
    codes = _codes(state, command, settings, stale)
    events = tuple(
        [
            _commit_event(command, offset, now)
            for offset, code in zip(command.offsets, codes, strict=True)
            if code is ErrorCode.none
        ]
    )
    return Outcome(
        events=events,
        notes=notes,
        replies=(Reply(command.caller, CommitReply(tuple(codes))),),
        mark=command.mark if events else None,
    )


def _codes(
    state: GroupsState, command: CommitOffsets, settings: GroupSettings, stale: StoredCurrent | None
) -> list[ErrorCode]:
    committed = state.offsets.get(command.group_id, {}) if command.is_monotonic else None
    codes = [_refusal(offset, settings, stale, command) for offset in command.offsets]
    if committed and command.generation != NO_GENERATION:
        codes = [
            _backward(offset, committed) if code is ErrorCode.none else code
            for offset, code in zip(command.offsets, codes, strict=True)
        ]
    return codes


def _commit_event(command: CommitOffsets, offset: OffsetToCommit, now: Moment) -> Event:
    topic, partition, committed, leader_epoch, metadata, topic_id = offset
    value = write_offset_value(committed, leader_epoch, metadata, now.wall, topic_id)
    if command.mark is None:
        return OffsetSet(command.group_id, topic, partition, value)
    producer_id = command.mark.producer_id
    return PendingOffsetSet(producer_id, command.group_id, topic, partition, value)


def _refusal(
    offset: OffsetToCommit,
    settings: GroupSettings,
    stale: StoredCurrent | None,
    command: CommitOffsets,
) -> ErrorCode:
    if offset.metadata and len(offset.metadata) > settings.offset_metadata_bytes_max:
        return ErrorCode.offset_metadata_too_large
    if stale is not None:
        # A commit that was on its way while the member's epoch moved counts for what it still owns.
        since = stale.assigned.get(offset.topic_id, {}).get(offset.partition)
        since = stale.pending_revocation.get(offset.topic_id, {}).get(offset.partition, since)
        if since is None or command.generation < since:
            in_transaction = command.mark is not None  # producers know only the older code
            return ErrorCode.illegal_generation if in_transaction else ErrorCode.stale_member_epoch
    return ErrorCode.none


def _backward(offset: OffsetToCommit, committed: dict[PartitionKey, bytes]) -> ErrorCode:
    value = committed.get((offset.topic, offset.partition))
    if value is not None and offset.offset < offset_of(value):
        return ErrorCode.invalid_request
    return ErrorCode.none


def _not_a_member(state: GroupsState, command: CommitOffsets) -> Refused:
    """A group without a record has no members: it is unknown, or has offsets only."""
    if state.offsets.get(command.group_id):
        return unknown_member(command.group_id, command.member_id)
    code = ErrorCode.illegal_generation
    if command.mark is None and command.knows_epochs:
        code = ErrorCode.group_id_not_found
    return Refused(code, f"there is no group {command.group_id!r}")


def _names_member(command: CommitOffsets) -> bool:
    return bool(command.generation >= 0 or command.member_id or command.instance_id is not None)


def _check_classic(group: ClassicGroup, command: CommitOffsets, now: Moment) -> tuple[Event, ...]:
    if command.generation < 0 and group.state is ClassicState.EMPTY:
        return ()
    if not _names_member(command):
        if command.mark is not None or group.state is ClassicState.EMPTY:
            return ()  # old producers do not say for which member they commit
        raise unknown_member(group.group_id, command.member_id)
    member = known_member(group, command.member_id, command.instance_id)
    if command.generation != group.generation:
        raise Refused(
            ErrorCode.illegal_generation, f"the group is at generation {group.generation}"
        )
    if command.mark is not None:
        return ()
    if group.state is ClassicState.COMPLETING:
        raise Refused(ErrorCode.rebalance_in_progress, "request the assignment first")
    key = TimerKey(SESSION, group.group_id, member.member_id)
    return (TimerSet(key, Millis(now.steady + member.session_timeout_ms)),)


def _check_consumer(group: ConsumerGroup, command: CommitOffsets) -> StoredCurrent | None:
    """The member's current assignment when its epoch is behind, for a check of each partition."""
    if command.generation < 0 and not group.members:
        return None
    if command.mark is not None and not _names_member(command):
        return None
    member = group.members.get(command.member_id)
    if member is None:
        raise unknown_member(group.group_id, command.member_id)
    epoch = member.current.member_epoch
    if command.generation == epoch:
        return None
    if member.subscription.classic is not None:
        raise Refused(ErrorCode.illegal_generation, f"the member is at epoch {epoch}")
    if command.mark is None and not command.knows_epochs:
        raise Refused(
            ErrorCode.unsupported_version,
            "groups of the consumer protocol need OffsetCommit 9",
        )
    if 0 <= command.generation < epoch:
        return member.current
    code = ErrorCode.stale_member_epoch if command.mark is None else ErrorCode.illegal_generation
    raise Refused(code, f"the member is at epoch {epoch}")


def decide_fetch(state: GroupsState, command: FetchOffsets) -> Outcome[Event]:
    """The committed offsets of a group; -1 where there is none."""
    check_group_id(command.group_id)
    group = state.groups.get(command.group_id)
    if isinstance(group, ConsumerGroup) and command.member_id:
        member = group.members.get(command.member_id)
        if member is None:
            raise unknown_member(group.group_id, command.member_id)
        if command.member_epoch != member.current.member_epoch:
            is_classic = member.subscription.classic is not None
            raise Refused(
                ErrorCode.illegal_generation if is_classic else ErrorCode.stale_member_epoch,
                f"the member is at epoch {member.current.member_epoch}",
            )
    committed = state.offsets.get(command.group_id, {})
    unstable = state.unstable.get(command.group_id, {}) if command.require_stable else {}
    keys: Iterable[PartitionKey]
    keys = {**committed, **unstable} if command.partitions is None else command.partitions
    fetched = tuple(
        _unstable(key) if key in unstable else _fetched(key, committed.get(key)) for key in keys
    )
    return Outcome(replies=(Reply(command.caller, FetchOffsetsReply(fetched)),))


def _unstable(key: PartitionKey) -> FetchedOffset:
    return FetchedOffset(*key, -1, -1, "", ErrorCode.unstable_offset_commit)


def _fetched(key: PartitionKey, value: bytes | None) -> FetchedOffset:
    if value is None:
        return FetchedOffset(*key, -1, -1, "", ErrorCode.none)
    committed = read_offset_value(value)
    return FetchedOffset(
        *key, committed.offset, committed.leader_epoch, committed.metadata, ErrorCode.none
    )


def decide_delete_offsets(state: GroupsState, command: DeleteOffsets) -> Outcome[Event]:
    """Delete offsets, except of topics that a member of the group is subscribed to."""
    check_group_id(command.group_id)
    group = state.groups.get(command.group_id)
    committed = state.offsets.get(command.group_id, {})
    if group is None and not committed:
        raise Refused(ErrorCode.group_id_not_found, f"there is no group {command.group_id!r}")
    subscribed: frozenset[str] = frozenset()
    if isinstance(group, ConsumerGroup):
        subscribed = group.subscribed_topics()
    elif group is not None and group.state is not ClassicState.EMPTY:
        if group.subscribed_topics is None:
            raise Refused(
                ErrorCode.non_empty_group, "the subscriptions of the members are not known"
            )
        subscribed = group.subscribed_topics
    codes = tuple(
        ErrorCode.group_subscribed_to_topic if topic in subscribed else ErrorCode.none
        for topic, _ in command.partitions
    )
    events = tuple(
        OffsetSet(command.group_id, *key, None)
        for key, code in zip(command.partitions, codes, strict=True)
        if code is ErrorCode.none and key in committed
    )
    return Outcome(
        events=events,
        replies=(Reply(command.caller, CommitReply(codes)),),
        story=(Step(command.group_id, "{} offsets deleted by request", (len(events),)),),
    )


def decide_drop_topics(state: GroupsState, command: DropTopics) -> Outcome[Event]:
    """Topics were deleted: their offsets are not valid in topics of the same name."""
    events = tuple(
        OffsetSet(group_id, *key, None)
        for group_id, offsets in state.offsets.items()
        for key in offsets
        if key[0] in command.topics
    )
    return Outcome(events=events, replies=(Reply(command.caller, Done()),))


def expired_offsets(
    state: GroupsState, group_id: str, settings: GroupSettings, now: Moment
) -> tuple[Event, ...]:
    """Tombstones for offsets that the group has not used for too long.

    A group that has members keeps what they are subscribed to. One that had members counts from
    when it became empty; a simple one from each commit.
    """
    group = state.groups.get(group_id)
    retained: frozenset[str] = frozenset()
    empty_since: int | None = None
    if isinstance(group, ConsumerGroup):
        retained = group.subscribed_topics()
    elif group is not None and group.state is ClassicState.EMPTY and group.protocol_type:
        empty_since = group.state_since if group.state_since >= 0 else None
    elif group is not None and group.protocol_type:
        if group.state is not ClassicState.STABLE or group.subscribed_topics is None:
            return ()
        retained = group.subscribed_topics
    unstable = state.unstable.get(group_id, {})
    expired: list[Event] = []
    for key, value in state.offsets.get(group_id, {}).items():
        if key[0] in retained or key in unstable:
            continue
        committed = read_offset_value(value)
        since = committed.committed_at if empty_since is None else empty_since
        due = committed.expires_at or since + settings.offsets_retention_ms
        if due <= now.wall:
            expired.append(OffsetSet(group_id, *key, None))
    return tuple(expired)
