"""Candidates for values that one JSON Schema allows and another refuses; the caller validates them.

Generated from both schemas: an event that the writer allows fails at limits, lengths and names that
only the reader's schema has, and at values that the reader's `not` and `if` name.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from itertools import cycle, islice, zip_longest
from random import Random
from typing import Any, Final, Protocol

from penstock.gate.proof.pattern_examples import texts_of
from penstock.schemas.json.jsontext import JsonObject, JsonValue

DEPTH_MAX: Final = 5
CANDIDATES_MAX: Final = 24  # for one value
EVENTS_MAX: Final = 4_000
_LENGTH_MAX: Final = 2_000
_WORDS: Final = ("amber", "birch", "cedar", "delta", "ember", "fjord")
_COMMON: Final = ("A1", "ABC", "abc", "123", "a-b", "ABC-123", "EUR", "2026-01-01", "a@b.example")
_FORMATS: Final[Mapping[str, str]] = {
    "date": "2026-01-01",
    "time": "12:00:00Z",
    "date-time": "2026-01-01T12:00:00Z",
    "duration": "P1D",
    "email": "a@b.example",
    "hostname": "b.example",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://b.example/a",
    "uuid": "6f1d7a40-0c1e-4d6f-9a3b-5f1c2d3e4f50",
}
_ANY_TYPE: Final[tuple[Any, ...]] = ("text", 7, 1.5, True, None, [], {})
_NOT_LITERAL: Final = re.compile(r"[\^$\\.*+?()\[\]{}|]")
_BY_KEYWORD: Final = (
    (
        "object",
        (
            "properties",
            "required",
            "patternProperties",
            "additionalProperties",
            "maxProperties",
            "minProperties",
            "dependencies",
            "dependentRequired",
            "dependentSchemas",
        ),
    ),
    ("array", ("items", "prefixItems", "minItems", "maxItems", "contains")),
    ("string", ("minLength", "maxLength", "pattern", "format")),
    ("number", ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
)


class FollowedSchema(Protocol):
    """A schema with its references followed."""

    @property
    def root(self) -> JsonValue: ...

    def followed(self, schema: JsonValue) -> JsonValue: ...


class JsonExamples:
    """Generates candidates for events of one schema that another may refuse."""

    def __init__(
        self, writer: FollowedSchema, reader: FollowedSchema, changed: frozenset[str], seed: int
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._changed = changed  # names in the paths that differ
        self._random = Random(seed)

    def events(self) -> Iterator[Any]:
        """Candidates, of which the writer's schema may refuse some."""
        both = self._writer.root, self._reader.root
        return map(
            _as_value, islice(self._values(*both, depth=0, count_max=EVENTS_MAX), EVENTS_MAX)
        )

    def _values(
        self, schema: JsonValue, hint: JsonValue, *, depth: int, count_max: int = CANDIDATES_MAX
    ) -> Iterator[Any]:
        schema, hint = self._writer.followed(schema), self._reader.followed(hint)
        if not isinstance(schema, dict) or depth > DEPTH_MAX:
            return iter(_ANY_TYPE if schema is not False else ())
        hints = hint if isinstance(hint, dict) else {}
        return islice(self._of_schema(schema, hints, depth), count_max)

    def _of_schema(self, schema: JsonObject, hint: JsonObject, depth: int) -> Iterator[Any]:
        for keyword in ("const", "default"):
            if keyword in schema:
                yield schema[keyword]
        for keyword in ("examples", "enum"):
            listed = schema.get(keyword)
            yield from listed if isinstance(listed, list) else ()
        if "const" in schema or "enum" in schema:
            return
        choices = [
            self._merged(schema, part)
            for criterion in ("anyOf", "oneOf")
            for part in _listed(schema, criterion)
        ]
        choices += [
            self._merged(schema, schema[word]) for word in ("then", "else") if word in schema
        ]
        together = schema
        for part in _listed(schema, "allOf"):
            together = self._merged(together, part)
        for choice in choices or [together]:
            yield from self._typed(choice, self._merged_hint(hint), depth)

    def _merged_hint(self, hint: JsonObject) -> JsonObject:
        """The reader's schema merged with its branches, `not` and `if`."""
        parts = [part for word in ("allOf", "anyOf", "oneOf") for part in _listed(hint, word)]
        parts += [hint[word] for word in ("not", "if") if word in hint]
        for part in parts:
            followed = self._reader.followed(part)
            if isinstance(followed, dict):
                hint = _combined(hint, followed)
        return hint

    def _merged(self, schema: JsonObject, part: JsonValue) -> JsonObject:
        followed = self._writer.followed(part)
        dropped = ("anyOf", "oneOf", "then", "else", "if", "allOf")
        rest = {key: value for key, value in schema.items() if key not in dropped}
        return _combined(rest, followed) if isinstance(followed, dict) else rest

    def _typed(self, schema: JsonObject, hint: JsonObject, depth: int) -> Iterator[Any]:
        types = _types(schema)
        if "type" not in schema:
            yield from (() if types else _ANY_TYPE)
            types = types or _types(hint)
        for name in types:
            match name:
                case "object":
                    yield from self._objects(schema, hint, depth)
                case "array":
                    yield from self._arrays(schema, hint, depth)
                case "string":
                    yield from self._strings(schema, hint)
                case "integer" | "number":
                    yield from _numbers(schema, hint, is_whole=name == "integer")
                case "boolean":
                    yield from (True, False)
                case _:
                    yield None
        if "type" not in schema:  # keywords constrain values of their own type only
            yield from _ANY_TYPE

    def _strings(self, schema: JsonObject, hint: JsonObject) -> Iterator[str]:
        for source in (schema, hint):
            known = source.get("format")
            if isinstance(known, str) and known in _FORMATS:
                yield _FORMATS[known]
        yield self._random.choice(_WORDS)
        for source in (schema, hint):
            yield from ("x" * length for length in _sizes([source], ("minLength", "maxLength")))
            constants = [*_listed(source, "enum"), source.get("const")]
            yield from (constant for constant in constants if isinstance(constant, str))
            pattern = source.get("pattern")
            yield from texts_of(pattern) if isinstance(pattern, str) else ()
        yield from _COMMON

    def _arrays(self, schema: JsonObject, hint: JsonObject, depth: int) -> Iterator[list[Any]]:
        head_schemas = _prefix(schema)
        heads = [
            list(self._values(item, hinted, depth=depth + 1))
            for item, hinted in zip_longest(
                head_schemas, _prefix(hint)[: len(head_schemas)], fillvalue=True
            )
        ]
        head = [candidates[0] for candidates in heads if candidates]
        values = list(self._values(_rest(schema), _rest(hint), depth=depth + 1)) or [None]
        yield [*head, *values[:1]]
        for index, candidates in enumerate(heads):
            yield from ([*head[:index], value, *head[index + 1 :]] for value in candidates[1:])
        contained = list(self._values(schema.get("contains", True), True, depth=depth + 1))
        for length in _sizes(
            (schema, hint), ("minItems", "maxItems", "minContains", "maxContains")
        ):
            for pool in (values, contained[:1]):
                yield [*head, *islice(cycle(pool or [None]), max(0, length - len(head)))]
        yield from ([*head, value] for value in (*values, *contained))
        yield [*head, values[0], values[0]]
        yield from (head, [])

    def _objects(
        self, schema: JsonObject, hint: JsonObject, depth: int
    ) -> Iterator[dict[str, Any]]:
        properties, hinted = _members(schema, "properties"), _members(hint, "properties")
        required = [name for name in _listed(schema, "required") if isinstance(name, str)]
        optional = properties if depth < DEPTH_MAX else {}  # a schema may contain itself
        names = sorted(dict.fromkeys([*optional, *required]), key=self._is_unchanged)
        values = {
            name: list(
                self._values(properties.get(name, True), hinted.get(name, True), depth=depth + 1)
            )
            for name in names
        }
        simple = {name: candidates[0] for name, candidates in values.items() if candidates}
        minimal = {name: simple[name] for name in required if name in simple}
        yield simple
        yield minimal
        for name in names:
            yield from ({**simple, name: value} for value in values[name][1:])
            yield {other: value for other, value in simple.items() if other != name}
            yield from ({**minimal, name: value} for value in values[name])
        yield from self._with_undeclared(schema, hint, simple, depth)

    def _with_undeclared(
        self, schema: JsonObject, hint: JsonObject, simple: dict[str, Any], depth: int
    ) -> Iterator[dict[str, Any]]:
        """With properties that the writer does not declare."""
        properties, hinted = _members(schema, "properties"), _members(hint, "properties")
        for name in sorted(hinted.keys() - properties.keys(), key=self._is_unchanged):
            candidates = [*_ANY_TYPE, *self._values(True, hinted[name], depth=depth + 1)]
            yield from ({**simple, name: value} for value in candidates)
        for group in _groups(schema, hint):
            yield from ({**simple, **dict.fromkeys(group, value)} for value in _ANY_TYPE)
        rest = list(self._values(schema.get("additionalProperties", True), True, depth=depth + 1))
        yield from ({**simple, "undeclared": value} for value in rest)
        for size in _sizes((schema, hint), ("minProperties", "maxProperties")):
            more = [f"undeclared{number}" for number in range(size - len(simple))]
            yield {**simple, **dict.fromkeys(more, rest[0] if rest else 1)}

    def _is_unchanged(self, name: str) -> bool:
        return name not in self._changed


