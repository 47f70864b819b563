"""Responses: documents as JSON, in the media types that clients request."""

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from starlette.responses import Response

from penstock.registry.errors import DeclinedError
from penstock.registry.store.codec import to_json, write_contract
from penstock.registry.store.documents import Document
from penstock.registry.store.events import Contents, Version
from penstock.registry.store.rule_sets import same_contract
from penstock.schemas.identity import guid

MEDIA: Final = "application/vnd.schemaregistry.v1+json"
MEDIA_TYPES: Final = (MEDIA, "application/vnd.schemaregistry+json", "application/json")
END_OFFSET: Final = "penstock-log-end"  # a header: how far the responding node has read
ItemT = TypeVar("ItemT")


def json_response(document: object, status: int = 200) -> Response:
    """A document as JSON."""
    return Response(to_json(document), status, media_type=MEDIA)


def raw_text(text: str) -> Response:
    """The text of a schema and nothing else."""
    return Response(text, media_type=MEDIA)


def error_response(refusal: DeclinedError) -> Response:
    """The form of every error."""
    return json_response({"error_code": refusal.code, "message": refusal.message}, refusal.status)


def http_error(status: int, phrase: str) -> Response:
    """An error of HTTP itself, in the same form."""
    return json_response({"error_code": status, "message": f"HTTP {status} {phrase}"}, status)


def contents_document(version: Version, text: str | None = None) -> Document:
    """The contents of a version, without subject, number and id."""
    source = version.contents.source
    return {
        "guid": guid(version.fingerprint),
        "schemaType": str(source.type),
        "schema": source.text if text is None else text,
        **write_contract(version.contents),
        "ts": version.timestamp,
    }


def version_document(version: Version, text: str | None = None) -> Document:
    """A version with its subject, number and id."""
    document: Document = {
        "subject": version.subject,
        "version": version.number,
        "id": version.id,
        **contents_document(version, text),
    }
    if version.deleted:
        document["deleted"] = True
    return document


def registered_document(version: Version, given: Contents, form: str | None) -> Document:
    """The response to a registration: what the client does not know yet.

    Clients replace their own text by the one in the response, and some cannot read another form
    than they write. So a text is included only when a form was requested, or, as it was given, when
    the settings of the subject changed its metadata or rules.
    """
    document = contents_document(version, given.source.text if form is None else form)
    if form is None and same_contract(given, version.contents):
        document = {name: document[name] for name in ("guid", "schemaType")}
    return {"id": version.id, "version": version.number, **document}


def page(
    items: Iterable[ItemT], offset: int, limit: int, limit_max: int | None = None
) -> list[ItemT]:
    """A range of a list; a negative limit, or one over the maximum, is the default."""
    rows: Sequence[ItemT] = list(items)
    if limit < 0 or (limit_max is not None and limit > limit_max):
        limit = len(rows) if limit_max is None else limit_max
    start = max(offset, 0)
    return list(rows[start : start + limit])
