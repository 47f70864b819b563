"""The cost of validating one event.

A validator evaluates a shared schema once for every path that leads to it, so the costs of nested
combinations multiply.
"""

from collections.abc import Callable, Iterator
from typing import Final

from penstock.schemas.json.jsontext import JsonObject, JsonValue

COST_MAX: Final = 1_000_000  # schemas evaluated; a larger cost counts as this
_COMBINED: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")
_INSIDE: Final = (
    *("properties", "patternProperties", "additionalProperties", "items", "prefixItems"),
    *("contains", "additionalItems", "unevaluatedItems", "unevaluatedProperties"),
)
_BY_NAME: Final = ("properties", "patternProperties", "dependentSchemas")

Follow = Callable[[JsonValue], JsonValue]  # to the target of a schema's reference


def validation_cost(root: JsonValue, follow: Follow, depth: int) -> int:
    """The maximum number of schemas that are evaluated for an event of this depth."""
    try:
        return _Costs(follow).of(root, depth)
    except RecursionError:
        return COST_MAX


class _Costs:
    def __init__(self, follow: Follow) -> None:
        self._follow = follow
        self._known: dict[tuple[int, int], int] = {}

    def of(self, written: JsonValue, depth: int) -> int:
        if not isinstance(written, dict):
            return 1
        key = (id(written), depth)
        if key not in self._known:
            self._known[key] = COST_MAX  # for a schema that contains itself
            schema = self._follow(written)
            self._known[key] = self._sum(schema, depth) if isinstance(schema, dict) else 1
        return self._known[key]

    def _sum(self, schema: JsonObject, depth: int) -> int:
        total = 1
        for part in _parts(schema, _COMBINED):
            total += self.of(part, depth)
        for part in _parts(schema, _INSIDE) if depth else ():
            total += self.of(part, depth - 1)
        return min(total, COST_MAX)


def _parts(schema: JsonObject, keywords: tuple[str, ...]) -> Iterator[JsonValue]:
    for keyword in keywords:
        value = schema.get(keyword)
        if isinstance(value, list):
            yield from value
        elif isinstance(value, dict) and keyword in _BY_NAME:
            yield from value.values()
        elif isinstance(value, dict):
            yield value
