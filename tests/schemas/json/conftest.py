"""Random JSON Schemas, and random small changes to them."""

import copy
import random
from typing import Any

import pytest

NAMES = ["a", "b", "c", "x-1"]
MODERN = "https://json-schema.org/draft/2020-12/schema"


class Maker:
    """Makes schemas from a seed: all types, nested and combined."""

    def __init__(self, seed: int, *, modern: bool = False) -> None:
        self.rng = random.Random(seed)
        self.modern = modern

    def document(self) -> dict[str, Any]:
        schema = self.schema(3, refers=True)
        if not isinstance(schema, dict):
            schema = {"allOf": [schema]}
        keyword = "$defs" if self.modern else "definitions"
        schema[keyword] = {name: self.schema(1, refers=True) for name in ("p", "q")}
        if self.modern:
            schema = {"$schema": MODERN, **schema}
        return schema

    def schema(self, depth: int, *, refers: bool = False) -> Any:
        pick = self.rng.random()
        if pick < 0.04:
            return self.rng.choice([True, False, {}])
        if refers and pick < 0.12:
            keyword = "$defs" if self.modern else "definitions"
            return {"$ref": f"#/{keyword}/{self.rng.choice('pq')}"}
        if depth and pick < 0.30:
            return self.combined(depth - 1, refers=refers)
        kinds: list[Any] = [
            self.string,
            self.number,
            self.enumeration,
            self.typed,
        ]
        if depth:
            kinds += [self.object, self.object, self.object, self.array, self.array]
        return self.rng.choice(kinds)(depth - 1, refers)

    def maybe(self, probability: float = 0.4) -> bool:
        return self.rng.random() < probability

    def combined(self, depth: int, *, refers: bool) -> dict[str, Any]:
        criterion = self.rng.choice(["allOf", "anyOf", "oneOf", "not"])
        if criterion == "not":
            return {"not": self.schema(depth, refers=refers)}
        count = self.rng.randint(1, 3)
        return {criterion: [self.schema(depth, refers=refers) for _ in range(count)]}

    def typed(self, _depth: int, _refers: bool, /) -> dict[str, Any]:
        types = ["string", "integer", "number", "boolean", "null", "object", "array"]
        if self.maybe(0.3):
            return {"type": self.rng.sample(types, self.rng.randint(1, 3))}
        return {"type": self.rng.choice(types)}

    def string(self, _depth: int, _refers: bool, /) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "string"} if self.maybe(0.9) else {}
        if self.maybe():
            schema["maxLength"] = self.rng.randint(3, 5)
        if self.maybe():
            schema["minLength"] = self.rng.randint(0, 3)
        if self.maybe(0.2):
            schema["pattern"] = self.rng.choice(["^a", "b$"])
        return schema

    def number(self, _depth: int, _refers: bool, /) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": self.rng.choice(["number", "integer"])}
        for keyword in ("minimum", "maximum", "exclusiveMinimum"):
            if self.maybe(0.3):
                schema[keyword] = self.rng.randint(0, 3)
        if self.maybe(0.3):
            schema["multipleOf"] = self.rng.choice([1, 2, 3, 6, 0.5])
        return schema

    def enumeration(self, _depth: int, _refers: bool, /) -> dict[str, Any]:
        values = ["x", "y", 1, True, "z"]
        if self.maybe(0.2):
            return {"const": self.rng.choice(values)}
        return {"enum": self.rng.sample(values, self.rng.randint(1, 4))}

    def object(self, depth: int, refers: bool, /) -> dict[str, Any]:
        names = self.rng.sample(NAMES, self.rng.randint(1, 3))
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {name: self.schema(depth, refers=refers) for name in names},
        }
        if self.maybe():
            schema["required"] = self.rng.sample(NAMES, self.rng.randint(1, 2))
        if self.maybe():
            schema["additionalProperties"] = self.rng.choice(
                [True, False, False, {"type": "string"}]
            )
        if self.maybe(0.15):
            schema["patternProperties"] = {"^x-": self.schema(0)}
        if self.maybe(0.15):
            schema["maxProperties"] = self.rng.randint(1, 3)
        if self.maybe(0.15):
            keyword = "dependentRequired" if self.modern else "dependencies"
            schema[keyword] = {"a": self.rng.sample(["b", "c"], self.rng.randint(1, 2))}
        return schema

    def array(self, depth: int, refers: bool, /) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "array"}
        prefix, rest = ("prefixItems", "items") if self.modern else ("items", "additionalItems")
        if self.maybe(0.5):
            schema["items"] = self.schema(depth, refers=refers)
        elif self.maybe():
            schema[prefix] = [self.schema(depth) for _ in range(self.rng.randint(1, 3))]
            if self.maybe(0.6):
                schema[rest] = self.rng.choice([True, False, {"type": "string"}])
        if self.maybe(0.2):
            schema["minItems"] = self.rng.randint(0, 2)
        if self.maybe(0.2):
            schema["uniqueItems"] = self.maybe(0.5)
        return schema

    def changed(self, schema: Any) -> Any:
        """The schema with one or two random changes."""
        changed = copy.deepcopy(schema)
        for _ in range(self.rng.randint(1, 2)):
            self.change(changed)
        return changed

    def change(self, document: Any) -> None:
        objects = [part for part in parts(document) if isinstance(part, dict) and part]
        if not objects:
            return
        members = self.rng.choice(objects)
        key = self.rng.choice([name for name in members if name != "$schema"] or list(members))
        if key in ("$schema", "$defs", "definitions", "p", "q"):
            return
        value = members[key]
        if isinstance(value, bool):
            members[key] = not value
        elif isinstance(value, int | float):
            members[key] = max(1, value + self.rng.choice([-1, 1]))
        elif isinstance(value, list) and len(value) > 1 and self.maybe(0.7):
            value.pop(self.rng.randrange(len(value)))
        elif isinstance(value, dict) and self.maybe(0.5):
            fresh = self.schema(1)
            if key == "properties":
                value[self.rng.choice(NAMES)] = fresh
            elif key not in ("patternProperties", "dependencies", "dependentRequired"):
                members[key] = fresh
        elif self.maybe(0.5):
            del members[key]


def parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [value, *(part for member in value.values() for part in parts(member))]
    if isinstance(value, list):
        return [part for item in value for part in parts(item)]
    return []


@pytest.fixture
def make_schemas() -> type[Maker]:
    return Maker
