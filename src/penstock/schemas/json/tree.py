"""A schema as its peer sees it: one kind per schema, several kinds at once being an `allOf`.

`{"type": "string", "minimum": 3}` constrains strings and numbers: it is the `allOf` of the two. A
`$ref` is what it points to. Nodes are made when they are first asked for and then kept, so a schema
that refers to itself is no endless tree, and a node can be known by its identity.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from penstock.schemas.json.jsontext import JsonObject, JsonValue, fingerprint, write_json
from penstock.schemas.json.references import Documents, Draft, ReferenceTarget, reference_in

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
    """What a schema speaks about."""

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


class Node:
    """One schema, or one aspect of it. Known by its identity; made by a Tree only."""

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
        draft: Draft,
        *,
        is_integer: bool = False,
        criterion: str = "",
        parts: "tuple[Node | ReferenceTarget, ...]" = (),
    ) -> None:
        self.tree = tree
        self.kind = kind
        self.keywords = keywords
        self.draft = draft
        self.is_integer = is_integer
        self.criterion = criterion  # of a combined one: allOf, anyOf or oneOf
        self._parts = parts
        self._branches: tuple[Node, ...] | None = None

    def child(self, keyword: str) -> "Node | None":
        """The schema under a keyword of this one, if there is one."""
        schema = self.keywords.get(keyword)
        return self.node(schema) if isinstance(schema, dict | bool) else None

    def node(self, schema: JsonValue) -> "Node":
        """The node of a schema somewhere below this one."""
        return self.tree.node(schema, self.draft)

    def members(self, keyword: str) -> JsonObject:
        """What is under a keyword whose value is an object; empty if it is not there."""
        value = self.keywords.get(keyword)
        return value if isinstance(value, dict) else _EMPTY

    @property
    def branches(self) -> "tuple[Node, ...]":
        """The schemas that a combined one combines, each text once."""
        if self._branches is None:
            distinct: dict[object, Node | ReferenceTarget] = {}
            for part in self._parts:
                key = id(part) if isinstance(part, Node) else write_json(part.schema)
                distinct.setdefault(key, part)
            self._branches = tuple(
                part if isinstance(part, Node) else self.tree.node(*part)
                for part in distinct.values()
            )
        return self._branches


class Tree:
    """All nodes of one schema and its imports."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._nodes: dict[int, Node] = {}  # by id of the object in the documents
        self._fingerprints: dict[int, bytes | None] = {}  # by the same
        self._anything = Node(self, NodeType.ANYTHING, _EMPTY, documents.draft)
        self._nothing = Node(self, NodeType.NOTHING, _EMPTY, documents.draft)

    @property
    def root(self) -> Node:
        """The schema itself."""
        return self.node(self._documents.root, self._documents.draft)

    def node(self, schema: JsonValue, draft: Draft) -> Node:
        """The node of a schema, references followed to where they lead."""
        followed: set[int] = set()
        while isinstance(schema, dict):
            known = self._nodes.get(id(schema))
            if known is not None:
                return known
            if reference_in(schema, draft) is None or not _only_refers(schema, draft):
                # Of two threads that make the same node, both go on with the first.
                return self._nodes.setdefault(id(schema), self._made(schema, draft))
            if id(schema) in followed:  # references in a circle, with nothing in it
                return self._anything
            followed.add(id(schema))
            schema, draft = self._documents.target(schema)
        return self._nothing if schema is False else self._anything

    def fingerprint(self, schema: JsonObject) -> bytes | None:
        """What a schema of these documents is known by; None if it refers to others."""
        key = id(schema)
        try:
            return self._fingerprints[key]
        except KeyError:
            found = self._fingerprints[key] = fingerprint(schema)
            return found

    def _made(self, schema: JsonObject, draft: Draft) -> Node:
        aspects = tuple(self._aspects(schema, draft))
        if not aspects:
            return Node(self, NodeType.ANYTHING, schema, draft)
        if len(aspects) == 1 and isinstance(aspects[0], Node):
            return aspects[0]
        return Node(self, NodeType.COMBINED, schema, draft, criterion="allOf", parts=aspects)

    def _aspects(self, schema: JsonObject, draft: Draft) -> Iterator[Node | ReferenceTarget]:
        reference = reference_in(schema, draft)
        if reference is not None:
            yield self._documents.target(schema)
        if isinstance(schema.get("enum"), list):
            yield Node(self, NodeType.ENUM, schema, draft)
        for criterion in _CRITERIA:
            parts = schema.get(criterion)
            if isinstance(parts, list):
                targets = tuple([ReferenceTarget(part, draft) for part in parts])
                yield Node(
                    self, NodeType.COMBINED, schema, draft, criterion=criterion, parts=targets
                )
        if "not" in schema:
            yield Node(self, NodeType.NOT, schema, draft)
        if "const" in schema and draft is not Draft.DRAFT_4:
            yield Node(self, NodeType.CONST, schema, draft)
        yield from self._typed(schema, draft)
        if draft not in (Draft.DRAFT_4, Draft.DRAFT_6) and not schema.keys().isdisjoint(
            ("if", "then", "else")
        ):
            yield Node(self, NodeType.CONDITION, schema, draft)

    def _typed(self, schema: JsonObject, draft: Draft) -> Iterator[Node]:
        """What `type` says, and keywords that constrain a type which is not said."""
        said = schema.get("type")
        types = [said] if isinstance(said, str) else said if isinstance(said, list) else []
        nodes = [
            Node(self, _TYPES[one], schema, draft, is_integer=one == "integer")
            for one in types
            if isinstance(one, str) and one in _TYPES
        ]
        if isinstance(said, list):
            parts = tuple(nodes)
            yield Node(self, NodeType.COMBINED, schema, draft, criterion="anyOf", parts=parts)
        else:
            yield from nodes
        covered = {node.kind for node in nodes}
        for kind, keywords in _keywords(draft):
            if kind not in covered and _says_any(schema, keywords, draft):
                yield Node(self, kind, schema, draft)


