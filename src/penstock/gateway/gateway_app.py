"""The gateway as an HTTP application: its routes, its errors, its limits."""

import logging
from collections.abc import MutableMapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from penstock.errors import Malformed, Refused
from penstock.gateway.errors import (
    GatewayError,
    as_gateway_error,
    bad_request,
    too_many,
    write_error,
)
from penstock.gateway.gateway_node import GatewayNode
from penstock.gateway.groups.group_offsets import GroupOffsets
from penstock.gateway.groups.living_members import Members
from penstock.gateway.json_responses import error_response
from penstock.gateway.produce.gateway_producer import GatewayProducer
from penstock.gateway.routes import consumer_groups, fetching, producing, topics
from penstock.http.body_types import JSON, METHODS_WITH_BODY, refused_type
from penstock.http.empty_app import empty_app
from penstock.http.site import App, HttpService, Receive, Scope, Send, refuse
from penstock.serde.errors import ClientError

logger: Final = logging.getLogger(__name__)

ROOTS: Final = frozenset((b"topics", b"consumer-groups", b"cluster"))
_BELOW: Final = (Refused, OSError, Malformed, ClientError)


def build(
    node: GatewayNode,
    producer: GatewayProducer,
    members: Members,
    group_offsets: GroupOffsets,
    routers: Sequence[APIRouter] = (),
) -> FastAPI:
    """The application; `routers` are those of other parts, such as streams."""
    app = empty_app()
    for router in (
        topics.describing(node),
        topics.changing(node),
        producing.producing(node, producer),
        fetching.fetching(node),
        consumer_groups.membership(node, members),
        consumer_groups.member_events(node, members),
        consumer_groups.offsets(node, group_offsets),
        *routers,
    ):
        app.include_router(router)
    add_error_handlers(app)
    return app


def add_error_handlers(app: FastAPI) -> None:
    """Respond to every failure in the gateway's own form."""

    @app.exception_handler(GatewayError)
    async def on_declined(_request: Request, error: GatewayError) -> Response:
        return error_response(error)

    for kind in _BELOW:
        app.exception_handler(kind)(_on_failure_below)

    @app.exception_handler(HTTPException)
    async def on_http_error(request: Request, error: HTTPException) -> Response:
        status = HTTPStatus(error.status_code)
        code = status.phrase.lower().replace(" ", "_")
        message = f"{status.phrase}: {request.method} {request.scope['path']}"
        headers = dict(error.headers or {})
        return error_response(GatewayError(status, code, message, headers=headers))

    @app.exception_handler(RequestValidationError)
    async def on_bad_option(_request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"][1:]))
        return error_response(bad_request(f"{where}: {first['msg']}"))

    @app.exception_handler(ClientDisconnect)
    async def on_disconnect(_request: Request, _error: ClientDisconnect) -> Response:
        return error_response(bad_request("the request is not complete"))

    @app.exception_handler(Exception)
    async def on_bug(_request: Request, error: Exception) -> Response:
        logger.error("a request failed", exc_info=error)
        return error_response(GatewayError(500, "internal", "Internal Server Error"))


async def _on_failure_below(_request: Request, error: Exception) -> Response:
    return error_response(as_gateway_error(error))


class GatewayFront:
    """In front of the application: checks the type of bodies, and how many requests there are.

    Requests that wait hold their place, so a client that polls in many connections cannot keep
    the process from serving others. Streams have a limit of their own.
    """

    def __init__(self, node: GatewayNode, app: App) -> None:
        self._node = node
        self._app = app
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI calls it."""
        path = scope["raw_path"].decode("latin-1").rstrip("/") or "/"
        scope = {**scope, "path": path}
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
            return
        service = gateway_service(self)
        if scope["method"] in METHODS_WITH_BODY:
            reason = refused_type(dict(scope["headers"]), (JSON,), JSON)
            if reason is not None:
                await refuse(send, service, 415, "unsupported_media_type", reason)
                return
        if path.endswith("/stream"):
            await self._app(scope, receive, send)
        elif self._running >= self._node.settings.requests_max:
            await _refuse_busy(self._node.settings.requests_max, scope, receive, send)
        else:
            self._running += 1
            try:
                await self._app(scope, receive, send)
            finally:
                self._running -= 1


async def _refuse_busy(requests_max: int, scope: Scope, _receive: Receive, send: Send) -> None:
    message = f"{requests_max} requests are being served; try again in a moment"
    response = error_response(too_many("too_many_requests", message))

    async def nothing() -> MutableMapping[str, Any]:
        return {"type": "http.disconnect"}

    await response(scope, nothing, send)


def gateway_service(front: App) -> HttpService:
    """The gateway among the services of a site."""
    return HttpService(front, ROOTS, write_error)
