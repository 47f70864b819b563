"""In front of the application: frequent reads are served here, other requests are normalized.

Paths stay percent-encoded, so that a subject with %2F in it is one segment; trailing slashes are
dropped; the context of `/contexts/{context}/...` is moved into names and options.
"""

from collections import Counter
from collections.abc import MutableMapping
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlencode

from fastapi import FastAPI

from penstock.http.body_types import METHODS_WITH_BODY, refused_type
from penstock.http.http_protocol import REQUEST, ResponseBytes
from penstock.http.site import Receive, Scope, Send
from penstock.registry.errors import DeclinedError
from penstock.registry.http.response_cache import (
    CachedRequest,
    CachedResponse,
    ResponseCache,
)
from penstock.registry.http.responses import END_OFFSET, MEDIA, MEDIA_TYPES, http_error
from penstock.registry.http.schemas import by_id_document
from penstock.registry.registry_node import RegistryNode
from penstock.registry.store.codec import to_json
from penstock.registry.subject_names import ANY_CONTEXT, context_from_path, context_of
from penstock.registry.usage import CLIENT_CHARACTERS_MAX, CONSUMER, SchemaUse, identify

_BY_ID: Final = b"/schemas/ids/"
_PLAIN_ROOTS: Final = frozenset((b"v1", b"metrics"))  # neither negotiated nor normalized
ROOTS: Final = _PLAIN_ROOTS | frozenset(
    (b"", b"subjects", b"schemas", b"config", b"mode", b"compatibility", b"contexts")
)
_HOT_OPTIONS: Final = frozenset(("subject", "fetchmaxid"))
_BODIES: Final = frozenset((*MEDIA_TYPES, "application/octet-stream"))


class Front:
    """An ASGI application in front of another."""

    def __init__(self, node: RegistryNode, app: FastAPI) -> None:
        self.responses: Counter[int] = Counter()  # by status
        self.closed: Counter[str] = Counter()  # connections closed by the server, by reason
        self.hits: int = 0
        self.app = app
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
        path: bytes = scope["raw_path"]
        if path[1:].partition(b"/")[0] in _PLAIN_ROOTS:
            await self.app(scope, receive, send)
            return
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
        if scope["method"] in METHODS_WITH_BODY:
            reason = refused_type(headers, _BODIES, f"{MEDIA} or application/json")
            if reason is not None:
                await self._refuse(415, reason, scope, send)
                return
        await self.app(scope, receive, self._counting(send, media))

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
