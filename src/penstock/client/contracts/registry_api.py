"""The requests that contracts need of a registry, those that change something included.

Any registry with Confluent's API. Asks one node after the other until one answers; caches nothing,
because what is compared and changed must be what is there now.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final
from urllib.parse import quote

import httpx

from penstock.client.contracts.model import CannotCheck
from penstock.client.errors import RegistryRefused, RegistryUnavailable, UnknownSchema

TIMEOUT_S: Final = 30.0
_ABSENT: Final = frozenset((404, 40401, 40402, 40403, 40404, 40406, 40408))


class RegistryApi:
    """One registry, by the addresses of its nodes, separated by commas."""

    def __init__(self, urls: str, *, auth: tuple[str, str] | None = None) -> None:
        self._urls = [url.strip().rstrip("/") for url in urls.split(",") if url.strip()]
        if not self._urls or not all(url.startswith(("http://", "https://")) for url in self._urls):
            raise CannotCheck(f"{urls!r}: say where the registry is, as http://host:port")
        self._http = httpx.Client(
            auth=auth,
            timeout=TIMEOUT_S,
            headers={
                "Accept": "application/vnd.schemaregistry.v1+json",
                "Penstock-Client": "penstock-contract",
                "Confluent-Accept-Unknown-Properties": "true",
            },
        )

    @property
    def url(self) -> str:
        """The first of its addresses."""
        return self._urls[0]

    def subjects(self, prefix: str = "") -> list[str]:
        """Live subjects whose names begin so. Some registries do not look at the prefix."""
        told = self._ask("GET", "/subjects", query={"subjectPrefix": prefix} if prefix else {})
        return sorted(str(one) for one in told if str(one).startswith(prefix))

    def versions(self, subject: str) -> list[int]:
        """The numbers of live versions, in order; empty if there is no such subject."""
        try:
            return sorted(int(one) for one in self._ask("GET", _path(subject, "versions")))
        except UnknownSchema:
            return []

    def version(self, subject: str, number: int) -> dict[str, Any] | None:
        """One version as the registry tells it, deleted ones too; None if there is none."""
        path = _path(subject, "versions", str(number))
        try:
            return _object(self._ask("GET", path, query={"deleted": "true"}))
        except UnknownSchema:
            return None

    def look_up(self, subject: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """The version that has this schema; None if none has."""
        try:
            return _object(self._ask("POST", _path(subject), body=body))
        except UnknownSchema:
            return None

    def register(self, subject: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Register a schema; what is there already keeps its id."""
        return _object(self._ask("POST", _path(subject, "versions"), body=body))

    def objections(self, subject: str, body: Mapping[str, Any]) -> list[str]:
        """Why registration would decline a schema; empty if it would not."""
        path = f"/compatibility{_path(subject, 'versions')}"
        told = _object(self._ask("POST", path, query={"verbose": "true"}, body=body))
        if told.get("is_compatible"):
            return []
        return [str(one) for one in told.get("messages") or ["the registry gives no reason"]]

    def delete_version(self, subject: str, number: int) -> None:
        """Hide one version."""
        self._ask("DELETE", _path(subject, "versions", str(number)))

    def delete_subject(self, subject: str) -> bool:
        """Hide a subject; False if there was none."""
        try:
            self._ask("DELETE", _path(subject))
        except UnknownSchema:
            return False
        return True

    def config(self, subject: str, *, own: bool = False) -> dict[str, Any] | None:
        """The settings in force for a subject, or its own alone; None if it has none."""
        query = {} if own else {"defaultToGlobal": "true"}
        try:
            return _object(self._ask("GET", f"/config/{quote(subject, safe='')}", query=query))
        except UnknownSchema:
            return None

    def set_config(self, subject: str, settings: Mapping[str, Any]) -> None:
        """Change settings of a subject."""
        self._ask("PUT", f"/config/{quote(subject, safe='')}", body=settings)

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def __enter__(self) -> "RegistryApi":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        cause = ""
        for url in self._urls:
            try:
                answer = self._http.request(method, url + path, params=query or None, json=body)
            except (httpx.HTTPError, httpx.InvalidURL) as failure:
                cause = f"{type(failure).__name__}: {failure}"
                continue
            if answer.status_code not in (502, 503, 504):
                return _understood(answer, f"{method} {path}")
            cause = f"HTTP {answer.status_code}"
        raise RegistryUnavailable(",".join(self._urls), f"{method} {path}", cause)


def _path(subject: str, *more: str) -> str:
    return "/".join(("/subjects", quote(subject, safe=""), *more))


def _understood(answer: httpx.Response, about: str) -> Any:
    try:
        told = answer.json()
    except ValueError:
        told = None
    if answer.is_success and told is not None:
        return told
    if answer.is_success:
        raise RegistryRefused(50005, f"the answer to {about} is not JSON: is this a registry?")
    document = told if isinstance(told, dict) else {}
    code = int(document.get("error_code") or answer.status_code)
    message = f"{about}: {document.get('message') or answer.reason_phrase}"
    if code in _ABSENT:
        raise UnknownSchema(code, message)
    raise RegistryRefused(code, message)


def _object(told: Any) -> dict[str, Any]:
    if not isinstance(told, dict):
        raise RegistryRefused(50005, "the registry's answer is not a JSON object")
    return told
