"""Requests: names in paths, options in queries, documents in bodies."""

from typing import Annotated, Final
from urllib.parse import unquote

import msgspec
from fastapi import Path, Query, Request
from pydantic import BeforeValidator

from penstock.registry.errors import (
    invalid_schema,
    invalid_version,
    malformed,
    schema_too_large,
)
from penstock.registry.registry_node import RegistryNode
from penstock.registry.store.documents import (
    Document,
    read_list,
    read_map,
    read_metadata,
    read_references,
    read_rule_set,
    read_text,
    read_texts,
    read_whole,
)
from penstock.registry.store.events import Mode, Version
from penstock.registry.store.examination import SchemaProposal
from penstock.registry.store.state import VERSION_LAST
from penstock.registry.subject_names import Subject, context_of, normal
from penstock.registry.usage import SchemaUse, identify
from penstock.schemas.compatibility import Level
from penstock.schemas.model import Entity, SchemaText, SchemaType, Tagging

BODY_BYTES_MAX: Final = 8 << 20
LATEST: Final = -1
CLIENT: Final = "penstock-client"


def _described(**members: object) -> dict[str, object]:
    """A body for the generated documentation; it is read by `read_document`, for our errors."""
    schema = {"type": "object", "properties": members}
    return {"requestBody": {"content": {"application/json": {"schema": schema}}}}


_STRING: Final = {"type": "string"}
_REFERENCE: Final = {
    "type": "object",
    "properties": {"name": _STRING, "subject": _STRING, "version": {"type": "integer"}},
}
_TAGS: Final = {"type": "array", "items": {"type": "object"}}
SCHEMA_BODY: Final = _described(
    schema=_STRING,
    schemaType={"type": "string", "enum": ["AVRO", "JSON", "PROTOBUF"], "default": "AVRO"},
    references={"type": "array", "items": _REFERENCE},
    metadata={"type": "object"},
    ruleSet={"type": "object"},
    id={"type": "integer"},
    version={"type": "integer"},
    schemaTagsToAdd=_TAGS,
    schemaTagsToRemove=_TAGS,
)
CONFIG_BODY: Final = _described(
    compatibility={"type": "string", "enum": list(Level)},
    compatibilityPolicy={"type": "string", "enum": ["STRICT", "LENIENT"]},
    compatibilityGroup=_STRING,
    alias=_STRING,
    normalize={"type": "boolean"},
    defaultMetadata={"type": "object"},
    overrideMetadata={"type": "object"},
    defaultRuleSet={"type": "object"},
    overrideRuleSet={"type": "object"},
)
MODE_BODY: Final = _described(mode={"type": "string", "enum": list(Mode)})


def _flag(text: object) -> bool:
    return str(text).strip().lower() == "true"


Flag = Annotated[bool, BeforeValidator(_flag), Query()]
Name = Annotated[
    str, Path(description="A subject; slashes in it as %2F."), BeforeValidator(unquote)
]
Text = Annotated[str, Query()]
TextList = Annotated[list[str] | None, Query()]
Number = Annotated[int, Query()]
Form = Annotated[str, Query(alias="format")]
SubjectPrefix = Annotated[str, Query(alias="subjectPrefix")]
DeletedOnly = Annotated[bool, BeforeValidator(_flag), Query(alias="deletedOnly")]
DeletedAsNegative = Annotated[bool, BeforeValidator(_flag), Query(alias="deletedAsNegative")]
QuietDays = Annotated[int, Query(alias="quietDays")]
SchemaId = Annotated[int, Path(alias="id")]
FetchMaxId = Annotated[bool, BeforeValidator(_flag), Query(alias="fetchMaxId")]
LatestOnly = Annotated[bool, BeforeValidator(_flag), Query(alias="latestOnly")]
RuleType = Annotated[str, Query(alias="ruleType")]
ContextPrefix = Annotated[str, Query(alias="contextPrefix")]
DefaultToGlobal = Annotated[bool, BeforeValidator(_flag), Query(alias="defaultToGlobal")]


def subject_named(node: RegistryNode, name: str) -> Subject:
    """The subject in a path; of an alias, the subject behind it."""
    return node.state.resolve_alias(normal(name))


def version_number(text: str) -> int:
    """A version in a path: its number, or LATEST."""
    word = unquote(text)
    if word.lower() == "latest" or word == "-1":
        return LATEST
    if not word.isascii() or not word.isdecimal() or not 1 <= int(word[:12]) <= VERSION_LAST:
        raise invalid_version(word)
    return int(word)


def note_use(node: RegistryNode, request: Request, version: Version, role: str) -> None:
    """The client that sent the request uses this schema."""
    headers = request.headers
    client, client_role = identify(headers.get(CLIENT, ""), headers.get("user-agent", ""), role)
    use = SchemaUse(context_of(version.subject), version.id, client, client_role)
    node.usage.note(use, node.clock())


async def read_document(request: Request) -> Document:
    """The body as a JSON object."""
    chunks, size_bytes = [], 0
    async for chunk in request.stream():
        size_bytes += len(chunk)
        if size_bytes <= BODY_BYTES_MAX:
            chunks.append(chunk)
    if size_bytes > BODY_BYTES_MAX:
        raise schema_too_large(f"the request has more than {BODY_BYTES_MAX} bytes")
    request.state.body = b"".join(chunks)
    if not request.state.body.strip():
        return {}
    try:
        document = msgspec.json.decode(request.state.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise malformed(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise malformed("the body is nested too deeply") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise malformed("the body must be a JSON object")
    return document


def read_proposal(
    document: Document, subject: Subject, *, normalize: bool = False
) -> SchemaProposal:
    """The proposed schema in a body."""
    schema_id, version = read_whole(document, "id"), read_whole(document, "version")
    return SchemaProposal(
        subject,
        read_source(document),
        read_metadata(document),
        read_rule_set(document),
        id=schema_id if schema_id is not None and schema_id > 0 else None,
        version=version or 0,
        normalize=normalize,
        tagging=read_tagging(document),
    )


def read_tagging(document: Document) -> Tagging | None:
    """Tags to add to the text, and to remove from it; None if there are none."""
    added = _read_tags(document, "schemaTagsToAdd")
    removed = _read_tags(document, "schemaTagsToRemove")
    return Tagging(added, removed) if added or removed else None


def _read_tags(document: Document, name: str) -> dict[Entity, tuple[str, ...]]:
    tags_by_entity: dict[Entity, tuple[str, ...]] = {}
    for member in read_list(document, name):
        if not isinstance(member, dict):
            raise malformed(f"{name} must hold objects")
        location = read_map(member, "schemaEntity")
        kind = read_text(location, "entityType") or ""
        if kind.lower() not in ("sr_record", "sr_field"):
            raise malformed("entityType must be sr_record or sr_field")
        entity = Entity(kind.lower() == "sr_record", read_text(location, "entityPath") or "")
        tags = read_texts(read_list(member, "tags"), "tags")
        tags_by_entity[entity] = (*tags_by_entity.get(entity, ()), *tags)
    return tags_by_entity


def read_source(document: Document) -> SchemaText:
    """The text, its language and its references."""
    language = read_text(document, "schemaType") or SchemaType.AVRO
    if language.upper() not in SchemaType.__members__:
        raise invalid_schema(f"Invalid schema type {language[:100]}")
    text = read_text(document, "schema") or ""
    return SchemaText(SchemaType[language.upper()], text, read_references(document))
