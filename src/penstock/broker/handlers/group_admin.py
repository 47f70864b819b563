"""Groups of any protocol, for administrators: DescribeGroups, ListGroups, DeleteGroups."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from penstock.broker.handler import Answer, Context, Handler
from penstock.broker.permissions import (
    AnyOf,
    Operation,
    ResourceType,
    on_cluster,
    on_each_group,
    requested_operations,
)
from penstock.broker.replies import code_of, when_all
from penstock.coordination.groups.commands import DeleteGroup, DescribeGroup, ListReply
from penstock.coordination.groups.group_moves import ClassicState
from penstock.coordination.groups.state import ClassicGroup
from penstock.errors import ErrorCode, Refused
from penstock.protocol.messages.group_admin import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    DeletedGroup,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    ListGroupsRow,
)

_NOT_FOUND_FROM: Final = 6  # DescribeGroups: an unknown group is an error


def describe_groups(
    context: Context, request: DescribeGroupsRequest
) -> Answer[DescribeGroupsResponse]:
    """Groups of the classic protocol, with their members."""
    groups = context.broker.groups
    decided = [
        groups.submit(name, partial(DescribeGroup, group_id=name)) for name in request.groups
    ]
    operations = requested_operations(ResourceType.GROUP, request.include_authorized_operations)

    def respond(results: list[Any]) -> DescribeGroupsResponse:
        rows = [
            _described(context, name, result)._replace(authorized_operations=operations)
            for name, result in zip(request.groups, results, strict=True)
        ]
        return DescribeGroupsResponse(rows)

    return when_all(decided, respond)


def _described(context: Context, group_id: str, result: object) -> DescribedGroup:
    if isinstance(result, ClassicGroup):
        return _described_group(result)
    code, message = ErrorCode.group_id_not_found, f"{group_id!r} is not a classic group"
    if isinstance(result, Refused):
        code, message = result.code, result.message
    if code is ErrorCode.group_id_not_found and context.api_version < _NOT_FOUND_FROM:
        code = ErrorCode.none
    return DescribedGroup(group_id, code, message, ClassicState.DEAD.value)


def _described_group(group: ClassicGroup) -> DescribedGroup:
    is_stable = group.state is ClassicState.STABLE
    return DescribedGroup(
        group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if is_stable else "",
        members=[
            DescribedGroupMember(
                member.member_id,
                member.client_id,
                member.client_host,
                member.metadata(group.protocol) if is_stable else b"",
                member.assignment if is_stable else b"",
                member.instance_id,
            )
            for member in group.members.values()
        ],
    )


def list_groups(context: Context, request: ListGroupsRequest) -> Answer[ListGroupsResponse]:
    """The groups of this broker, filtered by state and type."""
    states = {name.lower() for name in request.states_filter}
    types = {name.lower() for name in request.types_filter}

    def respond(results: list[Any]) -> ListGroupsResponse:
        rows = [
            ListGroupsRow(row.group_id, row.protocol_type, row.state, row.group_type)
            for listed in results
            if isinstance(listed, ListReply)
            for row in listed.groups
            if (not states or row.state.lower() in states)
            and (not types or row.group_type in types)
        ]
        codes = [code_of(result) for result in results]
        return ListGroupsResponse(next((code for code in codes if code), ErrorCode.none), rows)

    return when_all(context.broker.groups.list_groups(), respond)


def delete_groups(context: Context, request: DeleteGroupsRequest) -> Answer[DeleteGroupsResponse]:
    """Delete groups without members."""
    groups = context.broker.groups
    names = request.groups_names
    decided = [groups.submit(name, partial(DeleteGroup, group_id=name)) for name in names]

    def respond(results: list[Any]) -> DeleteGroupsResponse:
        rows = zip(names, results, strict=True)
        return DeleteGroupsResponse([DeletedGroup(name, code_of(row)) for name, row in rows])

    return when_all(decided, respond)


HANDLERS = (
    Handler(
        DESCRIBE_GROUPS,
        versions=(0, 6),
        handle=describe_groups,
        allow=on_each_group(Operation.DESCRIBE),
    ),
    Handler(
        LIST_GROUPS,
        versions=(0, 5),
        handle=list_groups,
        allow=AnyOf(on_cluster(Operation.DESCRIBE), on_each_group(Operation.DESCRIBE)),
    ),
    Handler(
        DELETE_GROUPS,
        versions=(0, 2),
        handle=delete_groups,
        allow=on_each_group(Operation.DELETE),
    ),
)
