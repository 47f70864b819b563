"""`/subjects`: versions registered, looked up, listed and deleted.

`/compatibility`: would this schema be accepted, and if not, why.
"""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from penstock.registry.errors import INVALID_SCHEMA, Declined, schema_not_found, subject_not_found
from penstock.registry.http.requests import (
    SCHEMA_BODY,
    Flag,
    Name,
    Number,
    Text,
    note_use,
    read_document,
    read_proposal,
    subject_named,
    version_number,
)
from penstock.registry.http.responses import answered, page, placed, raw_text, registered
from penstock.registry.node import Registry
from penstock.registry.proposals import Judgement, check_all, check_one, find, in_form, register
from penstock.registry.retirement import DAY_MS, judge
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


def registering(registry: Registry) -> APIRouter:
    """What brings schemas in, and takes them out."""
    router = APIRouter(tags=["subjects"])

    @router.post("/subjects/{subject}/versions", openapi_extra=SCHEMA_BODY)
    async def register_schema(
        request: Request,
        subject: Name,
        normalize: Flag = False,
        format: Text = "",
        force: Flag = False,
    ) -> Response:
        """Register a schema as the next version of a subject; one that is there keeps its id."""
        name = checked(subject_named(registry, subject))
        proposal = read_proposal(await read_document(request), name, normalize=normalize)
        version = await register(registry, proposal._replace(force=force))
        note_use(registry, request, version, PRODUCER)
        given = Contents(proposal.source, proposal.metadata, proposal.rule_set)
        form = await in_form(registry, version, format) if format else None
        return answered(registered(version, given, form))

    @router.post("/subjects/{subject}", openapi_extra=SCHEMA_BODY)
    async def look_up_schema(
        request: Request,
        subject: Name,
        normalize: Flag = False,
        format: Text = "",
        deleted: Flag = False,
    ) -> Response:
        """Find the version of a subject that has this schema."""
        name = subject_named(registry, subject)
        proposal = read_proposal(await read_document(request), name, normalize=normalize)
        if not registry.store.has_subject(name, deleted=deleted):
            raise subject_not_found(name)
        version = await find(registry, proposal, deleted=deleted)
        if version is None:
            raise schema_not_found()
        note_use(registry, request, version, PRODUCER)
        return answered(placed(version, await in_form(registry, version, format)))

    @router.delete("/subjects/{subject}")
    async def delete_subject(subject: Name, permanent: Flag = False) -> Response:
        """Hide all versions of a subject, or remove the hidden ones for good."""
        name = checked(subject_named(registry, subject))
        return answered(await registry.carry_out(DeleteSubject(name, permanent)))

    @router.delete("/subjects/{subject}/versions/{version}")
    async def delete_version(subject: Name, version: str, permanent: Flag = False) -> Response:
        """Hide one version, or remove it for good if it is hidden."""
        name = checked(subject_named(registry, subject))
        command = DeleteVersion(name, version_number(version), permanent)
        return answered(await registry.carry_out(command))

    return router


def listing(registry: Registry) -> APIRouter:
    """What is there."""
    router = APIRouter(tags=["subjects"])
    store = registry.store

    @router.get("/subjects")
    async def list_subjects(
        subjectPrefix: Text = ANY_CONTEXT,
        deleted: Flag = False,
        deletedOnly: Flag = False,
        offset: Number = 0,
        limit: Number = -1,
    ) -> Response:
        """The names of all subjects."""
        names = [
            subject
            for subject in sorted(store.versions)
            if matches_prefix(subject, subjectPrefix)
            if _is_listed(registry, subject, deleted=deleted, only=deletedOnly)
        ]
        return answered(page(names, offset, limit))

    @router.get("/subjects/{subject}/versions")
    async def list_versions(
        subject: Name,
        deleted: Flag = False,
        deletedOnly: Flag = False,
        deletedAsNegative: Flag = False,
        offset: Number = 0,
        limit: Number = -1,
    ) -> Response:
        """The numbers of a subject's versions."""
        name = store.somewhere(subject_named(registry, subject))
        found = [
            one
            for one in store.stored(name)
            if (one.deleted if deletedOnly else deleted or deletedAsNegative or not one.deleted)
        ]
        if not found:
            raise subject_not_found(name)
        numbers = [
            -one.number if one.deleted and deletedAsNegative else one.number for one in found
        ]
        return answered(page(numbers, offset, limit))

    return router


