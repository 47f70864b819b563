"""A schema as Confluent compares it: one type per node; a schema of several types is an `allOf`.

`{"type": "string", "minimum": 3}` constrains strings and numbers: it is the `allOf` of the two. A
`$ref` stands for its target. Nodes are made on first use and stored, so a schema that refers to
itself is finite, and nodes are identified by their ids.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from penstock.schemas.json.jsontext import JsonObject, JsonValue, fingerprint, write_json
from penstock.schemas.json.references import Documents, JsonDraft, ReferenceTarget, reference_in

_EMPTY: Final[JsonObject] = {}
_STRING: Final = frozenset({"minLength", "maxLength", "pattern"})
_NUMBER: Final = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
)
_OBJECT: Final = frozenset(
    {
        "properties",
        "required",
        "minProperties",
        "maxProperties",
        "patternProperties",
        "additionalProperties",
    }
)
_ARRAY: Final = frozenset({"items", "additionalItems", "minItems", "maxItems", "uniqueItems"})
_OBJECT_SINCE_6: Final = _OBJECT | {"dependencies", "propertyNames"}
_ARRAY_SINCE_6: Final = _ARRAY | {"contains"}
_OBJECT_MODERN: Final = _OBJECT | {
    "propertyNames",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedProperties",
}
_ARRAY_MODERN: Final = _ARRAY_SINCE_6 | {"prefixItems", "unevaluatedItems"}


class NodeType(StrEnum):
    """The values that a node constrains."""

    ANYTHING = "anything"  # true, {}
    NOTHING = "nothing"  # false
    STRING = "string"
    NUMBER = "number"
    BOOLEAN = "boolean"
    NULL = "null"
    OBJECT = "object"
    ARRAY = "array"
    ENUM = "enum"
    CONST = "const"
    NOT = "not"
    CONDITION = "if"
    COMBINED = "combined"


_TYPES: Final = {
    "string": NodeType.STRING,
    "number": NodeType.NUMBER,
    "integer": NodeType.NUMBER,
    "boolean": NodeType.BOOLEAN,
    "null": NodeType.NULL,
    "object": NodeType.OBJECT,
    "array": NodeType.ARRAY,
}
_CRITERIA: Final = ("allOf", "anyOf", "oneOf")


class JsonNode:
    """One schema, or one aspect of it. Made by a Tree only; compared by identity."""

    __slots__ = (
        "_branches",
        "_parts",
        "criterion",
        "draft",
        "is_integer",
        "keywords",
        "kind",
        "tree",
    )

    def __init__(
        self,
        tree: "Tree",
        kind: NodeType,
        keywords: JsonObject,
        draft: JsonDraft,
        *,
        is_integer: bool = False,
        criterion: str = "",
        parts: "tuple[JsonNode | ReferenceTarget, ...]" = (),
    ) -> None:
        self.tree: Final = tree
        self.kind: Final = kind
        self.keywords: Final = keywords
        self.draft: Final = draft
        self.is_integer: Final = is_integer
        self.criterion: Final = criterion  # of a combination: allOf, anyOf or oneOf
        self._parts = parts
        self._branches: tuple[JsonNode, ...] | None = None

    def child(self, keyword: str) -> "JsonNode | None":
        """The schema under a keyword, if there is one."""
        schema = self.keywords.get(keyword)
        return self.node(schema) if isinstance(schema, dict | bool) else None

    def node(self, schema: JsonValue) -> "JsonNode":
        """The node of a schema below this one."""
        return self.tree.node(schema, self.draft)

    def members(self, keyword: str) -> JsonObject:
        """The value of a keyword, if it is an object; empty otherwise."""
        value = self.keywords.get(keyword)
        return value if isinstance(value, dict) else _EMPTY

    @property
    def branches(self) -> "tuple[JsonNode, ...]":
        """The branches of a combination, each text once."""
        if self._branches is None:
            distinct: dict[object, JsonNode | ReferenceTarget] = {}
            for part in self._parts:
                key = id(part) if isinstance(part, JsonNode) else write_json(part.schema)
                distinct.setdefault(key, part)
            self._branches = tuple(
                part if isinstance(part, JsonNode) else self.tree.node(*part)
                for part in distinct.values()
            )
        return self._branches


class Tree:
    """All nodes of one schema and its imports."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._nodes: dict[int, JsonNode] = {}  # by the id of the object in the documents
        self._fingerprints: dict[int, bytes | None] = {}  # by the same id
        self._anything = JsonNode(self, NodeType.ANYTHING, _EMPTY, documents.draft)
        self._nothing = JsonNode(self, NodeType.NOTHING, _EMPTY, documents.draft)

    @property
    def root(self) -> JsonNode:
        """The node of the schema itself."""
        return self.node(self._documents.root, self._documents.draft)

    def node(self, schema: JsonValue, draft: JsonDraft) -> JsonNode:
        """The node of a schema, or of the target of its reference."""
        followed: set[int] = set()
        while isinstance(schema, dict):
            known = self._nodes.get(id(schema))
            if known is not None:
                return known
            if reference_in(schema, draft) is None or not _only_refers(schema, draft):
                # Two threads that make the same node both use the first.
                return self._nodes.setdefault(id(schema), self._made(schema, draft))
            if id(schema) in followed:  # a cycle of references without a schema
                return self._anything
            followed.add(id(schema))
            schema, draft = self._documents.target(schema)
        return self._nothing if schema is False else self._anything

    def fingerprint(self, schema: JsonObject) -> bytes | None:
        """The fingerprint of a schema in these documents; None if it contains references."""
        key = id(schema)
        try:
            return self._fingerprints[key]
        except KeyError:
            known = self._fingerprints[key] = fingerprint(schema)
            return known

    def _made(self, schema: JsonObject, draft: JsonDraft) -> JsonNode:
        aspects = tuple(self._aspects(schema, draft))
        if not aspects:
            return JsonNode(self, NodeType.ANYTHING, schema, draft)
        if len(aspects) == 1 and isinstance(aspects[0], JsonNode):
            return aspects[0]
        return JsonNode(self, NodeType.COMBINED, schema, draft, criterion="allOf", parts=aspects)

    def _aspects(
        self, schema: JsonObject, draft: JsonDraft
    ) -> Iterator[JsonNode | ReferenceTarget]:
        reference = reference_in(schema, draft)
        if reference is not None:
            yield self._documents.target(schema)
        if isinstance(schema.get("enum"), list):
            yield JsonNode(self, NodeType.ENUM, schema, draft)
        for criterion in _CRITERIA:
            parts = schema.get(criterion)
            if isinstance(parts, list):
                targets = tuple([ReferenceTarget(part, draft) for part in parts])
                yield JsonNode(
                    self, NodeType.COMBINED, schema, draft, criterion=criterion, parts=targets
                )
        if "not" in schema:
            yield JsonNode(self, NodeType.NOT, schema, draft)
        if "const" in schema and draft is not JsonDraft.DRAFT_4:
            yield JsonNode(self, NodeType.CONST, schema, draft)
        yield from self._typed(schema, draft)
        if draft not in (JsonDraft.DRAFT_4, JsonDraft.DRAFT_6) and not schema.keys().isdisjoint(
            ("if", "then", "else")
        ):
            yield JsonNode(self, NodeType.CONDITION, schema, draft)

    def _typed(self, schema: JsonObject, draft: JsonDraft) -> Iterator[JsonNode]:
        """The nodes of `type`, and of keywords that constrain other types."""
        value = schema.get("type")
        types = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        nodes = [
            JsonNode(self, _TYPES[name], schema, draft, is_integer=name == "integer")
            for name in types
            if isinstance(name, str) and name in _TYPES
        ]
        if isinstance(value, list):
            parts = tuple(nodes)
            yield JsonNode(self, NodeType.COMBINED, schema, draft, criterion="anyOf", parts=parts)
        else:
            yield from nodes
        covered = {node.kind for node in nodes}
        for kind, keywords in _keywords(draft):
            if kind not in covered and _uses_any(schema, keywords, draft):
                yield JsonNode(self, kind, schema, draft)


