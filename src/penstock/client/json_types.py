"""Which Arrow type a JSON Schema says values have.

Only what the schema asserts counts, since every value is validated before it becomes Arrow: a
`type`, or null and a type. What a schema leaves open, chooses between or says of itself is JSON
text: such a column loses nothing. An object with `properties` is a struct of them, whatever else it
may have is left out; one with `additionalProperties` alone is a map. Integers have 64 bits and
numbers are doubles: a value that does not fit exactly is a wrong row, never another value.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

from penstock.schemas.json import JsonSchema
from penstock.schemas.json.documents import Documents
from penstock.schemas.model import InvalidSchema

VALUE: Final = "value"  # the one column of a schema that asserts no object
REFERENCES_MAX: Final = 32  # from one $ref to the next
TYPES_MAX: Final = 10_000  # in one schema, references written out; beyond, a type is text

_SCALARS: Final[Mapping[str, pa.DataType]] = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
}


class JsonColumn(NamedTuple):
    """A column; without a type it is JSON text."""

    name: str
    type: pa.DataType | None


class JsonColumns(NamedTuple):
    """The columns of a schema."""

    columns: tuple[JsonColumn, ...]
    is_object: bool  # if not there is one column, of whole values
    required: frozenset[str]


def columns_of(schema: JsonSchema) -> JsonColumns:
    """A column per property of an object, or one for everything."""
    typing = _Typing(schema.documents)
    root = typing.resolved(schema.documents.root)
    properties = root.get("properties") if isinstance(root, dict) else None
    if root is None or root.get("type") != "object" or not isinstance(properties, dict):
        return JsonColumns((JsonColumn(VALUE, None),), is_object=False, required=frozenset())
    columns = tuple(JsonColumn(name, typing.type(one)) for name, one in properties.items())
    return JsonColumns(columns, is_object=True, required=frozenset(_names(root.get("required"))))


def _names(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


class _Typing:
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
            except InvalidSchema:
                return None
        return None

    def type(self, schema: Any) -> pa.DataType | None:
        """The type that a schema asserts; None if there is none that Arrow has."""
        found = self.resolved(schema)
        self._count += 1
        if found is None or id(found) in self._open or self._count > TYPES_MAX:
            return None
        self._open.add(id(found))
        kind = self._asserted(found)
        self._open.discard(id(found))
        return kind

    def _asserted(self, found: dict[str, Any]) -> pa.DataType | None:
        kinds = found.get("type")
        if isinstance(kinds, list):
            some = [kind for kind in kinds if kind != "null"]
            kinds = some[0] if len(some) == 1 else None
        if kinds is None:
            return self._chosen(found)
        if kinds == "array":
            return self._list(found)
        if kinds == "object":
            return self._object(found)
        return _SCALARS.get(kinds) if isinstance(kinds, str) else None

    def _chosen(self, schema: dict[str, Any]) -> pa.DataType | None:
        """Null or one other thing, in the other way that it can be said."""
        for keyword in ("anyOf", "oneOf"):
            branches = schema.get(keyword)
            if isinstance(branches, list):
                some = [one for one in branches if one != {"type": "null"}]
                return self.type(some[0]) if len(some) == 1 else None
        return None

    def _list(self, schema: dict[str, Any]) -> pa.DataType | None:
        if "prefixItems" in schema:
            return None
        item = self.type(schema.get("items"))
        return None if item is None else pa.list_(item)

    def _object(self, schema: dict[str, Any]) -> pa.DataType | None:
        properties = schema.get("properties")
        if isinstance(properties, dict) and properties:
            types = {name: self.type(one) for name, one in properties.items()}
            if any(one is None for one in types.values()):
                return None
            return pa.struct([pa.field(name, one) for name, one in types.items() if one])
        if "patternProperties" in schema:
            return None
        value = self.type(schema.get("additionalProperties"))
        return None if value is None else pa.map_(pa.string(), value)
