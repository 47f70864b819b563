"""An Avro schema for the registry, the client and the gate. Immutable; costly parts are cached.

Tags are a property of the record or field that a path names. A record is named with or without its
namespace; the first match from the outside in counts.
"""

from collections import deque
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final

from penstock.schemas.avro.canonical import print_schema
from penstock.schemas.avro.equality import equivalent
from penstock.schemas.avro.jsontext import read_json, write_json
from penstock.schemas.avro.normalize import normal_form
from penstock.schemas.avro.parse import SchemaParser
from penstock.schemas.avro.resolution import differences
from penstock.schemas.avro.shapes import check_depth, find_shapes
from penstock.schemas.avro.tree import AvroType, Node
from penstock.schemas.compare_limits import first_differences
from penstock.schemas.model import (
    NO_IMPORTS,
    Difference,
    Entity,
    Imports,
    Policy,
    Reference,
    SchemaType,
    Tagging,
    check_encoding,
    normalized_references,
    parsing_reference,
)


def parse(
    text: str,
    references: tuple[Reference, ...] = (),
    imports: Imports = NO_IMPORTS,
    *,
    strict: bool = True,
) -> "AvroSchema":
    """The schema in `text`, which may use the names that `imports` define.

    `strict=False` is for schemas that are stored already: names may contain any letters, and
    namespaces and defaults are not checked.
    """
    parser, imported_names = _parser_after(imports, strict=strict)
    root = parser.parse(text)
    if parser.uses_names:  # otherwise types nest no deeper than the text
        check_depth(root)
    schema = AvroSchema(root, references, imports, imported_names, strict=strict)
    if "\\u" in text:  # only an escape can produce half of a surrogate pair
        check_encoding(schema.canonical)
    return schema


def _parser_after(imports: Imports, *, strict: bool) -> tuple[SchemaParser, frozenset[str]]:
    """A parser that knows the types of the imports, and the names of those at their top."""
    parser = SchemaParser(strict=strict)
    names = set()
    for name, text in imports.items():
        with parsing_reference(name):
            names.add(parser.parse(text).full_name)
    return parser, frozenset(names)


class AvroSchema:
    """A parsed Avro schema, with the references it was parsed with."""

    type: Final = SchemaType.AVRO

    def __init__(
        self,
        root: Node,
        references: tuple[Reference, ...],
        imports: Imports,
        imported_names: frozenset[str],
        *,
        strict: bool,
    ) -> None:
        self.root = root
        self.references = references
        self._imports = imports
        self._imported_names = imported_names
        self._strict = strict

    @cached_property
    def canonical(self) -> str:
        """The text as the registry stores it."""
        return print_schema(self.root, self._imported_names)

    @property
    def name(self) -> str | None:
        """The full name of a record; None for other types."""
        return self.root.full_name if self.root.kind is AvroType.RECORD else None

    def normalized(self) -> "AvroSchema":
        """The same schema with everything that has no meaning in one fixed order."""
        parser, names = _parser_after(self._imports, strict=self._strict)
        root = parser.parse_value(normal_form(self.root, set(self._imported_names)))
        references = normalized_references(self.references)
        return AvroSchema(root, references, self._imports, names, strict=self._strict)

    def tagged(self, tagging: Tagging) -> "AvroSchema":
        """The same schema with tags added or removed."""
        root: Any = read_json(self.canonical)
        for entity in tagging.entities:
            tagging.update_member(entity, _find_entity(root, entity))
        return parse(write_json(root), self.references, self._imports, strict=self._strict)

    def formatted(self, form: str) -> str:
        """With all references written out if `form` is `resolved`; canonical otherwise."""
        return print_schema(self.root) if form.lower() == "resolved" else self.canonical

    def equivalent(self, other: "AvroSchema") -> bool:
        """Whether the registry treats both as one version."""
        return equivalent(self.root, other.root)

    def incompatibilities(
        self, writer: "AvroSchema", _policy: Policy = Policy.STRICT, /
    ) -> tuple[Difference, ...]:
        """Why this schema cannot read what `writer` wrote; the policy is for JSON Schema."""
        return first_differences(lambda: differences(self.shaped_root, writer.shaped_root), "/")

    @cached_property
    def shaped_root(self) -> Node:
        """The tree, with the shapes of its parts: see `shapes`."""
        find_shapes(self.root)
        return self.root


def _find_entity(root: Any, entity: Entity) -> dict[str, Any]:
    steps = entity.steps
    field = None if entity.is_record else steps.pop()
    if not steps:
        raise entity.not_found()
    *namespace, name = steps
    for record, here in _records(root):
        if record["name"] != name or (namespace and ".".join(namespace) != here):
            continue
        if field is None:
            return record
        for member in record["fields"]:
            if member["name"] == field:
                tagged: dict[str, Any] = member
                return tagged
        break
    raise entity.not_found()


def _records(root: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """All records with their namespaces, outer ones first."""
    waiting = deque([(root, "")])
    while waiting:
        node, outer = waiting.popleft()
        if isinstance(node, list):
            waiting += [(branch, outer) for branch in node]
        if not isinstance(node, dict):
            continue
        here = node.get("namespace", outer)
        if node.get("type") == "record":
            yield node, here
            waiting += [(field, here) for field in node["fields"]]
        else:
            inner = (node.get(key) for key in ("type", "items", "values"))
            waiting += [(part, here) for part in inner if isinstance(part, dict | list)]
