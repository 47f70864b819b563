"""Random JSON Schemas, and random small changes to them."""

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest

NAMES = ["a", "b", "c", "x-1"]
MODERN = "https://json-schema.org/draft/2020-12/schema"


class Maker:
    """Schemas from a seed. Not all that can be written, but all kinds, nested and combined."""

    def __init__(self, seed: int, *, modern: bool = False) -> None:
        self.chance = random.Random(seed)
        self.modern = modern

    def document(self) -> dict[str, Any]:
        schema = self.schema(3, refers=True)
        if not isinstance(schema, dict):
            schema = {"allOf": [schema]}
        place = "$defs" if self.modern else "definitions"
        schema[place] = {name: self.schema(1, refers=True) for name in ("p", "q")}
        if self.modern:
            schema = {"$schema": MODERN, **schema}
        return schema

    def schema(self, depth: int, *, refers: bool = False) -> Any:
        pick = self.chance.random()
        if pick < 0.04:
            return self.chance.choice([True, False, {}])
        if refers and pick < 0.12:
            place = "$defs" if self.modern else "definitions"
            return {"$ref": f"#/{place}/{self.chance.choice('pq')}"}
        if depth and pick < 0.30:
            return self.combined(depth - 1, refers=refers)
        kinds: list[Callable[[int, bool], dict[str, Any]]] = [
            self.string,
            self.number,
            self.enumeration,
            self.plain,
        ]
        if depth:
            kinds += [self.object, self.object, self.object, self.array, self.array]
        return self.chance.choice(kinds)(depth - 1, refers)

    def some(self, likelihood: float = 0.4) -> bool:
        return self.chance.random() < likelihood

    def combined(self, depth: int, *, refers: bool) -> dict[str, Any]:
        criterion = self.chance.choice(["allOf", "anyOf", "oneOf", "not"])
        if criterion == "not":
            return {"not": self.schema(depth, refers=refers)}
        count = self.chance.randint(1, 3)
        return {criterion: [self.schema(depth, refers=refers) for _ in range(count)]}

    def plain(self, depth: int, refers: bool) -> dict[str, Any]:
        types = ["string", "integer", "number", "boolean", "null", "object", "array"]
        if self.some(0.3):
            return {"type": self.chance.sample(types, self.chance.randint(1, 3))}
        return {"type": self.chance.choice(types)}

    def string(self, depth: int, refers: bool) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "string"} if self.some(0.9) else {}
        if self.some():
            schema["maxLength"] = self.chance.randint(3, 5)
        if self.some():
            schema["minLength"] = self.chance.randint(0, 3)
        if self.some(0.2):
            schema["pattern"] = self.chance.choice(["^a", "b$"])
        return schema

    def number(self, depth: int, refers: bool) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": self.chance.choice(["number", "integer"])}
        for keyword in ("minimum", "maximum", "exclusiveMinimum"):
            if self.some(0.3):
                schema[keyword] = self.chance.randint(0, 3)
        if self.some(0.3):
            schema["multipleOf"] = self.chance.choice([1, 2, 3, 6, 0.5])
        return schema

    def enumeration(self, depth: int, refers: bool) -> dict[str, Any]:
        values = ["x", "y", 1, True, "z"]
        if self.some(0.2):
            return {"const": self.chance.choice(values)}
        return {"enum": self.chance.sample(values, self.chance.randint(1, 4))}

    def object(self, depth: int, refers: bool) -> dict[str, Any]:
        names = self.chance.sample(NAMES, self.chance.randint(1, 3))
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {name: self.schema(depth, refers=refers) for name in names},
        }
        if self.some():
            schema["required"] = self.chance.sample(NAMES, self.chance.randint(1, 2))
        if self.some():
            schema["additionalProperties"] = self.chance.choice(
                [True, False, False, {"type": "string"}]
            )
        if self.some(0.15):
            schema["patternProperties"] = {"^x-": self.schema(0)}
        if self.some(0.15):
            schema["maxProperties"] = self.chance.randint(1, 3)
        if self.some(0.15):
            keyword = "dependentRequired" if self.modern else "dependencies"
            schema[keyword] = {"a": self.chance.sample(["b", "c"], self.chance.randint(1, 2))}
        return schema

    def array(self, depth: int, refers: bool) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "array"}
        places, rest = ("prefixItems", "items") if self.modern else ("items", "additionalItems")
        if self.some(0.5):
            schema["items"] = self.schema(depth, refers=refers)
        elif self.some():
            schema[places] = [self.schema(depth) for _ in range(self.chance.randint(1, 3))]
            if self.some(0.6):
                schema[rest] = self.chance.choice([True, False, {"type": "string"}])
        if self.some(0.2):
            schema["minItems"] = self.chance.randint(0, 2)
        if self.some(0.2):
            schema["uniqueItems"] = self.some(0.5)
        return schema

    def changed(self, schema: Any) -> Any:
        """The schema with one or two places in it replaced, dropped or added to."""
        changed = copy.deepcopy(schema)
        for _ in range(self.chance.randint(1, 2)):
            self.change_one(changed)
        return changed

    def change_one(self, document: Any) -> None:
        places = [one for one in parts(document) if isinstance(one, dict) and one]
        if not places:
            return
        place = self.chance.choice(places)
        key = self.chance.choice([one for one in place if one != "$schema"] or list(place))
        if key in ("$schema", "$defs", "definitions", "p", "q"):
            return
        value = place[key]
        if isinstance(value, bool):
            place[key] = not value
        elif isinstance(value, int | float):
            place[key] = max(1, value + self.chance.choice([-1, 1]))
        elif isinstance(value, list) and len(value) > 1 and self.some(0.7):
            value.pop(self.chance.randrange(len(value)))
        elif isinstance(value, dict) and self.some(0.5):
            fresh = self.schema(1)
            if key == "properties":
                value[self.chance.choice(NAMES)] = fresh
            elif key not in ("patternProperties", "dependencies", "dependentRequired"):
                place[key] = fresh
        elif self.some(0.5):
            del place[key]


def parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [value, *(part for one in value.values() for part in parts(one))]
    if isinstance(value, list):
        return [part for one in value for part in parts(one)]
    return []


@pytest.fixture
def make_schemas() -> type[Maker]:
    return Maker
