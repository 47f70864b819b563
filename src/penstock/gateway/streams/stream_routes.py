"""The routes of streams: the same URLs for server-sent events and for WebSocket."""

from typing import Annotated, Any, Final
from urllib.parse import parse_qsl, unquote

from fastapi import APIRouter, Path, Request, Response, WebSocket
from pydantic import BeforeValidator
from starlette.requests import HTTPConnection

from penstock.errors import Malformed, Refused
from penstock.gateway.errors import GatewayError, as_gateway_error
from penstock.gateway.json_responses import error_response
from penstock.gateway.request_bodies import GroupName
from penstock.gateway.streams.group_reading import GroupStreams
from penstock.gateway.streams.sse import MEDIA, SseGroupResponse, SseTopicResponse
from penstock.gateway.streams.stream_hub import StreamHub
from penstock.gateway.streams.stream_request import (
    GROUP_PARAMETERS,
    PARAMETERS,
    StreamRequest,
    read_group_request,
    read_stream_request,
)
from penstock.gateway.streams.websocket import serve_group, serve_websocket

LAST_EVENT_ID: Final = "last-event-id"
_UNAVAILABLE: Final = 503
_BELOW: Final = (GatewayError, Refused, OSError, Malformed)
_EXAMPLE: Final = """\
retry: 2716

event: opened
id: 13zZ_0A7.
data: {"resumed":false,"positions":[{"topic":"orders","partition":0,"offset":7}]}

id: 13zZ_0A8.
data: {"topic":"orders","partition":0,"offset":7,"timestamp":1700000000000,"key":"berlin",\
"value":{"cents":1250},"headers":[]}

"""

TopicNames = Annotated[
    str, Path(description="Topics, separated by commas."), BeforeValidator(unquote)
]


def streaming_groups(groups: GroupStreams) -> APIRouter:
    """Streams of consumer groups."""
    router = APIRouter(tags=["streams"])
    hub = groups.hub

    @router.get(
        "/consumer-groups/{group}/stream",
        openapi_extra={"parameters": described_parameters(GROUP_PARAMETERS)},
        responses=described_stream(),
        response_class=Response,
    )
    async def stream_group(request: Request, group: GroupName) -> Response:
        """Events of the partitions that a group assigns to this client, as server-sent events.

        The client is a member of the group while it is connected.
        """
        client = client_of(request)
        group_request = read_group_request(group, query_of(request), acknowledges=False)
        with hub.admitted(client):
            await hub.check_topics(group_request.reads.topics)
        return SseGroupResponse(groups, group_request, client)

    @router.websocket("/consumer-groups/{group}/stream")
    async def connect_group(websocket: WebSocket, group: GroupName) -> None:
        client = client_of(websocket)
        try:
            group_request = read_group_request(group, query_of(websocket), acknowledges=True)
            with hub.admitted(client):
                await hub.check_topics(group_request.reads.topics)
        except _BELOW as failure:
            await websocket.send_denial_response(error_response(as_gateway_error(failure)))
            return
        await serve_group(groups, group_request, websocket, client)

    return router


def streaming(hub: StreamHub) -> APIRouter:
    """Streams of topics."""
    router = APIRouter(tags=["streams"])

    @router.get(
        "/topics/{topics}/stream",
        openapi_extra={"parameters": described_parameters(PARAMETERS)},
        responses=described_stream(),
        response_class=Response,
    )
    async def stream_topics(request: Request, topics: TopicNames) -> Response:
        """Events as they are appended, as server-sent events; from an offset, a time or an id on.

        The same URL takes WebSocket connections; /docs/websocket.json has their messages.
        """
        stream_request = _read_request(request, topics)
        return await _open_sse(hub, stream_request, client_of(request))

    @router.websocket("/topics/{topics}/stream")
    async def connect_topics(websocket: WebSocket, topics: TopicNames) -> None:
        client = client_of(websocket)
        try:
            stream_request = _read_request(websocket, topics)
            with hub.admitted(client):
                start = await hub.start_of(stream_request)
        except _BELOW as failure:
            await websocket.send_denial_response(error_response(as_gateway_error(failure)))
            return
        await serve_websocket(hub, stream_request, start, websocket, client)

    return router


async def _open_sse(hub: StreamHub, stream_request: StreamRequest, client: str) -> Response:
    """A client that resumes waits for the cluster in the stream, where it can."""
    with hub.admitted(client):
        try:
            start = await hub.start_of(stream_request)
        except _BELOW as failure:
            error = as_gateway_error(failure)
            if error.status != _UNAVAILABLE or stream_request.resume_id is None:
                raise error from failure
            start = None
    return SseTopicResponse(hub, stream_request, start, client)


def _read_request(connection: HTTPConnection, topics: str) -> StreamRequest:
    last_event_id = connection.headers.get(LAST_EVENT_ID)
    return read_stream_request(topics, query_of(connection), last_event_id)


def query_of(connection: HTTPConnection) -> list[tuple[str, str]]:
    """The query's parameters, in order."""
    return parse_qsl(connection.scope["query_string"].decode("latin-1"), keep_blank_values=True)


def client_of(connection: HTTPConnection) -> str:
    """The address whose streams are counted together."""
    return connection.client.host if connection.client is not None else "unknown"


def described_parameters(parameters: dict[str, str]) -> list[dict[str, Any]]:
    """Query parameters for the OpenAPI document."""
    return [
        {"in": "query", "name": name, "description": meaning, "schema": {"type": "string"}}
        for name, meaning in parameters.items()
    ]


def described_stream() -> dict[int | str, dict[str, Any]]:
    """The response of a stream for the OpenAPI document."""
    return {200: {"description": "The stream.", "content": {MEDIA: {"example": _EXAMPLE}}}}
