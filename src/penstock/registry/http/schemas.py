"""`/schemas`: by id, by GUID, and all of them."""

from uuid import UUID

from fastapi import APIRouter, Request, Response

from penstock.registry.errors import DeclinedError, schema_not_found
from penstock.registry.http.requests import (
    FetchMaxId,
    Flag,
    Form,
    LatestOnly,
    Number,
    RuleType,
    SchemaId,
    SubjectPrefix,
    Text,
    note_use,
)
from penstock.registry.http.responses import (
    contents_document,
    json_response,
    page,
    raw_text,
    version_document,
)
from penstock.registry.registration import in_form
from penstock.registry.registry_node import RegistryNode
from penstock.registry.store.documents import Document
from penstock.registry.store.events import Version
from penstock.registry.store.rule_sets import rule_types
from penstock.registry.store.state import RegistryState
from penstock.registry.subject_names import (
    ANY_CONTEXT,
    DEFAULT_CONTEXT,
    is_hidden,
    matches_prefix,
    normal,
    split,
)
from penstock.registry.usage import CONSUMER

SCHEMAS_MAX = 1000  # in one response


def locate(state: RegistryState, schema_id: int, subject: str) -> Version:
    """The version of an id. A subject selects the context, and one of several versions."""
    context, local = split(normal(subject))
    contexts = (
        [context, *sorted(state.contexts)] if local and context == DEFAULT_CONTEXT else [context]
    )
    for name in contexts:
        users = list(state.users_of(schema_id, name))
        named = [version for version in users if local and split(version.subject)[1] == local]
        if named:
            return next((version for version in named if not version.deleted), named[0])
        if users and name == context:
            version = state.by_id(schema_id, name)
            assert version is not None
            return version
    raise schema_not_found(schema_id)


def by_id_document(
    state: RegistryState, schema_id: int, subject: str, *, max_id: bool
) -> tuple[Version, Document]:
    """The response to the most frequent request."""
    version = locate(state, schema_id, subject)
    document = contents_document(version)
    if subject:
        document = {"subject": version.subject, "version": version.number, **document}
    if max_id:
        document["maxId"] = state.contexts[split(version.subject)[0]].last_id
    return version, document


def by_id(node: RegistryNode) -> APIRouter:
    """`/schemas/ids`."""
    router = APIRouter(tags=["schemas"])
    state = node.state

    @router.get("/schemas/ids/{id}")
    async def find_by_id(
        request: Request,
        schema_id: SchemaId,
        subject: Text = "",
        form: Form = "",
        max_id: FetchMaxId = False,
    ) -> Response:
        """The schema with an id. Also if all its versions are softly deleted."""
        try:
            version, document = by_id_document(state, schema_id, subject, max_id=max_id)
        except DeclinedError:
            await node.catch_up()  # perhaps another node wrote it a moment ago
            version, document = by_id_document(state, schema_id, subject, max_id=max_id)
        note_use(node, request, version, CONSUMER)
        if form:
            document["schema"] = await in_form(node, version, form)
        return json_response(document)

    @router.get("/schemas/ids/{id}/schema")
    async def read_text_by_id(schema_id: SchemaId, subject: Text = "", form: Form = "") -> Response:
        """The text of the schema with an id."""
        return raw_text(await in_form(node, locate(state, schema_id, subject), form))

    @router.get("/schemas/ids/{id}/subjects")
    async def list_subjects_by_id(
        schema_id: SchemaId,
        subject: Text = "",
        deleted: Flag = False,
        offset: Number = 0,
        limit: Number = -1,
    ) -> Response:
        """The subjects that have a version with the id."""
        users = _users(state, schema_id, subject, deleted=deleted)
        return json_response(page(sorted({user.subject for user in users}), offset, limit))

    @router.get("/schemas/ids/{id}/versions")
    async def list_versions_by_id(
        schema_id: SchemaId,
        subject: Text = "",
        deleted: Flag = False,
        offset: Number = 0,
        limit: Number = -1,
    ) -> Response:
        """The versions that have the id."""
        users = sorted(
            _users(state, schema_id, subject, deleted=deleted), key=lambda version: version.key
        )
        pairs = [{"subject": user.subject, "version": user.number} for user in users]
        return json_response(page(pairs, offset, limit))

    return router


def _users(state: RegistryState, schema_id: int, subject: str, *, deleted: bool) -> list[Version]:
    located = locate(state, schema_id, subject)
    local = split(normal(subject))[1]
    users = [
        user
        for user in state.users_of(schema_id, split(located.subject)[0])
        if (deleted or not user.deleted) and (not local or split(user.subject)[1] == local)
    ]
    if not users:
        raise schema_not_found(schema_id)
    return users


def everything(node: RegistryNode) -> APIRouter:
    """`/schemas` and requests without an id."""
    router = APIRouter(tags=["schemas"])
    state = node.state

    @router.get("/schemas/types")
    async def list_types() -> Response:
        """The languages schemas may be written in."""
        return json_response(["JSON", "PROTOBUF", "AVRO"])

    @router.get("/schemas/guids/{guid}")
    async def find_by_guid(guid: str, form: Form = "") -> Response:
        """The schema with a GUID, which means the same in every context."""
        context, schema_id = next(iter(_ids_of(state, guid).items()))
        version = state.by_id(schema_id, context)
        assert version is not None
        return json_response(contents_document(version, await in_form(node, version, form)))

    @router.get("/schemas/guids/{guid}/ids")
    async def list_ids_by_guid(guid: str) -> Response:
        """The ids a GUID has in the contexts."""
        ids = sorted(_ids_of(state, guid).items())
        return json_response(
            [{"context": name, "id": each} for name, each in ids if not is_hidden(name)]
        )

    @router.get("/schemas")
    async def list_schemas(
        prefix: SubjectPrefix = ANY_CONTEXT,
        aliases: Flag = False,
        deleted: Flag = False,
        latest_only: LatestOnly = False,
        rule_type: RuleType = "",
        offset: Number = 0,
        limit: Number = -1,
    ) -> Response:
        """All versions of all subjects."""
        listed: list[Version] = []
        for subject in sorted(state.versions):
            if not matches_prefix(subject, prefix):
                continue
            versions = state.stored(subject) if deleted else state.live(subject)
            listed += versions[-1:] if latest_only else versions
        if rule_type:
            listed = [each for each in listed if rule_type in rule_types(each.contents.rule_set)]
        named = _aliases(state) if aliases else {}
        shown = page(listed, offset, limit, SCHEMAS_MAX)
        return json_response(
            [{**version_document(each), **named.get(each.subject, {})} for each in shown]
        )

    return router


def _aliases(state: RegistryState) -> dict[str, Document]:
    documents: dict[str, Document] = {}
    for scope, config in state.configs.items():
        if scope is not None and config.alias:
            target = state.resolve_alias(normal(scope))
            documents.setdefault(target, {"aliases": []})["aliases"].append(scope)
    return documents


def _ids_of(state: RegistryState, guid: str) -> dict[str, int]:
    """The id in each context."""
    try:
        ids = state.guids.get(UUID(guid).bytes)
    except ValueError:
        ids = None
    if not ids:
        raise schema_not_found(guid[:100])
    return ids
