"""Values that a JSON Schema may allow, and that another may not: candidates, to be validated.

Made from both schemas at once: bounds, lengths and names that only the reader's schema has are
where an event that the writer allows fails; so are values that the reader's `not` and `if` name.
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
CANDIDATES_MAX: Final = 24  # for one place
EVENTS_MAX: Final = 4_000
_LENGTH_MAX: Final = 2_000
_WORDS: Final = ("amber", "birch", "cedar", "delta", "ember", "fjord")
_USUAL: Final = ("A1", "ABC", "abc", "123", "a-b", "ABC-123", "EUR", "2026-01-01", "a@b.example")
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
_ODD: Final[tuple[Any, ...]] = ("text", 7, 1.5, True, None, [], {})
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


class Following(Protocol):
    """A schema whose references lead somewhere."""

    @property
    def root(self) -> JsonValue: ...

    def followed(self, schema: JsonValue) -> JsonValue: ...


class EventMaker:
    """Makes candidates for events of one schema that another might refuse."""

    def __init__(
        self, writer: Following, reader: Following, aims: frozenset[str], seed: int
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._aims = aims  # names on the paths that differ
        self._random = Random(seed)

    def events(self) -> Iterator[Any]:
        """Candidates; the writer's schema may refuse some of them."""
        both = self._writer.root, self._reader.root
        return map(_as_value, islice(self._values(*both, depth=0, most=EVENTS_MAX), EVENTS_MAX))

    def _values(
        self, schema: JsonValue, hint: JsonValue, *, depth: int, most: int = CANDIDATES_MAX
    ) -> Iterator[Any]:
        schema, hint = self._writer.followed(schema), self._reader.followed(hint)
        if not isinstance(schema, dict) or depth > DEPTH_MAX:
            return iter(_ODD if schema is not False else ())
        wanted = hint if isinstance(hint, dict) else {}
        return islice(self._of_object(schema, wanted, depth), most)

    def _of_object(self, schema: JsonObject, hint: JsonObject, depth: int) -> Iterator[Any]:
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
            yield from self._typed(choice, self._flat(hint), depth)

    def _flat(self, hint: JsonObject) -> JsonObject:
        """The reader's schema with what it combines, excludes or distinguishes side by side."""
        parts = [part for word in ("allOf", "anyOf", "oneOf") for part in _listed(hint, word)]
        parts += [hint[word] for word in ("not", "if") if word in hint]
        for part in parts:
            followed = self._reader.followed(part)
            if isinstance(followed, dict):
                hint = _side_by_side(hint, followed)
        return hint

    def _merged(self, schema: JsonObject, part: JsonValue) -> JsonObject:
        followed = self._writer.followed(part)
        dropped = ("anyOf", "oneOf", "then", "else", "if", "allOf")
        rest = {key: one for key, one in schema.items() if key not in dropped}
        return _side_by_side(rest, followed) if isinstance(followed, dict) else rest

    def _typed(self, schema: JsonObject, hint: JsonObject, depth: int) -> Iterator[Any]:
        types = _types(schema)
        if "type" not in schema:
            yield from (() if types else _ODD)
            types = types or _types(hint)
        for one in types:
            match one:
                case "object":
                    yield from self._objects(schema, hint, depth)
                case "array":
                    yield from self._arrays(schema, hint, depth)
                case "string":
                    yield from self._strings(schema, hint)
                case "integer" | "number":
                    yield from _numbers(schema, hint, is_whole=one == "integer")
                case "boolean":
                    yield from (True, False)
                case _:
                    yield None
        if "type" not in schema:  # keywords bind values of their own type only
            yield from _ODD

    def _strings(self, schema: JsonObject, hint: JsonObject) -> Iterator[str]:
        for side in (schema, hint):
            known = side.get("format")
            if isinstance(known, str) and known in _FORMATS:
                yield _FORMATS[known]
        yield self._random.choice(_WORDS)
        for side in (schema, hint):
            yield from ("x" * length for length in _bounds([side], ("minLength", "maxLength")))
            named = [*_listed(side, "enum"), side.get("const")]
            yield from (one for one in named if isinstance(one, str))
            pattern = side.get("pattern")
            yield from texts_of(pattern) if isinstance(pattern, str) else ()
        yield from _USUAL

    def _arrays(self, schema: JsonObject, hint: JsonObject, depth: int) -> Iterator[list[Any]]:
        head_schemas = _prefix(schema)
        heads = [
            list(self._values(one, hinted, depth=depth + 1))
            for one, hinted in zip_longest(
                head_schemas, _prefix(hint)[: len(head_schemas)], fillvalue=True
            )
        ]
        head = [found[0] for found in heads if found]
        values = list(self._values(_rest(schema), _rest(hint), depth=depth + 1)) or [None]
        yield [*head, *values[:1]]
        for index, found in enumerate(heads):
            yield from ([*head[:index], value, *head[index + 1 :]] for value in found[1:])
        wanted = list(self._values(schema.get("contains", True), True, depth=depth + 1))
        for length in _bounds(
            (schema, hint), ("minItems", "maxItems", "minContains", "maxContains")
        ):
            for pool in (values, wanted[:1]):
                yield [*head, *islice(cycle(pool or [None]), max(0, length - len(head)))]
        yield from ([*head, value] for value in (*values, *wanted))
        yield [*head, values[0], values[0]]
        yield from (head, [])

    def _objects(
        self, schema: JsonObject, hint: JsonObject, depth: int
    ) -> Iterator[dict[str, Any]]:
        properties, hinted = _members(schema, "properties"), _members(hint, "properties")
        required = [name for name in _listed(schema, "required") if isinstance(name, str)]
        optional = properties if depth < DEPTH_MAX else {}  # a schema may hold itself
        names = sorted(dict.fromkeys([*optional, *required]), key=self._is_aside)
        values = {
            name: list(
                self._values(properties.get(name, True), hinted.get(name, True), depth=depth + 1)
            )
            for name in names
        }
        plain = {name: found[0] for name, found in values.items() if found}
        least = {name: plain[name] for name in required if name in plain}
        yield plain
        yield least
        for name in names:
            yield from ({**plain, name: value} for value in values[name][1:])
            yield {other: value for other, value in plain.items() if other != name}
            yield from ({**least, name: value} for value in values[name])
        yield from self._with_others(schema, hint, plain, depth)

    def _with_others(
        self, schema: JsonObject, hint: JsonObject, plain: dict[str, Any], depth: int
    ) -> Iterator[dict[str, Any]]:
        """With properties that the writer does not name: the reader does, or nobody."""
        properties, hinted = _members(schema, "properties"), _members(hint, "properties")
        for name in sorted(hinted.keys() - properties.keys(), key=self._is_aside):
            found = [*_ODD, *self._values(True, hinted[name], depth=depth + 1)]
            yield from ({**plain, name: value} for value in found)
        for group in _groups(schema, hint):
            yield from ({**plain, **dict.fromkeys(group, value)} for value in _ODD)
        rest = list(self._values(schema.get("additionalProperties", True), True, depth=depth + 1))
        yield from ({**plain, "unnamed": value} for value in rest)
        for size in _bounds((schema, hint), ("minProperties", "maxProperties")):
            more = [f"unnamed{number}" for number in range(size - len(plain))]
            yield {**plain, **dict.fromkeys(more, rest[0] if rest else 1)}

    def _is_aside(self, name: str) -> bool:
        return name not in self._aims


