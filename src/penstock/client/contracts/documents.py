"""Readers and what people say of versions, as the registry's API writes them."""

from collections.abc import Mapping
from typing import Any

from penstock.client.contracts.model import CannotCheck
from penstock.schemas import readers
from penstock.schemas.model import ParsedSchema, SchemaType, Source
from penstock.schemas.readers import Reader


def properties_of(document: Mapping[str, Any]) -> dict[str, str]:
    """What people say about a version."""
    properties = (document.get("metadata") or {}).get("properties") or {}
    return {str(key): str(value) for key, value in properties.items()}


def reader_subject(subject: str, name: str) -> str:
    """Where a reader of a subject is kept."""
    try:
        return readers.reader_subject(subject, name)
    except readers.InvalidReader as wrong:
        raise CannotCheck(str(wrong)) from None


def read_reader(kept: str, schema: ParsedSchema, properties: Mapping[str, str]) -> Reader:
    """The reader that is kept there."""
    try:
        return readers.read_reader(readers.reader_name(kept), schema, properties)
    except readers.InvalidReader as wrong:
        raise CannotCheck(str(wrong)) from None


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
