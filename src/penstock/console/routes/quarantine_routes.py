"""`/quarantine`: events that a consumer could not read, by reason, and sending them back."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query, Request, Response

from penstock.client.event import RecordReader
from penstock.client.quarantine import SUFFIX
from penstock.client.quarantined_events import QuarantinedEvent
from penstock.console.console_node import ConsoleNode
from penstock.console.record_view import RecordView
from penstock.gateway.errors import GatewayError, bad_request, not_found
from penstock.gateway.json_responses import json_response
from penstock.gateway.request_bodies import TopicName, described_body, read_document
from penstock.link.settings import librdkafka_settings
from penstock.model import TopicPartition
from penstock.protocol.records import Record
from penstock.serde.errors import ClientError, Reason

if TYPE_CHECKING:
    from penstock.client.redrive import RedriveResult

PAGE_EVENTS: Final = 100
BODY_BYTES_MAX: Final = 64 << 10
DryRun = Annotated[bool, Query(description="Count what would be sent, and send nothing.")]


class RedriveBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which events are sent back, and where to. `id`: for progress over the live socket."""

    group: str | None = None
    to: str | None = None
    reason: Reason | None = None
    include_superseded: bool = False
    id: Annotated[str, msgspec.Meta(max_length=200)] | None = None


def quarantine_routes(node: ConsoleNode) -> APIRouter:
    """Events in quarantine."""
    router = APIRouter(tags=["quarantine"])

    @router.get("/quarantine")
    async def count_quarantined() -> Response:
        """Topics that have a quarantine topic, and what is in it by reason."""
        counts = await node.quarantine.counts(await node.sampler.sample())
        rows = [
            {
                "topic": topic,
                "quarantine_topic": f"{topic}{SUFFIX}",
                "total": sum(row.reasons.values()),
                "reasons": [
                    {"reason": reason, "count": count}
                    for reason, count in sorted(row.reasons.items())
                ],
                "complete": row.is_complete,
            }
            for topic, row in counts.items()
        ]
        return json_response({"topics": rows})

    @router.get("/quarantine/{topic}")
    async def list_events(
        topic: TopicName,
        reason: Annotated[Reason | None, Query()] = None,
        cursor: Annotated[int, Query(ge=0)] = 0,
        redriven: Annotated[bool, Query(description="Include what was sent back.")] = False,
    ) -> Response:
        """The events in a topic's quarantine, the newest first."""
        contents = await node.quarantine.read(topic)
        events = [
            event
            for event in reversed(contents.events)
            if (redriven or not event.is_redriven)
            and (reason is None or event.record.failure.reason is reason)
        ]
        end = cursor + PAGE_EVENTS
        page = events[cursor:end]
        rows = await node.gateway.in_thread(lambda: [_event(node, event) for event in page])
        following = str(end) if end < len(events) else None
        return json_response({"events": rows, "cursor": following, "total": len(events)})

    return router


def redrive_routes(node: ConsoleNode) -> APIRouter:
    """Sending events back."""
    router = APIRouter(tags=["quarantine"])
    running: set[str] = set()  # topics: a second run would fence the first

    @router.post(
        "/quarantine/{topic}/redrive",
        openapi_extra=described_body(RedriveBody, of_one_reason={"reason": "unknown_schema"}),
    )
    async def send_back(topic: TopicName, request: Request, dry_run: DryRun = False) -> Response:
        """Send back the events that can be read now, each once, as `penstock quarantine redrive`.

        `newer_key`: left out, because the topic has a newer value of the key.
        """
        body = await read_document(request, RedriveBody, BODY_BYTES_MAX)
        if body.to is not None and (body.to.endswith(SUFFIX) or not body.to):
            raise bad_request("to must be a topic that is no quarantine topic")
        if not dry_run:
            if topic in running:
                raise GatewayError(409, "redrive_running", f"{topic} is being redriven already")
            running.add(topic)
        try:
            result = await _run(node, topic, body, dry_run)
        finally:
            if not dry_run:
                running.discard(topic)
        return json_response(
            {
                "would_send" if dry_run else "sent": len(result.sent),
                "newer_key": len(result.superseded),
                "already_sent": result.already_sent,
                "unreadable": len(result.unreadable),
                "errors": [error for _, error in result.unreadable[:10]],
            }
        )

    return router


async def _run(node: ConsoleNode, topic: str, body: RedriveBody, dry_run: bool) -> "RedriveResult":
    from penstock.client.redrive import RedriveSelection, UnknownTopicError, redrive  # heavy

    report = _reporter(node, body.id)
    gateway = node.gateway
    reader = RecordReader(
        gateway.schemas, value=None, key=None, framed_keys=False, as_dicts=True, plain_indexes=False
    )
    selection = RedriveSelection(body.reason, body.group, body.to, body.include_superseded)
    settings = librdkafka_settings(gateway.settings.kafka)

    def work() -> "RedriveResult":
        return redrive(
            gateway.bootstrap, topic, reader, selection,
            dry_run=dry_run, settings=settings, on_progress=lambda *row: report("running", *row),
        )  # fmt: skip

    try:
        result = await gateway.in_thread(work)
    except UnknownTopicError as error:
        raise not_found("unknown_topic_or_partition", str(error)) from None
    except ClientError:
        report("failed", 0, 0)
        raise
    report("done", len(result.sent), len(result.sent))
    return result


def _reporter(node: ConsoleNode, redrive_id: str | None) -> Callable[[str, int, int], None]:
    """Progress to the pages that wait for it; may be called in a thread."""
    loop = asyncio.get_running_loop()

    def report(state: str, sent: int, total: int) -> None:
        if redrive_id is not None:
            message = {
                "type": "redrive", "id": redrive_id, "sent": sent, "total": total, "state": state,
            }  # fmt: skip
            loop.call_soon_threadsafe(node.live.publish_redrive, redrive_id, message)

    return report


def _event(node: ConsoleNode, event: QuarantinedEvent) -> dict[str, Any]:
    origin, failure = event.record
    place = TopicPartition(origin.topic, origin.partition)
    record = Record(
        origin.offset, origin.timestamp, origin.key, origin.value, tuple(origin.headers)
    )
    shown = RecordView(node.decoder, place, record).document()
    return {
        "position": {"partition": event.position.partition, "offset": str(event.position.offset)},
        "origin": {
            "topic": origin.topic,
            "partition": origin.partition,
            "offset": str(origin.offset),
            "timestamp": str(origin.timestamp),
        },
        "reason": str(failure.reason),
        "message": failure.detail,
        "side": str(failure.side),
        "schema": failure.schema,
        "group": failure.client,
        "at": str(failure.at),
        "attempts": failure.attempts,
        "redriven": event.is_redriven,
        "key": shown["key"],
        "value": shown["value"],
        "headers": shown["headers"],
    }
