"""`/schemas`: by id, by GUID, and all of them."""

from uuid import UUID

from fastapi import APIRouter, Request, Response

from penstock.registry.errors import Declined, schema_not_found
from penstock.registry.http.requests import Flag, Number, Text, note_use
from penstock.registry.http.responses import answered, described, page, placed, raw_text
from penstock.registry.node import Registry
from penstock.registry.proposals import in_form
from penstock.registry.store.documents import Document
from penstock.registry.store.events import Version
from penstock.registry.store.rule_sets import rule_types
from penstock.registry.store.state import Store
from penstock.registry.subject_names import (
    ANY_CONTEXT,
    DEFAULT_CONTEXT,
    is_hidden,
    matches_prefix,
    normal,
    split,
)
from penstock.registry.usage import CONSUMER

SCHEMAS_MAX = 1000  # in one answer


def locate(store: Store, id: int, subject: str) -> Version:
    """The version an id means. A subject tells the context, and which version of several."""
    context, local = split(normal(subject))
    contexts = (
        [context, *sorted(store.contexts)] if local and context == DEFAULT_CONTEXT else [context]
    )
    for place in contexts:
        users = list(store.users_of(id, place))
        named = [one for one in users if local and split(one.subject)[1] == local]
        if named:
            return next((one for one in named if not one.deleted), named[0])
        if users and place == context:
            found = store.by_id(id, place)
            assert found is not None
            return found
    raise schema_not_found(id)


def by_id_document(
    store: Store, id: int, subject: str, *, max_id: bool
) -> tuple[Version, Document]:
    """The answer to the question everybody asks."""
    one = locate(store, id, subject)
    document = described(one)
    if subject:
        document = {"subject": one.subject, "version": one.number, **document}
    if max_id:
        document["maxId"] = store.contexts[split(one.subject)[0]].last_id
    return one, document


def by_id(registry: Registry) -> APIRouter:
    """`/schemas/ids`."""
    router = APIRouter(tags=["schemas"])
    store = registry.store

    @router.get("/schemas/ids/{id}")
    async def find_by_id(
        request: Request,
        id: int,
        subject: Text = "",
        format: Text = "",
        fetchMaxId: Flag = False,
    ) -> Response:
        """The schema with an id. Also if all its versions are softly deleted."""
        try:
            one, document = by_id_document(store, id, subject, max_id=fetchMaxId)
        except Declined:
            await registry.catch_up()  # perhaps another node wrote it a moment ago
            one, document = by_id_document(store, id, subject, max_id=fetchMaxId)
        note_use(registry, request, one, CONSUMER)
        if format:
            document["schema"] = await in_form(registry, one, format)
        return answered(document)

    @router.get("/schemas/ids/{id}/schema")
    async def read_text_by_id(id: int, subject: Text = "", format: Text = "") -> Response:
        """The text of the schema with an id."""
        return raw_text(await in_form(registry, locate(store, id, subject), format))

    @router.get("/schemas/ids/{id}/subjects")
    async def list_subjects_by_id(
        id: int, subject: Text = "", deleted: Flag = False, offset: Number = 0, limit: Number = -1
    ) -> Response:
        """The subjects that have a version with the id."""
        users = _users(store, id, subject, deleted=deleted)
        return answered(page(sorted({one.subject for one in users}), offset, limit))

    @router.get("/schemas/ids/{id}/versions")
    async def list_versions_by_id(
        id: int, subject: Text = "", deleted: Flag = False, offset: Number = 0, limit: Number = -1
    ) -> Response:
        """The versions that have the id."""
        users = sorted(_users(store, id, subject, deleted=deleted), key=lambda one: one.key)
        pairs = [{"subject": one.subject, "version": one.number} for one in users]
        return answered(page(pairs, offset, limit))

    return router


def _users(store: Store, id: int, subject: str, *, deleted: bool) -> list[Version]:
    one = locate(store, id, subject)
    users = store.users_of(id, split(one.subject)[0])
    wanted = split(normal(subject))[1]
    found = [
        other
        for other in users
        if (deleted or not other.deleted) and (not wanted or split(other.subject)[1] == wanted)
    ]
    if not found:
        raise schema_not_found(id)
    return found


def everything(registry: Registry) -> APIRouter:
    """`/schemas` and what does not go by id."""
    router = APIRouter(tags=["schemas"])
    store = registry.store

    @router.get("/schemas/types")
    async def list_types() -> Response:
        """The languages schemas may be written in."""
        return answered(["JSON", "PROTOBUF", "AVRO"])

    @router.get("/schemas/guids/{guid}")
    async def find_by_guid(guid: str, format: Text = "") -> Response:
        """The schema with a GUID, which means the same in every context."""
        context, id = next(iter(_places(store, guid).items()))
        one = store.by_id(id, context)
        assert one is not None
        return answered(described(one, await in_form(registry, one, format)))

    @router.get("/schemas/guids/{guid}/ids")
    async def list_ids_by_guid(guid: str) -> Response:
        """The ids a GUID has in the contexts."""
        places = [one for one in sorted(_places(store, guid).items()) if not is_hidden(one[0])]
        return answered([{"context": context, "id": id} for context, id in places])

    @router.get("/schemas")
    async def list_schemas(
        subjectPrefix: Text = ANY_CONTEXT,
        aliases: Flag = False,
        deleted: Flag = False,
        latestOnly: Flag = False,
        ruleType: Text = "",
        offset: Number = 0,
        limit: Number = -1,
    ) -> Response:
        """All versions of all subjects."""
        found = []
        for subject in sorted(store.versions):
            if not matches_prefix(subject, subjectPrefix):
                continue
            versions = store.stored(subject) if deleted else store.live(subject)
            found += versions[-1:] if latestOnly else versions
        if ruleType:
            found = [one for one in found if ruleType in rule_types(one.contents.rule_set)]
        named = _aliases(store) if aliases else {}
        shown = page(found, offset, limit, SCHEMAS_MAX)
        return answered([{**placed(one), **named.get(one.subject, {})} for one in shown])

    return router


def _aliases(store: Store) -> dict[str, Document]:
    found: dict[str, Document] = {}
    for scope, config in store.configs.items():
        if scope is not None and config.alias:
            target = store.aliased(normal(scope))
            found.setdefault(target, {"aliases": []})["aliases"].append(scope)
    return found


def _places(store: Store, guid: str) -> dict[str, int]:
    try:
        places = store.guids.get(UUID(guid).bytes)
    except ValueError:
        places = None
    if not places:
        raise schema_not_found(guid[:100])
    return places
