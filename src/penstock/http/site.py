"""All HTTP services of one process behind one address.

Every request passes the guard before any service sees it, gets an id that its response carries,
and goes to the service that its path belongs to. A site that is read-only refuses what changes
something here, once for all services. Paths stay percent-encoded, so that a name with
%2F in it is one segment. Health checks pass the guard: probes name hosts as they like.
"""

import logging
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from typing import Any, Final, NamedTuple

from penstock.http.guard import Guard, header
from penstock.http.http_protocol import REPEATED
from penstock.http.read_only import CODE, MESSAGE, changes

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
WriteError = Callable[[int, str, str], bytes]  # status, code, message: the body

access_log: Final = logging.getLogger("penstock.access")

HEALTH: Final = b"/health/"
REQUEST_ID: Final = b"x-request-id"
_ID_CHARACTERS_MAX: Final = 128
_POLICY_VIOLATION: Final = 1008
_CORS_METHODS: Final = b"GET, POST, PUT, PATCH, DELETE"
_CORS_HEADERS: Final = b"Content-Type, Idempotency-Key, Last-Event-ID, X-Request-ID"
_CORS_EXPOSED: Final = b"Idempotency-Replayed, Location, Retry-After, X-Request-ID"


class HttpService(NamedTuple):
    """An application, the first path segments that are its own, and how it writes errors."""

    app: App
    roots: frozenset[bytes]
    write_error: WriteError
    media: bytes = b"application/json"


class Site:
    """An ASGI application in front of the services; the first service gets all other paths."""

    def __init__(
        self,
        services: Sequence[HttpService],
        guard: Guard,
        *,
        logs_access: bool = False,
        is_read_only: bool = False,
    ) -> None:
        self.responses: Counter[int] = Counter()  # by status
        self._guard = guard
        self._logs_access = logs_access
        self._is_read_only = is_read_only
        self._by_root = {root: service for service in services for root in service.roots}
        self._default = services[0]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI calls it."""
        if scope["type"] == "websocket":
            await self._serve_websocket(scope, receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: bytes = scope["raw_path"]
        service = self._by_root.get(path[1:].partition(b"/")[0], self._default)
        request_id = _request_id(scope)
        scope["request_id"] = request_id.decode()
        origin = header(scope["headers"], b"origin")
        cors = origin if origin and self._guard.allows_origin(origin) else b""
        send = self._with_headers(scope, send, request_id, cors)
        if not path.startswith(HEALTH):
            reason = self._guard.refusal(scope["method"], path.decode("latin-1"), scope["headers"])
            if reason is not None:
                await refuse(send, service, 403, "forbidden", reason)
                return
        if cors and scope["method"] == "OPTIONS":
            await _send_whole(send, 204, (), b"")
            return
        if self._refuses_change(scope, scope["method"]):
            await refuse(send, service, 403, CODE, MESSAGE)
            return
        await service.app(scope, receive, send)

    async def _serve_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["raw_path"].decode("latin-1")
        refusal = self._guard.refusal("GET", path, scope["headers"])
        if refusal is not None or self._refuses_change(scope, "GET"):
            await receive()
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
            return
        root = scope["raw_path"][1:].partition(b"/")[0]
        await self._by_root.get(root, self._default).app(scope, receive, send)

    def _refuses_change(self, scope: Scope, method: str) -> bool:
        if not self._is_read_only:
            return False
        path, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
        return changes(method, path, query)

    def _with_headers(self, scope: Scope, send: Send, request_id: bytes, cors: bytes) -> Send:
        started_s = time.perf_counter()

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                self.responses[status] += 1
                added = [*_id_headers(scope, request_id), *_cors_headers(cors)]
                message = {**message, "headers": [*message["headers"], *added]}
                if self._logs_access:
                    _log_access(scope, status, time.perf_counter() - started_s)
            await send(message)

        return send_with_headers


async def refuse(send: Send, service: HttpService, status: int, code: str, message: str) -> None:
    """Respond with an error in the service's own form."""
    body = service.write_error(status, code, message)
    await _send_whole(send, status, [(b"content-type", service.media)], body)


async def _send_whole(
    send: Send, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes
) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send(
        {"type": "http.response.start", "status": status, "headers": [*headers, length]},
    )
    await send({"type": "http.response.body", "body": body})


def _request_id(scope: Scope) -> bytes:
    """The client's own id, if it is printable and short; else a new one."""
    given = header(scope["headers"], REQUEST_ID)
    if 0 < len(given) <= _ID_CHARACTERS_MAX and all(32 < byte < 127 for byte in given):
        return given
    return uuid.uuid4().hex.encode()


def _id_headers(scope: Scope, request_id: bytes) -> list[tuple[bytes, bytes]]:
    """None for a request whose response may be repeated for the same bytes: an id is used once."""
    is_repeatable = scope["raw_path"].startswith(REPEATED)
    return [] if is_repeatable else [(REQUEST_ID, request_id)]


def _cors_headers(origin: bytes) -> list[tuple[bytes, bytes]]:
    if not origin:
        return []
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-allow-methods", _CORS_METHODS),
        (b"access-control-allow-headers", _CORS_HEADERS),
        (b"access-control-expose-headers", _CORS_EXPOSED),
        (b"vary", b"Origin"),
    ]


def _log_access(scope: Scope, status: int, seconds: float) -> None:
    client = scope.get("client") or ("-", 0)
    path = scope["raw_path"].decode("latin-1")
    access_log.info(
        '%s "%s %s" %d %.1f ms id=%s',
        client[0], scope["method"], path, status, seconds * 1000, scope["request_id"],
    )  # fmt: skip
