"""An Avro schema as the registry handles it. Immutable; what is costly is computed once.

Tags in an Avro schema: a property of the record or field that the path names.

A record is named with its namespace or without; the first that matches from the outside in is it.
"""

from collections import deque
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

from penstock.schemas.avro.canonical import print_schema
from penstock.schemas.avro.equality import equivalent
from penstock.schemas.avro.jsontext import read_json, write_json
from penstock.schemas.avro.normalize import normal_form
from penstock.schemas.avro.parse import SchemaParser
from penstock.schemas.avro.resolution import UncheckableError, differences
from penstock.schemas.avro.shapes import check_reach, find_shapes
from penstock.schemas.avro.tree import AvroType, Node
from penstock.schemas.model import (
    NO_IMPORTS,
    BudgetExceededError,
    Difference,
    Entity,
    Imports,
    InvalidSchemaError,
    Policy,
    Reference,
    SchemaType,
    Tagging,
    check_encoding,
    uncheckable,
)


def tagged(text: str, tagging: Tagging) -> str:
    """A schema's canonical text with its tags changed."""
    root: Any = read_json(text)
    for entity in tagging.entities:
        tagging.change_member(entity, _find(root, entity))
    return write_json(root)


def _find(root: Any, entity: Entity) -> dict[str, Any]:
    words = entity.words
    field = None if entity.is_record else words.pop()
    if not words:
        raise entity.missing()
    *space, name = words
    waiting = deque([(root, "")])
    while waiting:
        node, around = waiting.popleft()
        if isinstance(node, list):
            waiting += [(one, around) for one in node]
        if not isinstance(node, dict):
            continue
        here = node.get("namespace", around)
        if node.get("type") != "record":
            inner = (node.get(key) for key in ("type", "items", "values"))
            waiting += [(one, here) for one in inner if isinstance(one, dict | list)]
        elif node["name"] != name or (space and ".".join(space) != here):
            waiting += [(one, here) for one in node["fields"]]
        elif field is None:
            return node
        else:
            found = next((one for one in node["fields"] if one["name"] == field), None)
            if found is None:
                break
            place: dict[str, Any] = found
            return place
    raise entity.missing()


def parse(
    text: str,
    references: tuple[Reference, ...] = (),
    imports: Imports = NO_IMPORTS,
    *,
    strict: bool = True,
) -> "AvroSchema":
    """The schema in `text`, which may use the names that `imports` define.

    Not strict is for schemas that are stored already: names may have any letters, namespaces and
    defaults are not looked at.
    """
    reader, known = _reader(imports, strict=strict)
    root = reader.read(text)
    if reader.uses_names:  # without, types nest no deeper than the text does
        check_reach(root)
    schema = AvroSchema(root, references, imports, known, strict=strict)
    if "\\u" in text:  # an escape is the only way to half of a surrogate pair
        check_encoding(schema.canonical)
    return schema


def _reader(imports: Imports, *, strict: bool) -> tuple[SchemaParser, frozenset[str]]:
    reader = SchemaParser(strict=strict)
    known = set()
    for name, text in imports.items():
        try:
            known.add(reader.read(text).full_name)
        except InvalidSchemaError as wrong:
            raise InvalidSchemaError(f'in the reference "{name}": {wrong}') from None
    return reader, frozenset(known)


class AvroSchema:
    """A parsed Avro schema, with the references it was parsed with."""

    type: Final = SchemaType.AVRO

    def __init__(
        self,
        root: Node,
        references: tuple[Reference, ...],
        imports: Mapping[str, str],
        known: frozenset[str],
        *,
        strict: bool,
    ) -> None:
        self.root = root
        self.references = references
        self._imports = imports
        self._known = known  # full names that the imports define at their top
        self._strict = strict

    @cached_property
    def canonical(self) -> str:
        """The text as the registry stores it."""
        return print_schema(self.root, self._known)

    @property
    def name(self) -> str | None:
        """The full name of a record; other types have none here."""
        return self.root.full_name if self.root.kind is AvroType.RECORD else None

    def normalized(self) -> "AvroSchema":
        """The same schema with everything that has no meaning put in one order."""
        reader, known = _reader(self._imports, strict=self._strict)
        root = reader.read_value(normal_form(self.root, set(self._known)))
        references = tuple(sorted(set(self.references)))
        return AvroSchema(root, references, self._imports, known, strict=self._strict)

    def tagged(self, tagging: Tagging) -> "AvroSchema":
        """The same schema with other tags."""
        text = tagged(self.canonical, tagging)
        return parse(text, self.references, self._imports, strict=self._strict)

    def formatted(self, form: str) -> str:
        """The text with all references written out if `form` is `resolved`; canonical otherwise."""
        return print_schema(self.root) if form.lower() == "resolved" else self.canonical

    def equivalent(self, other: "AvroSchema") -> bool:
        """Whether registering one while the other is there gives the same version."""
        return equivalent(self.root, other.root)

    def incompatibilities(
        self, writer: "AvroSchema", policy: Policy = Policy.STRICT
    ) -> tuple[Difference, ...]:
        """Why this schema cannot read what `writer` wrote. Avro knows one policy only."""
        try:
            return differences(self.shaped_root, writer.shaped_root)
        except (UncheckableError, BudgetExceededError) as reason:
            return (uncheckable(reason, "/"),)
        except RecursionError:
            return (uncheckable("the two schemas refer to themselves in too many ways", "/"),)

    @cached_property
    def shaped_root(self) -> Node:
        """The tree, with what its equal parts are known by."""
        find_shapes(self.root)
        return self.root
