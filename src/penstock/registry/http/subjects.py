"""`/subjects`: versions registered, looked up, listed and deleted.

`/compatibility`: whether a schema would be accepted, and if not, why.
"""

from fastapi import APIRouter, Request, Response

from penstock.registry.errors import (
    INVALID_SCHEMA,
    DeclinedError,
    schema_not_found,
    subject_not_found,
)
from penstock.registry.http.requests import (
    SCHEMA_BODY,
    DeletedAsNegative,
    DeletedOnly,
    Flag,
    Form,
    Name,
    Number,
    QuietDays,
    SubjectPrefix,
    TextList,
    note_use,
    read_document,
    read_proposal,
    subject_named,
    version_number,
)
from penstock.registry.http.responses import (
    json_response,
    page,
    raw_text,
    registered_document,
    version_document,
)
from penstock.registry.registration import (
    CompatibilityReport,
    check_all,
    check_version,
    find,
    in_form,
    register,
)
from penstock.registry.registry_node import RegistryNode
from penstock.registry.retirement import DAY_MS, assess
from penstock.registry.store.commands import DeleteSubject, DeleteVersion
from penstock.registry.store.documents import Document
from penstock.registry.store.events import Contents, Version
from penstock.registry.subject_names import (
    ANY_CONTEXT,
    Subject,
    checked,
    context_of,
    matches_prefix,
)
from penstock.registry.usage import PRODUCER

QUIET_DAYS = 7


def registering(node: RegistryNode) -> APIRouter:
    """Schemas are registered, looked up and deleted."""
    router = APIRouter(tags=["subjects"])

    @router.post("/subjects/{subject}/versions", openapi_extra=SCHEMA_BODY)
    async def register_schema(
        request: Request,
        subject: Name,
        normalize: Flag = False,
        form: Form = "",
        force: Flag = False,
    ) -> Response:
        """Register a schema as the next version of a subject; an existing one keeps its id."""
        name = checked(subject_named(node, subject))
        proposal = read_proposal(await read_document(request), name, normalize=normalize)
        version = await register(node, proposal._replace(force=force))
        note_use(node, request, version, PRODUCER)
        given = Contents(proposal.source, proposal.metadata, proposal.rule_set)
        text = await in_form(node, version, form) if form else None
        return json_response(registered_document(version, given, text))

    @router.post("/subjects/{subject}", openapi_extra=SCHEMA_BODY)
    async def look_up_schema(
        request: Request,
        subject: Name,
        normalize: Flag = False,
        form: Form = "",
        deleted: Flag = False,
    ) -> Response:
        """Find the version of a subject that has this schema."""
        name = subject_named(node, subject)
        proposal = read_proposal(await read_document(request), name, normalize=normalize)
        if not node.state.has_subject(name, deleted=deleted):
            raise subject_not_found(name)
        version = await find(node, proposal, deleted=deleted)
        if version is None:
            raise schema_not_found()
        note_use(node, request, version, PRODUCER)
        return json_response(version_document(version, await in_form(node, version, form)))

    @router.delete("/subjects/{subject}")
    async def delete_subject(subject: Name, permanent: Flag = False) -> Response:
        """Hide all versions of a subject, or remove the hidden ones for good."""
        name = checked(subject_named(node, subject))
        return json_response(await node.submit(DeleteSubject(name, permanent)))

    @router.delete("/subjects/{subject}/versions/{version}")
    async def delete_version(subject: Name, version: str, permanent: Flag = False) -> Response:
        """Hide one version, or remove it for good if it is hidden."""
        name = checked(subject_named(node, subject))
        command = DeleteVersion(name, version_number(version), permanent)
        return json_response(await node.submit(command))

    return router


def listing(node: RegistryNode) -> APIRouter:
    """Subjects and versions are listed."""
    router = APIRouter(tags=["subjects"])
    state = node.state

    @router.get("/subjects")
    async def list_subjects(
        prefix: SubjectPrefix = ANY_CONTEXT,
        deleted: Flag = False,
        deleted_only: DeletedOnly = False,
        offset: Number = 0,
        limit: Number = -1,
    ) -> Response:
        """The names of all subjects."""
        names = [
            subject
            for subject in sorted(state.versions)
            if matches_prefix(subject, prefix)
            if _is_listed(node, subject, deleted=deleted, only=deleted_only)
        ]
        return json_response(page(names, offset, limit))

    @router.get("/subjects/{subject}/versions")
    async def list_versions(
        subject: Name,
        deleted: Flag = False,
        deleted_only: DeletedOnly = False,
        deleted_as_negative: DeletedAsNegative = False,
        offset: Number = 0,
        limit: Number = -1,
    ) -> Response:
        """The numbers of a subject's versions."""
        name = state.in_any_context(subject_named(node, subject))
        includes_deleted = deleted or deleted_as_negative
        versions = [
            version
            for version in state.stored(name)
            if (version.deleted if deleted_only else includes_deleted or not version.deleted)
        ]
        if not versions:
            raise subject_not_found(name)
        numbers = [
            -version.number if version.deleted and deleted_as_negative else version.number
            for version in versions
        ]
        return json_response(page(numbers, offset, limit))

    return router


