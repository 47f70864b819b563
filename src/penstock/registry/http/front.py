"""In front of the application: frequent reads are served here, other requests are normalized.

Paths stay percent-encoded, so that a subject with %2F in it is one segment; trailing slashes are
dropped; the context of `/contexts/{context}/...` is moved into names and options.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlencode

from penstock.registry.errors import DeclinedError
from penstock.registry.http.guard import Guard
from penstock.registry.http.response_cache import (
    REQUEST,
    CachedRequest,
    CachedResponse,
    ResponseBytes,
    ResponseCache,
)
from penstock.registry.http.responses import END_OFFSET, MEDIA, MEDIA_TYPES, http_error
from penstock.registry.http.schemas import by_id_document
from penstock.registry.registry_node import RegistryNode
from penstock.registry.store.codec import to_json
from penstock.registry.subject_names import ANY_CONTEXT, context_from_path, context_of
from penstock.registry.usage import CLIENT_CHARACTERS_MAX, CONSUMER, SchemaUse, identify

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_BY_ID: Final = b"/schemas/ids/"
_ROOTS: Final = frozenset(
    (b"", b"subjects", b"schemas", b"config", b"mode", b"compatibility", b"contexts")
)
_HOT_OPTIONS: Final = frozenset(("subject", "fetchmaxid"))
_WITH_BODY: Final = frozenset(("POST", "PUT", "DELETE"))
_BODIES: Final = frozenset((*MEDIA_TYPES, "application/octet-stream"))


class Front:
    """An ASGI application in front of another."""

    def __init__(self, node: RegistryNode, app: App, guard: Guard) -> None:
        self.responses: Counter[int] = Counter()  # by status
        self.closed: Counter[str] = Counter()  # connections closed by the server, by reason
        self.hits: int = 0
        self._app = app
        self._guard = guard
        self._node = node
        self._cache = ResponseCache()
        node.listeners.append(self._cache.on_event)

    def repeat(self, request: bytes) -> ResponseBytes | None:
        """The response to a request with the very same bytes as one before, if still valid."""
        cached = self._cache.repeat(request)
        if cached is None:
            return None
        self._count(cached.use)
        return cached.response

    def _count(self, use: SchemaUse) -> None:
        node = self._node
        node.usage.note(use, node.clock())
        self.hits += 1
        self.responses[200] += 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI calls it."""
        if scope["type"] == "http":
            reason = self._guard.refusal(scope["method"], scope["headers"])
            if reason is not None:
                await self._refuse(403, reason, scope, send)
                return
        if scope["type"] != "http" or not is_registry_path(scope["raw_path"]):
            await self._app(scope, receive, send)
            return
        path: bytes = scope["raw_path"]
        if path.startswith(_BY_ID) and scope["method"] == "GET":
            cached = self._cache.find((path, scope["query_string"])) or self._prepare(scope)
            if cached is not None:
                await self._respond(cached, scope, send)
                return
        await self._forward(scope, receive, send)

    async def _respond(self, cached: CachedResponse, scope: Scope, send: Send) -> None:
        client, agent, accept = _client_headers(scope)
        media = MEDIA if accept is None else negotiated(accept)
        if media is None:
            await self._refuse(406, "Not Acceptable", scope, send)
            return
        name, role = identify(client, agent, CONSUMER) if client else (agent, CONSUMER)
        use = SchemaUse(cached.context, cached.id, name, role)
        self._count(use)
        start = cached.start(media)
        request = scope.get("extensions", {}).get(REQUEST)
        if request is not None:
            response = ResponseBytes(_head(start), cached.body)
            self._cache.add_request(request["bytes"], cached, CachedRequest(response, use))
        await send(start)
        await send({"type": "http.response.body", "body": cached.body})

    def _prepare(self, scope: Scope) -> CachedResponse | None:
        """A response to cache; None for requests that the application serves."""
        path, query = scope["raw_path"], scope["query_string"]
        digits = path[len(_BY_ID) :]
        if not digits.isdigit() or len(digits) > 10:
            return None
        options = dict(parse_qsl(query.decode("latin-1"))) if query else {}
        if not _HOT_OPTIONS.issuperset(name.lower() for name in options):
            return None
        max_id = options.get("fetchMaxId", "").lower() == "true"
        try:
            version, document = by_id_document(
                self._node.state, int(digits), options.get("subject", ""), max_id=max_id
            )
        except DeclinedError:
            return None
        context = context_of(version.subject)
        cached = CachedResponse(to_json(document), context, version.id, max_id)
        self._cache.add((path, query), cached)
        return cached

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        path, query = normalize(
            scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
        )
        scope = {**scope, "path": path, "query_string": query.encode("latin-1")}
        media = negotiated(headers.get(b"accept", b"*/*"))
        if media is None:
            await self._refuse(406, "Not Acceptable", scope, send)
            return
        if scope["method"] in _WITH_BODY and not _is_readable(headers):
            await self._refuse(415, _unreadable_type(headers), scope, send)
            return
        await self._app(scope, receive, self._counting(send, media))

    def _counting(self, send: Send, media: str) -> Send:
        async def count(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self.responses[message["status"]] += 1
                end_offset = str(self._node.topic.end_offset).encode()
                message["headers"] = [*message["headers"], (END_OFFSET.encode(), end_offset)]
                if media != MEDIA:
                    message = _with_type(message, media)
            await send(message)

        return count

    async def _refuse(self, status: int, reason: str, scope: Scope, send: Send) -> None:
        self.responses[status] += 1
        response = http_error(status, reason)
        await response(scope, _nothing, send)


def is_registry_path(path: bytes) -> bool:
    """Whether a path belongs to the registry; other services have their own."""
    return path[1:].partition(b"/")[0] in _ROOTS


async def _nothing() -> MutableMapping[str, Any]:
    return {"type": "http.disconnect"}


def _head(start: dict[str, Any]) -> bytes:
    lines = [b"%b: %b\r\n" % header for header in start["headers"]]
    return b"".join((*lines, b"\r\n"))


def _client_headers(scope: Scope) -> tuple[str, str, bytes | None]:
    """The client, its user agent, and the media types it accepts; None if any."""
    agent, named, accept = b"unknown", b"", None
    for name, value in scope["headers"]:
        if name == b"user-agent":
            agent = value[:CLIENT_CHARACTERS_MAX]
        elif name == b"penstock-client":
            named = value
        elif name == b"accept" and b"*/*" not in value:
            accept = value
    return named.decode("latin-1"), agent.decode("latin-1"), accept


def _with_type(message: MutableMapping[str, Any], media: str) -> dict[str, Any]:
    """The response with another media type, if it is one of the registry's."""
    headers = [
        (name, media.encode() if name == b"content-type" and value == MEDIA.encode() else value)
        for name, value in message["headers"]
    ]
    return {**message, "headers": headers}


def negotiated(accept: bytes) -> str | None:
    """The media type of the response; None if the client accepts none of ours."""
    accepted = [
        part.split(b";")[0].strip().decode("latin-1") for part in accept.lower().split(b",")
    ]
    if not accepted or "*/*" in accepted or "application/*" in accepted or accepted == [""]:
        return MEDIA
    return next((media for media in MEDIA_TYPES if media in accepted), None)


def _is_readable(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a body has an accepted type. One without a type may come from any web page."""
    content_type = headers.get(b"content-type")
    if content_type is None:
        is_empty = headers.get(b"content-length", b"0").strip() == b"0"
        return is_empty and b"transfer-encoding" not in headers
    return content_type.lower().split(b";")[0].strip().decode("latin-1") in _BODIES


def _unreadable_type(headers: Mapping[bytes, bytes]) -> str:
    given = headers.get(b"content-type")
    what = (
        "no content type" if given is None else f"the content type {given[:200].decode('latin-1')}"
    )
    return (
        f"Unsupported Media Type: the body has {what}; send it as {MEDIA} or application/json "
        '(with curl: -H "Content-Type: application/json")'
    )


def normalize(path: str, query: str) -> tuple[str, str]:
    """The path without trailing slashes, and with contexts written into names."""
    path = path.rstrip("/") or "/"
    segments = path.split("/")[1:]
    if segments[0] != "contexts" or len(segments) < 3:
        return path, query
    prefix = f":{context_from_path(unquote(segments[1]))}:"
    rest = segments[2:]
    if rest[0] in ("config", "mode"):
        rest = [rest[0], _qualified(rest[1] if len(rest) > 1 else "", prefix), *rest[2:]]
    elif rest in (["schemas"], ["subjects"]):
        query = _with_option(query, "subjectPrefix", prefix)
    elif rest[:2] == ["schemas", "ids"]:
        query = _with_option(query, "subject", prefix)
    else:
        rest = [
            _qualified(segment, prefix) if index and rest[index - 1] == "subjects" else segment
            for index, segment in enumerate(rest)
        ]
    return "/" + "/".join(rest), query


def _qualified(segment: str, prefix: str) -> str:
    name = unquote(segment)
    return quote(name if name.startswith(":.") else prefix + name, safe="")


def _with_option(query: str, name: str, prefix: str) -> str:
    options = parse_qsl(query, keep_blank_values=True)
    given = dict(options).get(name, "").removeprefix(ANY_CONTEXT)
    value = given if given.startswith(":.") else prefix + given
    return urlencode([*((key, text) for key, text in options if key != name), (name, value)])
