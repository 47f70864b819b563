"""What the cluster is made of: brokers, log directories, leaders, replicas, the quorum."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from kio.static.protocol import Entity

from penstock.broker.handler import Answer, Context, Handler
from penstock.broker.handlers.metadata import CLUSTER_OPERATIONS
from penstock.broker.handlers.replies import (
    controller_of,
    error_fields,
    respond,
    when_controller_decided,
)
from penstock.broker.metadata_image import METADATA_PARTITION
from penstock.coordination.controller.commands import ElectLeaders, ReassignPartitions
from penstock.errors import ErrorCode, Refused
from penstock.protocol.messages.metadata import OPERATIONS_UNASKED

ALTER_REPLICA_LOG_DIRS: Final = 34
DESCRIBE_LOG_DIRS: Final = 35
ELECT_LEADERS: Final = 43
ALTER_PARTITION_REASSIGNMENTS: Final = 45
LIST_PARTITION_REASSIGNMENTS: Final = 46
DESCRIBE_QUORUM: Final = 55
UPDATE_FEATURES: Final = 57
DESCRIBE_CLUSTER: Final = 60

BROKERS: Final = 1  # endpoint types
CONTROLLERS: Final = 2
PREFERRED: Final = 0  # election types
UNCLEAN: Final = 1
RESULTS_GONE_FROM: Final = 2  # UpdateFeatures: one error for all


def describe_cluster(context: Context, request: Any) -> Answer:
    """The brokers, and who controls them."""
    cluster = controller_of(context)
    endpoint_type = getattr(request, "endpoint_type", BROKERS)
    if endpoint_type == CONTROLLERS:
        # as in Kafka: brokers do not answer for the controllers' own listeners
        raise Refused(ErrorCode.mismatched_endpoint_type, "this is a broker's endpoint")
    if endpoint_type != BROKERS:
        raise Refused(ErrorCode.unsupported_endpoint_type, f"no endpoint type {endpoint_type}")
    asked = request.include_cluster_authorized_operations
    return respond(
        context,
        error_code=ErrorCode.none,
        endpoint_type=BROKERS,
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        brokers=[
            {
                "broker_id": endpoint.node_id,
                "host": endpoint.host,
                "port": endpoint.port,
                "rack": endpoint.rack,
            }
            for endpoint in cluster.brokers()
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS if asked else OPERATIONS_UNASKED,
    )


def describe_log_dirs(context: Context, request: Any) -> Answer:
    """The size of each partition on disk, and the room that is left."""
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    by_topic: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for partition in context.broker.partitions:
        if wanted is None or partition.topic_partition in wanted:
            topic, index = partition.topic_partition
            by_topic[topic].append(
                {
                    "partition_index": index,
                    "partition_size": partition.log.size_bytes,
                    "offset_lag": 0,
                    "is_future_key": False,
                }
            )
    folder = controller_of(context).metadata.log.folder.parent
    disk = os.statvfs(folder)
    return respond(
        context,
        error_code=ErrorCode.none,
        results=[
            {
                "error_code": ErrorCode.none,
                "log_dir": str(folder),
                "topics": [{"name": name, "partitions": by_topic[name]} for name in by_topic],
                "total_bytes": disk.f_blocks * disk.f_frsize,
                "usable_bytes": disk.f_bavail * disk.f_frsize,
            }
        ],
    )


def alter_replica_log_dirs(context: Context, request: Any) -> Answer:
    """There is one folder: moving partitions there is done at once, elsewhere cannot be."""
    folder = controller_of(context).metadata.log.folder.parent
    results: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in request.dirs:
        for topic in row.topics:
            for index in topic.partitions:
                if row.path != str(folder):
                    code = ErrorCode.log_dir_not_found
                elif context.broker.partitions.find(topic.name, index) is None:
                    code = ErrorCode.unknown_topic_or_partition
                else:
                    code = ErrorCode.none
                results[topic.name].append({"partition_index": index, "error_code": code})
    return respond(
        context,
        results=[{"topic_name": name, "partitions": rows} for name, rows in results.items()],
    )


def update_features(context: Context, request: Any) -> Answer:
    """Every feature is finalised at the level this broker has: any other cannot be had."""
    finalised = controller_of(context).state.features
    refusals = {
        update.feature: Refused(
            ErrorCode.invalid_update_version,
            f"{update.feature} stays at {finalised.get(update.feature, 0)}",
        )
        for update in request.feature_updates
        if finalised.get(update.feature) != update.max_version_level
    }
    results = [
        {"feature": update.feature, **error_fields(refusals.get(update.feature))}
        for update in request.feature_updates
    ]
    top = error_fields(next(iter(refusals.values()), None))
    if context.api_version < RESULTS_GONE_FROM:  # there each feature has its own
        return respond(context, error_code=ErrorCode.none, results=results)
    return respond(context, **top)


def elect_leaders(context: Context, request: Any) -> Answer:
    """Let preferred replicas lead. Without a list: all partitions that need it."""
    cluster = controller_of(context)
    named = request.topic_partitions
    if named is None:
        wanted = tuple(
            (topic.name, index)
            for topic in cluster.topics()
            for index, row in enumerate(topic.partitions)
            if row.leader != row.replicas[0]
        )
    else:
        wanted = tuple((topic.topic, index) for topic in named for index in topic.partitions)
    election_type = getattr(request, "election_type", PREFERRED)
    if election_type not in (PREFERRED, UNCLEAN):
        raise Refused(ErrorCode.invalid_request, f"there is no election of type {election_type}")
    unclean = election_type == UNCLEAN
    decided = cluster.submit(lambda caller: ElectLeaders(caller, wanted, unclean=unclean))

    def answer(results: Sequence[Refused | None]) -> Entity:
        by_topic: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for (topic, index), result in zip(wanted, results, strict=True):
            by_topic[topic].append({"partition_id": index, **error_fields(result)})
        return respond(
            context,
            error_code=ErrorCode.none,
            replica_election_results=[
                {"topic": topic, "partition_result": rows} for topic, rows in by_topic.items()
            ],
        )

    return when_controller_decided(decided, answer, lambda refusal: answer([refusal] * len(wanted)))


def alter_partition_reassignments(context: Context, request: Any) -> Answer:
    """Give partitions other replicas, or call a move off."""
    wanted = tuple(
        (
            topic.name,
            row.partition_index,
            None if row.replicas is None else tuple(row.replicas),
        )
        for topic in request.topics
        for row in topic.partitions
    )
    decided = controller_of(context).submit(lambda caller: ReassignPartitions(caller, wanted))

    def answer(results: Sequence[Refused | None]) -> Entity:
        by_topic: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for (topic, index, _), result in zip(wanted, results, strict=True):
            by_topic[topic].append({"partition_index": index, **error_fields(result)})
        return respond(
            context,
            error_code=ErrorCode.none,
            allow_replication_factor_change=getattr(
                request, "allow_replication_factor_change", True
            ),
            responses=[{"name": topic, "partitions": rows} for topic, rows in by_topic.items()],
        )

    return when_controller_decided(decided, answer, lambda refusal: answer([refusal] * len(wanted)))


def list_partition_reassignments(context: Context, request: Any) -> Answer:
    """The moves under way: none, since a change of order is done as soon as it is decided."""
    return respond(context, error_code=ErrorCode.none, topics=[])


def describe_quorum(context: Context, request: Any) -> Answer:
    """Who votes on the cluster's metadata, and how far each has come."""
    cluster = controller_of(context)
    topic, index = METADATA_PARTITION
    asked = [
        (each.topic_name, [p.partition_index for p in each.partitions]) for each in request.topics
    ]
    if asked != [(topic, [index])]:
        return _no_quorum(context, asked)
    log = cluster.metadata.log
    now = context.broker.clock()
    endpoint = next(each for each in cluster.brokers() if each.node_id == cluster.node_id)
    voter = {
        "replica_id": cluster.node_id,
        "log_end_offset": log.end_offset,
        "last_fetch_timestamp": now,
        "last_caught_up_timestamp": now,
    }
    row = {
        "partition_index": index,
        **error_fields(None),
        "leader_id": cluster.node_id,
        "leader_epoch": cluster.metadata.leader_epoch,
        "high_watermark": log.high_watermark,
        "current_voters": [voter],
        "observers": [],
    }
    listener = {"name": context.client.listener, "host": endpoint.host, "port": endpoint.port}
    return respond(
        context,
        error_code=ErrorCode.none,
        topics=[{"topic_name": topic, "partitions": [row]}],
        nodes=[{"node_id": cluster.node_id, "listeners": [listener]}],
    )


