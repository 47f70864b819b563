"""One look at a whole cluster: brokers, topics, offsets, sizes, groups.

Each part on its own: what a cluster does not tell, or refuses now, is None, and the others are
there. Blocks: use it in a thread. Works on any Kafka cluster.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from penstock.errors import ErrorCode, Malformed, Refused
from penstock.link.blocking import BlockingCluster
from penstock.link.cluster_admin import describe_cluster
from penstock.link.offsets import Isolation, end_offsets, start_offsets
from penstock.link.operation import BrokerRequest, Steps, request_of, send_all
from penstock.link.routing import Routes, operation
from penstock.link.settings import Address
from penstock.link.topic_admin import TopicDescription, describe_topics
from penstock.model import Millis, Offset, TopicPartition
from penstock.protocol.messages.cluster import DescribeClusterResponse
from penstock.protocol.messages.consumer_groups import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.protocol.messages.group_admin import (
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from penstock.protocol.messages.log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

FAILURES: Final = (OSError, Refused, Malformed)
_CONSUMER_TYPES: Final = frozenset(("consumer", ""))
T = TypeVar("T")


class BrokerDisk(NamedTuple):
    """The bytes of a broker's logs, and of its disks; -1: unknown."""

    log_bytes: int
    total_bytes: int
    free_bytes: int


class LogSizes(NamedTuple):
    """What logs use of disks."""

    by_replica: Mapping[tuple[int, TopicPartition], int]
    by_broker: Mapping[int, BrokerDisk]


class GroupSummary(NamedTuple):
    """A consumer group in a list."""

    group: str
    state: str
    kind: str  # classic | consumer
    members: int


class ClusterSurvey(NamedTuple):
    """A cluster at a time; None: could not be asked."""

    at: Millis
    cluster: DescribeClusterResponse | None
    topics: Sequence[TopicDescription] | None
    starts: Mapping[TopicPartition, Offset] | None
    ends: Mapping[TopicPartition, Offset] | None
    sizes: LogSizes | None
    groups: Sequence[GroupSummary] | None


def survey(
    cluster: BlockingCluster,
    now: Callable[[], Millis],
    known_starts: Mapping[TopicPartition, Offset] | None = None,
) -> ClusterSurvey:
    """Ask for everything; OSError only if no broker responds at all.

    Starts change seldom: `known_starts` are taken if they are of all partitions.
    """
    topics = cluster.run(describe_topics())  # brings the brokers and leaders for what follows
    led = [
        TopicPartition(topic.name, row.partition)
        for topic in topics
        for row in topic.partitions
        if row.leader >= 0
    ]
    ends = _try(lambda: cluster.run(end_offsets(led, isolation=Isolation.READ_COMMITTED)))
    at = now()
    starts = known_starts
    if starts is None or not starts.keys() >= set(led):
        starts = _try(lambda: cluster.run(start_offsets(led)))
    return ClusterSurvey(
        at,
        _try(lambda: cluster.run(describe_cluster(with_fenced=True))),
        topics,
        starts,
        ends,
        _try(lambda: cluster.run(describe_sizes())),
        _try(lambda: cluster.run(summarize_groups())),
    )


def _try(ask: Callable[[], T]) -> T | None:
    try:
        return ask()
    except FAILURES:
        return None


@operation
def describe_sizes(routes: Routes) -> Steps[LogSizes | None]:
    """The sizes of all replicas; None if no broker reports them."""
    nodes = list(routes.brokers)
    request = request_of(DESCRIBE_LOG_DIRS, DescribeLogDirsRequest())
    responses = yield from send_all(
        [BrokerRequest(routes.brokers[node], request) for node in nodes]
    )
    by_replica: dict[tuple[int, TopicPartition], int] = {}
    by_broker: dict[int, BrokerDisk] = {}
    for node, response in zip(nodes, responses, strict=True):
        if isinstance(response, DescribeLogDirsResponse) and not response.error_code:
            log_bytes = 0
            for folder in response.results:
                for topic in folder.topics:
                    for row in topic.partitions:
                        key = (int(node), TopicPartition(topic.name, row.partition_index))
                        by_replica[key] = by_replica.get(key, 0) + row.partition_size
                        log_bytes += row.partition_size
            total = _known_sum(folder.total_bytes for folder in response.results)
            free = _known_sum(folder.usable_bytes for folder in response.results)
            by_broker[int(node)] = BrokerDisk(log_bytes, total, free)
    return LogSizes(by_replica, by_broker) if by_broker else None


def _known_sum(sizes: Iterable[int]) -> int:
    rows = list(sizes)
    return sum(rows) if rows and min(rows) >= 0 else -1


@operation
def summarize_groups(routes: Routes) -> Steps[list[GroupSummary]]:
    """The consumer groups of all brokers that respond: each broker lists and describes its own."""
    addresses = list(routes.brokers.values())
    request = request_of(LIST_GROUPS, ListGroupsRequest())
    responses = yield from send_all([BrokerRequest(each, request) for each in addresses])
    groups: dict[str, GroupSummary] = {}
    requests = []
    for address, response in zip(addresses, responses, strict=True):
        if isinstance(response, ListGroupsResponse):
            listed = _consumer_groups(response)
            groups |= {row.group: row for row in listed}
            requests += _describing(address, listed)
    for response in (yield from send_all(requests)):
        if isinstance(response, DescribeGroupsResponse | ConsumerGroupDescribeResponse):
            for group in response.groups:
                if group.error_code is ErrorCode.none and group.group_id in groups:
                    groups[group.group_id] = groups[group.group_id]._replace(
                        state=group.group_state, members=len(group.members)
                    )
    return sorted(groups.values())


def _consumer_groups(response: ListGroupsResponse) -> list[GroupSummary]:
    return [
        GroupSummary(row.group_id, row.group_state, row.group_type.lower() or "classic", 0)
        for row in response.groups
        if row.protocol_type in _CONSUMER_TYPES and row.group_type.lower() != "share"
    ]


def _describing(address: Address, groups: Sequence[GroupSummary]) -> list[BrokerRequest]:
    """Requests for those of a broker, one for each protocol."""
    classic = [row.group for row in groups if row.kind == "classic"]
    consumer = [row.group for row in groups if row.kind == "consumer"]
    requests = []
    if classic:
        request = request_of(DESCRIBE_GROUPS, DescribeGroupsRequest(classic))
        requests.append(BrokerRequest(address, request))
    if consumer:
        described = request_of(CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest(consumer))
        requests.append(BrokerRequest(address, described))
    return requests