def _numbers(schema: JsonObject, hint: JsonObject, *, is_whole: bool) -> Iterator[int | float]:
    found: list[int | float] = [7, 0, 1, -1, 100]
    for side in (schema, hint):
        for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            bound = _number(side.get(keyword))
            if bound is not None:
                found = [bound, bound + 1, bound - 1, *found]
        named = (_number(one) for one in (*_listed(side, "enum"), side.get("const")))
        found = [*(one for one in named if one is not None), *found]
        step = _number(side.get("multipleOf"))
        if step is not None:
            found = [step, step * 3, *found]
    if not is_whole:
        found += [1.5, 0.25]
    for number in found:
        if not is_whole or float(number).is_integer():
            yield int(number) if is_whole else number


def _number(value: object) -> int | float | None:
    """A number of a schema, which keeps those with a point as they were written."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _as_value(value: Any) -> Any:
    """What stands in a schema, as an event has it."""
    if isinstance(value, dict):
        return {name: _as_value(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_as_value(one) for one in value]
    return _number(value) if isinstance(value, Decimal) else value


def _bounds(sides: Iterable[JsonObject], keywords: Iterable[str]) -> list[int]:
    """Sizes at, just below and just above each bound."""
    found = {
        max(0, int(bound) + more)
        for side in sides
        for keyword in keywords
        if (bound := _number(side.get(keyword))) is not None and bound <= _LENGTH_MAX
        for more in (0, 1, -1)
    }
    return sorted(found)


def _prefix(schema: JsonObject) -> list[JsonValue]:
    """The schemas of an array's first items."""
    return _listed(schema, "prefixItems") or _listed(schema, "items")


def _rest(schema: JsonObject) -> JsonValue:
    """The schema of an array's other items."""
    items = schema.get("items", True)
    return schema.get("additionalItems", True) if isinstance(items, list) else items


def _groups(*sides: JsonObject) -> Iterator[tuple[str, ...]]:
    """Names that a schema says something about without naming them as properties."""
    for side in sides:
        for pattern in _members(side, "patternProperties"):
            yield (_NOT_LITERAL.sub("", pattern) + "1",)
            yield (_NOT_LITERAL.sub("", pattern),)
        for keyword in ("dependencies", "dependentRequired", "dependentSchemas"):
            for name, wanted in _members(side, keyword).items():
                yield (name,)
                listed = wanted if isinstance(wanted, list) else []
                if isinstance(wanted, dict):
                    listed = _listed(wanted, "required")
                yield (name, *(one for one in listed if isinstance(one, str)))
                yield (name, "unnamed")


def _types(schema: JsonObject) -> list[str]:
    said = schema.get("type")
    if isinstance(said, str):
        return [said]
    if isinstance(said, list):
        return [one for one in said if isinstance(one, str)]
    return [name for name, keywords in _BY_KEYWORD if any(one in schema for one in keywords)]


def _side_by_side(one: JsonObject, other: JsonObject) -> JsonObject:
    merged = {**one, **other}
    for keyword in ("properties", "patternProperties"):
        if isinstance(one.get(keyword), dict) and isinstance(other.get(keyword), dict):
            merged[keyword] = {**_members(one, keyword), **_members(other, keyword)}
    if "required" in one or "required" in other:
        merged["required"] = [*_listed(one, "required"), *_listed(other, "required")]
    return merged


def _members(schema: JsonObject, keyword: str) -> JsonObject:
    value = schema.get(keyword)
    return value if isinstance(value, dict) else {}


def _listed(schema: JsonObject, keyword: str) -> list[Any]:
    value = schema.get(keyword)
    return value if isinstance(value, list) else []