def _no_quorum(context: Context, asked: Sequence[tuple[str, Sequence[int]]]) -> Answer:
    """The answer to anything but the one partition that a quorum decides on."""
    unknown = Refused(
        ErrorCode.unknown_topic_or_partition, f"only {METADATA_PARTITION} is decided by a quorum"
    )
    return respond(
        context,
        error_code=ErrorCode.none,
        topics=[
            {
                "topic_name": topic,
                "partitions": [{"partition_index": each, **error_fields(unknown)} for each in rows],
            }
            for topic, rows in asked
        ],
    )


HANDLERS = (
    Handler(ALTER_REPLICA_LOG_DIRS, versions=(1, 2), handle=alter_replica_log_dirs),
    Handler(DESCRIBE_LOG_DIRS, versions=(1, 5), handle=describe_log_dirs),
    Handler(ELECT_LEADERS, versions=(0, 2), handle=elect_leaders),
    Handler(ALTER_PARTITION_REASSIGNMENTS, versions=(0, 1), handle=alter_partition_reassignments),
    Handler(LIST_PARTITION_REASSIGNMENTS, versions=(0, 0), handle=list_partition_reassignments),
    Handler(DESCRIBE_QUORUM, versions=(0, 2), handle=describe_quorum),
    Handler(UPDATE_FEATURES, versions=(0, 2), handle=update_features),
    Handler(DESCRIBE_CLUSTER, versions=(0, 2), handle=describe_cluster),
)