def _numbers(schema: JsonObject, hint: JsonObject, *, is_whole: bool) -> Iterator[int | float]:
    candidates: list[int | float] = [7, 0, 1, -1, 100]
    for source in (schema, hint):
        for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            limit = _number(source.get(keyword))
            if limit is not None:
                candidates = [limit, limit + 1, limit - 1, *candidates]
        constants = map(_number, (*_listed(source, "enum"), source.get("const")))
        candidates = [*(number for number in constants if number is not None), *candidates]
        step = _number(source.get("multipleOf"))
        if step is not None:
            candidates = [step, step * 3, *candidates]
    if not is_whole:
        candidates += [1.5, 0.25]
    for number in candidates:
        if not is_whole or float(number).is_integer():
            yield int(number) if is_whole else number


def _number(value: object) -> int | float | None:
    """A number of a schema, in which numbers with a fraction are decimals."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _as_value(value: Any) -> Any:
    """A value of a schema as a value of an event."""
    if isinstance(value, dict):
        return {name: _as_value(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_as_value(item) for item in value]
    return _number(value) if isinstance(value, Decimal) else value


def _sizes(schemas: Iterable[JsonObject], keywords: Iterable[str]) -> list[int]:
    """Sizes at, just below and just above each limit."""
    sizes = {
        max(0, int(limit) + more)
        for schema in schemas
        for keyword in keywords
        if (limit := _number(schema.get(keyword))) is not None and limit <= _LENGTH_MAX
        for more in (0, 1, -1)
    }
    return sorted(sizes)


def _prefix(schema: JsonObject) -> list[JsonValue]:
    """The schemas of an array's first items."""
    return _listed(schema, "prefixItems") or _listed(schema, "items")


