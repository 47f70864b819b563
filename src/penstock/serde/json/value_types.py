"""Which type a JSON Schema says values have, and so which columns its events have.

Only what the schema asserts counts, since every value is validated before it becomes Arrow: a
`type`, the values of `enum` and `const`, what all branches of `anyOf` or `oneOf` have in common,
and all parts of `allOf` together; null beside it makes no difference. What a schema leaves open or
says of itself is JSON text: such a column loses nothing. An object with `properties` is a struct of
them, whatever else it may have is left out; one with `additionalProperties` alone is a map.
Integers have 64 bits and numbers are doubles: a value that does not fit exactly is a wrong row,
never another value.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.schemas.json import JsonSchema
from penstock.schemas.json.references import Documents
from penstock.schemas.model import InvalidSchemaError

VALUE: Final = "value"  # the one column of a schema that asserts no object
REFERENCES_MAX: Final = 32  # from one $ref to the next
TYPES_MAX: Final = 10_000  # in one schema, references written out; beyond, a type is text
PARTS_MAX: Final = 1_000  # of one schema, through allOf; what is beyond says nothing
DEPTH_MAX: Final = 8  # choices within choices that a type is looked for in

_SCALARS: Final = frozenset(("string", "integer", "number", "boolean"))
_NUMBERS: Final = frozenset(("integer", "number"))
_IMPLIED: Final = {"number": ("integer", "number")}
_KINDS: Final[Mapping[type, str]] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    type(None): "null",
    list: "array",
}


class Scalar(StrEnum):
    """A value without parts, by JSON Schema's name of its type."""

    STRING = "string"
    INTEGER = "integer"  # 64 bits
    NUMBER = "number"  # a double
    BOOLEAN = "boolean"


class ListOf(NamedTuple):
    """An array, all of whose items have one type."""

    item: "ValueType"


class MapOf(NamedTuple):
    """An object with any names."""

    value: "ValueType"


class ObjectOf(NamedTuple):
    """An object with these properties, and perhaps others, which are left out."""

    properties: tuple[tuple[str, "ValueType"], ...]


ValueType: TypeAlias = Scalar | ListOf | MapOf | ObjectOf


class JsonColumn(NamedTuple):
    """A column; without a type it is JSON text."""

    name: str
    type: ValueType | None


class JsonColumns(NamedTuple):
    """The columns of a schema."""

    columns: tuple[JsonColumn, ...]
    is_object: bool  # if not there is one column, of whole values
    required: frozenset[str]


def columns_of(schema: JsonSchema) -> JsonColumns:
    """A column per property of an object, or one for everything."""
    typing = _Typing(schema.documents)
    parts = typing.parts(schema.documents.root)
    properties = _properties(parts)
    if typing.kinds(parts) != frozenset(("object",)) or not properties:
        column = JsonColumn(VALUE, typing.type(schema.documents.root))
        return JsonColumns((column,), is_object=False, required=frozenset())
    columns = tuple(JsonColumn(name, typing.type(*given)) for name, given in properties.items())
    required = frozenset(name for part in parts for name in _names(part.get("required")))
    return JsonColumns(columns, is_object=True, required=required)


