"""Clusters, brokers, topics, partitions and their configs."""

from typing import Any, Final, Literal

import msgspec
from fastapi import APIRouter, Request, Response

from penstock.gateway.errors import GatewayError, bad_request, not_found
from penstock.gateway.gateway_node import GatewayNode
from penstock.gateway.request_bodies import TopicName, described_body, read_document
from penstock.gateway.rest_v3.shapes import Links, base_url, json_response
from penstock.gateway.routes.topics import PartitionCount, ReplicationFactor, topic_soon
from penstock.link.cluster_admin import describe_cluster
from penstock.link.offsets import Isolation, end_offsets, start_offsets
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

_SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
}
_DEFAULT: Final = 5


class ConfigBody(msgspec.Struct):
    """A setting by name."""

    name: str
    value: str | None = None


class CreateBody(msgspec.Struct):
    """A topic to create."""

    topic_name: str
    partitions_count: PartitionCount | None = None
    replication_factor: ReplicationFactor | None = None
    configs: list[ConfigBody] = []
    validate_only: bool = False


class CountBody(msgspec.Struct):
    """How many partitions there are to be."""

    partitions_count: PartitionCount


class ValueBody(msgspec.Struct):
    """The value of a setting."""

    value: str | None


class AlterRow(msgspec.Struct):
    """One change of a setting."""

    name: str
    value: str | None = None
    operation: Literal["SET", "DELETE"] = "SET"


class AlterBody(msgspec.Struct):
    """Changes of settings, all or none."""

    data: list[AlterRow]
    validate_only: bool = False


async def links_for(node: GatewayNode, request: Request) -> Links:
    """The links of this request, with the cluster's own id."""
    cluster = node.cluster.routes.cluster_id
    if cluster is None:
        cluster = (await node.run(describe_cluster())).cluster_id
        node.cluster.routes.cluster_id = cluster
    return Links(base_url(request), cluster)


def clusters(node: GatewayNode) -> APIRouter:
    """`/clusters` and `/brokers`."""
    router = APIRouter(tags=["REST v3"], prefix="/v3/clusters")

    @router.get("")
    async def v3_list_clusters(request: Request) -> Response:
        """The one cluster."""
        links = await links_for(node, request)
        document = links.listing("KafkaClusterList", (), [await _cluster(node, links)])
        document["metadata"]["self"] = f"{links.base}/clusters"
        return json_response(document)

    @router.get("/{cluster}")
    async def v3_read_cluster(cluster: str, request: Request) -> Response:
        """The cluster."""
        links = await links_for(node, request)
        return json_response(await _cluster(node, links))

    @router.get("/{cluster}/brokers")
    async def v3_list_brokers(cluster: str, request: Request) -> Response:
        """Its brokers."""
        links = await links_for(node, request)
        rows = [_broker(links, row) for row in sorted((await node.run(describe_cluster())).brokers)]
        return json_response(links.listing("KafkaBrokerList", ("brokers",), rows))

    @router.get("/{cluster}/brokers/{broker}")
    async def v3_read_broker(cluster: str, broker: int, request: Request) -> Response:
        """One broker."""
        links = await links_for(node, request)
        for row in (await node.run(describe_cluster())).brokers:
            if row.broker_id == broker:
                return json_response(_broker(links, row))
        raise not_found("unknown_broker", f"there is no broker {broker}")

    return router


async def _cluster(node: GatewayNode, links: Links) -> dict[str, Any]:
    controller = (await node.run(describe_cluster())).controller_id
    names = ("acls", "brokers", "consumer-groups", "topics")
    related = {name.replace("-", "_"): links.related(name) for name in names}
    return links.resource(
        "KafkaCluster",
        (),
        links.name(),
        controller=links.related("brokers", controller),
        broker_configs=links.related("broker-configs"),
        partition_reassignments=links.related("topics", "-", "partitions", "-", "reassignment"),
        **related,
    )


def _broker(links: Links, row: Any) -> dict[str, Any]:
    path = ("brokers", row.broker_id)
    return links.resource(
        "KafkaBroker",
        path,
        links.name(("broker", row.broker_id)),
        broker_id=row.broker_id,
        host=row.host,
        port=row.port,
        rack=row.rack,
        configs=links.related(*path, "configs"),
        partition_replicas=links.related(*path, "partition-replicas"),
    )


