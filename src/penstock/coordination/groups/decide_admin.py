"""Groups for administrators: list, describe, delete."""

from penstock.coordination.groups.commands import (
    DeleteGroup,
    DescribeGroup,
    Done,
    ListedGroup,
    ListGroups,
    ListReply,
)
from penstock.coordination.groups.consumer_draft import consumer_tombstones
from penstock.coordination.groups.events import (
    ClassicGroupReplaced,
    ClassicGroupSet,
    Event,
    OffsetSet,
)
from penstock.coordination.groups.group_moves import CLASSIC_MOVES, ClassicState
from penstock.coordination.groups.members import check_group_id
from penstock.coordination.groups.state import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroup,
    ConsumerGroup,
    GroupsState,
)
from penstock.errors import ErrorCode, Refused
from penstock.machine import Outcome, Reply, Step


def decide_list(state: GroupsState, command: ListGroups) -> Outcome[Event]:
    """A row for every group."""
    rows = tuple(_row(state, group_id) for group_id in state.group_ids())
    return Outcome(replies=(Reply(command.caller, ListReply(rows)),))


def _row(state: GroupsState, group_id: str) -> ListedGroup:
    group = state.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return ListedGroup(group_id, CONSUMER_PROTOCOL_TYPE, group.state.value, "consumer")
    if group is None:
        return ListedGroup(group_id, "", ClassicState.EMPTY.value, "classic")
    return ListedGroup(group_id, group.protocol_type or "", group.state.value, "classic")


def decide_describe(state: GroupsState, command: DescribeGroup) -> Outcome[Event]:
    """A copy of the group: the shell shows it in the form that was requested."""
    check_group_id(command.group_id)
    group = state.groups.get(command.group_id)
    if group is None and command.group_id in state.offsets:
        group = ClassicGroup(command.group_id)
    if group is None:
        raise not_found(command.group_id)
    return Outcome(replies=(Reply(command.caller, group.copy()),))


def not_found(group_id: str) -> Refused:
    """There is no such group."""
    return Refused(ErrorCode.group_id_not_found, f"there is no group {group_id!r}")


def decide_delete_group(state: GroupsState, command: DeleteGroup) -> Outcome[Event]:
    """Delete a group that has no members."""
    check_group_id(command.group_id)
    group = state.groups.get(command.group_id)
    offsets = state.offsets.get(command.group_id, {})
    if group is None and not offsets:
        raise not_found(command.group_id)
    if group is not None and (group.members or _is_preparing(group)):
        raise Refused(ErrorCode.non_empty_group, "the group has members")
    keys = {**offsets, **state.unstable.get(command.group_id, {})}
    events = [
        *(OffsetSet(command.group_id, *key, None) for key in keys),
        *group_tombstones(state, command.group_id),
    ]
    return Outcome(
        events=tuple(events),
        notes=(ClassicGroupReplaced(command.group_id, None),),
        replies=(Reply(command.caller, Done()),),
        story=(Step(command.group_id, "deleted by request"),),
    )


def _is_preparing(group: ClassicGroup | ConsumerGroup) -> bool:
    return isinstance(group, ClassicGroup) and group.state is ClassicState.PREPARING


def group_tombstones(state: GroupsState, group_id: str) -> list[Event]:
    """A tombstone for every record of a group without members."""
    group = state.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return consumer_tombstones(group)
    if group is not None:
        CLASSIC_MOVES.check(group.state, ClassicState.DEAD)
    if group is not None and group.generation > 0:
        return [ClassicGroupSet(group_id, None)]
    return []
