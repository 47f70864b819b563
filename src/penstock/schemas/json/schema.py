"""A JSON Schema for the registry, the client and the gate. Immutable; costly parts are cached.

Tags are a member of the object or property that a path names. A path such as
`object.address.object.street` alternates between the type of a schema and the name of a part;
`anyof.0`, `allof.1` and `oneof.0` count branches in the order of the text.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final

import jsonschema_rs

from penstock.schemas.compare_limits import first_differences, limit_differences
from penstock.schemas.json.compare import compare
from penstock.schemas.json.compare_pairs import listed
from penstock.schemas.json.differences import ALLOWED, as_difference, path_of
from penstock.schemas.json.jsontext import JsonValue, read_json, write_json
from penstock.schemas.json.references import Documents, read_documents
from penstock.schemas.json.tree import Tree
from penstock.schemas.json.validator import compiled, validation_error
from penstock.schemas.model import (
    NO_IMPORTS,
    Difference,
    Imports,
    InvalidSchemaError,
    Policy,
    Reference,
    SchemaType,
    Tagging,
    check_encoding,
    normalized_references,
)

_COMBINATIONS: Final = {"anyof": "anyOf", "allof": "allOf", "oneof": "oneOf"}


def parse(
    text: str,
    references: tuple[Reference, ...] = (),
    imports: Imports = NO_IMPORTS,
    *,
    strict: bool = True,
) -> "JsonSchema":
    """The schema in `text`; the target of a `$ref` is in the text itself or in one of `imports`.

    `strict=False` is for schemas that are stored already: keywords are not checked, because
    Confluent stores schemas that no meta-schema allows, and nothing is compiled before a value is
    validated.
    """
    root = read_json(text)
    if not isinstance(root, dict | bool):
        raise InvalidSchemaError("a JSON Schema is an object or a boolean")
    canonical = write_json(root)
    if "\\u" in text:  # only an escape can produce half of a surrogate pair
        check_encoding(canonical)
    documents = read_documents(root, imports)
    schema = JsonSchema(documents, canonical, references, imports, strict=strict)
    if strict:
        _ = schema.validator
    return schema


def validate(schema: "JsonSchema", value: object) -> str | None:
    """Why a value is invalid, with its path; None if it is valid."""
    return validation_error(schema.validator, value)


class JsonSchema:
    """A parsed JSON Schema, with the references it was parsed with."""

    type: Final = SchemaType.JSON

    def __init__(
        self,
        documents: Documents,
        canonical: str,
        references: tuple[Reference, ...],
        imports: Imports,
        *,
        strict: bool,
        asserts_formats: bool = False,
    ) -> None:
        self.documents = documents
        self._strict = strict
        self._asserts_formats = asserts_formats
        self._canonical = canonical
        self.references = references
        self._imports = imports

    @property
    def canonical(self) -> str:
        """The text as the registry stores it: compact, in the order in which it was written."""
        return self._canonical

    @property
    def name(self) -> str | None:
        """The title."""
        root = self.documents.root
        title = root.get("title") if isinstance(root, dict) else None
        return title if isinstance(title, str) else None

    def normalized(self) -> "JsonSchema":
        """The same schema with the keys of all objects sorted."""
        text = write_json(self.documents.root, in_order=True)
        references = normalized_references(self.references)
        return parse(text, references, self._imports, strict=self._strict)

    def tagged(self, tagging: Tagging) -> "JsonSchema":
        """The same schema with tags added or removed."""
        root: Any = read_json(self._canonical)
        for entity in tagging.entities:
            schema = _find_entity(root, entity.steps, is_record=entity.is_record)
            if not isinstance(schema, dict):
                raise entity.not_found()
            tagging.update_member(entity, schema)
        return parse(write_json(root), self.references, self._imports, strict=self._strict)

    def formatted(self, _form: str, /) -> str:
        """The canonical text: JSON Schema has no other forms."""
        return self._canonical

    def equivalent(self, other: "JsonSchema") -> bool:
        """Whether the registry treats both as one version."""
        return self._canonical == other.canonical

    def incompatibilities(
        self, writer: "JsonSchema", policy: Policy = Policy.STRICT, /
    ) -> tuple[Difference, ...]:
        """Why a value that is valid under `writer` may be invalid under this schema."""

        def find() -> Iterator[Difference]:
            allowed = ALLOWED[policy]
            differences = compare(writer.tree.root, self.tree.root, allowed)
            return map(as_difference, listed(differences, lambda kind: kind not in allowed))

        return first_differences(find, "#/")

    def lenient_changes(self, writer: "JsonSchema") -> tuple[Difference, ...]:
        """Changes that only the lenient policy allows; raises if the two cannot be compared."""
        lenient_only = ALLOWED[Policy.LENIENT] - ALLOWED[Policy.STRICT]
        differences = compare(writer.tree.root, self.tree.root, ALLOWED[Policy.LENIENT])
        changes = listed(differences, lambda kind: kind in lenient_only)
        return limit_differences(Difference(change.kind, path_of(change), "") for change in changes)

    @cached_property
    def validator(self) -> jsonschema_rs.Validator:
        """The compiled schema; InvalidSchemaError if it cannot be compiled."""
        return compiled(self.documents, asserts_formats=self._asserts_formats)

    @cached_property
    def asserting_formats(self) -> "JsonSchema":
        """The same schema with a validator that also checks `format`."""
        return JsonSchema(
            self.documents,
            self._canonical,
            self.references,
            self._imports,
            strict=self._strict,
            asserts_formats=True,
        )

    @cached_property
    def tree(self) -> Tree:
        """The schema in the form that is compared."""
        return Tree(self.documents)


def _find_entity(node: JsonValue, steps: list[str], *, is_record: bool) -> Any:
    while isinstance(node, dict) and steps:
        kind = steps.pop(0)
        if kind == "object":
            if is_record and not steps:
                return node
            node = _named_part(node, steps)
            if not steps:
                return node
        elif kind == "array":
            node = node.get("items")
        elif kind == "not":
            node = node.get("not")
        elif kind in _COMBINATIONS:
            node = _branch(node, _COMBINATIONS[kind], steps)
        else:
            return None
    return None


def _named_part(node: dict[str, JsonValue], steps: list[str]) -> JsonValue:
    """A property or definition; its name may contain dots."""
    keyword = steps.pop(0) if steps[:1] in (["definitions"], ["$defs"]) else "properties"
    parts = node.get(keyword)
    name = ""
    while isinstance(parts, dict) and steps:
        name += steps.pop(0)
        if name in parts:
            return parts[name]
        name += "."
    return None


def _branch(node: dict[str, JsonValue], keyword: str, steps: list[str]) -> JsonValue:
    """A branch of a combination. `type: [a, b]` and `if` count as combinations without a list."""
    index = steps.pop(0) if steps else ""
    branches = node.get(keyword)
    if isinstance(branches, list):
        exists = index.isdecimal() and int(index[:9]) < len(branches)
        return branches[int(index)] if exists else None
    if steps[:1] == ["conditional"]:
        steps.pop(0)
        return node.get(steps.pop(0)) if steps else None
    return node if keyword != "oneOf" else None
