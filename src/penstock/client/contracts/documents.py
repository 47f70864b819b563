"""Schemas and readers as the registry's API writes them."""

from collections.abc import Mapping
from datetime import date
from typing import Any, Final
from urllib.parse import quote, unquote

from penstock.client.contracts.model import CannotCheck, Reader
from penstock.schemas.model import ParsedSchema, Reference, SchemaType, Source

READERS: Final = ":.readers:"  # the context that readers are kept in
_OWNER: Final = "penstock.reader.owner"
_VERSION: Final = "penstock.reader.version"
_EXPIRES: Final = "penstock.reader.expires"
_FIELDS: Final = "penstock.reader.fields"
_ONLY_FIELDS: Final = "penstock.reader.only.fields"


def schema_body(source: Source) -> dict[str, Any]:
    """A schema in a request."""
    body: dict[str, Any] = {"schema": source.text, "schemaType": str(source.type)}
    if source.references:
        body["references"] = [reference._asdict() for reference in source.references]
    return body


def read_source(document: Mapping[str, Any]) -> Source:
    """A schema in an answer; older registries leave out Avro's type."""
    try:
        references = tuple(
            Reference(str(one["name"]), str(one["subject"]), int(one["version"]))
            for one in document.get("references") or ()
        )
        kind = SchemaType(document.get("schemaType") or "AVRO")
        return Source(kind, str(document["schema"]), references)
    except (KeyError, TypeError, ValueError) as wrong:
        raise CannotCheck(f"the registry's answer is not understood: {wrong}") from None


def properties_of(document: Mapping[str, Any]) -> dict[str, str]:
    """What people say about a version."""
    properties = (document.get("metadata") or {}).get("properties") or {}
    return {str(key): str(value) for key, value in properties.items()}


def reader_subject(subject: str, name: str) -> str:
    """Where a reader of a subject is kept."""
    if not name or "/" in name:
        raise CannotCheck(f"{name!r} is no name for a reader: it is not empty and has no slash")
    return f"{readers_prefix(subject)}{name}"


def readers_prefix(subject: str) -> str:
    """What the names of all readers of a subject begin with."""
    return f"{READERS}{quote(subject, safe='')}/"


def reader_name(subject: str) -> str:
    """The reader that is kept there."""
    return unquote(subject.rpartition("/")[2])


def reader_source(schema: ParsedSchema) -> Source:
    """A reader's schema as it is kept: readers live in a context of their own, so references say
    that they lead out of it; Avro's are written out.
    """
    if schema.type is SchemaType.AVRO:
        return Source(schema.type, schema.formatted("resolved"))
    references = tuple(
        one if one.subject.startswith(":.") else one._replace(subject=f":.:{one.subject}")
        for one in schema.references
    )
    return Source(schema.type, schema.canonical, references)


def reader_properties(reader: Reader) -> dict[str, str]:
    """What is kept beside a reader's schema."""
    told = {
        _OWNER: reader.owner,
        _VERSION: reader.version,
        _EXPIRES: reader.last_day.isoformat() if reader.last_day else "",
        _FIELDS: ",".join(reader.fields),
        _ONLY_FIELDS: "true" if reader.only_fields else "",
    }
    return {key: value for key, value in told.items() if value}


def read_reader(name: str, schema: ParsedSchema, properties: Mapping[str, str]) -> Reader:
    """The reader of a schema and what is kept beside it."""
    return Reader(
        name,
        properties.get(_VERSION, ""),
        properties.get(_OWNER, ""),
        schema,
        tuple(one for one in properties.get(_FIELDS, "").split(",") if one),
        only_fields=properties.get(_ONLY_FIELDS) == "true",
        last_day=_read_day(name, properties.get(_EXPIRES)),
    )


def _read_day(name: str, text: str | None) -> date | None:
    try:
        return date.fromisoformat(text[:10]) if text else None
    except ValueError:
        raise CannotCheck(f"the reader {name} expires on {text!r}, which is no date") from None
