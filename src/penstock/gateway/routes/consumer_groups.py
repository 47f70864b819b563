"""`/consumer-groups`: members, their events, committed offsets, lag."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

import msgspec
from fastapi import APIRouter, Query, Request, Response

from penstock.gateway.errors import bad_request
from penstock.gateway.gateway_node import GatewayNode
from penstock.gateway.groups.commit_rules import RequestedCommit
from penstock.gateway.groups.group_offsets import GroupOffsets, ResetTo, offset_document
from penstock.gateway.groups.group_subscription import (
    SESSION_MS_MAX,
    GroupSubscription,
    UnreadablePolicy,
)
from penstock.gateway.groups.living_members import Members, new_name
from penstock.gateway.groups.polled_member import PolledMember, PolledSubscription
from penstock.gateway.groups.topic_pattern import TopicPattern
from penstock.gateway.json_responses import events_document, json_response
from penstock.gateway.request_bodies import (
    GroupName,
    MemberName,
    described_body,
    described_response,
    read_document,
)
from penstock.gateway.routes.fetching import BYTES_DEFAULT
from penstock.model import Offset, TopicPartition

_DIGITS_MAX: Final = 19
JOIN_S: Final = 10.0  # how long subscribe waits for the assignment
_MEMBER: Final = {
    "group": "billing",
    "member": "worker-1",
    "assignment": [{"topic": "orders", "partition": 0, "position": 7}],
}


class SubscribeBody(msgspec.Struct, forbid_unknown_fields=True):
    """What to read. A member that is named keeps its partitions over a restart of the client."""

    topics: Annotated[list[str], msgspec.Meta(min_length=1, max_length=1000)] | None = None
    pattern: Annotated[str, msgspec.Meta(max_length=1000)] | None = None
    member: Annotated[str, msgspec.Meta(min_length=1, max_length=249)] | None = None
    session_timeout_ms: Annotated[int, msgspec.Meta(ge=500, le=SESSION_MS_MAX)] = 45_000
    auto_offset_reset: Literal["earliest", "latest"] = "earliest"
    on_decode_error: UnreadablePolicy = UnreadablePolicy.QUARANTINE


class OffsetBody(msgspec.Struct, forbid_unknown_fields=True):
    """An offset to commit: the next one to read."""

    topic: str
    partition: Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]
    offset: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
    expected_version: int | None = None


ResetTarget = Literal["earliest", "latest"] | dict[str, str | int]


class CommitBody(msgspec.Struct, forbid_unknown_fields=True):
    """Offsets to commit, all or none: by number, or where a topic is to be read from.

    `to` is earliest, latest, {"time": ms} or {"shift": records}.
    """

    offsets: Annotated[list[OffsetBody], msgspec.Meta(min_length=1, max_length=10_000)] = []
    member: str | None = None
    topic: str | None = None
    partitions: Annotated[list[int], msgspec.Meta(min_length=1, max_length=10_000)] | None = None
    to: ResetTarget | None = None


def membership(node: GatewayNode, members: Members) -> APIRouter:
    """Members and their events."""
    router = APIRouter(tags=["consumer groups"])

    @router.post(
        "/consumer-groups/{group}/subscribe",
        status_code=201,
        openapi_extra=described_body(
            SubscribeBody,
            two_topics={"topics": ["orders", "payments"]},
            a_named_member={"topics": ["orders"], "member": "worker-1"},
            a_pattern={"pattern": "orders-.*", "auto_offset_reset": "latest"},
        ),
        responses=described_response(_MEMBER, "The member and its partitions.", 201),
    )
    async def subscribe(group: GroupName, request: Request) -> Response:
        """Join a group. Kafka clients and HTTP members can share one.

        `assignment` is null if the group is still rebalancing: the first read waits for it.
        """
        body = await read_document(request, SubscribeBody, node.settings.body_bytes_max)
        member = await members.join(_subscription(group, body))
        name = member.subscription.name
        async with members.using(group, name):
            await member.assignment(JOIN_S)
        location = f"/consumer-groups/{quote(group, safe='')}/members/{quote(name, safe='')}"
        return json_response(_document(member), 201, {"Location": location})

    @router.get(
        "/consumer-groups/{group}/members/{member}",
        responses=described_response(_MEMBER, "The member and its partitions."),
    )
    async def read_member(group: GroupName, member: MemberName) -> Response:
        """A member: its partitions, and where it reads next in each."""
        async with members.using(group, member) as known:
            return json_response(_document(known))

    @router.delete("/consumer-groups/{group}/members/{member}", status_code=204)
    async def remove_member(group: GroupName, member: MemberName) -> Response:
        """Leave the group at once, so that others get the partitions."""
        await members.remove(group, member)
        return Response(status_code=204)

    return router


def member_events(node: GatewayNode, members: Members) -> APIRouter:
    """The events of members."""
    router = APIRouter(tags=["consumer groups"])

    @router.get("/consumer-groups/{group}/members/{member}/events")
    async def read_events(
        group: GroupName,
        member: MemberName,
        max_bytes: Annotated[int, Query(ge=1)] = BYTES_DEFAULT,
        max_wait_ms: Annotated[int, Query(ge=0)] = 0,
    ) -> Response:
        """The next events of the member's partitions; at least one if there is one.

        Nothing is committed by reading: commit with PUT /consumer-groups/{group}/offsets.
        """
        settings = node.settings
        async with members.using(group, member) as known:
            events = await known.events(
                min(max_bytes, settings.fetch_bytes_max), min(max_wait_ms, settings.wait_ms_max)
            )
            return json_response({"events": events_document(events)})

    return router


def offsets(node: GatewayNode, groups: GroupOffsets) -> APIRouter:
    """Committed offsets and lag."""
    router = APIRouter(tags=["consumer groups"])

    @router.get("/consumer-groups/{group}/offsets")
    async def read_offsets(group: GroupName) -> Response:
        """What the group has committed, with versions; 0: not committed over HTTP."""
        committed = await groups.read(group)
        rows = [offset_document(*row) for row in sorted(committed.items())]
        return json_response({"offsets": rows})

    @router.put(
        "/consumer-groups/{group}/offsets",
        openapi_extra=described_body(
            CommitBody,
            of_a_member={
                "member": "worker-1",
                "offsets": [{"topic": "orders", "partition": 0, "offset": 8}],
            },
            back_to_a_time={"topic": "orders", "to": {"time": "1700000000000"}},
            only_if_unchanged={
                "offsets": [
                    {"topic": "orders", "partition": 0, "offset": 8, "expected_version": 1}
                ],
            },
        ),
    )
    async def commit_offsets(
        group: GroupName,
        request: Request,
        reset: Annotated[bool, Query(description="Allow offsets to go back.")] = False,
        dry_run: Annotated[bool, Query(description="Check it, and commit nothing.")] = False,
    ) -> Response:
        """Commit offsets: all or none, and never backwards unless `reset`.

        409 lists every conflict with the current offset and version. A dry run has the same
        verdict, and the offsets before and after.
        """
        body = await read_document(request, CommitBody, node.settings.body_bytes_max)
        wanted = await _resolved(groups, group, body)
        if dry_run:
            plan = await groups.check(group, wanted, body.member, reset=reset)
            return json_response({"offsets": [row.document() for row in plan]})
        committed = await groups.commit(group, wanted, body.member, reset=reset)
        rows = [offset_document(*row) for row in sorted(committed.items())]
        return json_response({"offsets": rows})

    @router.get("/consumer-groups/{group}/lag")
    async def read_lag(group: GroupName) -> Response:
        """How far the group is behind in each partition, and in all."""
        rows = await groups.lag(group)
        return json_response({"lag": sum(row["lag"] for row in rows), "partitions": rows})

    return router


def _subscription(group: str, body: SubscribeBody) -> PolledSubscription:
    if (body.topics is None) == (body.pattern is None):
        raise bad_request("give topics or pattern, and not both")
    reads = GroupSubscription(
        group,
        tuple(dict.fromkeys(body.topics or ())),
        body.session_timeout_ms,
        is_latest=body.auto_offset_reset == "latest",
        pattern=None if body.pattern is None else TopicPattern(body.pattern),
        instance_id=body.member,
        on_unreadable=body.on_decode_error,
    )
    return PolledSubscription(body.member or new_name(), reads)


async def _resolved(
    groups: GroupOffsets, group: str, body: CommitBody
) -> Sequence[RequestedCommit]:
    if (body.to is None) != (body.topic is None) or (body.to is None) == (not body.offsets):
        raise bad_request("give offsets, or topic and to")
    if body.topic is None or body.to is None:
        return _wanted(body)
    targets = await groups.targets(group, body.topic, body.partitions, _read_target(body.to))
    if not targets:
        raise bad_request(f"group {group} has committed nothing of topic {body.topic}")
    return [RequestedCommit(partition, offset) for partition, offset in sorted(targets.items())]


def _read_target(to: str | dict[str, str | int]) -> ResetTo:
    if isinstance(to, str):
        return ResetTo(to)
    if len(to) == 1 and set(to) <= {"time", "shift"}:
        ((name, value),) = to.items()
        text = str(value)
        if text.lstrip("-").isdecimal() and text.isascii() and len(text) < _DIGITS_MAX:
            number = int(text)
            if name == "shift" or number >= 0:
                return ResetTo(name, number)
    raise bad_request('to is earliest, latest, {"time": ms} or {"shift": records}')


def _wanted(body: CommitBody) -> Sequence[RequestedCommit]:
    wanted = [
        RequestedCommit(
            TopicPartition(row.topic, row.partition), Offset(row.offset), row.expected_version
        )
        for row in body.offsets
    ]
    if len({row.partition for row in wanted}) < len(wanted):
        raise bad_request("a partition is named twice")
    return wanted


def _document(member: PolledMember) -> dict[str, Any]:
    subscription, positions = member.subscription, member.positions
    rows = [
        {"topic": partition.topic, "partition": partition.partition, "position": position}
        for partition, position in sorted((positions or {}).items())
    ]
    return {
        "group": subscription.reads.group,
        "member": subscription.name,
        "assignment": None if positions is None else rows,
        "session_timeout_ms": subscription.reads.session_ms,
    }
