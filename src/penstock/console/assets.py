"""The files of the console's pages: read and compressed once, on the first visit.

Only files of the folder `static` are served, by the names found there: no path of a request reaches
the file system. Every response has the policy under which the pages run: scripts, styles and
connections of this server only, and no text that becomes markup, so records are always text.
"""

import gzip
import hashlib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

STATIC: Final = Path(__file__).parent / "static"
SHELL: Final = "index.html"

# Of our own, because a wrong type for a module stops the page, and the system's table may be wrong.
MEDIA_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_COMMON: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),  # a page asks again, and gets 304 while nothing changed
    (b"vary", b"Accept-Encoding"),
)

Headers = list[tuple[bytes, bytes]]


class AssetResponse(NamedTuple):
    """What to send for a file."""

    status: int
    headers: Headers
    body: bytes


class Asset(NamedTuple):
    """A file as it is sent."""

    media_type: bytes
    etag: bytes
    plain: bytes
    compressed: bytes

    def response(self, request_headers: Mapping[bytes, bytes]) -> AssetResponse:
        """The whole file, or 304 if the client has it."""
        headers: Headers = [*_COMMON, (b"etag", self.etag)]
        if self.etag in request_headers.get(b"if-none-match", b""):
            return AssetResponse(304, headers, b"")
        body = self.plain
        if b"gzip" in request_headers.get(b"accept-encoding", b""):
            body = self.compressed
            headers.append((b"content-encoding", b"gzip"))
        headers.append((b"content-type", self.media_type))
        headers.append((b"content-length", str(len(body)).encode()))
        return AssetResponse(200, headers, body)


class Assets:
    """All files, by their path under `static`."""

    @cached_property
    def _files(self) -> Mapping[str, Asset]:
        paths = (path for path in STATIC.rglob("*") if path.suffix in MEDIA_TYPES)
        return {path.relative_to(STATIC).as_posix(): _read(path) for path in paths}

    def find(self, name: str) -> Asset | None:
        """A file, or None if there is no such file."""
        return self._files.get(name)

    @property
    def shell(self) -> Asset:
        """The page that every address of the console answers with."""
        return self._files[SHELL]


def _read(path: Path) -> Asset:
    content = path.read_bytes()
    etag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    media_type = MEDIA_TYPES[path.suffix]
    return Asset(media_type.encode(), etag.encode(), content, gzip.compress(content, mtime=0))
