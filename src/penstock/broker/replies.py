"""Responses made of what machines reply: one response when all have replied."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import ErrorCode, Refused
from penstock.machine import Deferred

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.broker.handler import Answer, Context

ResponseT = TypeVar("ResponseT")


def when_all(
    replies: Sequence[object], respond: Callable[[list[Any]], ResponseT]
) -> Answer[ResponseT]:
    """The response made of all replies, in order; a refusal is a reply like any other."""
    results = list(replies)
    missing = [index for index, reply in enumerate(results) if isinstance(reply, Deferred)]
    if not missing:
        return respond(results)
    left = len(missing)

    def cancel() -> None:
        for index in missing:
            reply = replies[index]
            assert isinstance(reply, Deferred)
            reply.cancel()

    response: Deferred[ResponseT] = Deferred(cancel)

    def on_reply(index: int, result: object) -> None:
        nonlocal left
        results[index] = result
        left -= 1
        if left == 0:
            response.resolve(_outcome(respond, results))

    for index in missing:
        reply = replies[index]
        assert isinstance(reply, Deferred)
        reply.listen(partial(on_reply, index))
    return response


def when_replied(reply: object, respond: Callable[[Any], ResponseT]) -> Answer[ResponseT]:
    """The response made of one reply, which may be a refusal."""
    if isinstance(reply, Deferred):
        return when_all((reply,), lambda results: respond(results[0]))
    return respond(reply)  # as most: nothing to wait for without other replicas


def when_decided(
    context: Context, request: object, reply: object, respond: Callable[[Any], ResponseT]
) -> Answer[ResponseT]:
    """The response made of one reply; a refusal refuses the whole request."""

    def respond_or_refuse(result: Any) -> ResponseT:
        if not isinstance(result, Refused):
            return respond(result)
        refused: ResponseT = context.message.refuse(request, result)
        return refused

    return when_replied(reply, respond_or_refuse)


def _outcome(
    respond: Callable[[list[Any]], ResponseT], results: list[Any]
) -> ResponseT | Exception:
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, Refused):
            return result
    try:
        return respond(results)
    except Exception as error:  # noqa: BLE001 - the connection logs it and ends
        return error


# The controller.


def when_controller_decided(
    context: Context, request: object, reply: object, respond: Callable[[Any], ResponseT]
) -> Answer[ResponseT]:
    """The response made of what the controller decides; a refusal refuses the whole request."""

    def respond_or_refuse(result: Any) -> ResponseT:
        if not isinstance(result, Refused):
            return respond(result)
        refused: ResponseT = context.message.refuse(request, controller_refusal(result))
        return refused

    return when_replied(reply, respond_or_refuse)


def controller_refusal(refusal: Refused) -> Refused:
    """An unavailable machine names itself a coordinator; this one is the controller."""
    if refusal.code in (ErrorCode.coordinator_not_available, ErrorCode.not_coordinator):
        return Refused(ErrorCode.not_controller, refusal.message)
    return refusal


def error_of(result: object) -> tuple[ErrorCode, str | None]:
    """Error code and message of one of several results."""
    if isinstance(result, Refused):
        return result.code, result.message
    return ErrorCode.none, None


def code_of(result: object) -> ErrorCode:
    """The error code of one of several results."""
    return result.code if isinstance(result, Refused) else ErrorCode.none
