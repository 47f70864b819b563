"""Schemas as JSON documents of a registry's API, in requests and responses. Pure."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.schemas import rules
from penstock.schemas.identity import RuleSet
from penstock.schemas.model import (
    InvalidSchemaError,
    ParsedSchema,
    Reference,
    SchemaText,
    SchemaType,
)
from penstock.schemas.parse_cache import parse
from penstock.serde.schema_source import UnusableSchemaError

REFERENCES_MAX: Final = 1000
MALFORMED_RESPONSE: Final = 50005
INVALID_SCHEMA: Final = 42201

Document = dict[str, Any]  # a JSON object as the registry's API defines it
Documents = Callable[[str, int], SchemaText]  # the schema of (subject, version)


def schema_body(source: SchemaText) -> Document:
    """A schema in a request."""
    body: Document = {"schema": source.text, "schemaType": str(source.type)}
    if source.references:
        body["references"] = [reference._asdict() for reference in source.references]
    return body


def read_source(document: Mapping[str, Any]) -> SchemaText:
    """The schema in a response; older registries omit Avro's type."""
    try:
        references = tuple(
            Reference(str(entry["name"]), str(entry["subject"]), int(entry["version"]))
            for entry in document.get("references") or ()
        )
        language = SchemaType(document.get("schemaType") or "AVRO")
        return SchemaText(language, str(document["schema"]), references)
    except (KeyError, TypeError, ValueError) as invalid:
        raise UnusableSchemaError(
            MALFORMED_RESPONSE, f"the registry's response is not a schema: {invalid}"
        ) from None


def read_rule_set(document: Mapping[str, Any]) -> RuleSet | None:
    """The rules of the schema in a response."""
    try:
        return rules.read_rule_set(document)
    except (AttributeError, TypeError, ValueError) as invalid:
        raise UnusableSchemaError(
            MALFORMED_RESPONSE, f"the schema's rules cannot be read: {invalid}"
        ) from None


def properties_of(document: Mapping[str, Any]) -> dict[str, str]:
    """The metadata properties of the version in a response."""
    properties = (document.get("metadata") or {}).get("properties") or {}
    return {str(key): str(value) for key, value in properties.items()}


def collect_imports(source: SchemaText, documents: Documents) -> dict[str, str]:
    """The texts of all that a schema refers to, directly or not; dependencies come first."""
    texts: dict[str, str] = {}

    def visit(references: tuple[Reference, ...], path: tuple[str, ...]) -> None:
        for reference in references:
            if reference.name in texts:
                continue
            if reference.name in path or len(path) + len(texts) > REFERENCES_MAX:
                raise UnusableSchemaError(
                    INVALID_SCHEMA, f"the references form a cycle: {' -> '.join(path)}"
                )
            source = documents(reference.subject, reference.version)
            visit(source.references, (*path, reference.name))
            texts[reference.name] = source.text

    visit(source.references, ())
    return texts


def parse_schema(
    source: SchemaText, imports: Mapping[str, str], *, strict: bool = False
) -> ParsedSchema:
    """Parse a schema of the registry; raises UnusableSchemaError if it is invalid."""
    try:
        return parse(source, imports, strict=strict)
    except InvalidSchemaError as invalid:
        raise UnusableSchemaError(
            INVALID_SCHEMA, f"the schema cannot be parsed: {invalid}"
        ) from None
