"""The registry as an HTTP application: routes joined, errors worded, hot reads in front."""

import logging
from http import HTTPStatus

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from penstock.registry.errors import Declined
from penstock.registry.http import node_info, schemas, settings, subjects
from penstock.registry.http.forward import Forwarder
from penstock.registry.http.front import Front
from penstock.registry.http.guard import Guard
from penstock.registry.http.openapi_page import reference
from penstock.registry.http.responses import answered, declined, http_error
from penstock.registry.node import Elsewhere, Registry

logger = logging.getLogger(__name__)


def build(app: FastAPI, registry: Registry, forwarder: Forwarder, guard: Guard) -> Front:
    """The registry's routes added to an application, and what stands in front of it."""
    front = Front(registry, app, guard)
    for router in (
        node_info.about(registry),
        node_info.metrics(registry, front),
        subjects.registering(registry),
        subjects.listing(registry),
        subjects.reading_versions(registry),
        subjects.describing(registry),
        schemas.by_id(registry),
        schemas.everything(registry),
        subjects.checking(registry),
        settings.configuring(registry),
        settings.moding(registry),
        reference(app),
    ):
        app.include_router(router)
    _word_errors(app, forwarder)
    return front


def _word_errors(app: FastAPI, forwarder: Forwarder) -> None:
    @app.exception_handler(Declined)
    async def on_declined(request: Request, refusal: Declined) -> Response:
        return declined(refusal)

    @app.exception_handler(Elsewhere)
    async def on_elsewhere(request: Request, elsewhere: Elsewhere) -> Response:
        try:
            return await forwarder.forward(request, elsewhere)
        except Declined as refusal:
            return declined(refusal)

    @app.exception_handler(HTTPException)
    async def on_http_error(request: Request, error: HTTPException) -> Response:
        return http_error(error.status_code, HTTPStatus(error.status_code).phrase)

    @app.exception_handler(RequestValidationError)
    async def on_bad_option(request: Request, error: RequestValidationError) -> Response:
        return http_error(404, "Not Found")  # as the peer takes an option that is no number

    @app.exception_handler(ClientDisconnect)
    async def on_disconnect(request: Request, error: ClientDisconnect) -> Response:
        logger.debug("a client closed its connection before its request was complete")
        return http_error(400, "the request is not complete")  # nobody is left to read it

    @app.exception_handler(Exception)
    async def on_bug(request: Request, error: Exception) -> Response:
        logger.error("a request failed", exc_info=error)
        return answered({"error_code": 500, "message": "Internal Server Error"}, 500)
