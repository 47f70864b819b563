"""Levels, policies and modes of subjects, contexts and the registry, for export and import.

A document is {"settings": scope, "config": {...}, "mode": "..."} with what the scope itself has
set; the scope is a subject, a context (`:.name:`), or "" for the registry.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from penstock.cli.registry_link import NOT_FOUND, RegistryLink, RegistryRefusedError

GLOBAL: Final = ""
_READ_AS, _WRITTEN_AS = "compatibilityLevel", "compatibility"  # one setting, two names in the API


def settings_of(link: RegistryLink, scopes: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The documents of those scopes that have settings of their own."""
    for scope in scopes:
        document: dict[str, Any] = {"settings": scope}
        config = _own(link, "config", scope)
        if config:
            document["config"] = config
        mode = _own(link, "mode", scope)
        if mode:
            document["mode"] = mode["mode"]
        if len(document) > 1:
            yield document


def contexts_of(subjects: Iterable[str]) -> list[str]:
    """The contexts of subjects, the default one left out."""
    found = {subject.split(":")[1] for subject in subjects if subject.startswith(":")}
    return [f":{name}:" for name in sorted(found - {".", ""})]


def apply_config(link: RegistryLink, document: dict[str, Any]) -> None:
    """Set what an exported document says, beside the mode."""
    config = document.get("config")
    if config:
        body = {_WRITTEN_AS if name == _READ_AS else name: one for name, one in config.items()}
        link.ask("PUT", *_path("config", document["settings"]), body=body)


def own_mode(link: RegistryLink, scope: str) -> str | None:
    """The mode that a scope has set; None if it has none."""
    found = _own(link, "mode", scope)
    return None if found is None else str(found["mode"])


def set_mode(link: RegistryLink, scope: str, mode: str | None) -> None:
    """Set a scope's own mode, or remove it."""
    path = _path("mode", scope)
    if mode is None:
        link.ask("DELETE", *path)
    else:
        link.ask("PUT", *path, body={"mode": mode}, force="true")


def _own(link: RegistryLink, kind: str, scope: str) -> dict[str, Any] | None:
    try:
        return dict(link.ask("GET", *_path(kind, scope)))
    except RegistryRefusedError as refusal:
        if refusal.status != NOT_FOUND:
            raise
        return None


def _path(kind: str, scope: str) -> tuple[str, ...]:
    return (kind,) if scope == GLOBAL else (kind, scope)