def reading_versions(node: RegistryNode) -> APIRouter:
    """One version is read."""
    router = APIRouter(tags=["subjects"])
    state = node.state

    @router.get("/subjects/{subject}/versions/{version}")
    async def find_version(
        subject: Name, version: str, form: Form = "", deleted: Flag = False
    ) -> Response:
        """One version; `latest` is the newest."""
        stored = _version(node, subject, version, deleted=deleted)
        return json_response(version_document(stored, await in_form(node, stored, form)))

    @router.get("/subjects/{subject}/versions/{version}/schema")
    async def read_version_text(
        subject: Name, version: str, form: Form = "", deleted: Flag = False
    ) -> Response:
        """The text of one version."""
        stored = _version(node, subject, version, deleted=deleted)
        return raw_text(await in_form(node, stored, form))

    @router.get("/subjects/{subject}/versions/{version}/referencedby")
    async def list_referrers(
        subject: Name,
        version: str,
        deleted: Flag = False,
        offset: Number = 0,
        limit: Number = -1,
    ) -> Response:
        """The ids of the schemas that build on this one."""
        stored = _version(node, subject, version, deleted=True)
        ids = {referrer.id for referrer in state.referrers_of(stored.key, deleted=deleted)}
        return json_response(page(sorted(ids), offset, limit))

    return router


def describing(node: RegistryNode) -> APIRouter:
    """Metadata and uses of subjects."""
    router = APIRouter(tags=["subjects"])
    state = node.state

    @router.get("/subjects/{subject}/metadata")
    async def find_by_metadata(
        subject: Name,
        key: TextList = None,
        value: TextList = None,
        deleted: Flag = False,
        form: Form = "",
    ) -> Response:
        """The latest version whose properties hold all the pairs."""
        name = subject_named(node, subject)
        pairs = dict(zip(key or (), value or (), strict=False))
        if not state.has_subject(name, deleted=deleted):
            raise subject_not_found(name)
        versions = state.stored(name) if deleted else state.live(name)
        for version in reversed(versions):
            metadata = version.contents.metadata
            if pairs.items() <= (dict(metadata.properties) if metadata else {}).items():
                return json_response(version_document(version, await in_form(node, version, form)))
        raise schema_not_found()

    @router.get("/subjects/{subject}/usage")
    async def list_uses(subject: Name, quiet_days: QuietDays = QUIET_DAYS) -> Response:
        """Who used which version and when last; and which may be deleted, or why not.

        A client that was not seen for `quietDays` does not count as a user any more.
        """
        name = subject_named(node, subject)
        if not state.has_subject(name, deleted=True):
            raise subject_not_found(name)
        return json_response(_usage(node, name, max(quiet_days, 0) * DAY_MS))

    return router


def _usage(node: RegistryNode, subject: Subject, quiet_ms: int) -> Document:
    state, usage = node.state, node.usage
    retirements = assess(state, subject, usage, node.clock(), quiet_ms=quiet_ms)
    numbers = {each.version.id: each.version.number for each in retirements}
    uses = [
        {
            "client": use.client,
            "role": use.role,
            "id": use.id,
            "version": numbers[use.id],
            "lastSeen": seen.last_at,
            "count": seen.times,
        }
        for use, seen in usage.of(context_of(subject), frozenset(numbers))
    ]
    used = {use["version"] for use in uses}
    return {
        "subject": subject,
        "since": usage.since,
        "complete": node.usage_log.is_shared and usage.evicted == 0,
        "uses": uses,
        "unusedVersions": [number for number in numbers.values() if number not in used],
        "versions": [
            {
                "version": each.version.number,
                "id": each.version.id,
                "deleted": each.version.deleted,
                "safeToDelete": each.is_safe,
                "reasons": list(each.reasons),
            }
            for each in retirements
        ],
    }


def _is_listed(node: RegistryNode, subject: Subject, *, deleted: bool, only: bool) -> bool:
    is_live = node.state.has_subject(subject)
    return not is_live if only else is_live or deleted


def _version(node: RegistryNode, subject: str, version: str, *, deleted: bool) -> Version:
    name = node.state.in_any_context(subject_named(node, subject))
    return node.state.version(name, version_number(version), deleted=deleted)


def checking(node: RegistryNode) -> APIRouter:
    """Compatibility checks. Nothing is written, so every node serves them."""
    router = APIRouter(tags=["compatibility"])

    @router.post("/compatibility/subjects/{subject}/versions", openapi_extra=SCHEMA_BODY)
    async def check_against_subject(
        request: Request, subject: Name, normalize: Flag = False, verbose: Flag = False
    ) -> Response:
        """Check as registration would, by the level of the subject."""
        document = await read_document(request)
        name = subject_named(node, subject)
        return await _checked(node, document, name, None, normalize=normalize, verbose=verbose)

    @router.post("/compatibility/subjects/{subject}/versions/{version}", openapi_extra=SCHEMA_BODY)
    async def check_against_version(
        request: Request,
        subject: Name,
        version: str,
        normalize: Flag = False,
        verbose: Flag = False,
    ) -> Response:
        """Check against one version."""
        document = await read_document(request)
        name, number = subject_named(node, subject), version_number(version)
        return await _checked(node, document, name, number, normalize=normalize, verbose=verbose)

    return router


async def _checked(
    node: RegistryNode,
    document: Document,
    subject: Subject,
    number: int | None,
    *,
    normalize: bool,
    verbose: bool,
) -> Response:
    try:
        proposal = read_proposal(document, subject, normalize=normalize)
        if number is None:
            report = await check_all(node, proposal)
        else:
            report = await check_version(node, proposal, number)
    except DeclinedError as refusal:
        if not verbose or refusal.code != INVALID_SCHEMA:
            raise
        report = CompatibilityReport(False, [refusal.message])
    messages = {"messages": report.messages} if verbose else {}
    return json_response({"is_compatible": report.is_compatible, **messages})
