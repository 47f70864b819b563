"""Responses: documents as JSON, events that are JSON already."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from starlette.responses import Response

from penstock.gateway.errors import GatewayError
from penstock.gateway.events import RenderedEvent

MEDIA: Final = "application/json"
_encode = msgspec.json.Encoder().encode


def json_response(
    document: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A document as JSON."""
    return Response(_encode(document), status, headers, MEDIA)


def error_response(error: GatewayError) -> Response:
    """The form of every error."""
    return json_response(error.document, error.status, error.headers)


def events_document(events: Iterable[RenderedEvent]) -> list[msgspec.Raw]:
    """Events as members of a document."""
    return [msgspec.Raw(event.text) for event in events]
