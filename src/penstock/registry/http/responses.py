"""What the registry answers: documents as JSON, in the types its clients ask for."""

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from starlette.responses import Response

from penstock.registry.errors import Declined
from penstock.registry.store.codec import to_json, write_contract
from penstock.registry.store.documents import Document
from penstock.registry.store.events import Contents, Version
from penstock.registry.store.rule_sets import same_contract
from penstock.schemas.identity import guid

MEDIA: Final = "application/vnd.schemaregistry.v1+json"
MEDIA_TYPES: Final = (MEDIA, "application/vnd.schemaregistry+json", "application/json")
END_OFFSET: Final = "penstock-log-end"  # of the node that answers: what it has read
_Item = TypeVar("_Item")


def answered(document: object, status: int = 200) -> Response:
    """A document."""
    return Response(to_json(document), status, media_type=MEDIA)


def raw_text(text: str) -> Response:
    """The text of a schema and nothing else."""
    return Response(text, media_type=MEDIA)


def declined(refusal: Declined) -> Response:
    """The one shape of every error."""
    return answered({"error_code": refusal.code, "message": refusal.message}, refusal.status)


def http_error(status: int, phrase: str) -> Response:
    """An error of HTTP itself, in the same shape."""
    return answered({"error_code": status, "message": f"HTTP {status} {phrase}"}, status)


def described(version: Version, text: str | None = None) -> Document:
    """The contents of a version, without its place."""
    source = version.contents.source
    return {
        "guid": guid(version.fingerprint),
        "schemaType": str(source.type),
        "schema": source.text if text is None else text,
        **write_contract(version.contents),
        "ts": version.timestamp,
    }


def placed(version: Version, text: str | None = None) -> Document:
    """A version with its subject, number and id."""
    document: Document = {
        "subject": version.subject,
        "version": version.number,
        "id": version.id,
        **described(version, text),
    }
    if version.deleted:
        document["deleted"] = True
    return document


def registered(version: Version, given: Contents, form: str | None) -> Document:
    """The answer to a registration: what the client does not know yet.

    Clients keep the text of this answer in place of their own, and some cannot read it in another
    form than they write it in. So it comes only when asked for in a form, and as it was given when
    the settings changed what goes with it.
    """
    whole = described(version, given.source.text if form is None else form)
    if form is None and same_contract(given, version.contents):
        whole = {name: whole[name] for name in ("guid", "schemaType")}
    return {"id": version.id, "version": version.number, **whole}


def page(
    items: Iterable[_Item], offset: int, limit: int, limit_max: int | None = None
) -> list[_Item]:
    """A stretch of a list; a negative limit, or one over the maximum, is the default."""
    found: Sequence[_Item] = list(items)
    if limit < 0 or (limit_max is not None and limit > limit_max):
        limit = len(found) if limit_max is None else limit_max
    start = max(offset, 0)
    return list(found[start : start + limit])
