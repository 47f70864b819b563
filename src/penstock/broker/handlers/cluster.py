"""The cluster: brokers, log directories, leaders, replicas, features, the quorum."""

from __future__ import annotations

import os
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from penstock.broker.controller_client import controller_id
from penstock.broker.handler import Answer, Context, Forwards, Handler
from penstock.broker.permissions import (
    ANYONE,
    Operation,
    ResourceType,
    on_cluster,
    requested_operations,
)
from penstock.broker.replies import error_of, when_controller_decided
from penstock.coordination.controller.commands import ElectLeaders, ReassignPartitions
from penstock.errors import ErrorCode, Refused
from penstock.protocol.messages.cluster import (
    ALTER_PARTITION_REASSIGNMENTS,
    BROKERS,
    CONTROLLERS,
    DESCRIBE_CLUSTER,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
    PREFERRED,
    UNCLEAN,
    UPDATE_FEATURES,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribedBroker,
    ElectionResult,
    ElectionTopicResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    FeatureUpdateResult,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ReassignedPartition,
    ReassignedTopic,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from penstock.protocol.messages.log_dirs import (
    ALTER_REPLICA_LOG_DIRS,
    DESCRIBE_LOG_DIRS,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribedLogDir,
    DescribedLogDirPartition,
    DescribedLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    MovedReplicasTopic,
)
from penstock.protocol.messages.offsets import PartitionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.broker.metadata_image import MetadataImage

ONE_RESULT_FROM: Final = 2  # UpdateFeatures: one error for all features


def describe_cluster(context: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """The brokers and the controller."""
    cluster = context.broker.cluster
    if request.endpoint_type == CONTROLLERS:
        # as in Kafka: brokers do not describe the controllers' own listeners
        raise Refused(ErrorCode.mismatched_endpoint_type, "this is a broker's endpoint")
    if request.endpoint_type != BROKERS:
        raise Refused(
            ErrorCode.unsupported_endpoint_type,
            f"there is no endpoint type {request.endpoint_type}",
        )
    operations = requested_operations(
        ResourceType.CLUSTER, request.include_cluster_authorized_operations
    )
    return DescribeClusterResponse(
        cluster_id=cluster.cluster_id,
        controller_id=controller_id(context.broker),
        brokers=_described_brokers(cluster, include_fenced=request.include_fenced_brokers),
        cluster_authorized_operations=operations,
    )


def _described_brokers(cluster: MetadataImage, *, include_fenced: bool) -> list[DescribedBroker]:
    if not include_fenced:
        return [DescribedBroker(*endpoint) for endpoint in cluster.brokers()]
    return [
        DescribedBroker(each.node_id, each.host, each.port, each.rack, each.is_fenced)
        for _, each in sorted(cluster.state.brokers.items())
    ]


# Log directories.


def describe_log_dirs(context: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """The size of each partition on disk, and the free space."""
    requested = None
    if request.topics is not None:
        requested = {(topic, index) for topic, indexes in request.topics for index in indexes}
    by_topic: dict[str, list[DescribedLogDirPartition]] = defaultdict(list)
    for partition in context.broker.partitions:
        if requested is None or partition.topic_partition in requested:
            topic, index = partition.topic_partition
            by_topic[topic].append(DescribedLogDirPartition(index, partition.log.size_bytes))
    folder = context.broker.log_folder
    disk = os.statvfs(folder)
    row = DescribedLogDir(
        str(folder),
        topics=[DescribedLogDirTopic(name, rows) for name, rows in by_topic.items()],
        total_bytes=disk.f_blocks * disk.f_frsize,
        usable_bytes=disk.f_bavail * disk.f_frsize,
    )
    return DescribeLogDirsResponse(results=[row])


def alter_replica_log_dirs(
    context: Context, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """There is one log directory: every partition is in it, and none can move to another."""
    folder = str(context.broker.log_folder)
    results: dict[str, list[PartitionError]] = defaultdict(list)
    for path, topics in request.dirs:
        for topic, indexes in topics:
            for index in indexes:
                if path != folder:
                    code = ErrorCode.log_dir_not_found
                elif context.broker.partitions.find(topic, index) is None:
                    code = ErrorCode.unknown_topic_or_partition
                else:
                    code = ErrorCode.none
                results[topic].append(PartitionError(index, code))
    return AlterReplicaLogDirsResponse(
        [MovedReplicasTopic(topic, rows) for topic, rows in results.items()]
    )


# Features.


def update_features(context: Context, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Every feature is finalized at this broker's level and cannot have another."""
    finalized = context.broker.cluster.state.features
    refusals = {
        update.feature: Refused(
            ErrorCode.invalid_update_version,
            f"{update.feature} stays at {finalized.get(update.feature, 0)}",
        )
        for update in request.feature_updates
        if finalized.get(update.feature) != update.max_version_level
    }
    if context.api_version >= ONE_RESULT_FROM:
        return UpdateFeaturesResponse(*error_of(next(iter(refusals.values()), None)))
    return UpdateFeaturesResponse(
        results=[
            FeatureUpdateResult(update.feature, *error_of(refusals.get(update.feature)))
            for update in request.feature_updates
        ]
    )


# Leaders and replicas.


def elect_leaders(context: Context, request: ElectLeadersRequest) -> Answer[ElectLeadersResponse]:
    """Make preferred replicas leaders. Without a list: of all partitions that need it."""
    cluster = context.broker.cluster
    if request.topic_partitions is None:
        partitions = tuple(
            (topic.name, index)
            for topic in cluster.topics()
            for index, row in enumerate(topic.partitions)
            if row.leader != row.replicas[0]
        )
    else:
        partitions = tuple(
            (topic, index) for topic, indexes in request.topic_partitions for index in indexes
        )
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise Refused(
            ErrorCode.invalid_request, f"there is no election type {request.election_type}"
        )
    unclean = request.election_type == UNCLEAN
    decided = context.broker.controller.submit(
        lambda caller: ElectLeaders(caller, partitions, unclean=unclean)
    )

    def respond(results: Sequence[Refused | None]) -> ElectLeadersResponse:
        by_topic: dict[str, list[ElectionResult]] = defaultdict(list)
        for (topic, index), result in zip(partitions, results, strict=True):
            by_topic[topic].append(ElectionResult(index, *error_of(result)))
        return ElectLeadersResponse(
            replica_election_results=[ElectionTopicResult(*row) for row in by_topic.items()]
        )

    return when_controller_decided(context, request, decided, respond)


def alter_partition_reassignments(
    context: Context, request: AlterPartitionReassignmentsRequest
) -> Answer[AlterPartitionReassignmentsResponse]:
    """Give partitions other replicas, or cancel a reassignment."""
    moves = tuple(
        (
            topic.name,
            row.partition_index,
            None if row.replicas is None else tuple(row.replicas),
        )
        for topic in request.topics
        for row in topic.partitions
    )
    decided = context.broker.controller.submit(lambda caller: ReassignPartitions(caller, moves))

    def respond(results: Sequence[Refused | None]) -> AlterPartitionReassignmentsResponse:
        by_topic: dict[str, list[ReassignedPartition]] = defaultdict(list)
        for (topic, index, _), result in zip(moves, results, strict=True):
            by_topic[topic].append(ReassignedPartition(index, *error_of(result)))
        return AlterPartitionReassignmentsResponse(
            responses=[ReassignedTopic(*row) for row in by_topic.items()],
            allow_replication_factor_change=request.allow_replication_factor_change,
        )

    return when_controller_decided(context, request, decided, respond)


def list_partition_reassignments(
    _context: Context, _request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """None is ever under way: a change of order is done when it is decided."""
    return ListPartitionReassignmentsResponse()


HANDLERS = (
    Handler(
        ALTER_REPLICA_LOG_DIRS,
        versions=(1, 2),
        handle=alter_replica_log_dirs,
        allow=on_cluster(Operation.ALTER),
    ),
    Handler(
        DESCRIBE_LOG_DIRS,
        versions=(1, 5),
        handle=describe_log_dirs,
        allow=on_cluster(Operation.DESCRIBE),
    ),
    Handler(
        ELECT_LEADERS,
        forwards=Forwards.WHOLE,
        versions=(0, 2),
        handle=elect_leaders,
        allow=on_cluster(Operation.ALTER),
    ),
    Handler(
        ALTER_PARTITION_REASSIGNMENTS,
        forwards=Forwards.WHOLE,
        versions=(0, 1),
        handle=alter_partition_reassignments,
        allow=on_cluster(Operation.ALTER),
    ),
    Handler(
        LIST_PARTITION_REASSIGNMENTS,
        forwards=Forwards.WHOLE,
        versions=(0, 0),
        handle=list_partition_reassignments,
        allow=on_cluster(Operation.DESCRIBE),
    ),
    Handler(
        UPDATE_FEATURES,
        forwards=Forwards.WHOLE,
        versions=(0, 2),
        handle=update_features,
        allow=on_cluster(Operation.ALTER),
    ),
    Handler(DESCRIBE_CLUSTER, versions=(0, 2), handle=describe_cluster, allow=ANYONE),
)