def reading_versions(registry: Registry) -> APIRouter:
    """One version, from all sides."""
    router = APIRouter(tags=["subjects"])
    store = registry.store

    @router.get("/subjects/{subject}/versions/{version}")
    async def find_version(
        subject: Name, version: str, format: Text = "", deleted: Flag = False
    ) -> Response:
        """One version; `latest` is the newest."""
        one = _version(registry, subject, version, deleted=deleted)
        return answered(placed(one, await in_form(registry, one, format)))

    @router.get("/subjects/{subject}/versions/{version}/schema")
    async def read_version_text(
        subject: Name, version: str, format: Text = "", deleted: Flag = False
    ) -> Response:
        """The text of one version."""
        one = _version(registry, subject, version, deleted=deleted)
        return raw_text(await in_form(registry, one, format))

    @router.get("/subjects/{subject}/versions/{version}/referencedby")
    async def list_referrers(
        subject: Name,
        version: str,
        deleted: Flag = False,
        offset: Number = 0,
        limit: Number = -1,
    ) -> Response:
        """The ids of the schemas that build on this one."""
        one = _version(registry, subject, version, deleted=True)
        ids = {other.id for other in store.referrers_of(one.key, deleted=deleted)}
        return answered(page(sorted(ids), offset, limit))

    return router


def describing(registry: Registry) -> APIRouter:
    """What people say about subjects, and who uses them."""
    router = APIRouter(tags=["subjects"])
    store = registry.store

    @router.get("/subjects/{subject}/metadata")
    async def find_by_metadata(
        subject: Name,
        key: Annotated[list[str] | None, Query()] = None,
        value: Annotated[list[str] | None, Query()] = None,
        deleted: Flag = False,
        format: Text = "",
    ) -> Response:
        """The latest version whose properties hold all the pairs."""
        name = subject_named(registry, subject)
        wanted = dict(zip(key or (), value or (), strict=False))
        if not store.has_subject(name, deleted=deleted):
            raise subject_not_found(name)
        versions = store.stored(name) if deleted else store.live(name)
        for one in reversed(versions):
            metadata = one.contents.metadata
            if wanted.items() <= (dict(metadata.properties) if metadata else {}).items():
                return answered(placed(one, await in_form(registry, one, format)))
        raise schema_not_found()

    @router.get("/subjects/{subject}/usage")
    async def list_uses(subject: Name, quietDays: Number = QUIET_DAYS) -> Response:
        """Who used which version and when last; and which may be deleted, or why not.

        A client that was not seen for `quietDays` does not count as a user any more.
        """
        name = subject_named(registry, subject)
        if not store.has_subject(name, deleted=True):
            raise subject_not_found(name)
        return answered(_usage(registry, name, max(quietDays, 0) * DAY_MS))

    return router


def _usage(registry: Registry, subject: Subject, quiet_ms: int) -> Document:
    store, usage = registry.store, registry.usage
    judged = judge(store, subject, usage, registry.clock(), quiet_ms=quiet_ms)
    numbers = {one.version.id: one.version.number for one in judged}
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
        "complete": registry.usage_log.is_shared and usage.forgotten == 0,
        "uses": uses,
        "unusedVersions": [number for number in numbers.values() if number not in used],
        "versions": [
            {
                "version": one.version.number,
                "id": one.version.id,
                "deleted": one.version.deleted,
                "safeToDelete": one.is_safe,
                "reasons": list(one.reasons),
            }
            for one in judged
        ],
    }


def _is_listed(registry: Registry, subject: Subject, *, deleted: bool, only: bool) -> bool:
    is_live = registry.store.has_subject(subject)
    return not is_live if only else is_live or deleted


def _version(registry: Registry, subject: str, version: str, *, deleted: bool) -> Version:
    store = registry.store
    name = store.somewhere(subject_named(registry, subject))
    return store.version(name, version_number(version), deleted=deleted)


def checking(registry: Registry) -> APIRouter:
    """Nothing is written here, so every node answers."""
    router = APIRouter(tags=["compatibility"])

    @router.post("/compatibility/subjects/{subject}/versions", openapi_extra=SCHEMA_BODY)
    async def check_against_subject(
        request: Request, subject: Name, normalize: Flag = False, verbose: Flag = False
    ) -> Response:
        """Check as registration would, by the level of the subject."""
        document = await read_document(request)
        name = subject_named(registry, subject)
        return await _said(registry, document, name, None, normalize=normalize, verbose=verbose)

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
        name, number = subject_named(registry, subject), version_number(version)
        return await _said(registry, document, name, number, normalize=normalize, verbose=verbose)

    return router


async def _said(
    registry: Registry,
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
            judgement = await check_all(registry, proposal)
        else:
            judgement = await check_one(registry, proposal, number)
    except Declined as refusal:
        if not verbose or refusal.code != INVALID_SCHEMA:
            raise
        judgement = Judgement(False, [refusal.message])
    messages = {"messages": judgement.messages} if verbose else {}
    return answered({"is_compatible": judgement.is_compatible, **messages})
