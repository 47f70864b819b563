"""Responses made of what machines reply: one response when all have replied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kio.static.protocol import Entity

from penstock.broker.handler import Answer, Answered, Context
from penstock.broker.metadata_image import ClusterController
from penstock.errors import ErrorCode, Refused
from penstock.machine import Deferred
from penstock.protocol.kio_codec import fill, response_type


def when_all(replies: Sequence[object], respond_with: Callable[[list[Any]], Answered]) -> Answer:
    """The response made of all replies, in order; a refusal is a reply like any other."""
    results = list(replies)
    missing = [index for index, reply in enumerate(results) if isinstance(reply, Deferred)]
    if not missing:
        return respond_with(results)
    left = len(missing)

    def cancel() -> None:
        for index in missing:
            reply = replies[index]
            assert isinstance(reply, Deferred)
            reply.cancel()

    response: Deferred[Answered] = Deferred(cancel)

    def on_reply(index: int, result: object) -> None:
        nonlocal left
        results[index] = result
        left -= 1
        if left == 0:
            response.resolve(_outcome(respond_with, results))

    for index in missing:
        reply = replies[index]
        assert isinstance(reply, Deferred)
        reply.listen(partial(on_reply, index))
    return response


def when_decided(
    reply: object,
    respond_with: Callable[[Any], Answered],
    refuse: Callable[[Refused], Answered] | None = None,
) -> Answer:
    """The response made of one reply; of a refusal too, unless `refuse` makes that one."""
    if isinstance(reply, Deferred):
        return when_all((reply,), lambda results: _respond(results[0], respond_with, refuse))
    return _respond(reply, respond_with, refuse)  # as most, without other replicas to wait for


def _respond(
    reply: Any,
    respond_with: Callable[[Any], Answered],
    refuse: Callable[[Refused], Answered] | None,
) -> Answered:
    return refuse(reply) if refuse and isinstance(reply, Refused) else respond_with(reply)


def _outcome(
    respond_with: Callable[[list[Any]], Answered], results: list[Any]
) -> Answered | Exception:
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, Refused):
            return result
    try:
        return respond_with(results)
    except Exception as error:  # noqa: BLE001 - the connection logs it and ends
        return error


# The controller.


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
    reply: object,
    respond_with: Callable[[Any], Entity],
    refuse: Callable[[Refused], Entity],
) -> Answer:
    """The response made of what the controller decides."""
    return when_decided(reply, respond_with, lambda refusal: refuse(_of_controller(refusal)))


def _of_controller(refusal: Refused) -> Refused:
    """A machine that is not available says so of a coordinator; this one is the controller."""
    if refusal.code in (ErrorCode.coordinator_not_available, ErrorCode.not_coordinator):
        return Refused(ErrorCode.not_controller, refusal.message)
    return refusal


def error_fields(result: object) -> dict[str, Any]:
    """The two fields with the outcome of one of several things."""
    if isinstance(result, Refused):
        return {"error_code": result.code, "error_message": result.message}
    return {"error_code": ErrorCode.none, "error_message": None}
