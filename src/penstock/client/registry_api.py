"""The HTTP client of a schema registry: its nodes, retries and login, and the documents it serves.

A node that cannot be reached, or that reports that it is overloaded, is skipped for the next one;
after a few rounds with pauses the registry counts as unavailable. A request that a node declines is
not sent to another. Works with every registry that has Confluent's API. Never caches: `Registry`
keeps caches over it.
"""

import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import httpx

from penstock.client.registry_documents import (
    MALFORMED_RESPONSE,
    Document,
    collect_imports,
    parse_schema,
    read_source,
)
from penstock.closing import Closing
from penstock.schemas.model import ParsedSchema, SchemaText
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
_OVERLOADED: Final = frozenset({408, 429, 500, 502, 503, 504})
_ABSENT: Final = frozenset({404, 40401, 40402, 40403, 40404, 40406, 40408, 40409})
_ADVICE: Final = {
    401: "Pass the registry's user name and password as `auth`.",
    403: "This user lacks the permission; contact the registry's operator.",
    409: "Change the schema so that it is compatible, or use another subject.",
    40901: "Change the schema so that it is compatible, or use another subject.",
    42205: "The registry or the subject is read-only.",
}
_JSON: Final = "application/vnd.schemaregistry.v1+json"


@dataclass(slots=True)
class RequestStats:
    """All requests of one client."""

    requests: int = 0
    failures: int = 0  # no response, or one that says "overloaded"
    seconds: float = 0.0
    slowest_s: float = 0.0