def topics(node: GatewayNode) -> APIRouter:
    """`/topics`."""
    router = APIRouter(tags=["REST v3"], prefix="/v3/clusters/{cluster}/topics")
    bytes_max = node.settings.body_bytes_max

    @router.get("")
    async def v3_list_topics(cluster: str, request: Request) -> Response:
        """All topics by name."""
        links = await links_for(node, request)
        rows = [_topic(links, topic) for topic in await node.run(describe_topics())]
        return json_response(links.listing("KafkaTopicList", ("topics",), rows))

    @router.post("", status_code=201, openapi_extra=described_body(CreateBody))
    async def v3_create_topic(cluster: str, request: Request) -> Response:
        """Create a topic."""
        links = await links_for(node, request)
        body = await read_document(request, CreateBody, bytes_max)
        await node.run(
            create_topic(
                body.topic_name,
                partitions=body.partitions_count or -1,
                replication_factor=body.replication_factor or -1,
                configs={row.name: row.value for row in body.configs},
                validate_only=body.validate_only,
            )
        )
        if body.validate_only:
            count = body.partitions_count or 0
            return json_response(_topic(links, TopicDescription(body.topic_name, False, ()), count))
        topic = await topic_soon(node, body.topic_name)
        location = links.url("topics", body.topic_name)
        return json_response(_topic(links, topic), 201, {"Location": location})

    @router.get("/{topic}")
    async def v3_read_topic(cluster: str, topic: TopicName, request: Request) -> Response:
        """One topic."""
        links = await links_for(node, request)
        (found,) = await node.run(describe_topics([topic]))
        return json_response(_topic(links, found))

    @router.patch("/{topic}", openapi_extra=described_body(CountBody))
    async def v3_add_partitions(cluster: str, topic: TopicName, request: Request) -> Response:
        """Add partitions."""
        links = await links_for(node, request)
        body = await read_document(request, CountBody, bytes_max)
        await node.run(describe_topics([topic]))
        await node.run(add_partitions(topic, body.partitions_count))
        return json_response(_topic(links, await topic_soon(node, topic, body.partitions_count)))

    @router.delete("/{topic}", status_code=204)
    async def v3_delete_topic(cluster: str, topic: TopicName) -> Response:
        """Delete a topic."""
        await node.run(delete_topic(topic))
        return Response(status_code=204)

    return router


def _topic(links: Links, topic: TopicDescription, count: int | None = None) -> dict[str, Any]:
    path = ("topics", topic.name)
    return links.resource(
        "KafkaTopic",
        path,
        links.name(("topic", topic.name)),
        topic_name=topic.name,
        is_internal=topic.is_internal,
        replication_factor=topic.replication_factor,
        partitions_count=len(topic.partitions) if count is None else count,
        partitions=links.related(*path, "partitions"),
        configs=links.related(*path, "configs"),
        partition_reassignments=links.related(*path, "partitions", "-", "reassignment"),
    )


def partitions(node: GatewayNode) -> APIRouter:
    """`/topics/{topic}/partitions`."""
    router = APIRouter(tags=["REST v3"], prefix="/v3/clusters/{cluster}/topics/{topic}/partitions")

    @router.get("")
    async def v3_list_partitions(cluster: str, topic: TopicName, request: Request) -> Response:
        """The partitions of a topic."""
        links = await links_for(node, request)
        (found,) = await node.run(describe_topics([topic]))
        rows = [_partition(links, topic, row) for row in found.partitions]
        path = ("topics", topic, "partitions")
        return json_response(links.listing("KafkaPartitionList", path, rows))

    @router.get("/{partition}")
    async def v3_read_partition(
        cluster: str, topic: TopicName, partition: int, request: Request
    ) -> Response:
        """One partition."""
        links = await links_for(node, request)
        return json_response(_partition(links, topic, await _found(node, topic, partition)))

    @router.get("/{partition}/offset")
    async def v3_read_offsets(
        cluster: str, topic: TopicName, partition: int, request: Request
    ) -> Response:
        """Where a partition begins and ends."""
        links = await links_for(node, request)
        await _found(node, topic, partition)
        place = TopicPartition(topic, partition)
        earliest = await node.run(start_offsets([place]))
        latest = await node.run(end_offsets([place], isolation=Isolation.READ_COMMITTED))
        path = ("topics", topic, "partitions", partition, "offset")
        fields = {
            "topic_name": topic,
            "partition_id": partition,
            "earliest_offset": earliest[place],
            "latest_offset": latest[place],
        }
        return json_response(links.resource("KafkaPartitionOffset", path, None, **fields))

    return router


