"""From a frame to a handler, and from a response to bytes. Knows no socket.

A request is read, handled and written here once each: `begin` and `encode` are where a request of
an API starts and ends. An API or version that is not served ends the connection, except an
ApiVersions that is too new: that is answered in version 0, as clients expect.
"""

from __future__ import annotations

from struct import Struct
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.broker.handler import Answer, Client, Context, Disconnect, Forwards, Handler, Held
from penstock.broker.quotas import QuotaKind
from penstock.errors import ErrorCode, Malformed, Refused
from penstock.machine import Deferred
from penstock.protocol.api import Api, is_flexible_version
from penstock.protocol.framing import (
    HEADER_TAIL_FROM,
    read_header_tail,
    response_has_tags,
    response_start,
)
from penstock.protocol.messages.api_versions import (
    API_VERSIONS,
    ApiVersionRange,
    ApiVersionsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.broker.broker import Broker
    from penstock.broker.counts import ApiCounts, RequestCounts
    from penstock.broker.stall_watch import StallWatch
    from penstock.protocol.varint import Buffer

_START: Final = Struct(
    ">"
    "h"  # api_key
    "h"  # api_version
    "i"  # correlation_id
)
_CACHED_BYTES_MAX: Final = 255  # of a header, so that clients cannot fill the memory


class _Route(NamedTuple):
    """The handler of one API and version."""

    row: Handler[Any, Any]
    is_flexible: bool  # the request header ends in tagged fields
    has_tags: bool  # the response header does
    is_controllers: bool  # only the active controller can decide it
    counts: ApiCounts


class Dispatcher:
    """Finds routes, reads requests, calls handlers, writes responses."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.counts: RequestCounts = broker.counts
        self._routes: dict[tuple[int, int], _Route] = {}
        self.is_open: bool = False  # until then, only what other brokers depend on is served
        self._held: list[Callable[[], None]] = []  # one request of each connection
        self.stalls: StallWatch | None = None  # None: no other broker could take over

    def open(self) -> None:
        """This broker is ready: serve everything, first what waits."""
        self.is_open = True
        held, self._held = self._held, []
        for begin in held:
            begin()

    def pause(self) -> None:
        """Serve again only what other brokers depend on, until `open`."""
        self.is_open = False

    def begin(
        self, client: Client, frame: memoryview, *, only_forwarded: bool = False
    ) -> tuple[Context, Answer[Any]]:
        """Read one request and let its handler take effect.

        `only_forwarded`: it comes from another broker, and must be one for the controller.
        """
        if self.stalls is not None:
            self.stalls.check()
        # A frame has eight bytes at least.
        api_key, api_version, correlation_id = _START.unpack_from(frame, 0)
        broker = self._broker
        route = self._routes.get((api_key, api_version)) or self._find_route(api_key, api_version)
        if route is None:
            return self._refuse_version(client, api_key, api_version, correlation_id)
        row, is_flexible, has_tags, is_controllers, counts = route
        packed, client_id, position = client.header_tails[is_flexible]
        if frame[HEADER_TAIL_FROM:position] != packed:  # rare: not the same as the last time
            packed, client_id, position = tail = read_header_tail(frame, is_flexible)
            if position <= _CACHED_BYTES_MAX:
                client.header_tails[is_flexible] = tail
        message = row.message
        context = Context(
            broker, client, client_id, message, api_version, correlation_id, has_tags, counts
        )
        request = message.read_request(frame, position, api_version)
        # `row.allow` is to be checked here, before anything takes effect.
        if only_forwarded and row.forwards is Forwards.NEVER:
            raise Malformed(f"{row.api.name} is not forwarded", 0)
        if not self.is_open and not row.before_ready(request):
            return context, self._hold(client, frame)
        is_timed = broker.quotas.limits_requests
        began_s = perf_counter() if is_timed else 0.0
        answer: Answer[Any]
        try:
            if is_controllers and not broker.controller.is_active:
                answer = broker.controller_client.forward(context, request)
            else:
                answer = row.handle(context, request)
        except Refused as refusal:
            answer = message.refuse(request, refusal)
        if is_timed:
            self._charge_time(context, perf_counter() - began_s)
        return context, answer

    def _hold(self, client: Client, frame: memoryview) -> Held[Any]:
        """Begin this request when the broker is ready; its connection starts no other before."""
        held: Held[Any] = Held()
        copy = memoryview(bytearray(frame))  # the connection's buffer will be used again

        def begin() -> None:
            try:
                _, answer = self.begin(client, copy)
            except Exception as error:  # noqa: BLE001 - the connection logs it and ends
                held.resolve(error)
                return
            if isinstance(answer, Deferred):
                answer.listen(held.resolve)
            else:
                held.resolve(answer)

        self._held.append(begin)
        return held

    def encode(self, context: Context, response: Any) -> list[Buffer]:
        """A whole response frame, in buffers; none when there is no response."""
        if response is None:
            return []
        if errors := context.counts.read_errors(response):
            self.counts.note_errors(context.message.api, errors)
        body = context.message.write_response(response, context.api_version, context.throttle_ms)
        if isinstance(body, bytes):
            return [response_start(context.correlation_id, len(body), context.has_tags) + body]
        body_bytes = sum(map(len, body))
        return [response_start(context.correlation_id, body_bytes, context.has_tags), *body]

    def _find_route(self, api_key: int, api_version: int) -> _Route | None:
        row = self._broker.api_table.find(api_key, api_version)
        if row is None:
            return None
        route = _Route(
            row,
            is_flexible_version(api_key, api_version),
            response_has_tags(api_key, api_version),
            row.forwards is Forwards.WHOLE,
            self.counts.by_api[api_key],
        )
        self._routes[api_key, api_version] = route
        return route

    def _refuse_version(
        self, client: Client, api_key: int, api_version: int, correlation_id: int
    ) -> tuple[Context, ApiVersionsResponse]:
        """Nothing more is read: the rest of the header has an unknown form."""
        if api_key != Api.API_VERSIONS:
            raise Disconnect(f"API {api_key} v{api_version} is not served")
        counts = self.counts.by_api[api_key]
        context = Context(
            self._broker, client, None, API_VERSIONS, 0, correlation_id, False, counts
        )
        served = self._broker.api_table.by_key[api_key].advertised
        return context, ApiVersionsResponse(
            ErrorCode.unsupported_version, [ApiVersionRange(api_key, *served)]
        )

    def _charge_time(self, context: Context, spent_s: float) -> None:
        throttle_ms = self._broker.quotas.charge(
            QuotaKind.REQUEST_MS, context.principal, context.client_id, spent_s * 1000
        )
        context.throttle_ms = max(context.throttle_ms, throttle_ms)
