"""Operations on a cluster as a whole: its brokers, and the voters of its metadata.

Any broker takes these requests; those that only the controller can answer are forwarded to it.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from penstock.errors import ErrorCode, Refused
from penstock.link.operation import Request, Steps, request_of
from penstock.link.routing import Routes, operation
from penstock.model import TopicPartition
from penstock.protocol.messages.cluster import (
    DESCRIBE_CLUSTER,
    ELECT_LEADERS,
    DescribeClusterRequest,
    DescribeClusterResponse,
    ElectionResult,
    ElectionTopic,
    ElectLeadersRequest,
)
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
CHANGE_TIMEOUT_MS: Final = 10_000


class VoterPlace(NamedTuple):
    """A replica of the metadata: its number, its disk, and where the others reach it."""

    node_id: int
    directory_id: UUID | None
    listeners: Sequence[ListenerEndpoint] = ()


@operation
def describe_cluster(
    routes: Routes, *, with_fenced: bool = False
) -> Steps[DescribeClusterResponse]:
    """The cluster's id and its brokers, those that are fenced too if `with_fenced`."""

    def attempt() -> Steps[DescribeClusterResponse]:
        body = DescribeClusterRequest(include_fenced_brokers=with_fenced)
        response = yield from routes.send_to_any(request_of(DESCRIBE_CLUSTER, body))
        _accept(response.error_code, response.error_message, "describe the cluster")
        return response

    return (yield from routes.with_retries("describe the cluster", attempt, lambda: None))


@operation
def elect_preferred_leaders(
    routes: Routes, partitions: Mapping[str, Sequence[int]]
) -> Steps[dict[TopicPartition, ElectionResult]]:
    """Let the preferred replicas of these partitions lead: what became of each."""
    topics = [ElectionTopic(name, indexes) for name, indexes in partitions.items()]
    body = ElectLeadersRequest(topics, CHANGE_TIMEOUT_MS)

    def attempt() -> Steps[dict[TopicPartition, ElectionResult]]:
        response = yield from routes.send_to_any(request_of(ELECT_LEADERS, body))
        _accept(response.error_code, None, "elect leaders")
        return {
            TopicPartition(topic.topic, row.partition_id): row
            for topic in response.replica_election_results
            for row in topic.partition_result
        }

    return (yield from routes.with_retries("elect leaders", attempt, lambda: None))


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
