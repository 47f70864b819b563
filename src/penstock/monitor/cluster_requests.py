"""Requests about a whole cluster: its brokers, its groups, where its brokers have metrics."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.errors import ErrorCode
from penstock.link.operation import BrokerRequest, Steps, request_of, send_all
from penstock.link.routing import CoordinatorKind, Routes, operation
from penstock.model import NodeId
from penstock.protocol.messages.configs import (
    DESCRIBE_CONFIGS,
    ConfigsToDescribe,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from penstock.protocol.messages.group_admin import (
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    DescribeGroupsRequest,
    ListGroupsRequest,
    ListGroupsResponse,
)
from penstock.protocol.messages.transaction_admin import (
    LIST_TRANSACTIONS,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

BROKER_RESOURCE: Final = 4
METRICS_KEY: Final = "penstock.metrics.listener"


class GroupOfCluster(NamedTuple):
    """A group of the cluster."""

    group_id: str
    protocol_type: str


@operation
def request_brokers(routes: Routes) -> Steps[dict[NodeId, str]]:
    """The brokers that are alive, with their addresses."""
    yield from routes.request_metadata(())
    return {node_id: str(address) for node_id, address in routes.brokers.items()}


@operation
def list_groups(routes: Routes) -> Steps[list[GroupOfCluster]]:
    """The groups of all brokers that respond."""
    request = request_of(LIST_GROUPS, ListGroupsRequest())
    addresses = list(routes.brokers.values())
    responses = yield from send_all([BrokerRequest(each, request) for each in addresses])
    return [
        GroupOfCluster(row.group_id, row.protocol_type)
        for response in responses
        if isinstance(response, ListGroupsResponse)
        for row in response.groups
    ]


@operation
def metrics_urls(routes: Routes) -> Steps[dict[NodeId, str]]:
    """Where brokers serve their metrics; those that do not respond, or have none, are left out."""
    requests = [
        BrokerRequest(
            address,
            request_of(
                DESCRIBE_CONFIGS,
                DescribeConfigsRequest(
                    [ConfigsToDescribe(BROKER_RESOURCE, str(node_id), [METRICS_KEY])]
                ),
            ),
        )
        for node_id, address in routes.brokers.items()
    ]
    nodes = list(routes.brokers)
    responses = yield from send_all(requests)
    urls: dict[NodeId, str] = {}
    for node_id, response in zip(nodes, responses, strict=True):
        if isinstance(response, DescribeConfigsResponse):
            rows = [row for result in response.results for row in result.configs]
            if rows and rows[0].value:
                urls[node_id] = rows[0].value
    return urls


@operation
def member_metadata(routes: Routes, group_id: str) -> Steps[Sequence[bytes]]:
    """What the members of a classic group have sent about themselves."""
    request = request_of(DESCRIBE_GROUPS, DescribeGroupsRequest([group_id]))
    response = yield from routes.send_to_coordinator(CoordinatorKind.GROUP, group_id, request)
    return [
        member.member_metadata
        for group in response.groups
        if group.error_code is ErrorCode.none
        for member in group.members
    ]


@operation
def list_transactions(routes: Routes) -> Steps[list[ListedTransaction]]:
    """The transactional ids of all brokers that respond."""
    yield from routes.request_metadata(())
    request = request_of(LIST_TRANSACTIONS, ListTransactionsRequest())
    addresses = list(routes.brokers.values())
    responses = yield from send_all([BrokerRequest(each, request) for each in addresses])
    return [
        row
        for response in responses
        if isinstance(response, ListTransactionsResponse)
        for row in response.transaction_states
    ]