def _names(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _properties(parts: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """What all parts say about each property."""
    by_name: dict[str, list[Any]] = {}
    for part in parts:
        properties = part.get("properties")
        for name, given in properties.items() if isinstance(properties, dict) else ():
            by_name.setdefault(name, []).append(given)
    return by_name


class _Typing:
    """A schema is a list of parts here, all of which a value satisfies."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._open: set[int] = set()  # by id: schemas that are within themselves have no type
        self._count = 0

    def resolved(self, schema: Any) -> dict[str, Any] | None:
        """The schema itself, where its $refs lead to; None if nothing is asserted."""
        for _ in range(REFERENCES_MAX):
            if not isinstance(schema, dict):
                return None
            if "$ref" not in schema:
                return schema
            try:
                schema = self._documents.target(schema).schema
            except InvalidSchemaError:
                return None
        return None

    def parts(self, *schemas: Any) -> list[dict[str, Any]]:
        """The schemas, what their `allOf` adds, and the only branch that a choice has but null."""
        parts: list[dict[str, Any]] = []
        waiting = list(reversed(schemas))
        while waiting and len(parts) < PARTS_MAX:
            schema = self.resolved(waiting.pop())
            if schema is None or any(schema is earlier for earlier in parts):
                continue
            parts.append(schema)
            for keyword in ("allOf", "anyOf", "oneOf"):
                branches = schema.get(keyword)
                if not isinstance(branches, list):
                    continue
                if keyword != "allOf":
                    branches = [branch for branch in branches if branch != {"type": "null"}]
                if keyword == "allOf" or len(branches) == 1:
                    waiting += reversed(branches)
        return parts

    def kinds(self, parts: list[dict[str, Any]], depth: int = 0) -> frozenset[str] | None:
        """The types that all parts allow, null aside; a number may be an integer. None: any."""
        allowed: frozenset[str] | None = None
        for part in parts:
            for kinds in self._asserted(part, depth):
                allowed = kinds if allowed is None else allowed & kinds
        return None if allowed is None else allowed - {"null"}

    def _asserted(self, part: dict[str, Any], depth: int) -> Iterator[frozenset[str]]:
        """What each keyword of a part says about the type."""
        named = part.get("type")
        if named is not None:
            names = named if isinstance(named, list) else [named]
            yield frozenset(implied for name in names for implied in _IMPLIED.get(name, (name,)))
        if isinstance(part.get("enum"), list):
            yield frozenset(map(_kind_of, part["enum"]))
        if "const" in part:
            yield frozenset((_kind_of(part["const"]),))
        for keyword in ("anyOf", "oneOf"):
            branches = part.get(keyword)
            if isinstance(branches, list) and depth < DEPTH_MAX:
                each = [self.kinds(self.parts(branch), depth + 1) for branch in branches]
                if None not in each:
                    yield frozenset(kind for kinds in each if kinds for kind in kinds)

    def type(self, *schemas: Any) -> ValueType | None:
        """The type that schemas assert together; None if there is none."""
        parts = self.parts(*schemas)
        keys = {id(part) for part in parts}
        self._count += 1
        if not parts or keys & self._open or self._count > TYPES_MAX:
            return None
        self._open |= keys
        kind = self._common(parts)
        self._open -= keys
        return kind

    def _common(self, parts: list[dict[str, Any]]) -> ValueType | None:
        kinds = self.kinds(parts)
        if not kinds:
            return None
        if len(kinds) > 1:
            return Scalar.NUMBER if kinds == _NUMBERS else None
        kind = next(iter(kinds))
        if kind == "array":
            return self._list(parts)
        if kind == "object":
            return self._object(parts)
        return Scalar(kind) if kind in _SCALARS else None

    def _list(self, parts: list[dict[str, Any]]) -> ValueType | None:
        if any("prefixItems" in part or isinstance(part.get("items"), list) for part in parts):
            return None
        item = self.type(*(part["items"] for part in parts if "items" in part))
        return None if item is None else ListOf(item)

    def _object(self, parts: list[dict[str, Any]]) -> ValueType | None:
        properties = _properties(parts)
        if properties:
            types = {name: self.type(*given) for name, given in properties.items()}
            if any(value_type is None for value_type in types.values()):
                return None
            return ObjectOf(
                tuple((name, value_type) for name, value_type in types.items() if value_type)
            )
        if any("patternProperties" in part for part in parts):
            return None
        given = [part["additionalProperties"] for part in parts if "additionalProperties" in part]
        value = self.type(*given)
        return None if value is None else MapOf(value)


def _kind_of(value: Any) -> str:
    """The narrowest type of a value."""
    if isinstance(value, Decimal):  # as schemas are read
        return "integer" if value == value.to_integral_value() else "number"
    return _KINDS.get(type(value), "object")
