"""Groups as administrators see them: DescribeGroups, ListGroups, DeleteGroups."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.errors import ErrorCode, Refused
from penstock.protocol.api import Api
from penstock.protocol.bind import bind
from penstock.protocol.messages.metadata import OPERATIONS_NOT_REQUESTED

# DescribeGroups.


class DescribeGroupsRequest(NamedTuple):
    groups: Sequence[str]
    include_authorized_operations: bool = False


class DescribedGroupMember(NamedTuple):
    member_id: str
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes
    group_instance_id: str | None = None


class DescribedGroup(NamedTuple):
    """A group of the classic protocol."""

    group_id: str
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: Sequence[DescribedGroupMember] = ()
    authorized_operations: int = OPERATIONS_NOT_REQUESTED


class DescribeGroupsResponse(NamedTuple):
    groups: Sequence[DescribedGroup]


def _refuse_describe(request: DescribeGroupsRequest, refusal: Refused) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        [DescribedGroup(group_id, refusal.code, refusal.message) for group_id in request.groups]
    )


DESCRIBE_GROUPS: Final = bind(
    Api.DESCRIBE_GROUPS, DescribeGroupsRequest, DescribeGroupsResponse, refuse=_refuse_describe
)

# ListGroups.


class ListGroupsRequest(NamedTuple):
    states_filter: Sequence[str] = ()  # none: any
    types_filter: Sequence[str] = ()


class ListGroupsRow(NamedTuple):
    group_id: str
    protocol_type: str
    group_state: str = ""
    group_type: str = ""


class ListGroupsResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    groups: Sequence[ListGroupsRow] = ()


LIST_GROUPS: Final = bind(Api.LIST_GROUPS, ListGroupsRequest, ListGroupsResponse)

# DeleteGroups.


class DeleteGroupsRequest(NamedTuple):
    groups_names: Sequence[str]


class DeletedGroup(NamedTuple):
    group_id: str
    error_code: ErrorCode = ErrorCode.none


class DeleteGroupsResponse(NamedTuple):
    results: Sequence[DeletedGroup]


def _refuse_delete(request: DeleteGroupsRequest, refusal: Refused) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        [DeletedGroup(group_id, refusal.code) for group_id in request.groups_names]
    )


DELETE_GROUPS: Final = bind(
    Api.DELETE_GROUPS, DeleteGroupsRequest, DeleteGroupsResponse, refuse=_refuse_delete
)
