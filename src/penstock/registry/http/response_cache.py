"""Responses to reads by id, cached until an event could change them.

What an id stands for never changes, but which version represents it may, and the last id of a
context changes with every new one. A new version drops the responses about its own id and about
last ids; events that remove or hide versions drop everything.
"""

from typing import Any, Final, NamedTuple

from penstock.http.http_protocol import ResponseBytes
from penstock.registry.store.events import (
    ContextCreated,
    Event,
    LogMarked,
    ModeSet,
    SubjectConfigSet,
    VersionStored,
)
from penstock.registry.usage import SchemaUse

RESPONSES_MAX: Final = 10_000
BODIES_BYTES_MAX: Final = 64 << 20
_UNRELATED: Final = (LogMarked, SubjectConfigSet, ModeSet, ContextCreated)

Key = tuple[bytes, bytes]  # path and query


class CachedResponse(NamedTuple):
    """A response, without its media type."""

    body: bytes
    context: str
    id: int
    has_last_id: bool

    def start(self, media: str) -> dict[str, Any]:
        """The start of the response, with a media type."""
        headers = [
            (b"content-type", media.encode()),
            (b"content-length", str(len(self.body)).encode()),
        ]
        return {"type": "http.response.start", "status": 200, "headers": headers}


class CachedRequest(NamedTuple):
    """The response to a request with these very bytes, and the use that it counts as."""

    response: ResponseBytes
    use: SchemaUse


class ResponseCache:
    """Bounded: when it is full it is cleared, and fills again with what is requested now."""

    def __init__(self) -> None:
        self._responses: dict[Key, CachedResponse] = {}
        self._requests: dict[bytes, CachedRequest] = {}  # bodies are those of `_responses`
        self._of_id: dict[int, list[Key | bytes]] = {}
        self._of_last_ids: list[Key | bytes] = []
        self._bodies_bytes = 0

    def find(self, key: Key) -> CachedResponse | None:
        """The response to a path and query."""
        return self._responses.get(key)

    def repeat(self, request: bytes) -> CachedRequest | None:
        """The response to a request that came before."""
        return self._requests.get(request)

    def add(self, key: Key, cached: CachedResponse) -> None:
        """Cache a response by path and query."""
        if len(self._responses) >= RESPONSES_MAX or self._bodies_bytes >= BODIES_BYTES_MAX:
            self.clear()
        self._responses[key] = cached
        self._bodies_bytes += len(cached.body)
        self._index(key, cached)

    def add_request(self, request: bytes, cached: CachedResponse, repeated: CachedRequest) -> None:
        """Cache a response by the whole request."""
        if len(self._requests) >= RESPONSES_MAX:
            self.clear()
        self._requests[request] = repeated
        self._index(request, cached)

    def _index(self, key: Key | bytes, cached: CachedResponse) -> None:
        self._of_id.setdefault(cached.id, []).append(key)
        if cached.has_last_id:
            self._of_last_ids.append(key)

    def on_event(self, event: Event) -> None:
        """Drop the responses that an event may change."""
        if isinstance(event, VersionStored):
            self._drop(self._of_id.pop(event.version.id, []))
            dropped, self._of_last_ids = self._of_last_ids, []
            self._drop(dropped)
        elif not isinstance(event, _UNRELATED):
            self.clear()

    def _drop(self, keys: list[Key | bytes]) -> None:
        for key in keys:
            if isinstance(key, bytes):
                self._requests.pop(key, None)
            elif (dropped := self._responses.pop(key, None)) is not None:
                self._bodies_bytes -= len(dropped.body)

    def clear(self) -> None:
        """Drop everything."""
        self._responses.clear()
        self._requests.clear()
        self._of_id.clear()
        self._of_last_ids.clear()
        self._bodies_bytes = 0
