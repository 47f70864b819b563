"""`/config` and `/mode`: of all, of a context, of a subject."""

from fastapi import APIRouter, Request, Response

from penstock.registry.errors import (
    invalid_level,
    invalid_mode,
    level_not_configured,
    mode_not_configured,
)
from penstock.registry.http.requests import CONFIG_BODY, MODE_BODY, Flag, Name, read_document
from penstock.registry.http.responses import answered
from penstock.registry.node import Registry
from penstock.registry.store.commands import (
    RemoveConfig,
    RemoveMode,
    SetConfig,
    SetMode,
)
from penstock.registry.store.documents import (
    Document,
    given_members,
    read_config,
    read_text,
    write_config,
)
from penstock.registry.store.events import Config, Mode
from penstock.registry.subject_names import setting_key

OUT = "compatibilityLevel"
IN = "compatibility"


def configuring(registry: Registry) -> APIRouter:
    """`/config`."""
    router = APIRouter(tags=["config"])
    store = registry.store

    @router.get("/config")
    async def read_global_config(defaultToGlobal: Flag = False) -> Response:
        """The settings of all subjects that have none of their own."""
        return answered(write_config(store.config(None), OUT))

    @router.get("/config/{subject}")
    async def read_subject_config(subject: Name, defaultToGlobal: Flag = False) -> Response:
        """The settings of a subject or context; with `defaultToGlobal`, those in force."""
        scope = setting_key(subject)
        if scope is None or defaultToGlobal:
            return answered(write_config(store.config(scope), OUT))
        own = store.configs.get(scope)
        if own is None:
            raise level_not_configured(scope)
        return answered(write_config(own, OUT))

    @router.put("/config", openapi_extra=CONFIG_BODY)
    async def change_global_config(request: Request) -> Response:
        """Change settings: what is left out stays, null clears."""
        return await _change(registry, None, await read_document(request))

    @router.put("/config/{subject}", openapi_extra=CONFIG_BODY)
    async def change_subject_config(request: Request, subject: Name) -> Response:
        """Change the settings of a subject, which need not exist yet."""
        return await _change(registry, setting_key(subject), await read_document(request))

    @router.delete("/config")
    async def remove_global_config() -> Response:
        """Back to the defaults."""
        return await _remove_config(registry, None)

    @router.delete("/config/{subject}")
    async def remove_subject_config(subject: Name) -> Response:
        """Leave a subject's settings to its context."""
        return await _remove_config(registry, setting_key(subject))

    return router


async def _change(registry: Registry, scope: str | None, document: Document) -> Response:
    members = given_members(document, IN)
    if not members:
        raise invalid_level()
    given = read_config(document, IN)
    await registry.carry_out(SetConfig(scope, given, members))
    return answered(write_config(given, IN))


async def _remove_config(registry: Registry, scope: str | None) -> Response:
    was = await registry.carry_out(RemoveConfig(scope))
    assert isinstance(was, Config)
    return answered(write_config(was, OUT))


def moding(registry: Registry) -> APIRouter:
    """`/mode`."""
    router = APIRouter(tags=["mode"])
    store = registry.store

    @router.get("/mode")
    async def read_global_mode(defaultToGlobal: Flag = False) -> Response:
        """What may be done to subjects that have no mode of their own."""
        return answered({"mode": str(store.mode(None))})

    @router.get("/mode/{subject}")
    async def read_subject_mode(subject: Name, defaultToGlobal: Flag = False) -> Response:
        """The mode of a subject or context; with `defaultToGlobal`, the one in force."""
        scope = setting_key(subject)
        if scope is None or defaultToGlobal:
            return answered({"mode": str(store.mode(scope))})
        own = store.modes.get(scope)
        if own is None:
            raise mode_not_configured(scope)
        return answered({"mode": str(own)})

    @router.put("/mode", openapi_extra=MODE_BODY)
    async def change_global_mode(request: Request, force: Flag = False) -> Response:
        """Change the mode; null clears it."""
        return await _change_mode(registry, None, await read_document(request), force=force)

    @router.put("/mode/{subject}", openapi_extra=MODE_BODY)
    async def change_subject_mode(request: Request, subject: Name, force: Flag = False) -> Response:
        """Change the mode of a subject or context."""
        scope = setting_key(subject)
        return await _change_mode(registry, scope, await read_document(request), force=force)

    @router.delete("/mode")
    async def remove_global_mode(recursive: Flag = False) -> Response:
        """Back to READWRITE."""
        return await _remove_mode(registry, None, recursive=recursive)

    @router.delete("/mode/{subject}")
    async def remove_subject_mode(subject: Name, recursive: Flag = False) -> Response:
        """Leave the mode to the context."""
        return await _remove_mode(registry, setting_key(subject), recursive=recursive)

    return router


async def _change_mode(
    registry: Registry, scope: str | None, document: Document, *, force: bool
) -> Response:
    if "mode" not in document:
        raise invalid_mode()
    word = read_text(document, "mode")
    if word is not None and word.upper() not in Mode.__members__:
        raise invalid_mode()
    mode = None if word is None else Mode(word.upper())
    await registry.carry_out(SetMode(scope, mode, force))
    return answered({} if mode is None else {"mode": str(mode)})


async def _remove_mode(registry: Registry, scope: str | None, *, recursive: bool) -> Response:
    was = await registry.carry_out(RemoveMode(scope, recursive))
    return answered({"mode": str(was)})
