"""Requests of an HTTP process by route and status."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

from penstock.metrics import http_rows as rows
from penstock.metrics.histogram import Histogram
from penstock.monitor.http_counts import (
    CODES,
    OTHER,
    ROOT,
    ROUTES,
    HttpCounts,
    Receive,
    Scope,
    Send,
)

PATHS = {"/subjects/s/versions": 404, "/": 200, "/strange/path": 500, "/console": 307}


async def app(scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": PATHS[scope["path"]]})
    await send({"type": "http.response.body"})


async def receive() -> MutableMapping[str, Any]:
    return {"type": "http.request"}


async def send(_message: MutableMapping[str, Any]) -> None: ...


def requests_of(counts: HttpCounts) -> dict[Any, Any]:
    return dict(dict(counts.families())[rows.HTTP_REQUESTS])


def test_every_route_and_class_of_codes_starts_at_zero() -> None:
    counts = HttpCounts(app)
    routes = {*ROUTES, OTHER, ROOT}
    assert requests_of(counts) == {(route, code): 0 for route in routes for code in CODES}
    seconds = dict(dict(counts.families())[rows.HTTP_REQUEST_SECONDS])
    assert {route for (route,) in seconds} == routes
    assert all(isinstance(each, Histogram) and not any(each.counts) for each in seconds.values())


def test_requests_are_counted_by_route_and_class() -> None:
    counts = HttpCounts(app)
    for path in PATHS:
        asyncio.run(counts({"type": "http", "path": path}, receive, send))
    above_zero = {key for key, count in requests_of(counts).items() if count}
    assert above_zero == {
        ("subjects", "4xx"), (ROOT, "2xx"), (OTHER, "5xx"), ("console", "3xx"),
    }  # fmt: skip
