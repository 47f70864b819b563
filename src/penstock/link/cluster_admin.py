"""Operations on a cluster as a whole: its brokers, its partitions, and the voters of its metadata.

Any broker takes these requests; those that only the controller can answer are forwarded to it.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from penstock.errors import ErrorCode, Refused
from penstock.link.operation import Request, Steps, request_of
from penstock.link.routing import Routes, operation
from penstock.protocol.messages.cluster import (
    DESCRIBE_CLUSTER,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from penstock.protocol.messages.configs import (
    DESCRIBE_CONFIGS,
    ConfigsToDescribe,
    DescribeConfigsRequest,
)
from penstock.protocol.messages.metadata import METADATA, MetadataRequest, MetadataTopic
from penstock.protocol.messages.quorum import (
    ADD_RAFT_VOTER,
    DESCRIBE_QUORUM,
    REMOVE_RAFT_VOTER,
    AddRaftVoterRequest,
    ChangeVotersResponse,
    DescribedQuorumPartition,
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
    ListenerEndpoint,
    RemoveRaftVoterRequest,
)

METADATA_TOPIC: Final = "__cluster_metadata"
MIN_INSYNC: Final = "min.insync.replicas"
TOPIC: Final = 2  # resource type
CHANGE_TIMEOUT_MS: Final = 10_000


class VoterPlace(NamedTuple):
    """A replica of the metadata: its number, its disk, and where the others reach it."""

    node_id: int
    directory_id: UUID | None
    listeners: Sequence[ListenerEndpoint] = ()


@operation
def describe_brokers(routes: Routes) -> Steps[DescribeClusterResponse]:
    """The cluster's id and its brokers, also those that are fenced."""

    def attempt() -> Steps[DescribeClusterResponse]:
        body = DescribeClusterRequest(include_fenced_brokers=True)
        response = yield from routes.send_to_any(request_of(DESCRIBE_CLUSTER, body))
        _accept(response.error_code, response.error_message, "describe the cluster")
        return response

    return (yield from routes.with_retries("describe the cluster", attempt, lambda: None))


@operation
def describe_all_topics(routes: Routes) -> Steps[list[MetadataTopic]]:
    """Every topic with the leaders and replicas of its partitions."""

    def attempt() -> Steps[list[MetadataTopic]]:
        body = MetadataRequest(None, allow_auto_topic_creation=False)
        response = yield from routes.send_to_any(request_of(METADATA, body, version_min=4))
        return [topic for topic in response.topics if isinstance(topic, MetadataTopic)]

    return (yield from routes.with_retries("describe topics", attempt, lambda: None))


@operation
def min_insync_replicas(routes: Routes, topics: Sequence[str]) -> Steps[dict[str, int]]:
    """How many replicas a write with acks=all requires, by topic."""

    def attempt() -> Steps[dict[str, int]]:
        resources = [ConfigsToDescribe(TOPIC, name, [MIN_INSYNC]) for name in topics]
        request = request_of(DESCRIBE_CONFIGS, DescribeConfigsRequest(resources), version_min=1)
        response = yield from routes.send_to_any(request)
        return {
            row.resource_name: int(config.value)
            for row in response.results
            for config in row.configs
            if config.name == MIN_INSYNC and config.value is not None
        }

    return (yield from routes.with_retries("describe configs", attempt, lambda: None))


@operation
def describe_quorum(routes: Routes) -> Steps[DescribedQuorumPartition]:
    """The voters and observers of the metadata, and how far each has come."""
    body = DescribeQuorumRequest(
        [DescribeQuorumTopic(METADATA_TOPIC, [DescribeQuorumPartition(0)])]
    )

    def attempt() -> Steps[DescribedQuorumPartition]:
        response = yield from routes.send_to_any(request_of(DESCRIBE_QUORUM, body))
        _accept(response.error_code, response.error_message, "describe the quorum")
        (topic,) = response.topics
        (partition,) = topic.partitions
        _accept(partition.error_code, partition.error_message, "describe the quorum")
        return partition

    return (yield from routes.with_retries("describe the quorum", attempt, lambda: None))


@operation
def add_voter(routes: Routes, voter: VoterPlace) -> Steps[None]:
    """Give an observer that has caught up a vote."""
    body = AddRaftVoterRequest(
        None, CHANGE_TIMEOUT_MS, voter.node_id, voter.directory_id, voter.listeners
    )
    what = f"add voter {voter.node_id}"
    yield from _change_voters(routes, request_of(ADD_RAFT_VOTER, body), what)


@operation
def remove_voter(routes: Routes, voter: VoterPlace) -> Steps[None]:
    """Take a voter's vote; it goes on as an observer."""
    body = RemoveRaftVoterRequest(None, voter.node_id, voter.directory_id)
    what = f"remove voter {voter.node_id}"
    yield from _change_voters(routes, request_of(REMOVE_RAFT_VOTER, body), what)


def _change_voters(
    routes: Routes, request: Request[ChangeVotersResponse], what: str
) -> Steps[None]:
    def attempt() -> Steps[None]:
        response = yield from routes.send_to_any(request)
        _accept(response.error_code, response.error_message, what)

    yield from routes.with_retries(what, attempt, lambda: None)


def _accept(code: ErrorCode, message: str | None, what: str) -> None:
    if code is not ErrorCode.none:
        raise Refused(code, f"{what}: {message or code.name}")