def are_written_alike(old: Node, before: JsonValue, new: Node, after: JsonValue) -> bool:
    """Whether two schemas, one in each node, are the same wherever they stand."""
    if not isinstance(before, dict) or not isinstance(after, dict) or old.draft is not new.draft:
        return False
    known = old.tree.fingerprint(before)
    return known is not None and known == new.tree.fingerprint(after)


def _says_any(schema: JsonObject, keywords: frozenset[str], draft: Draft) -> bool:
    """Whether a schema uses one of some keywords; since 2019-09 naming no property says nothing."""
    used = schema.keys() & keywords
    if draft.is_modern:
        used -= {one for one in ("properties", "patternProperties") if not schema.get(one)}
    return bool(used)


def _keywords(draft: Draft) -> tuple[tuple[NodeType, frozenset[str]], ...]:
    if draft.is_modern:
        arrays, objects, strings = _ARRAY_MODERN, _OBJECT_MODERN, _STRING
    elif draft is Draft.DRAFT_4:
        arrays, objects, strings = _ARRAY, _OBJECT | {"dependencies"}, _STRING | {"format"}
    else:
        arrays, objects, strings = _ARRAY_SINCE_6, _OBJECT_SINCE_6, _STRING | {"format"}
    return (
        (NodeType.ARRAY, arrays),
        (NodeType.OBJECT, objects),
        (NodeType.NUMBER, _NUMBER),
        (NodeType.STRING, strings),
    )


def _only_refers(schema: JsonObject, draft: Draft) -> bool:
    """Before 2019-09 a `$ref` stands alone whatever is beside it."""
    if not draft.is_modern:
        return True
    constraints = (
        {"enum", "not", "const", "type", "if", "then", "else", *_CRITERIA},
        *(keywords for _, keywords in _keywords(draft)),
    )
    return all(schema.keys().isdisjoint(keywords) for keywords in constraints)
