"""`/console`: the pages, and the application of the routes that only they use.

Every address under `/console` that is not a file or a route answers with the same page, which shows
what its address says: links, bookmarks and reloads work everywhere.
"""

from collections.abc import Callable, Sequence
from typing import Final

from fastapi import APIRouter, FastAPI

from penstock.console.assets import AssetResponse, Assets
from penstock.gateway.errors import write_error
from penstock.gateway.gateway_app import add_error_handlers
from penstock.http.empty_app import empty_app
from penstock.http.site import App, HttpService, Receive, Scope, Send

ROOTS: Final = frozenset((b"console", b"quarantine", b"pipelines", b"sql", b"search"))
_STATIC: Final = b"/console/static/"
_ROUTES: Final = (b"/console/api/", b"/console/live")


def build_console(routers: Sequence[APIRouter] = ()) -> FastAPI:
    """The application of the console's own routes."""
    app = empty_app()
    for router in routers:
        app.include_router(router)
    add_error_handlers(app)
    return app


class ConsoleFront:
    """Sends pages and their files; everything else goes to the routes."""

    def __init__(self, routes: App, on_page: Callable[[], None]) -> None:
        self._routes = routes
        self._on_page = on_page  # a page is about to be shown, and will ask for data
        self._assets = Assets()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI calls it."""
        path: bytes = scope["raw_path"]
        is_page = path == b"/console" or path.startswith(b"/console/")
        if scope["type"] != "http" or not is_page or path.startswith(_ROUTES):
            await self._routes(scope, receive, send)
        else:
            response = self._page(scope, path)
            start = {"status": response.status, "headers": response.headers}
            await send({"type": "http.response.start", **start})
            body = b"" if scope["method"] == "HEAD" else response.body
            await send({"type": "http.response.body", "body": body})

    def _page(self, scope: Scope, path: bytes) -> AssetResponse:
        if scope["method"] not in ("GET", "HEAD"):
            return _error(405, "method_not_allowed", "pages are only read")
        if not path.startswith(_STATIC):
            self._on_page()
            asset = self._assets.shell
        else:
            name = path.removeprefix(_STATIC).decode("latin-1")
            found = self._assets.find(name)
            if found is None:
                return _error(404, "not_found", f"the console has no file {name[:200]!r}")
            asset = found
        return asset.response(dict(scope["headers"]))


def _error(status: int, code: str, message: str) -> AssetResponse:
    body = write_error(status, code, message)
    length = str(len(body)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", length)]
    return AssetResponse(status, headers, body)


def console_service(front: ConsoleFront) -> HttpService:
    """The console among the services of a site."""
    return HttpService(front, ROOTS, write_error)
