"""Schemas as a registry's API writes them, in requests and in answers."""

from collections.abc import Mapping
from typing import Any

from penstock.schemas import rules
from penstock.schemas.identity import RuleSet
from penstock.schemas.model import Reference, SchemaText, SchemaType
from penstock.serde.schema_source import UnusableSchemaError


def schema_body(source: SchemaText) -> dict[str, Any]:
    """A schema in a request."""
    body: dict[str, Any] = {"schema": source.text, "schemaType": str(source.type)}
    if source.references:
        body["references"] = [reference._asdict() for reference in source.references]
    return body


def read_source(document: Mapping[str, Any]) -> SchemaText:
    """A schema in an answer; older registries leave out Avro's type."""
    try:
        references = tuple(
            Reference(str(one["name"]), str(one["subject"]), int(one["version"]))
            for one in document.get("references") or ()
        )
        kind = SchemaType(document.get("schemaType") or "AVRO")
        return SchemaText(kind, str(document["schema"]), references)
    except (KeyError, TypeError, ValueError) as wrong:
        raise UnusableSchemaError(
            50005, f"the registry's answer is not understood: {wrong}"
        ) from None


def read_rule_set(document: Mapping[str, Any]) -> RuleSet | None:
    """The rules of a schema in an answer."""
    try:
        return rules.read_rule_set(document)
    except (AttributeError, TypeError, ValueError) as wrong:
        raise UnusableSchemaError(
            50005, f"the schema's rules are not understood: {wrong}"
        ) from None
