"""`/topics` and `/cluster`: administration of topics."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query, Request, Response

from penstock.errors import ErrorCode, Refused
from penstock.gateway.errors import bad_request
from penstock.gateway.gateway_node import GatewayNode
from penstock.gateway.json_responses import json_response
from penstock.gateway.request_bodies import (
    TopicName,
    described_body,
    described_response,
    read_document,
)
from penstock.link.cluster_admin import describe_cluster
from penstock.link.offsets import Isolation, end_offsets, start_offsets
from penstock.link.routing import Operation
from penstock.link.topic_admin import (
    TopicDescription,
    add_partitions,
    alter_configs,
    create_topic,
    delete_topic,
    describe_configs,
    describe_topics,
)
from penstock.model import TopicPartition
from penstock.protocol.messages.configs import DescribedConfig

_VISIBLE_S: Final = 5.0  # how long to wait until all brokers know a new topic
_PAUSE_S: Final = 0.02
ReplicationFactor = Annotated[int, msgspec.Meta(ge=1, le=32767)]
PartitionCount = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
_TOPIC: Final = {
    "name": "orders",
    "internal": False,
    "replication_factor": 1,
    "partitions": [
        {"partition": 0, "leader": 1, "replicas": [1], "in_sync": [1], "earliest": 0, "latest": 8}
    ],
    "configs": {"cleanup.policy": "delete"},
}


DryRun = Annotated[bool, Query(description="Check it, and change nothing.")]


class TopicBody(msgspec.Struct, forbid_unknown_fields=True):
    """A topic to create; what is left out is the broker's default."""

    name: str
    partitions: PartitionCount | None = None
    replication_factor: ReplicationFactor | None = None
    configs: dict[str, str | None] = {}


class TopicChange(msgspec.Struct, forbid_unknown_fields=True):
    """What to change; a config that is null returns to its default."""

    configs: dict[str, str | None] = {}
    partitions: PartitionCount | None = None


def describing(node: GatewayNode) -> APIRouter:
    """What there is."""
    router = APIRouter(tags=["topics"])

    @router.get("/cluster")
    async def read_cluster() -> Response:
        """The id of the cluster, and its brokers."""
        cluster = await node.run(describe_cluster())
        brokers = [
            {"id": row.broker_id, "host": row.host, "port": row.port, "rack": row.rack}
            for row in sorted(cluster.brokers)
        ]
        document = {
            "cluster_id": cluster.cluster_id,
            "controller": cluster.controller_id,
            "brokers": brokers,
        }
        return json_response(document)

    @router.get("/topics")
    async def list_topics() -> Response:
        """All topics by name."""
        return json_response({"topics": list(map(_summary, await node.run(describe_topics())))})

    @router.get("/topics/{topic}", responses=described_response(_TOPIC, "The topic."))
    async def read_topic(topic: TopicName) -> Response:
        """A topic: its partitions with their offsets, and its settings."""
        return json_response(await topic_document(node, topic))

    return router


def changing(node: GatewayNode) -> APIRouter:
    """Create, change and delete topics."""
    router = APIRouter(tags=["topics"])
    bytes_max = node.settings.body_bytes_max

    @router.post(
        "/topics",
        status_code=201,
        openapi_extra=described_body(
            TopicBody,
            a_topic_with_three_partitions={"name": "orders", "partitions": 3},
            a_compacted_topic={"name": "customers", "configs": {"cleanup.policy": "compact"}},
        ),
        responses=described_response(_TOPIC, "The topic as it was created.", 201),
    )
    async def make_topic(request: Request, dry_run: DryRun = False) -> Response:
        """Create a topic. A dry run answers 200 with nothing in it if it could be created."""
        body = await read_document(request, TopicBody, bytes_max)
        await node.run(_creation(body, dry_run))
        if dry_run:
            return json_response({})
        await topic_soon(node, body.name)
        document = await topic_document(node, body.name)
        return json_response(document, 201, {"Location": f"/topics/{body.name}"})

    @router.patch(
        "/topics/{topic}",
        openapi_extra=described_body(
            TopicChange,
            keep_events_for_a_day={"configs": {"retention.ms": "86400000"}},
            more_partitions={"partitions": 6},
        ),
        responses=described_response(_TOPIC, "The topic after the change."),
    )
    async def change_topic(topic: TopicName, request: Request, dry_run: DryRun = False) -> Response:
        """Change settings, or add partitions. With more partitions, keys move to other ones.

        A dry run has the same verdict, and the topic as it stays.
        """
        change = await read_document(request, TopicChange, bytes_max)
        (known,) = await node.run(describe_topics([topic]))
        _check_partitions(known, change.partitions)
        if change.configs:
            await node.run(alter_configs(topic, change.configs, validate_only=dry_run))
        if change.partitions is not None and change.partitions > len(known.partitions):
            await node.run(add_partitions(topic, change.partitions, validate_only=dry_run))
            if not dry_run:
                await topic_soon(node, topic, change.partitions)
        return json_response(await topic_document(node, topic))

    @router.delete("/topics/{topic}", status_code=204)
    async def remove_topic(topic: TopicName) -> Response:
        """Delete a topic and its events."""
        await node.run(delete_topic(topic))
        return Response(status_code=204)

    return router


def _creation(body: TopicBody, dry_run: bool) -> Operation[None]:
    return create_topic(
        body.name,
        partitions=body.partitions or -1,
        replication_factor=body.replication_factor or -1,
        configs=body.configs,
        validate_only=dry_run,
    )


def _check_partitions(known: TopicDescription, wanted: int | None) -> None:
    if wanted is not None and wanted < len(known.partitions):
        raise bad_request(
            f"topic {known.name} has {len(known.partitions)} partitions: their number cannot be "
            "reduced",
            "invalid_partitions",
        )


async def topic_soon(node: GatewayNode, topic: str, partitions: int = 1) -> TopicDescription:
    """The topic, as soon as the brokers know it and its partitions."""
    deadline = asyncio.get_running_loop().time() + _VISIBLE_S
    while True:
        is_late = asyncio.get_running_loop().time() >= deadline
        try:
            (known,) = await node.run(describe_topics([topic]))
            if is_late or len(known.partitions) >= partitions:
                return known
        except Refused as refusal:
            if refusal.code is not ErrorCode.unknown_topic_or_partition or is_late:
                raise
        await asyncio.sleep(_PAUSE_S)


async def topic_document(node: GatewayNode, topic: str) -> dict[str, Any]:
    """A topic with the offsets of its partitions and its settings."""
    (description,) = await node.run(describe_topics([topic]))
    places = [TopicPartition(topic, row.partition) for row in description.partitions]
    node.cluster.routes.invalidate_topics([topic])
    earliest = await node.run(start_offsets(places))
    latest = await node.run(end_offsets(places, isolation=Isolation.READ_COMMITTED))
    configs = await node.run(describe_configs([topic]))
    partitions = [
        {
            "partition": row.partition,
            "leader": row.leader,
            "replicas": row.replicas,
            "in_sync": row.in_sync,
            "earliest": earliest[place],
            "latest": latest[place],
        }
        for row, place in zip(description.partitions, places, strict=True)
    ]
    return {
        "name": topic,
        "internal": description.is_internal,
        "replication_factor": description.replication_factor,
        "partitions": partitions,
        "configs": _values(configs[topic]),
    }


def _summary(topic: TopicDescription) -> Mapping[str, Any]:
    return {
        "name": topic.name,
        "internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replication_factor": topic.replication_factor,
    }


def _values(configs: Sequence[DescribedConfig]) -> dict[str, str | None]:
    return {row.name: row.value for row in sorted(configs)}
