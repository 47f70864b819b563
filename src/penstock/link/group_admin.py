"""Operations on groups: lists, descriptions, leaving."""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.errors import ErrorCode, Refused
from penstock.link.consumer_protocol import read_assignment
from penstock.link.operation import BrokerRequest, Steps, request_of, send_all
from penstock.link.routing import CoordinatorKind, Routes, operation
from penstock.link.settings import Address
from penstock.model import TopicPartition
from penstock.protocol.messages.classic_groups import (
    LEAVE_GROUP,
    LeaveGroupRequest,
    LeavingMember,
)
from penstock.protocol.messages.consumer_groups import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeRequest,
)
from penstock.protocol.messages.group_admin import (
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    DescribeGroupsRequest,
    ListGroupsRequest,
)


@operation
def leave_group(routes: Routes, group: str, members: Sequence[LeavingMember]) -> Steps[None]:
    """Remove members at once; those that left already are no error."""
    request = request_of(LEAVE_GROUP, LeaveGroupRequest(group, members), version_min=3)
    response = yield from routes.send_to_coordinator(CoordinatorKind.GROUP, group, request)
    if response.error_code not in (ErrorCode.none, ErrorCode.unknown_member_id):
        raise Refused(response.error_code, f"leave group {group}: {response.error_code.name}")


class GroupMemberDescription(NamedTuple):
    """A member as its coordinator knows it."""

    member_id: str
    instance_id: str | None
    client_id: str
    assignment: tuple[TopicPartition, ...]
    host: str = ""


class GroupDescription(NamedTuple):
    """A consumer group as its coordinator knows it."""

    group: str
    state: str
    kind: str  # classic | consumer
    assignor: str
    coordinator: Address
    members: tuple[GroupMemberDescription, ...]


@operation
def list_groups(routes: Routes) -> Steps[dict[str, str]]:
    """The consumer groups of all brokers, with their types."""

    def attempt() -> Steps[dict[str, str]]:
        yield from routes.request_metadata([])
        request = request_of(LIST_GROUPS, ListGroupsRequest(), version_min=3)
        addresses = [BrokerRequest(address, request) for address in routes.brokers.values()]
        groups: dict[str, str] = {}
        for response in (yield from send_all(addresses)):
            if isinstance(response, Exception):
                raise response
            if response.error_code is not ErrorCode.none:
                raise Refused(response.error_code, f"list groups: {response.error_code.name}")
            for row in response.groups:
                if row.protocol_type in ("consumer", ""):
                    groups[row.group_id] = row.group_type or "classic"
        return dict(sorted(groups.items()))

    return (yield from routes.with_retries("list groups", attempt, lambda: None))


@operation
def describe_group(routes: Routes, group: str, kind: str) -> Steps[GroupDescription]:
    """One group of a type, from its coordinator."""

    def attempt() -> Steps[GroupDescription]:
        if kind.lower() == "consumer":
            return (yield from _describe_consumer(routes, group))
        request = request_of(DESCRIBE_GROUPS, DescribeGroupsRequest([group]), version_min=4)
        response = yield from routes.send_to_coordinator(CoordinatorKind.GROUP, group, request)
        (row,) = response.groups
        _accept(row.error_code, group)
        address = yield from routes.coordinator(CoordinatorKind.GROUP, group)
        members = tuple(
            GroupMemberDescription(
                each.member_id,
                each.group_instance_id,
                each.client_id,
                read_assignment(each.member_assignment),
                each.client_host,
            )
            for each in row.members
        )
        return GroupDescription(
            group, row.group_state, "classic", row.protocol_data, address, members
        )

    return (
        yield from routes.with_retries(
            f"describe group {group}",
            attempt,
            lambda: routes.invalidate_coordinator(CoordinatorKind.GROUP, group),
        )
    )


def _describe_consumer(routes: Routes, group: str) -> Steps[GroupDescription]:
    request = request_of(CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest([group]))
    response = yield from routes.send_to_coordinator(CoordinatorKind.GROUP, group, request)
    (row,) = response.groups
    _accept(row.error_code, group)
    address = yield from routes.coordinator(CoordinatorKind.GROUP, group)
    members = tuple(
        GroupMemberDescription(
            each.member_id,
            each.instance_id,
            each.client_id,
            tuple(
                TopicPartition(topic.topic_name, index)
                for topic in each.assignment.topic_partitions
                for index in topic.partitions
            ),
            each.client_host,
        )
        for each in row.members
    )
    return GroupDescription(group, row.group_state, "consumer", row.assignor_name, address, members)


def _accept(code: ErrorCode, group: str) -> None:
    if code is not ErrorCode.none:
        raise Refused(code, f"describe group {group}: {code.name}")
