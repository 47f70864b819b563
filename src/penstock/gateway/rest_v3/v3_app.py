"""Confluent's REST API v3 as an HTTP application, under `/v3` and `/kafka/v3`."""

import logging
from http import HTTPStatus
from typing import Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from penstock.errors import Malformed, Refused
from penstock.gateway.errors import GatewayError, as_gateway_error, bad_request
from penstock.gateway.gateway_node import GatewayNode
from penstock.gateway.produce.gateway_producer import GatewayProducer
from penstock.gateway.rest_v3 import v3_groups, v3_topics
from penstock.gateway.rest_v3.shapes import PREFIX, error_response, json_response, write_error
from penstock.gateway.rest_v3.v3_records import V3Producer, records
from penstock.http.body_types import JSON, METHODS_WITH_BODY, refused_type
from penstock.http.empty_app import empty_app
from penstock.http.site import App, HttpService, Receive, Scope, Send, refuse
from penstock.serde.errors import ClientError

logger: Final = logging.getLogger(__name__)

ROOTS: Final = frozenset((b"v3", b"kafka"))
_OTHER_PREFIX: Final = "/kafka"


class V3Front:
    """In front of the application: both prefixes, and types of bodies."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI calls it."""
        path = scope["raw_path"].decode("latin-1").rstrip("/")
        prefix = "/v3"
        if path.startswith(f"{_OTHER_PREFIX}/"):
            path, prefix = path.removeprefix(_OTHER_PREFIX), f"{_OTHER_PREFIX}/v3"
        scope = {**scope, "path": path, PREFIX: prefix}
        if scope["type"] != "http":
            return
        if scope["method"] in METHODS_WITH_BODY:
            reason = refused_type(dict(scope["headers"]), (JSON,), JSON)
            if reason is not None:
                await refuse(send, v3_service(self), 415, "", reason)
                return
        await self._app(scope, receive, send)


def build_v3(node: GatewayNode, producer: GatewayProducer) -> tuple[FastAPI, V3Front]:
    """The application, and what serves in front of it."""
    app = empty_app()
    for router in (
        v3_topics.clusters(node),
        v3_topics.topics(node),
        v3_topics.partitions(node),
        v3_topics.configs(node),
        v3_groups.consumer_groups(node),
        v3_groups.lags(node),
        records(node, V3Producer(node, producer)),
    ):
        app.include_router(router)
    _add_error_handlers(app)
    return app, V3Front(app)


def v3_service(front: App) -> HttpService:
    """This API among the services of a site."""
    return HttpService(front, ROOTS, write_error)


def _add_error_handlers(app: FastAPI) -> None:
    for kind in (GatewayError, Refused, OSError, Malformed, ClientError):
        app.exception_handler(kind)(_on_failure)

    @app.exception_handler(HTTPException)
    async def on_http_error(_request: Request, error: HTTPException) -> Response:
        status = HTTPStatus(error.status_code)
        body = {"error_code": int(status), "message": f"HTTP {int(status)} {status.phrase}"}
        return json_response(body, status)

    @app.exception_handler(RequestValidationError)
    async def on_bad_option(_request: Request, error: RequestValidationError) -> Response:
        return error_response(bad_request(str(error.errors()[0]["msg"])))

    @app.exception_handler(Exception)
    async def on_bug(_request: Request, error: Exception) -> Response:
        logger.error("a request failed", exc_info=error)
        return json_response({"error_code": 500, "message": "Internal Server Error"}, 500)


async def _on_failure(_request: Request, error: Exception) -> Response:
    return error_response(as_gateway_error(error))
