"""Requests to a registry's nodes: which one, how often, and what an answer means.

A node that does not answer, or that answers that it cannot just now, is passed over for the next;
after a few rounds with a pause between them the registry counts as unavailable. What a node
declines is not tried elsewhere. Knows nothing of schemas.
"""

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import httpx

from penstock.serde.errors import (
    ArgumentError,
    RegistryRefusedError,
    RegistryUnavailableError,
    UnknownSchemaError,
)

TIMEOUT_S: Final = 10.0
ATTEMPTS: Final = 3
PAUSE_S: Final = 0.1  # before the second round; twice that before the third
CONNECTIONS_MAX: Final = 8
_BUSY: Final = frozenset({408, 429, 500, 502, 503, 504})
_ABSENT: Final = frozenset({404, 40401, 40402, 40403, 40404, 40406, 40408})
_ADVICE: Final = {
    401: "Give the registry's user name and password as `auth`.",
    403: "This user may not do that; ask whoever runs the registry.",
    409: "Change the schema so that it is compatible, or use another subject.",
    40901: "Change the schema so that it is compatible, or use another subject.",
    42205: "The registry or the subject is read-only just now.",
}
_JSON: Final = "application/vnd.schemaregistry.v1+json"


@dataclass(slots=True)
class RequestStats:
    """Of all requests to the registry, whoever asked."""

    requests: int = 0
    failures: int = 0  # not answered, or answered with "not now"
    seconds: float = 0.0
    slowest_s: float = 0.0


def quoted(segment: str) -> str:
    """One segment of a path; subjects may hold slashes."""
    return quote(segment, safe="")


class RegistryHttp:
    """The nodes of one registry."""

    def __init__(
        self,
        urls: str,
        *,
        client: str,
        auth: tuple[str, str] | None,
        timeout_s: float,
        attempts: int,
        clock: Callable[[], float],
    ) -> None:
        self.urls = tuple(url.strip().rstrip("/") for url in urls.split(",") if url.strip())
        if not self.urls or not all(url.startswith(("http://", "https://")) for url in self.urls):
            raise ArgumentError(f"{urls!r} is not a registry's address: give http://host:port")
        self.stats = RequestStats()
        self._attempts = attempts
        self._clock = clock
        self._lock = threading.Lock()
        self._preferred = 0  # the node that answered last
        self._http = httpx.Client(
            auth=auth,
            timeout=timeout_s,
            limits=httpx.Limits(max_connections=CONNECTIONS_MAX),
            headers={
                "Accept": _JSON,
                "Penstock-Client": client,
                "Confluent-Accept-Unknown-Properties": "true",
            },
        )

    def ask(self, path: str, query: Mapping[str, str], about: str) -> dict[str, Any]:
        """GET; `about` says what for, in errors."""
        return as_object(self.send("GET", path, about, query=query), about)

    def post(
        self, path: str, body: Mapping[str, Any], query: Mapping[str, str], about: str
    ) -> dict[str, Any]:
        """POST. Everything the registry takes this way may be sent twice."""
        return as_object(self.send("POST", path, about, query=query, body=body), about)

    def send(
        self,
        method: str,
        path: str,
        about: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """What the registry says, as JSON has it."""
        cause = "no attempt was made"
        for attempt in range(self._attempts):
            if attempt:  # spread, so that a thousand cold clients do not come back as one
                time.sleep(PAUSE_S * attempt * random.uniform(0.5, 1.5))
            for node in range(len(self.urls)):
                index = (self._preferred + node) % len(self.urls)
                answer = self._try(index, method, path, query or {}, body)
                if isinstance(answer, httpx.Response):
                    self._preferred = index
                    return _understood(answer, about)
                cause = answer
        raise RegistryUnavailableError(",".join(self.urls), about, cause)

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def _try(
        self,
        index: int,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None,
    ) -> httpx.Response | str:
        """The answer, or why there is none."""
        start_s = self._clock()
        try:
            answer: httpx.Response | str = self._http.request(
                method, self.urls[index] + path, params=dict(query) or None, json=body
            )
        except (httpx.HTTPError, httpx.InvalidURL) as failure:
            answer = f"{type(failure).__name__}: {failure}"
        if isinstance(answer, httpx.Response) and answer.status_code in _BUSY:
            answer = f"HTTP {answer.status_code}: {answer.text[:200]}"
        self._count(self._clock() - start_s, failed=isinstance(answer, str))
        return answer

    def _count(self, seconds: float, *, failed: bool) -> None:
        with self._lock:
            self.stats.requests += 1
            self.stats.failures += failed
            self.stats.seconds += seconds
            self.stats.slowest_s = max(self.stats.slowest_s, seconds)


def _understood(answer: httpx.Response, about: str) -> Any:
    try:
        told = answer.json()
    except ValueError:
        told = None
    if answer.is_success and told is not None:
        return told
    if answer.is_success:
        raise RegistryRefusedError(
            50005, f"the answer about {about} is not JSON: is this a registry?"
        )
    document = told if isinstance(told, dict) else {}
    code = int(document.get("error_code") or answer.status_code)
    message = f"{about}: {document.get('message') or answer.reason_phrase}"
    if code in _ABSENT:
        raise UnknownSchemaError(code, message)
    raise RegistryRefusedError(code, message, _ADVICE.get(code, ""))


def as_object(told: Any, about: str) -> dict[str, Any]:
    """An answer that has members."""
    if not isinstance(told, dict):
        raise RegistryRefusedError(50005, f"the answer about {about} is not a JSON object")
    return told
