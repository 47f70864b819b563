"""`/config` and `/mode`: global, of a context, of a subject."""

from fastapi import APIRouter, Request, Response

from penstock.registry.errors import (
    invalid_level,
    invalid_mode,
    level_not_configured,
    mode_not_configured,
)
from penstock.registry.http.requests import (
    CONFIG_BODY,
    MODE_BODY,
    DefaultToGlobal,
    Flag,
    Name,
    read_document,
)
from penstock.registry.http.responses import json_response
from penstock.registry.registry_node import RegistryNode
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
from penstock.registry.store.events import Mode, SubjectConfig
from penstock.registry.subject_names import setting_key

RESPONSE_LEVEL = "compatibilityLevel"
REQUEST_LEVEL = "compatibility"


def configuring(node: RegistryNode) -> APIRouter:
    """`/config`."""
    router = APIRouter(tags=["config"])
    state = node.state

    @router.get("/config")
    async def read_global_config(default_to_global: DefaultToGlobal = False) -> Response:
        """The settings of all subjects that have none of their own."""
        return json_response(write_config(state.config(None), RESPONSE_LEVEL))

    @router.get("/config/{subject}")
    async def read_subject_config(
        subject: Name, default_to_global: DefaultToGlobal = False
    ) -> Response:
        """The settings of a subject or context; with `defaultToGlobal`, those in force."""
        scope = setting_key(subject)
        if scope is None or default_to_global:
            return json_response(write_config(state.config(scope), RESPONSE_LEVEL))
        own = state.configs.get(scope)
        if own is None:
            raise level_not_configured(scope)
        return json_response(write_config(own, RESPONSE_LEVEL))

    @router.put("/config", openapi_extra=CONFIG_BODY)
    async def change_global_config(request: Request) -> Response:
        """Change settings: what is left out stays, null clears."""
        return await _change(node, None, await read_document(request))

    @router.put("/config/{subject}", openapi_extra=CONFIG_BODY)
    async def change_subject_config(request: Request, subject: Name) -> Response:
        """Change the settings of a subject, which need not exist yet."""
        return await _change(node, setting_key(subject), await read_document(request))

    @router.delete("/config")
    async def remove_global_config() -> Response:
        """Back to the defaults."""
        return await _remove_config(node, None)

    @router.delete("/config/{subject}")
    async def remove_subject_config(subject: Name) -> Response:
        """Leave a subject's settings to its context."""
        return await _remove_config(node, setting_key(subject))

    return router


async def _change(node: RegistryNode, scope: str | None, document: Document) -> Response:
    members = given_members(document, REQUEST_LEVEL)
    if not members:
        raise invalid_level()
    given = read_config(document, REQUEST_LEVEL)
    await node.submit(SetConfig(scope, given, members))
    return json_response(write_config(given, REQUEST_LEVEL))


async def _remove_config(node: RegistryNode, scope: str | None) -> Response:
    removed = await node.submit(RemoveConfig(scope))
    assert isinstance(removed, SubjectConfig)
    return json_response(write_config(removed, RESPONSE_LEVEL))


def moding(node: RegistryNode) -> APIRouter:
    """`/mode`."""
    router = APIRouter(tags=["mode"])
    state = node.state

    @router.get("/mode")
    async def read_global_mode(default_to_global: DefaultToGlobal = False) -> Response:
        """What may be done to subjects that have no mode of their own."""
        return json_response({"mode": str(state.mode(None))})

    @router.get("/mode/{subject}")
    async def read_subject_mode(
        subject: Name, default_to_global: DefaultToGlobal = False
    ) -> Response:
        """The mode of a subject or context; with `defaultToGlobal`, the one in force."""
        scope = setting_key(subject)
        if scope is None or default_to_global:
            return json_response({"mode": str(state.mode(scope))})
        own = state.modes.get(scope)
        if own is None:
            raise mode_not_configured(scope)
        return json_response({"mode": str(own)})

    @router.put("/mode", openapi_extra=MODE_BODY)
    async def change_global_mode(request: Request, force: Flag = False) -> Response:
        """Change the mode; null clears it."""
        return await _change_mode(node, None, await read_document(request), force=force)

    @router.put("/mode/{subject}", openapi_extra=MODE_BODY)
    async def change_subject_mode(request: Request, subject: Name, force: Flag = False) -> Response:
        """Change the mode of a subject or context."""
        scope = setting_key(subject)
        return await _change_mode(node, scope, await read_document(request), force=force)

    @router.delete("/mode")
    async def remove_global_mode(recursive: Flag = False) -> Response:
        """Back to READWRITE."""
        return await _remove_mode(node, None, recursive=recursive)

    @router.delete("/mode/{subject}")
    async def remove_subject_mode(subject: Name, recursive: Flag = False) -> Response:
        """Leave the mode to the context."""
        return await _remove_mode(node, setting_key(subject), recursive=recursive)

    return router


async def _change_mode(
    node: RegistryNode, scope: str | None, document: Document, *, force: bool
) -> Response:
    if "mode" not in document:
        raise invalid_mode()
    word = read_text(document, "mode")
    if word is not None and word.upper() not in Mode.__members__:
        raise invalid_mode()
    mode = None if word is None else Mode(word.upper())
    await node.submit(SetMode(scope, mode, force))
    return json_response({} if mode is None else {"mode": str(mode)})


async def _remove_mode(node: RegistryNode, scope: str | None, *, recursive: bool) -> Response:
    removed = await node.submit(RemoveMode(scope, recursive))
    return json_response({"mode": str(removed)})