class RegistryApi(Closing):
    """The nodes of one registry. Safe for threads.

    `urls` may name several nodes, separated by commas. `client` is the name under which the
    registry counts this program's use of schemas.
    """

    def __init__(
        self,
        urls: str,
        *,
        client: str = "penstock-client",
        auth: tuple[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
        attempts: int = ATTEMPTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.urls: Final = tuple(url.strip().rstrip("/") for url in urls.split(",") if url.strip())
        if not self.urls or not all(url.startswith(("http://", "https://")) for url in self.urls):
            raise ArgumentError(f"{urls!r} is not the address of a registry: use http://host:port")
        self.stats: Final = RequestStats()
        self._attempts = attempts
        self._clock = clock
        self._lock = threading.Lock()
        self._preferred = 0  # the node that responded last
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

    @property
    def url(self) -> str:
        """The first of its addresses."""
        return self.urls[0]

    def subjects(self, prefix: str = "") -> list[str]:
        """Live subjects whose names begin with a prefix, sorted."""
        query = {"subjectPrefix": prefix} if prefix else {}
        names = map(str, self.send("GET", "subjects", about="the subjects", query=query))
        return sorted(name for name in names if name.startswith(prefix))  # some ignore the prefix

    def has_subjects(self) -> bool:
        """Whether the registry has any subject in any context."""
        query = {"subjectPrefix": ":*:", "limit": "1"}
        return bool(self.send("GET", "subjects", about="the subjects", query=query))

    def schemas(self, prefix: str = "", *, deleted: bool = False) -> list[Document]:
        """All versions of the subjects with a prefix, of every context unless it names one."""
        versions: list[Document] = []
        query = {
            "subjectPrefix": prefix if prefix.startswith(":") else f":*:{prefix}",
            "deleted": _flag(deleted),
        }
        while page := self.send(
            "GET", "schemas", about="the schemas", query=query | {"offset": str(len(versions))}
        ):
            versions += page
        return versions

    def versions(self, subject: str) -> list[int]:
        """The numbers of the live versions, in order; empty if the subject does not exist."""
        about = f"the versions of {subject}"
        try:
            return sorted(map(int, self.send("GET", "subjects", subject, "versions", about=about)))
        except UnknownSchemaError:
            return []

    def version(self, subject: str, version: int | str, *, deleted: bool = False) -> Document:
        """One version of a subject, by number or "latest"."""
        about = f"version {version} of {subject}"
        query = {"deleted": "true"} if deleted else {}
        return self._object(
            "GET", "subjects", subject, "versions", version, about=about, query=query
        )

    def find_version(self, subject: str, version: int) -> Document | None:
        """One version of a subject, deleted or not; None if it does not exist."""
        with suppress(UnknownSchemaError):
            return self.version(subject, version, deleted=True)
        return None

    def schema(self, kind: str, key: object) -> Document:
        """A schema by what frames name: `kind` is "ids" or "guids"."""
        return self._object("GET", "schemas", kind, key, about=f"schema {key}")

    def schema_versions(self, schema_id: int) -> list[Document]:
        """The subjects and versions that a schema is registered as."""
        about = f"the versions of schema {schema_id}"
        return list(self.send("GET", "schemas", "ids", schema_id, "versions", about=about))

    def register(self, subject: str, body: Document, *, normalize: bool = False) -> Document:
        """Register a schema; one that is registered keeps its id, so this may be repeated."""
        return self._object(
            "POST", "subjects", subject, "versions", about=f"registering a schema of {subject}",
            body=body, query=_normalized(normalize),
        )  # fmt: skip

    def look_up(
        self, subject: str, body: Document, *, normalize: bool = False, deleted: bool = False
    ) -> Document:
        """The version of a subject that has this schema."""
        query = _normalized(normalize) | ({"deleted": "true"} if deleted else {})
        about = f"the version of {subject} with this schema"
        return self._object("POST", "subjects", subject, about=about, body=body, query=query)

    def find_schema(self, subject: str, body: Document) -> Document | None:
        """The version of a subject that has this schema; None if no version has."""
        with suppress(UnknownSchemaError):
            return self.look_up(subject, body)
        return None

    def compatibility(self, subject: str, body: Document) -> Document:
        """Whether registration would accept a schema: `is_compatible`, and `messages` if not."""
        return self._object(
            "POST", "compatibility", "subjects", subject, "versions",
            about=f"the compatibility with {subject}", body=body, query={"verbose": "true"},
        )  # fmt: skip

    def delete(
        self, subject: str, version: int | str | None = None, *, permanent: bool = False
    ) -> list[int]:
        """Delete a subject or one version of it; the numbers of the deleted versions."""
        path = ["subjects", subject, *([] if version is None else ["versions", version])]
        about = f"deleting {subject if version is None else f'version {version} of {subject}'}"
        deleted = self.send("DELETE", *path, about=about, query={"permanent": _flag(permanent)})
        return [int(number) for number in (deleted if isinstance(deleted, list) else [deleted])]

    def config(self, subject: str) -> Document:
        """The settings that are effective for a subject."""
        query = {"defaultToGlobal": "true"}
        return self._object(
            "GET", "config", subject, about=f"the settings of {subject}", query=query
        )

    def own_config(self, scope: str) -> Document | None:
        """The settings of a subject or context itself ("": the registry's); None if unset."""
        return self._own("config", scope)

    def set_config(self, scope: str, settings: Mapping[str, Any]) -> None:
        """Change settings of a subject or context ("": the registry's)."""
        about = f"changing settings of {scope or 'the registry'}"
        self.send("PUT", *_scoped("config", scope), about=about, body=settings)

    def own_mode(self, scope: str) -> str | None:
        """The mode of a subject or context itself ("": the registry's); None if unset."""
        mode = self._own("mode", scope)
        return None if mode is None else str(mode["mode"])

    def set_mode(self, scope: str, mode: str | None) -> None:
        """Set the mode of a subject or context ("": the registry's), or remove it."""
        path, about = _scoped("mode", scope), f"the mode of {scope or 'the registry'}"
        if mode is None:
            self.send("DELETE", *path, about=about)
        else:
            self.send("PUT", *path, about=about, body={"mode": mode}, query={"force": "true"})

    def usage(self, subject: str, quiet_days: int) -> Document:
        """Which clients use which version (Penstock's registry only)."""
        about = f"the usage of {subject}"
        query = {"quietDays": str(quiet_days)}
        return self._object("GET", "subjects", subject, "usage", about=about, query=query)

    def parse(self, source: SchemaText, *, strict: bool = False) -> ParsedSchema:
        """Parse a schema with its references fetched from the registry."""
        imports = collect_imports(
            source,
            lambda subject, number: read_source(self.version(subject, number, deleted=True)),
        )
        return parse_schema(source, imports, strict=strict)

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def send(
        self,
        method: str,
        *path: object,
        about: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request; the response's JSON. `about` says in errors what was requested."""
        url = "".join(f"/{quote(str(segment), safe='')}" for segment in path)
        cause = "no attempt was made"
        for attempt in range(self._attempts):
            if attempt:  # spread, so that a thousand new clients do not return together
                time.sleep(PAUSE_S * attempt * random.uniform(0.5, 1.5))
            for node in range(len(self.urls)):
                index = (self._preferred + node) % len(self.urls)
                response = self._try(self.urls[index] + url, method, query, body)
                if isinstance(response, httpx.Response):
                    self._preferred = index
                    return _read_response(response, about)
                cause = response
        raise RegistryUnavailableError(",".join(self.urls), about, cause)

    def _try(
        self,
        url: str,
        method: str,
        query: Mapping[str, str] | None,
        body: Mapping[str, Any] | None,
    ) -> httpx.Response | str:
        """The response, or why there is none."""
        start_s = self._clock()
        try:
            response: httpx.Response | str = self._http.request(
                method, url, params=query, json=body
            )
        except (httpx.HTTPError, httpx.InvalidURL) as failure:
            response = f"{type(failure).__name__}: {failure}"
        if isinstance(response, httpx.Response) and response.status_code in _OVERLOADED:
            response = f"HTTP {response.status_code}: {response.text[:200]}"
        self._count(self._clock() - start_s, failed=isinstance(response, str))
        return response

    def _count(self, seconds: float, *, failed: bool) -> None:
        with self._lock:
            self.stats.requests += 1
            self.stats.failures += failed
            self.stats.seconds += seconds
            self.stats.slowest_s = max(self.stats.slowest_s, seconds)

    def _object(self, method: str, *path: object, about: str, **more: Any) -> Document:
        document = self.send(method, *path, about=about, **more)
        if not isinstance(document, dict):
            raise RegistryRefusedError(
                MALFORMED_RESPONSE, f"{about}: the response is not a JSON object"
            )
        return document

    def _own(self, kind: str, scope: str) -> Document | None:
        about = f"the {kind} of {scope or 'the registry'}"
        with suppress(UnknownSchemaError):
            return self._object("GET", *_scoped(kind, scope), about=about)
        return None


def _read_response(response: httpx.Response, about: str) -> Any:
    try:
        content = response.json()
    except ValueError:
        content = None
    if response.is_success and content is not None:
        return content
    if response.is_success:
        raise RegistryRefusedError(
            MALFORMED_RESPONSE, f"{about}: the response is not JSON. Is this a registry?"
        )
    document = content if isinstance(content, dict) else {}
    code = int(document.get("error_code") or response.status_code)
    message = f"{about}: {document.get('message') or response.reason_phrase}"
    if code in _ABSENT:
        raise UnknownSchemaError(code, message)
    raise RegistryRefusedError(code, message, _ADVICE.get(code, ""))


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _normalized(normalize: bool) -> dict[str, str]:
    return {"normalize": "true"} if normalize else {}


def _scoped(kind: str, scope: str) -> tuple[str, ...]:
    return (kind, scope) if scope else (kind,)