def _rest(schema: JsonObject) -> JsonValue:
    """The schema of an array's other items."""
    items = schema.get("items", True)
    return schema.get("additionalItems", True) if isinstance(items, list) else items


def _groups(*schemas: JsonObject) -> Iterator[tuple[str, ...]]:
    """Names that a schema constrains without declaring them as properties."""
    for schema in schemas:
        for pattern in _members(schema, "patternProperties"):
            yield (_NOT_LITERAL.sub("", pattern) + "1",)
            yield (_NOT_LITERAL.sub("", pattern),)
        for keyword in ("dependencies", "dependentRequired", "dependentSchemas"):
            for name, dependent in _members(schema, keyword).items():
                yield (name,)
                required = dependent if isinstance(dependent, list) else []
                if isinstance(dependent, dict):
                    required = _listed(dependent, "required")
                yield (name, *(other for other in required if isinstance(other, str)))
                yield (name, "undeclared")


def _types(schema: JsonObject) -> list[str]:
    types = schema.get("type")
    if isinstance(types, str):
        return [types]
    if isinstance(types, list):
        return [name for name in types if isinstance(name, str)]
    return [name for name, keywords in _BY_KEYWORD if not schema.keys().isdisjoint(keywords)]


def _combined(first: JsonObject, second: JsonObject) -> JsonObject:
    merged = {**first, **second}
    for keyword in ("properties", "patternProperties"):
        if isinstance(first.get(keyword), dict) and isinstance(second.get(keyword), dict):
            merged[keyword] = {**_members(first, keyword), **_members(second, keyword)}
    if "required" in first or "required" in second:
        merged["required"] = [*_listed(first, "required"), *_listed(second, "required")]
    return merged


def _members(schema: JsonObject, keyword: str) -> JsonObject:
    value = schema.get(keyword)
    return value if isinstance(value, dict) else {}


def _listed(schema: JsonObject, keyword: str) -> list[Any]:
    value = schema.get(keyword)
    return value if isinstance(value, list) else []
