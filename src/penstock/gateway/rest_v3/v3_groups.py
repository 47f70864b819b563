"""Consumer groups, their members and their lag."""

from typing import Any, NamedTuple

from fastapi import APIRouter, Request, Response

from penstock.gateway.errors import GatewayError, not_found
from penstock.gateway.gateway_node import GatewayNode
from penstock.gateway.request_bodies import GroupName, TopicName
from penstock.gateway.rest_v3.shapes import Links, json_response
from penstock.gateway.rest_v3.v3_topics import links_for
from penstock.link.group_admin import (
    GroupDescription,
    GroupMemberDescription,
    describe_group,
    list_groups,
)
from penstock.link.offsets import Isolation, committed_offsets, end_offsets
from penstock.model import Offset, TopicPartition

_NO_MEMBER = GroupMemberDescription("", None, "", ())


class V3Lag(NamedTuple):
    """How far one partition of a group is behind."""

    partition: TopicPartition
    offset: Offset
    end_offset: Offset
    member: GroupMemberDescription

    @property
    def lag(self) -> int:
        return max(0, self.end_offset - self.offset)


def consumer_groups(node: GatewayNode) -> APIRouter:
    """`/consumer-groups` and their members."""
    router = APIRouter(tags=["REST v3"], prefix="/v3/clusters/{cluster}/consumer-groups")

    @router.get("")
    async def v3_list_groups(cluster: str, request: Request) -> Response:
        """All consumer groups."""
        links = await links_for(node, request)
        kinds = await node.run(list_groups())
        rows = [
            _group(node, links, await node.run(describe_group(name, kind)))
            for name, kind in kinds.items()
        ]
        return json_response(links.listing("KafkaConsumerGroupList", ("consumer-groups",), rows))

    @router.get("/{group}")
    async def v3_read_group(cluster: str, group: GroupName, request: Request) -> Response:
        """One group."""
        links = await links_for(node, request)
        return json_response(_group(node, links, await _described(node, group)))

    @router.get("/{group}/consumers")
    async def v3_list_consumers(cluster: str, group: GroupName, request: Request) -> Response:
        """The members of a group."""
        links = await links_for(node, request)
        found = await _described(node, group)
        rows = [_consumer(links, group, member) for member in found.members]
        path = ("consumer-groups", group, "consumers")
        return json_response(links.listing("KafkaConsumerList", path, rows))

    @router.get("/{group}/consumers/{consumer}")
    async def v3_read_consumer(
        cluster: str, group: GroupName, consumer: str, request: Request
    ) -> Response:
        """One member."""
        links = await links_for(node, request)
        for member in (await _described(node, group)).members:
            if member.member_id == consumer:
                return json_response(_consumer(links, group, member))
        raise not_found("unknown_consumer", f"group {group} has no consumer {consumer}")

    return router


def lags(node: GatewayNode) -> APIRouter:
    """`/consumer-groups/{group}/lags` and `/lag-summary`."""
    router = APIRouter(tags=["REST v3"], prefix="/v3/clusters/{cluster}/consumer-groups/{group}")

    @router.get("/lags")
    async def v3_list_lags(cluster: str, group: GroupName, request: Request) -> Response:
        """The lag of every partition."""
        links = await links_for(node, request)
        rows = [_lag(links, group, row) for row in await _lags(node, group)]
        path = ("consumer-groups", group, "lags")
        return json_response(links.listing("KafkaConsumerLagList", path, rows))

    @router.get("/lags/{topic}/partitions/{partition}")
    async def v3_read_lag(
        cluster: str, group: GroupName, topic: TopicName, partition: int, request: Request
    ) -> Response:
        """The lag of one partition."""
        links = await links_for(node, request)
        for row in await _lags(node, group):
            if row.partition == TopicPartition(topic, partition):
                return json_response(_lag(links, group, row))
        raise _no_commits(group)

    @router.get("/lag-summary")
    async def v3_summarize_lag(cluster: str, group: GroupName, request: Request) -> Response:
        """The largest and the total lag."""
        links = await links_for(node, request)
        rows = await _lags(node, group)
        if not rows:
            raise _no_commits(group)
        return json_response(_summary(links, group, rows))

    return router