async def _found(node: GatewayNode, topic: str, partition: int) -> Any:
    (found,) = await node.run(describe_topics([topic]))
    for row in found.partitions:
        if row.partition == partition:
            return row
    message = f"topic {topic} has no partition {partition}"
    raise not_found("unknown_topic_or_partition", message)


def _partition(links: Links, topic: str, row: Any) -> dict[str, Any]:
    path = ("topics", topic, "partitions", row.partition)
    leader = None if row.leader < 0 else links.related(*path, "replicas", row.leader)
    return links.resource(
        "KafkaPartition",
        path,
        links.name(("topic", topic), ("partition", row.partition)),
        topic_name=topic,
        partition_id=row.partition,
        leader=leader,
        replicas=links.related(*path, "replicas"),
        reassignment=links.related(*path, "reassignment"),
    )


def configs(node: GatewayNode) -> APIRouter:
    """`/topics/{topic}/configs`."""
    router = APIRouter(tags=["REST v3"], prefix="/v3/clusters/{cluster}/topics")
    bytes_max = node.settings.body_bytes_max

    @router.get("/{topic}/configs")
    async def v3_list_configs(cluster: str, topic: TopicName, request: Request) -> Response:
        """The settings of a topic; `-` is all topics."""
        links = await links_for(node, request)
        names = [topic]
        if topic == "-":
            names = [row.name for row in await node.run(describe_topics())]
        found = await node.run(describe_configs(names)) if names else {}
        rows = [_config(links, name, row) for name in names for row in sorted(found[name])]
        path = ("topics", topic, "configs")
        return json_response(links.listing("KafkaTopicConfigList", path, rows))

    @router.get("/{topic}/configs/{name}")
    async def v3_read_config(
        cluster: str, topic: TopicName, name: str, request: Request
    ) -> Response:
        """One setting of a topic."""
        links = await links_for(node, request)
        for row in (await node.run(describe_configs([topic])))[topic]:
            if row.name == name:
                return json_response(_config(links, topic, row))
        raise _unknown_config(name)

    @router.put("/{topic}/configs/{name}", status_code=204, openapi_extra=described_body(ValueBody))
    async def v3_set_config(
        cluster: str, topic: TopicName, name: str, request: Request
    ) -> Response:
        """Set a setting."""
        body = await read_document(request, ValueBody, bytes_max)
        return await _alter(node, topic, {name: body.value})

    @router.delete("/{topic}/configs/{name}", status_code=204)
    async def v3_reset_config(cluster: str, topic: TopicName, name: str) -> Response:
        """Return a setting to its default."""
        return await _alter(node, topic, {name: None})

    @router.post("/{topic}/configs:alter", status_code=204, openapi_extra=described_body(AlterBody))
    async def v3_alter_configs(cluster: str, topic: TopicName, request: Request) -> Response:
        """Change several settings."""
        body = await read_document(request, AlterBody, bytes_max)
        changes = {row.name: _new_value(row) for row in body.data}
        return await _alter(node, topic, changes, validate_only=body.validate_only)

    return router


def _new_value(row: AlterRow) -> str | None:
    if row.operation == "DELETE":
        return None
    if row.value is None:
        raise bad_request(f"{row.name}: SET needs a value")
    return row.value


async def _alter(
    node: GatewayNode, topic: str, changes: dict[str, str | None], *, validate_only: bool = False
) -> Response:
    await node.run(describe_topics([topic]))
    await node.run(alter_configs(topic, changes, validate_only=validate_only))
    return Response(status_code=204)


def _unknown_config(name: str) -> GatewayError:
    return not_found("unknown_config", f"there is no config {name!r}")


def _config(links: Links, topic: str, row: DescribedConfig) -> dict[str, Any]:
    synonyms = [
        {"name": each.name, "value": each.value, "source": _source(each.source)}
        for each in row.synonyms
    ]
    return links.resource(
        "KafkaTopicConfig",
        ("topics", topic, "configs", row.name),
        links.name(("topic", topic), ("config", row.name)),
        topic_name=topic,
        name=row.name,
        value=row.value,
        is_default=row.config_source == _DEFAULT,
        is_read_only=row.read_only,
        is_sensitive=row.is_sensitive,
        source=_source(row.config_source),
        synonyms=synonyms,
    )


def _source(number: int) -> str:
    return _SOURCES.get(number, "UNKNOWN")
