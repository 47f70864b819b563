"""A JSON Schema as the registry handles it. Immutable; what is costly is computed once.

Tags in a JSON Schema: a member of the object or property that the path names.

`object.address.object.street`: in turn what a schema is and which part of it is meant. Lists
(`anyof.0`, `allof.1`, `oneof.0`) are counted in the order in which they are written.
"""

from functools import cached_property
from typing import Any, Final

import jsonschema_rs

from penstock.schemas.json.compare import compare
from penstock.schemas.json.compare_pairs import listed
from penstock.schemas.json.differences import ALLOWED, described, path_of
from penstock.schemas.json.jsontext import JsonValue, read_json, write_json
from penstock.schemas.json.references import Documents, read_documents
from penstock.schemas.json.tree import Tree
from penstock.schemas.json.validator import compiled, validation_error
from penstock.schemas.model import (
    NO_IMPORTS,
    BudgetExceededError,
    Difference,
    Imports,
    InvalidSchemaError,
    Policy,
    Reference,
    SchemaType,
    Tagging,
    bounded,
    check_encoding,
    uncheckable,
)

_LISTS = {"anyof": "anyOf", "allof": "allOf", "oneof": "oneOf"}


def tagged(text: str, tagging: Tagging) -> str:
    """A schema's canonical text with its tags changed."""
    root: Any = read_json(text)
    for entity in tagging.entities:
        place = _find(root, entity.words, is_record=entity.is_record)
        if not isinstance(place, dict):
            raise entity.missing()
        tagging.change_member(entity, place)
    return write_json(root)


def _find(node: JsonValue, words: list[str], *, is_record: bool) -> Any:
    while isinstance(node, dict) and words:
        kind = words.pop(0)
        if kind == "object":
            if is_record and not words:
                return node
            node = _part(node, words)
            if not words:
                return node
        elif kind == "array":
            node = node.get("items")
        elif kind == "not":
            node = node.get("not")
        elif kind in _LISTS:
            node = _listed(node, _LISTS[kind], words)
        else:
            return None
    return None


def _part(node: dict[str, JsonValue], words: list[str]) -> JsonValue:
    """A property or definition; its name may have dots in it."""
    holder = words.pop(0) if words[:1] in (["definitions"], ["$defs"]) else "properties"
    parts = node.get(holder)
    name = ""
    while isinstance(parts, dict) and words:
        name += words.pop(0)
        if name in parts:
            return parts[name]
        name += "."
    return None


def _listed(node: dict[str, JsonValue], keyword: str, words: list[str]) -> JsonValue:
    """One of several. What only counts as several, `type: [a, b]` or if and then, is itself."""
    index = words.pop(0) if words else ""
    several = node.get(keyword)
    if isinstance(several, list):
        is_there = index.isdecimal() and int(index[:9]) < len(several)
        return several[int(index)] if is_there else None
    if words[:1] == ["conditional"]:
        words.pop(0)
        return node.get(words.pop(0)) if words else None
    return node if keyword != "oneOf" else None


def parse(
    text: str,
    references: tuple[Reference, ...] = (),
    imports: Imports = NO_IMPORTS,
    *,
    strict: bool = True,
) -> "JsonSchema":
    """The schema in `text`, whose `$ref`s lead into itself or to one of `imports` by its name.

    Not strict is for schemas that are stored already: keywords are not checked, since the peer
    stores much that no meta-schema allows, and nothing is compiled before a value is validated.
    """
    root = read_json(text)
    if not isinstance(root, dict | bool):
        raise InvalidSchemaError("a JSON Schema is an object or a boolean")
    canonical = write_json(root)
    if "\\u" in text:  # an escape is the only way to half of a surrogate pair
        check_encoding(canonical)
    schema = JsonSchema(
        read_documents(root, imports), canonical, references, imports, strict=strict
    )
    if strict:
        _ = schema.validator
    return schema


def validate(schema: "JsonSchema", value: object) -> str | None:
    """What is wrong with a value, and where in it; None if the schema allows it."""
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
        return parse(text, tuple(sorted(set(self.references))), self._imports, strict=self._strict)

    def tagged(self, tagging: Tagging) -> "JsonSchema":
        """The same schema with other tags."""
        text = tagged(self._canonical, tagging)
        return parse(text, self.references, self._imports, strict=self._strict)

    def formatted(self, form: str) -> str:
        """The canonical text: JSON Schema has no other forms."""
        return self._canonical

    def equivalent(self, other: "JsonSchema") -> bool:
        """Whether registering one while the other is there gives the same version."""
        return self._canonical == other.canonical

    def incompatibilities(
        self, writer: "JsonSchema", policy: Policy = Policy.STRICT
    ) -> tuple[Difference, ...]:
        """Why values that are valid under `writer` need not be under this schema."""
        allowed = ALLOWED[policy]
        try:
            findings = compare(writer.tree.root, self.tree.root, allowed)
        except (BudgetExceededError, InvalidSchemaError) as reason:
            return (uncheckable(reason, "#/"),)
        refused = listed(findings, lambda kind: kind not in allowed)
        return bounded(described(found) for found in refused)

    def lenient_changes(self, writer: "JsonSchema") -> tuple[Difference, ...]:
        """What differs and is allowed by the lenient policy only."""
        lenient_only = ALLOWED[Policy.LENIENT] - ALLOWED[Policy.STRICT]
        findings = compare(writer.tree.root, self.tree.root, ALLOWED[Policy.LENIENT])
        found = listed(findings, lambda kind: kind in lenient_only)
        return bounded(Difference(one.kind, path_of(one), "") for one in found)

    @cached_property
    def validator(self) -> jsonschema_rs.Validator:
        """The schema compiled; an InvalidSchemaError if that cannot be done."""
        return compiled(self.documents, asserts_formats=self._asserts_formats)

    @cached_property
    def asserting_formats(self) -> "JsonSchema":
        """The same schema, whose validator also checks `format`."""
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
        """The schema as comparisons see it."""
        return Tree(self.documents)
