"""Counts the requests of an HTTP process by route, in front of all its services."""

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
CODES: Final = ("2xx", "3xx", "4xx", "5xx")


class HttpCounts:
    """An ASGI application in front of another."""

    def __init__(self, app: App) -> None:
        self._app = app
        routes = sorted((*ROUTES, OTHER, ROOT))
        self._requests = {(route, code): 0 for route in routes for code in CODES}
        self._seconds = {route: Histogram(SECONDS) for route in routes}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI calls it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        route = _route_of(scope["path"])
        began_s = perf_counter()

        async def count(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self._requests[route, f"{message['status'] // 100}xx"] += 1
            await send(message)

        try:
            await self._app(scope, receive, count)
        finally:
            self._seconds[route].observe(perf_counter() - began_s)

    def families(self) -> Iterator[Family]:
        yield rows.HTTP_REQUESTS, list(self._requests.items())
        seconds = self._seconds.items()
        yield rows.HTTP_REQUEST_SECONDS, [((route,), each) for route, each in seconds]


def _route_of(path: str) -> str:
    first = path[1:].partition("/")[0]
    if not first:
        return ROOT
    return first if first in ROUTES else OTHER
