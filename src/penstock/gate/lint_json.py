"""JSON Schemas and changes to them that the rules allow and that still surprise somebody."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from penstock.gate.lint import Lint
from penstock.schemas.compare_limits import BudgetExceededError, shortened
from penstock.schemas.json.jsontext import JsonObject, JsonValue, same_value_key, write_json
from penstock.schemas.json.references import Draft, draft_of, pointer_of
from penstock.schemas.json.schema import JsonSchema
from penstock.schemas.model import InvalidSchemaError

_BY_NAME: Final = ("properties", "patternProperties", "definitions", "$defs", "dependentSchemas")
_SINGLE: Final = (
    *("items", "additionalItems", "additionalProperties", "contains", "propertyNames"),
    *("not", "if", "then", "else", "unevaluatedItems", "unevaluatedProperties"),
)
_LISTED: Final = ("items", "prefixItems", "allOf", "anyOf", "oneOf")
_NOT_COMPARED: Final = ("if", "then", "else", "contains", "propertyNames", "patternProperties")
_IMPLIED: Final = {
    "object": ("properties", "required", "additionalProperties", "patternProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems"),
    "string": ("minLength", "maxLength", "pattern"),
    "number": ("minimum", "maximum", "multipleOf"),
}
_IGNORED: Final = {
    Draft.DRAFT_4: ("const", "contains", "propertyNames", "if", "dependentRequired", "$defs"),
    Draft.DRAFT_6: ("if", "prefixItems", "dependentRequired", "dependentSchemas"),
    Draft.DRAFT_7: (
        *("prefixItems", "dependentRequired", "dependentSchemas", "minContains", "maxContains"),
        *("unevaluatedProperties", "unevaluatedItems"),
    ),
    Draft.DRAFT_2019_09: ("prefixItems", "dependencies"),
    Draft.DRAFT_2020_12: ("additionalItems", "dependencies", "$recursiveRef"),
}
_ANNOTATIONS: Final = ("title", "description", "default", "examples", "$comment", "$id", "$schema")


class _Place(NamedTuple):
    """A schema in the proposed document, and the one at the same place in the earlier one."""

    path: tuple[str | int, ...]
    new: JsonObject
    old: JsonObject | None
    draft: Draft

    def lint(self, kind: str, message: str, remedy: str) -> Lint:
        return Lint(kind, pointer_of(self.path), message, remedy)


def lints(proposed: JsonSchema, earlier: JsonSchema | None) -> Iterator[Lint]:
    """What to think twice about before `proposed` follows `earlier`."""
    old = None if earlier is None else earlier.documents.root
    yield from _about_document(proposed)
    for place in _places(proposed.documents.root, old, proposed.documents.draft):
        for check in _ALONE:
            yield from check(place)
        if place.old is not None:
            for compare in _CHANGES:
                yield from compare(place, place.old)
    if earlier is not None:
        yield from _lenient_only(proposed, earlier)


def _places(new: JsonValue, old: JsonValue, draft: Draft) -> Iterator[_Place]:
    waiting: list[tuple[tuple[str | int, ...], JsonValue, JsonValue]] = [((), new, old)]
    while waiting:
        path, schema, before = waiting.pop()
        if not isinstance(schema, dict):
            continue
        earlier = before if isinstance(before, dict) else None
        yield _Place(path, schema, earlier, draft)
        waiting += [((*path, *steps), part, _at(earlier, steps)) for steps, part in _parts(schema)]


def _parts(schema: JsonObject) -> Iterator[tuple[tuple[str | int, ...], JsonValue]]:
    for keyword in _SINGLE:
        yield (keyword,), schema.get(keyword)
    for keyword in _BY_NAME:
        members = schema.get(keyword)
        if isinstance(members, dict):
            yield from (((keyword, name), part) for name, part in members.items())
    for keyword in _LISTED:
        parts = schema.get(keyword)
        if isinstance(parts, list):
            yield from (((keyword, index), part) for index, part in enumerate(parts))


def _at(value: JsonValue, steps: tuple[str | int, ...]) -> JsonValue:
    for step in steps:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def _about_document(schema: JsonSchema) -> Iterator[Lint]:
    root = schema.documents.root
    if isinstance(root, dict) and "$schema" in root:
        unknown = {draft_of(root, otherwise) for otherwise in (Draft.DRAFT_4, Draft.DRAFT_7)}
        if len(unknown) > 1:
            yield Lint(
                "UNKNOWN_DIALECT",
                "#/$schema",
                "this dialect is not known, and the schema is read as draft 7",
                "name one of draft-04, draft-06, draft-07, 2019-09 and 2020-12",
            )
    for reference in schema.references:
        if reference.version < 1:
            yield Lint(
                "REFERENCE_TO_LATEST",
                "#",
                f"the reference {reference.name} is to the latest version of {reference.subject}: "
                "what this schema means changes when that subject gets another version",
                "refer to a version by its number",
            )


def _open_content_model(place: _Place) -> Iterator[Lint]:
    is_open = place.new.get("additionalProperties") in (None, True) and not place.path
    if is_open and place.new.get("properties") and "unevaluatedProperties" not in place.new:
        yield place.lint(
            "OPEN_CONTENT_MODEL",
            "the object may hold properties that are not named, so under the strict policy no "
            "property with a type can ever be added: it might have been there with another type",
            'say "additionalProperties": false, or judge this subject by the lenient policy',
        )


def _type_not_said(place: _Place) -> Iterator[Lint]:
    if not place.new.keys().isdisjoint(("type", "$ref", "enum", "const", *_LISTED[2:])):
        return
    if place.path and place.path[0] in ("allOf", "anyOf", "oneOf", "if", "then", "else", "not"):
        return  # there the type is often said around it
    for kind, keywords in _IMPLIED.items():
        used = [keyword for keyword in keywords if keyword in place.new]
        if used:
            yield place.lint(
                "TYPE_NOT_SAID",
                f"without a type {used[0]} constrains a value that is of type {kind} and lets all "
                "others pass",
                f'add "type": "{kind}"',
            )
            return


def _ignored(place: _Place) -> Iterator[Lint]:
    neighbours = sorted(place.new.keys() - {"$ref", "definitions", "$defs", *_ANNOTATIONS})
    if isinstance(place.new.get("$ref"), str) and not place.draft.is_modern and neighbours:
        yield place.lint(
            "REF_NEIGHBOUR_IGNORED",
            f"before 2019-09 nothing beside a $ref counts: {shortened(', '.join(neighbours))}",
            "put the $ref into an allOf, or move to 2019-09 or later",
        )
    for keyword in _IGNORED[place.draft]:
        if keyword in place.new:
            yield place.lint(
                "KEYWORD_IGNORED",
                f"{keyword} is not a keyword in this draft and has no effect",
                "use the keyword of this draft, or name the draft that has it in $schema",
            )


def _required_not_declared(place: _Place) -> Iterator[Lint]:
    names = _names(place.new) - _names(place.old or {})
    declared = place.new.get("properties")
    missing = sorted(names - set(declared if isinstance(declared, dict) else ()))
    if missing and (not place.path or place.old is not None):
        yield place.lint(
            "REQUIRED_NOT_DECLARED",
            "required but not declared under properties: "
            f"{shortened(', '.join(missing))}; the rules do not look at such names, values "
            "without them are refused all the same",
            "declare each required property, with a default if it is new",
        )


def _names(schema: JsonObject) -> set[str]:
    names = schema.get("required")
    return {one for one in names if isinstance(one, str)} if isinstance(names, list) else set()


def _required_with_default(place: _Place, old: JsonObject) -> Iterator[Lint]:
    properties = place.new.get("properties")
    for name in sorted(_names(place.new) - _names(old)):
        declared = properties.get(name) if isinstance(properties, dict) else None
        if isinstance(declared, dict) and "default" in declared:
            yield place.lint(
                "REQUIRED_WITH_DEFAULT",
                f"{name} is now required and has a default, which counts as compatible; most "
                "validators do not fill in defaults and refuse values written before",
                "leave it optional, or make sure that every reader fills in defaults",
            )


def _format_changed(place: _Place, old: JsonObject) -> Iterator[Lint]:
    before, after = old.get("format"), place.new.get("format")
    if before != after:
        was, becomes = shortened(write_json(before)), shortened(write_json(after))
        yield place.lint(
            "FORMAT_CHANGED",
            f"the format changes from {was} to {becomes}: the rules do not look at it, some "
            "validators do and some do not",
            "add a property of the new format and retire the old one",
        )


def _not_compared(place: _Place, old: JsonObject) -> Iterator[Lint]:
    for keyword in _NOT_COMPARED:
        before, after = old.get(keyword), place.new.get(keyword)
        if same_value_key(before) != same_value_key(after):
            yield place.lint(
                "CHANGE_NOT_COMPARED",
                f"{keyword} changes, and the rules do not look inside it",
                "check by hand that what was valid before still is",
            )


def _type_demanded(place: _Place, old: JsonObject) -> Iterator[Lint]:
    if "type" in place.new and "type" not in old and "$ref" not in old:
        implied = [one for words in _IMPLIED.values() for one in words if one in old]
        if implied:
            yield place.lint(
                "TYPE_DEMANDED",
                f"there was no type beside {implied[0]} before: values of other types were valid "
                "and are refused now, which the rules call compatible",
                "make sure that no such value was written",
            )


def _default_changed(place: _Place, old: JsonObject) -> Iterator[Lint]:
    if "default" not in old or "default" not in place.new:
        return
    if same_value_key(old["default"]) != same_value_key(place.new["default"]):
        yield place.lint(
            "DEFAULT_CHANGED",
            "the default changes: the same old event, read by old and new readers, differs",
            "keep the default, or make sure that no reader depends on it",
        )


def _lenient_only(proposed: JsonSchema, earlier: JsonSchema) -> Iterator[Lint]:
    """What only the lenient policy allows."""
    try:
        changes = proposed.lenient_changes(earlier)
    except (BudgetExceededError, InvalidSchemaError):
        return
    for change in changes:
        yield Lint(
            "LENIENT_ONLY",
            change.path,
            f"{change.kind} passes under the lenient policy only: old values may hold "
            "something else under this name",
            "make sure that nobody wrote such values",
        )


_Check = Callable[[_Place], Iterator[Lint]]
_Compare = Callable[[_Place, JsonObject], Iterator[Lint]]
_ALONE: Final[tuple[_Check, ...]] = (
    _open_content_model,
    _type_not_said,
    _ignored,
    _required_not_declared,
)
_CHANGES: Final[tuple[_Compare, ...]] = (
    _required_with_default,
    _format_changed,
    _not_compared,
    _type_demanded,
    _default_changed,
)
