"""The requests that contracts need of a registry, those that change something included.

Any registry with Confluent's API. Asks one node after the other until one answers; caches nothing,
because what is compared and changed must be what is there now.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from penstock.client.registry_http import RegistryHttp, as_object, quoted
from penstock.closing import Closing
from penstock.gate.contracts import CannotCheckError
from penstock.serde.errors import UnknownSchemaError

TIMEOUT_S: Final = 30.0


class RegistryApi(Closing):
    """One registry: the addresses of its nodes, separated by commas, or a client's connections."""

    def __init__(self, at: str | RegistryHttp, *, auth: tuple[str, str] | None = None) -> None:
        self._http = at if isinstance(at, RegistryHttp) else _connected(at, auth)

    @property
    def url(self) -> str:
        """The first of its addresses."""
        return self._http.urls[0]

    def subjects(self, prefix: str = "") -> list[str]:
        """Live subjects whose names begin so. Some registries do not look at the prefix."""
        told = self._ask("GET", "/subjects", query={"subjectPrefix": prefix} if prefix else {})
        return sorted(str(one) for one in told if str(one).startswith(prefix))

    def versions(self, subject: str) -> list[int]:
        """The numbers of live versions, in order; empty if there is no such subject."""
        try:
            return sorted(int(one) for one in self._ask("GET", _path(subject, "versions")))
        except UnknownSchemaError:
            return []

    def version(self, subject: str, number: int) -> dict[str, Any] | None:
        """One version as the registry tells it, deleted ones too; None if there is none."""
        path = _path(subject, "versions", str(number))
        try:
            return self._object("GET", path, query={"deleted": "true"})
        except UnknownSchemaError:
            return None

    def look_up(self, subject: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """The version that has this schema; None if none has."""
        try:
            return self._object("POST", _path(subject), body=body)
        except UnknownSchemaError:
            return None

    def register(self, subject: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Register a schema; what is there already keeps its id."""
        return self._object("POST", _path(subject, "versions"), body=body)

    def objections(self, subject: str, body: Mapping[str, Any]) -> list[str]:
        """Why registration would decline a schema; empty if it would not."""
        path = f"/compatibility{_path(subject, 'versions')}"
        told = self._object("POST", path, query={"verbose": "true"}, body=body)
        if told.get("is_compatible"):
            return []
        return [str(one) for one in told.get("messages") or ["the registry gives no reason"]]

    def delete_version(self, subject: str, number: int) -> None:
        """Hide one version; one that is gone already is fine."""
        with suppress(UnknownSchemaError):
            self._ask("DELETE", _path(subject, "versions", str(number)))

    def delete_subject(self, subject: str) -> bool:
        """Hide a subject; False if there was none."""
        try:
            self._ask("DELETE", _path(subject))
        except UnknownSchemaError:
            return False
        return True

    def config(self, subject: str, *, own: bool = False) -> dict[str, Any] | None:
        """The settings in force for a subject, or its own alone; None if it has none."""
        query = {} if own else {"defaultToGlobal": "true"}
        try:
            return self._object("GET", f"/config/{quoted(subject)}", query=query)
        except UnknownSchemaError:
            return None

    def set_config(self, subject: str, settings: Mapping[str, Any]) -> None:
        """Change settings of a subject."""
        self._ask("PUT", f"/config/{quoted(subject)}", body=settings)

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        return self._http.send(method, path, f"{method} {path}", query=query, body=body)

    def _object(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        return as_object(self._ask(method, path, **more), path)


def _connected(urls: str, auth: tuple[str, str] | None) -> RegistryHttp:
    try:
        return RegistryHttp(
            urls,
            client="penstock-contract",
            auth=auth,
            timeout_s=TIMEOUT_S,
            attempts=1,
            clock=time.monotonic,
        )
    except ValueError as wrong:
        raise CannotCheckError(str(wrong)) from None


def _path(subject: str, *more: str) -> str:
    return "/".join(("/subjects", quoted(subject), *more))