async def _described(node: GatewayNode, group: str) -> GroupDescription:
    kinds = await node.run(list_groups())
    if group not in kinds:
        raise not_found("unknown_group", f"there is no consumer group {group!r}")
    return await node.run(describe_group(group, kinds[group]))


async def _lags(node: GatewayNode, group: str) -> list[V3Lag]:
    found = await _described(node, group)
    committed = await node.run(committed_offsets(group))
    if not committed:
        return []
    ends = await node.run(end_offsets(committed, isolation=Isolation.READ_COMMITTED))
    owners = {partition: member for member in found.members for partition in member.assignment}
    return [
        V3Lag(partition, row.offset, ends[partition], owners.get(partition, _NO_MEMBER))
        for partition, row in sorted(committed.items())
    ]


def _no_commits(group: str) -> GatewayError:
    return not_found("no_commits", f"group {group!r} has committed no such offset")


def _group(node: GatewayNode, links: Links, found: GroupDescription) -> dict[str, Any]:
    path = ("consumer-groups", found.group)
    brokers = node.cluster.routes.brokers
    coordinator = next((id_ for id_, each in brokers.items() if each == found.coordinator), -1)
    return links.resource(
        "KafkaConsumerGroup",
        path,
        links.name(("consumer-group", found.group)),
        consumer_group_id=found.group,
        is_simple=not found.members and not found.assignor,
        partition_assignor=found.assignor,
        state=found.state.upper(),
        type=found.kind.upper(),
        is_mixed_consumer_group=False,
        coordinator=links.related("brokers", coordinator),
        consumers=links.related(*path, "consumers"),
        lag_summary=links.related(*path, "lag-summary"),
    )


def _consumer(links: Links, group: str, member: GroupMemberDescription) -> dict[str, Any]:
    path = ("consumer-groups", group, "consumers", member.member_id)
    name = links.name(("consumer-group", group), ("consumer", member.member_id))
    return links.resource(
        "KafkaConsumer",
        path,
        name,
        consumer_group_id=group,
        consumer_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        assignments=links.related(*path, "assignments"),
    )


def _lag(links: Links, group: str, row: V3Lag) -> dict[str, Any]:
    topic, index = row.partition
    name = links.name(("consumer-group", group), ("lag", topic), ("partition", index))
    return links.resource(
        "KafkaConsumerLag",
        ("consumer-groups", group, "lags", topic, "partitions", index),
        name,
        consumer_group_id=group,
        topic_name=topic,
        partition_id=index,
        current_offset=row.offset,
        log_end_offset=row.end_offset,
        lag=row.lag,
        consumer_id=row.member.member_id,
        instance_id=row.member.instance_id or "",
        client_id=row.member.client_id,
    )


def _summary(links: Links, group: str, rows: list[V3Lag]) -> dict[str, Any]:
    worst = max(rows, key=lambda row: row.lag)
    topic, index = worst.partition
    path = ("consumer-groups", group)
    return links.resource(
        "KafkaConsumerGroupLagSummary",
        (*path, "lag-summary"),
        links.name(("consumer-group", group), ("lag-summary", "")),
        consumer_group_id=group,
        max_lag=worst.lag,
        total_lag=sum(row.lag for row in rows),
        max_lag_topic_name=topic,
        max_lag_partition_id=index,
        max_lag_consumer_id=worst.member.member_id,
        max_lag_instance_id=worst.member.instance_id or "",
        max_lag_client_id=worst.member.client_id,
        max_lag_consumer=links.related(*path, "consumers", worst.member.member_id),
        max_lag_partition=links.related("topics", topic, "partitions", index),
    )
