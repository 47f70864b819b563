"""The cluster as administrators change it: brokers, features, leaders, reassignments."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.errors import ErrorCode, Refused
from penstock.protocol.api import Api
from penstock.protocol.bind import bind
from penstock.protocol.messages.metadata import OPERATIONS_NOT_REQUESTED

DEFAULT_TIMEOUT_MS: Final = 60_000

# DescribeCluster.

BROKERS: Final = 1  # endpoint types
CONTROLLERS: Final = 2


class DescribeClusterRequest(NamedTuple):
    include_cluster_authorized_operations: bool = False
    endpoint_type: int = BROKERS
    include_fenced_brokers: bool = False


class DescribedBroker(NamedTuple):
    broker_id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False


class DescribeClusterResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    endpoint_type: int = BROKERS
    cluster_id: str = ""
    controller_id: int = -1
    brokers: Sequence[DescribedBroker] = ()
    cluster_authorized_operations: int = OPERATIONS_NOT_REQUESTED


DESCRIBE_CLUSTER: Final = bind(
    Api.DESCRIBE_CLUSTER, DescribeClusterRequest, DescribeClusterResponse
)

# UpdateFeatures.


class FeatureUpdate(NamedTuple):
    feature: str
    max_version_level: int
    allow_downgrade: bool = False  # version 0 only
    upgrade_type: int = 1


class UpdateFeaturesRequest(NamedTuple):
    feature_updates: Sequence[FeatureUpdate]
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    validate_only: bool = False


class FeatureUpdateResult(NamedTuple):
    feature: str
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


class UpdateFeaturesResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    results: Sequence[FeatureUpdateResult] = ()  # before version 2; since then one for all


UPDATE_FEATURES: Final = bind(Api.UPDATE_FEATURES, UpdateFeaturesRequest, UpdateFeaturesResponse)

# ElectLeaders.

PREFERRED: Final = 0  # election types
UNCLEAN: Final = 1


class ElectionTopic(NamedTuple):
    topic: str
    partitions: Sequence[int]


class ElectLeadersRequest(NamedTuple):
    topic_partitions: Sequence[ElectionTopic] | None  # None: all
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    election_type: int = PREFERRED


class ElectionResult(NamedTuple):
    partition_id: int
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


class ElectionTopicResult(NamedTuple):
    topic: str
    partition_result: Sequence[ElectionResult]


class ElectLeadersResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    replica_election_results: Sequence[ElectionTopicResult] = ()


def _refuse_elect(request: ElectLeadersRequest, refusal: Refused) -> ElectLeadersResponse:
    topics = [
        ElectionTopicResult(
            topic.topic,
            [ElectionResult(index, refusal.code, refusal.message) for index in topic.partitions],
        )
        for topic in request.topic_partitions or ()
    ]
    return ElectLeadersResponse(refusal.code, topics)


ELECT_LEADERS: Final = bind(
    Api.ELECT_LEADERS, ElectLeadersRequest, ElectLeadersResponse, refuse=_refuse_elect
)

# AlterPartitionReassignments and ListPartitionReassignments.


class ReassignablePartition(NamedTuple):
    partition_index: int
    replicas: Sequence[int] | None = None  # None: cancel


class ReassignableTopic(NamedTuple):
    name: str
    partitions: Sequence[ReassignablePartition]


class AlterPartitionReassignmentsRequest(NamedTuple):
    topics: Sequence[ReassignableTopic]
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    allow_replication_factor_change: bool = True


class ReassignedPartition(NamedTuple):
    partition_index: int
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


class ReassignedTopic(NamedTuple):
    name: str
    partitions: Sequence[ReassignedPartition]


class AlterPartitionReassignmentsResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    responses: Sequence[ReassignedTopic] = ()
    allow_replication_factor_change: bool = True


ALTER_PARTITION_REASSIGNMENTS: Final = bind(
    Api.ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)


class ReassignmentTopic(NamedTuple):
    name: str
    partition_indexes: Sequence[int]


class ListPartitionReassignmentsRequest(NamedTuple):
    topics: Sequence[ReassignmentTopic] | None = None  # None: all
    timeout_ms: int = DEFAULT_TIMEOUT_MS


class OngoingReassignment(NamedTuple):
    partition_index: int
    replicas: Sequence[int]
    adding_replicas: Sequence[int]
    removing_replicas: Sequence[int]


class OngoingReassignmentTopic(NamedTuple):
    name: str
    partitions: Sequence[OngoingReassignment]


class ListPartitionReassignmentsResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    topics: Sequence[OngoingReassignmentTopic] = ()


LIST_PARTITION_REASSIGNMENTS: Final = bind(
    Api.LIST_PARTITION_REASSIGNMENTS,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

# UnregisterBroker.


class UnregisterBrokerRequest(NamedTuple):
    broker_id: int


class UnregisterBrokerResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


UNREGISTER_BROKER: Final = bind(
    Api.UNREGISTER_BROKER, UnregisterBrokerRequest, UnregisterBrokerResponse
)
