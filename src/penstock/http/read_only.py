"""Which requests change something: those a server that is read-only refuses, before routing. Pure.

Every request with another method than GET, HEAD or OPTIONS changes something unless it is listed
here, so that a new route is refused until it is listed. A dry run changes nothing.
"""

import re
from typing import Final
from urllib.parse import parse_qs

CODE: Final = "read_only"
MESSAGE: Final = "this server is read-only: it was started with --read-only"
_SAFE_METHODS: Final = frozenset(("GET", "HEAD", "OPTIONS"))
_SEGMENT: Final = "[^/]+"
# Reads with a body. Braces are any one segment of a path, as in the routes.
READS: Final = (
    ("POST", "/"),
    ("POST", "/subjects/{subject}"),
    ("POST", "/compatibility/subjects/{subject}/versions"),
    ("POST", "/compatibility/subjects/{subject}/versions/{version}"),
    ("POST", "/topics/{topic}/search"),
    ("POST", "/console/api/schemas/{subject}/propose"),
    ("POST", "/sql"),
    ("DELETE", "/sql/{id}"),
)
# Changes nothing with `?dry_run=true`.
DRY_RUNS: Final = (
    ("POST", "/topics"),
    ("PATCH", "/topics/{topic}"),
    ("POST", "/topics/{topic}/produce"),
    ("PUT", "/consumer-groups/{group}/offsets"),
    ("POST", "/quarantine/{topic}/redrive"),
)
# Joins a group, and commits offsets of it, although it is a GET or a WebSocket.
CHANGING_READS: Final = (("GET", "/consumer-groups/{group}/stream"),)


def changes(method: str, path: str, query: str) -> bool:
    """Whether a request changes something; `path` is percent-encoded, `method` GET for sockets."""
    path = path.rstrip("/") or "/"
    if method in _SAFE_METHODS:
        return _is_listed("GET", path, _CHANGING_READS)
    if _is_listed(method, path, _READS):
        return False
    return not (_is_listed(method, path, _DRY_RUNS) and _is_dry_run(query))


def _is_dry_run(query: str) -> bool:
    """Only if it is said, and not also denied."""
    return set(parse_qs(query, keep_blank_values=True).get("dry_run", ())) == {"true"}


def _compiled(rows: tuple[tuple[str, str], ...]) -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((method, re.compile(re.sub(r"\{\w+\}", _SEGMENT, path))) for method, path in rows)


_READS: Final = _compiled(READS)
_DRY_RUNS: Final = _compiled(DRY_RUNS)
_CHANGING_READS: Final = _compiled(CHANGING_READS)


def _is_listed(method: str, path: str, rows: tuple[tuple[str, re.Pattern[str]], ...]) -> bool:
    return any(method == of_row and pattern.fullmatch(path) for of_row, pattern in rows)
