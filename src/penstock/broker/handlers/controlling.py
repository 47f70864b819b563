"""How an administrative handler reaches the controller, and answers when it has decided."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from kio.static.protocol import Entity

from penstock.broker.cluster import ClusterController
from penstock.broker.handler import Answer, Context
from penstock.broker.handlers.gathering import when_decided
from penstock.errors import ErrorCode, Refused
from penstock.protocol.messages import fill, response_type


def controller_of(context: Context) -> ClusterController:
    """The controller behind this broker."""
    cluster = context.broker.cluster
    assert isinstance(cluster, ClusterController)
    return cluster


def respond(context: Context, **fields: Any) -> Entity:
    """The response to this request, in its version; what the version lacks is left out."""
    entity: Entity = fill(response_type(context.api_key, context.api_version), **fields)
    return entity


def when_controller_decided(
    decided: asyncio.Future[Any],
    answer: Callable[[Any], Entity],
    refuse: Callable[[Refused], Entity],
) -> Answer:
    """The response made of what the controller decides."""
    return when_decided(decided, answer, lambda refusal: refuse(_of_controller(refusal)))


def _of_controller(refusal: Refused) -> Refused:
    """A machine that cannot be asked now speaks of a coordinator; this one is the controller."""
    if refusal.code in (ErrorCode.coordinator_not_available, ErrorCode.not_coordinator):
        return Refused(ErrorCode.not_controller, refusal.message)
    return refusal


def error_fields(result: object) -> dict[str, Any]:
    """The two fields that say what became of one thing of several."""
    if isinstance(result, Refused):
        return {"error_code": result.code, "error_message": result.message}
    return {"error_code": ErrorCode.none, "error_message": None}
