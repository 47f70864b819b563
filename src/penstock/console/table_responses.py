"""Large tables as `{"columns": [...], "rows": [[...]]}`, compressed once for all pages."""

import gzip
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.json_responses import MEDIA

_LEVEL: Final = 3
_GZIP_BYTES_MIN: Final = 1_000


class TableBody(NamedTuple):
    """A table as JSON, plain and compressed."""

    plain: bytes
    packed: bytes


def write_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> TableBody:
    """A table; takes milliseconds for thousands of rows: call it in a thread."""
    plain = msgspec.json.encode({"columns": columns, "rows": rows})
    return TableBody(plain, gzip.compress(plain, _LEVEL, mtime=0))


def table_response(body: TableBody, request: Request) -> Response:
    """In the form that the client accepts."""
    headers = {"Vary": "Accept-Encoding", "Cache-Control": "no-store"}
    accepts = "gzip" in request.headers.get("accept-encoding", "")
    if accepts and len(body.plain) >= _GZIP_BYTES_MIN:
        return Response(body.packed, 200, {**headers, "Content-Encoding": "gzip"}, MEDIA)
    return Response(body.plain, 200, headers, MEDIA)


class TableCache:
    """The body of a table, written once for each version of what it shows."""

    def __init__(self) -> None:
        self._version: object = None
        self._body: TableBody | None = None

    def body(self, version: object, write: Callable[[], TableBody]) -> TableBody:
        """The table of this version."""
        if self._body is None or self._version != version:
            self._body, self._version = write(), version
        return self._body
