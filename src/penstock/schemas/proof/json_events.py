"""Values that a JSON Schema may allow, and that another may not: candidates, to be validated.

Made from both schemas at once: bounds, lengths and names that only the reader's schema has are
where an event that the writer allows fails. Patterns are met only by a schema's own examples,
defaults and constants, or by one of a few usual words.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from random import Random
from typing import Any, Final, Protocol

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
_BY_KEYWORD: Final = (
    ("object", ("properties", "required", "patternProperties", "additionalProperties")),
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
        return islice(self._values(*both, depth=0, most=EVENTS_MAX), EVENTS_MAX)

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
        """The reader's schema with what it combines put side by side."""
        for criterion in ("allOf", "anyOf", "oneOf"):
            for part in _listed(hint, criterion):
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
        if not types:
            yield from _ODD
            types = _types(hint)
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

    def _strings(self, schema: JsonObject, hint: JsonObject) -> Iterator[str]:
        for side in (schema, hint):
            known = side.get("format")
            if isinstance(known, str) and known in _FORMATS:
                yield _FORMATS[known]
        yield self._random.choice(_WORDS)
        for side in (schema, hint):
            for keyword in ("minLength", "maxLength"):
                length = side.get(keyword)
                if isinstance(length, int) and length <= _LENGTH_MAX:
                    yield from ("x" * max(0, length + more) for more in (0, 1, -1))
            listed = side.get("enum")
            yield from (
                (one for one in listed if isinstance(one, str)) if isinstance(listed, list) else ()
            )
        yield from _USUAL

    def _arrays(self, schema: JsonObject, hint: JsonObject, depth: int) -> Iterator[list[Any]]:
        items, hinted = schema.get("items", True), hint.get("items", True)
        prefix = schema.get("prefixItems", items if isinstance(items, list) else [])
        head = [
            next(iter(self._values(one, True, depth=depth + 1)), None)
            for one in (prefix if isinstance(prefix, list) else [])
        ]
        rest: JsonValue = True if isinstance(items, list) else items
        values = list(self._values(rest, hinted, depth=depth + 1))
        yield [*head, *values[:1]]
        lengths = {
            max(0, length + more)
            for side in (schema, hint)
            for keyword in ("minItems", "maxItems")
            if isinstance(length := side.get(keyword), int) and length <= _LENGTH_MAX
            for more in (0, 1, -1)
        }
        for length in sorted(lengths):
            repeated = (values * (length // max(1, len(values)) + 1))[: max(0, length - len(head))]
            yield [*head, *repeated]
        yield from ([*head, value] for value in values)
        yield from ([*head, value, value] for value in values[:1])
        yield from (head, [])

    def _objects(
        self, schema: JsonObject, hint: JsonObject, depth: int
    ) -> Iterator[dict[str, Any]]:
        properties, hinted = _members(schema, "properties"), _members(hint, "properties")
        required = [name for name in _listed(schema, "required") if isinstance(name, str)]
        names = sorted(dict.fromkeys([*properties, *required]), key=self._is_aside)
        values = {
            name: list(
                self._values(properties.get(name, True), hinted.get(name, True), depth=depth + 1)
            )
            for name in names
        }
        plain = {name: found[0] for name, found in values.items() if found}
        yield plain
        yield {name: plain[name] for name in required if name in plain}
        for name in names:
            yield from ({**plain, name: value} for value in values[name][1:])
            yield {other: value for other, value in plain.items() if other != name}
        for name in sorted(hinted.keys() - properties.keys(), key=self._is_aside):
            found = [*_ODD, *self._values(True, hinted[name], depth=depth + 1)]
            yield from ({**plain, name: value} for value in found)
        unnamed = self._values(schema.get("additionalProperties", True), True, depth=depth + 1)
        yield from ({**plain, "unnamed": value} for value in unnamed)

    def _is_aside(self, name: str) -> bool:
        return name not in self._aims


def _numbers(schema: JsonObject, hint: JsonObject, *, is_whole: bool) -> Iterator[int | float]:
    found: list[int | float] = [7, 0, 1, -1, 100]
    for side in (schema, hint):
        for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            bound = side.get(keyword)
            if isinstance(bound, int | float) and not isinstance(bound, bool):
                found = [bound, bound + 1, bound - 1, *found]
        step = side.get("multipleOf")
        if isinstance(step, int | float) and not isinstance(step, bool):
            found = [step, step * 3, *found]
    if not is_whole:
        found += [1.5, 0.25]
    for number in found:
        if not is_whole or float(number).is_integer():
            yield int(number) if is_whole else number


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
