"""The registry as an HTTP application: its routes, its errors, and the cache in front of it."""

import logging
from http import HTTPStatus
from typing import Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from penstock.registry.errors import DeclinedError
from penstock.registry.http import node_info, schemas, settings, subjects
from penstock.registry.http.forward import Forwarder
from penstock.registry.http.front import Front
from penstock.registry.http.responses import error_response, http_error, json_response
from penstock.registry.registry_node import NotPrimaryError, RegistryNode

logger: Final = logging.getLogger(__name__)


def build(app: FastAPI, node: RegistryNode, forwarder: Forwarder) -> Front:
    """Add the registry's routes to an application; returns what serves in front of it."""
    front = Front(node, app)
    for router in (
        node_info.about(node),
        subjects.registering(node),
        subjects.listing(node),
        subjects.reading_versions(node),
        subjects.describing(node),
        schemas.by_id(node),
        schemas.everything(node),
        subjects.checking(node),
        settings.configuring(node),
        settings.moding(node),
    ):
        app.include_router(router)
    _add_error_handlers(app, forwarder)
    return front


def _add_error_handlers(app: FastAPI, forwarder: Forwarder) -> None:
    @app.exception_handler(DeclinedError)
    async def on_declined(_request: Request, refusal: DeclinedError) -> Response:
        return error_response(refusal)

    @app.exception_handler(NotPrimaryError)
    async def on_not_primary(request: Request, error: NotPrimaryError) -> Response:
        try:
            return await forwarder.forward(request, error.url)
        except DeclinedError as refusal:
            return error_response(refusal)

    @app.exception_handler(HTTPException)
    async def on_http_error(_request: Request, error: HTTPException) -> Response:
        return http_error(error.status_code, HTTPStatus(error.status_code).phrase)

    @app.exception_handler(RequestValidationError)
    async def on_bad_option(_request: Request, _error: RequestValidationError) -> Response:
        return http_error(
            404, "Not Found"
        )  # as Confluent responds to an option that is not a number

    @app.exception_handler(ClientDisconnect)
    async def on_disconnect(_request: Request, _error: ClientDisconnect) -> Response:
        logger.debug("a client closed its connection before its request was complete")
        return http_error(400, "the request is not complete")  # the client is disconnected

    @app.exception_handler(Exception)
    async def on_bug(_request: Request, error: Exception) -> Response:
        logger.error("a request failed", exc_info=error)
        return json_response({"error_code": 500, "message": "Internal Server Error"}, 500)
