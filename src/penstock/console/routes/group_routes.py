"""`/console/api/groups`: consumer groups with members, lag in records and seconds, and history."""

from typing import Any, Final

from fastapi import APIRouter, Request, Response

from penstock.console.console_node import ConsoleNode
from penstock.console.samples.cluster_survey import ClusterSurvey
from penstock.console.table_responses import TableBody, TableCache, table_response, write_table
from penstock.gateway.errors import not_found
from penstock.gateway.json_responses import json_response
from penstock.gateway.request_bodies import GroupName
from penstock.link.group_admin import GroupDescription, describe_group, list_groups
from penstock.link.offsets import Isolation, committed_offsets, end_offsets
from penstock.model import Millis, Offset, TopicPartition
from penstock.monitor.group_lag import GroupPartitionLag

COLUMNS: Final = ("group", "state", "protocol", "members", "topics", "lag", "lag_seconds")


def group_routes(node: ConsoleNode) -> APIRouter:
    """Consumer groups."""
    router = APIRouter(tags=["console"])
    table = TableCache()

    @router.get("/console/api/groups")
    async def list_all_groups(request: Request) -> Response:
        """All consumer groups, as of the last sample; lag is null until it was computed."""
        sample = await node.sampler.sample()
        version = (node.sampler.number, node.lag.updated_at)
        body = await node.sampler.in_thread(
            lambda: table.body(version, lambda: _groups_table(node, sample))
        )
        return table_response(body, request)

    @router.get("/console/api/groups/{group}")
    async def read_group(group: GroupName) -> Response:
        """A group: its members, what they read, how far behind, and the last hour of lag."""
        gateway = node.gateway
        kinds = await gateway.run(list_groups())
        if group not in kinds:
            raise not_found("group_id_not_found", f"there is no consumer group {group!r}")
        description = await gateway.run(describe_group(group, kinds[group]))
        committed = await gateway.run(committed_offsets(group, require_stable=False))
        assigned = {place for row in description.members for place in row.assignment}
        places = sorted(committed.keys() | assigned)
        ends = await gateway.run(end_offsets(places, isolation=Isolation.READ_COMMITTED))
        offsets = {place: row.offset for place, row in committed.items()}
        return json_response(_group_document(node, description, places, offsets, ends))

    return router


def _groups_table(node: ConsoleNode, sample: ClusterSurvey) -> TableBody:
    lags, now = node.lag_of_groups(), node.clock()
    topics: dict[str, int] = {}
    for group, _ in node.lag.by_group_and_topic:
        topics[group] = topics.get(group, 0) + 1
    rows = []
    for row in sample.groups or ():
        lag = lags.get(row.group)
        rows.append(
            (
                row.group,
                row.state,
                row.kind,
                row.members,
                topics.get(row.group, 0),
                None if lag is None else str(lag.records),
                None if lag is None else round(lag.seconds(now), 1),
            )
        )
    return write_table(COLUMNS, rows)


def _group_document(
    node: ConsoleNode,
    group: GroupDescription,
    places: list[TopicPartition],
    committed: dict[TopicPartition, Offset],
    ends: dict[TopicPartition, Offset],
) -> dict[str, Any]:
    owners = {place: row.member_id for row in group.members for place in row.assignment}
    known = node.lag.by_group.get(group.group, {})
    now = node.clock()
    offsets = []
    for place in places:
        offset = committed.get(place)
        lag = None if offset is None else max(0, ends[place] - offset)
        offsets.append(
            {
                "topic": place.topic,
                "partition": place.partition,
                "committed": None if offset is None else str(offset),
                "latest": str(ends[place]),
                "lag": None if lag is None else str(lag),
                "lag_seconds": _seconds(known.get(place), lag, now),
                "member": owners.get(place),
            }
        )
    return {
        "group": group.group,
        "state": group.state,
        "protocol": group.kind,
        "assignor": group.assignor,
        "coordinator": str(group.coordinator),
        "members": [
            {
                "member": row.member_id,
                "instance": row.instance_id,
                "client_id": row.client_id,
                "host": row.host,
                "assignment": [place._asdict() for place in sorted(row.assignment)],
            }
            for row in group.members
        ],
        "offsets": offsets,
        "history": [
            {"time": str(row.at), "lag": str(row.records), "lag_seconds": round(row.seconds, 1)}
            for row in node.lag_history.of(group.group)
        ],
    }


def _seconds(known: GroupPartitionLag | None, lag: int | None, now: Millis) -> float | None:
    """The age of the oldest unread record as of the last round; None before the first."""
    if lag == 0:
        return 0.0
    return None if known is None or lag is None else round(known.lag.seconds(now), 1)
