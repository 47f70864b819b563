"""`/compatibility`: would this schema be accepted, and if not, why."""

from fastapi import APIRouter, Request, Response

from penstock.registry.errors import INVALID_SCHEMA, Declined
from penstock.registry.http.answers import answered
from penstock.registry.http.asking import (
    SCHEMA_BODY,
    Flag,
    Name,
    read_document,
    read_proposal,
    subject_named,
    version_number,
)
from penstock.registry.names import Subject
from penstock.registry.proposals import Judgement, check_all, check_one
from penstock.registry.service import Registry
from penstock.registry.store.documents import Document


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
