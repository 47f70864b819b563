"""Counts the requests of an HTTP process by route, in front of all its services."""

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from time import perf_counter
from typing import Any, Final, TypeAlias

from penstock.metrics import http_rows as rows
from penstock.metrics.histogram import Histogram
from penstock.metrics.row import SECONDS
from penstock.metrics.text_format import Family

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

OTHER: Final = "other"
ROOT: Final = "root"
# The first segments of paths; any other is counted as OTHER.
ROUTES: Final = frozenset(
    (
        "cluster", "compatibility", "config", "console", "consumer-groups", "contexts", "docs",
        "health", "metrics", "mode", "pipelines", "quarantine", "schemas", "search", "sql",
        "subjects", "topics", "v1", "v3",
    )
)  # fmt: skip


class HttpCounts:
    """An ASGI application in front of another."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._requests: Counter[tuple[str, str]] = Counter(
            {(route, "200"): 0 for route in (*ROUTES, OTHER, ROOT)}
        )
        self._seconds: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(SECONDS))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI calls it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        route = _route_of(scope["path"])
        began_s = perf_counter()

        async def count(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self._requests[route, str(message["status"])] += 1
            await send(message)

        try:
            await self._app(scope, receive, count)
        finally:
            self._seconds[route].observe(perf_counter() - began_s)

    def families(self) -> Iterator[Family]:
        yield rows.HTTP_REQUESTS, sorted(self._requests.items())
        seconds = sorted(self._seconds.items())
        yield rows.HTTP_REQUEST_SECONDS, [((route,), each) for route, each in seconds]


def _route_of(path: str) -> str:
    first = path[1:].partition("/")[0]
    if not first:
        return ROOT
    return first if first in ROUTES else OTHER
