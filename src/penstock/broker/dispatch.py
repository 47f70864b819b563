"""From a frame to a handler and from an answer to bytes. Knows no socket.

Key and version choose a route; the route knows the reader of the body, the handler, and the shape
of the response header. What no handler is there for ends the connection, except an ApiVersions
that is too new: that is answered in version 0, as clients expect.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from datetime import timedelta
from struct import Struct
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from kio.static.protocol import Entity

from penstock.broker.handler import (
    Answer,
    Answered,
    Client,
    Context,
    Disconnect,
    Packed,
    RequestReader,
    Response,
    ResponseWriter,
    deferred_from,
)
from penstock.broker.quotas import Kind
from penstock.errors import Refused
from penstock.machine import Deferred
from penstock.protocol.framing import (
    API_VERSIONS,
    ASKER_FROM,
    is_flexible_version,
    read_asker,
    response_has_tags,
    response_start,
    unsupported_api_versions,
)
from penstock.protocol.kio_codec import encode, fill, request_reader, response_reader, response_type
from penstock.protocol.kio_schema import shapes_of
from penstock.protocol.varint import Buffer

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

_START: Final = Struct(
    ">"
    "h"  # api_key
    "h"  # api_version
    "i"  # correlation_id
)
_MILLIS: Final = Struct(">i")
_THROTTLE: Final = "throttle_time"
_KEPT_BYTES_MAX: Final = 255  # what is sent must not fill our memory


class Route(NamedTuple):
    """How requests of one key and version are read, handled and answered."""

    handle: Callable[[Context, Any], Answer]
    read: RequestReader
    is_flexible: bool  # the request header ends in tagged fields
    has_tags: bool  # the response header does
    write: ResponseWriter | None


class Dispatcher:
    """Finds routes, calls handlers, encodes answers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._routes: dict[tuple[int, int], Route] = {}

    def begin(
        self, client: Client, frame: memoryview
    ) -> tuple[Context, Answered | Deferred[Answered]]:
        """Read one request and let its handler take effect."""
        # A frame has eight bytes at least.
        api_key, api_version, correlation_id = _START.unpack_from(frame, 0)
        broker = self._broker
        route = self._routes.get((api_key, api_version)) or self._find_route(api_key, api_version)
        if route is None:
            # Nothing more is read: how the header of an unknown version goes on is unknown too.
            context = Context(broker, client, None, api_key, api_version, correlation_id)
            return context, self._refuse_version(context)
        handle, read, is_flexible, has_tags, write = route
        packed, client_id, position = client.askers[is_flexible]
        if frame[ASKER_FROM:position] != packed:  # another than the last time, as hardly ever
            packed, client_id, position = asker = read_asker(frame, is_flexible)
            if position <= _KEPT_BYTES_MAX:
                client.askers[is_flexible] = asker
        context = Context(
            broker, client, client_id, api_key, api_version, correlation_id, has_tags, write
        )
        request, _ = read(frame, position)
        try:
            if broker.quotas.limits_requests:
                answer = self._handle_timed(route, context, request)
            else:
                answer = handle(context, request)
        except Refused as refusal:
            return context, refuse(context, refusal)
        return context, deferred_from(answer) if isinstance(answer, asyncio.Future) else answer

    def encode(self, context: Context, answered: Answered) -> list[Buffer]:
        """A whole response frame, in pieces; no piece when there is no response."""
        if answered is None:
            return []
        body = _packed(context, answered)
        if isinstance(body, bytes):
            return [response_start(context.correlation_id, len(body), context.has_tags) + body]
        body_bytes = sum(map(len, body))
        return [response_start(context.correlation_id, body_bytes, context.has_tags), *body]

    def _find_route(self, api_key: int, api_version: int) -> Route | None:
        row = self._broker.api_table.find(api_key, api_version)
        if row is None:
            return None
        reader = row.read(api_version) if row.read else request_reader(api_key, api_version)
        route = Route(
            row.handle,
            reader,
            is_flexible_version(api_key, api_version),
            response_has_tags(api_key, api_version),
            row.write,
        )
        self._routes[api_key, api_version] = route
        return route

    def _refuse_version(self, context: Context) -> Answered:
        if context.api_key != API_VERSIONS:
            raise Disconnect(f"API {context.api_key} v{context.api_version} is not served")
        return unsupported_api_versions(*self._broker.api_table.by_key[API_VERSIONS].advertised)

    def _handle_timed(self, route: Route, context: Context, request: Any) -> Answer:
        began_s = perf_counter()
        answer = route.handle(context, request)
        spent_ms = (perf_counter() - began_s) * 1000
        throttle_ms = self._broker.quotas.charge(
            Kind.REQUEST_MS, context.principal, context.client_id, spent_ms
        )
        if throttle_ms <= context.throttle_ms:
            return answer
        context.throttle_ms = throttle_ms
        return _without_old_throttle(context, answer)


def _packed(context: Context, answered: Entity | Response | Packed) -> Packed:
    if isinstance(answered, bytes | list):
        return answered
    if isinstance(answered, tuple):
        assert context.write is not None, "a typed response has a writer"
        return context.write(answered, context.api_version, context.throttle_ms)
    return encode(_throttled(answered, context.throttle_ms) if context.throttle_ms else answered)


def _without_old_throttle(context: Context, answer: Answer) -> Answer:
    """What was packed before its throttle was known, so that it can still be said in it."""
    key, version = context.api_key, context.api_version
    if isinstance(answer, bytes):
        entity, _ = response_reader(key, version)(answer, 0)
        return cast(Entity, entity)
    if isinstance(answer, list) and shapes_of(response_type(key, version))[0].name == _THROTTLE:
        # Records are not unpacked for it: the first piece starts with it.
        answer[0] = _MILLIS.pack(context.throttle_ms) + bytes(answer[0][_MILLIS.size :])
    return answer


def refuse(context: Context, refusal: Refused) -> Answered:
    """The response that carries a refusal at its top."""
    kind = response_type(context.api_key, context.api_version)
    if "error_code" not in kind.__dataclass_fields__:
        raise Disconnect(f"API {context.api_key} has no place for {refusal}")
    message = {}
    if "error_message" in kind.__dataclass_fields__:  # some responses have it in no version
        message = {"error_message": refusal.message}
    entity: Entity = fill(kind, error_code=refusal.code, **message)
    return entity


def _throttled(answered: Entity, throttle_ms: int) -> Entity:
    if _THROTTLE not in answered.__dataclass_fields__:
        return answered
    changes: dict[str, Any] = {_THROTTLE: timedelta(milliseconds=throttle_ms)}
    return dataclasses.replace(answered, **changes)