def have_same_text(old: JsonNode, before: JsonValue, new: JsonNode, after: JsonValue) -> bool:
    """Whether two schemas, one below each node, have the same text and the same meaning."""
    if not isinstance(before, dict) or not isinstance(after, dict) or old.draft is not new.draft:
        return False
    known = old.tree.fingerprint(before)
    return known is not None and known == new.tree.fingerprint(after)


def _uses_any(schema: JsonObject, keywords: frozenset[str], draft: JsonDraft) -> bool:
    """Whether a schema uses one of these keywords; since 2019-09 empty properties do not count."""
    used = schema.keys() & keywords
    if draft.is_modern:
        used -= {word for word in ("properties", "patternProperties") if not schema.get(word)}
    return bool(used)


def _keywords(draft: JsonDraft) -> tuple[tuple[NodeType, frozenset[str]], ...]:
    if draft.is_modern:
        arrays, objects, strings = _ARRAY_MODERN, _OBJECT_MODERN, _STRING
    elif draft is JsonDraft.DRAFT_4:
        arrays, objects, strings = _ARRAY, _OBJECT | {"dependencies"}, _STRING | {"format"}
    else:
        arrays, objects, strings = _ARRAY_SINCE_6, _OBJECT_SINCE_6, _STRING | {"format"}
    return (
        (NodeType.ARRAY, arrays),
        (NodeType.OBJECT, objects),
        (NodeType.NUMBER, _NUMBER),
        (NodeType.STRING, strings),
    )


def _only_refers(schema: JsonObject, draft: JsonDraft) -> bool:
    """Whether only the `$ref` counts; before 2019-09 keywords beside it are ignored."""
    if not draft.is_modern:
        return True
    constraints = (
        {"enum", "not", "const", "type", "if", "then", "else", *_CRITERIA},
        *(keywords for _, keywords in _keywords(draft)),
    )
    return all(schema.keys().isdisjoint(keywords) for keywords in constraints)
