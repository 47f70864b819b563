"""Lints of JSON Schemas: what the rules allow and what can still cause trouble."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from penstock.gate.lint import Lint
from penstock.schemas.compare_limits import BudgetExceededError, shortened
from penstock.schemas.json.jsontext import JsonObject, JsonValue, same_value_key, write_json
from penstock.schemas.json.references import JsonDraft, draft_of, pointer_of
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
    JsonDraft.DRAFT_4: ("const", "contains", "propertyNames", "if", "dependentRequired", "$defs"),
    JsonDraft.DRAFT_6: ("if", "prefixItems", "dependentRequired", "dependentSchemas"),
    JsonDraft.DRAFT_7: (
        *("prefixItems", "dependentRequired", "dependentSchemas", "minContains", "maxContains"),
        *("unevaluatedProperties", "unevaluatedItems"),
    ),
    JsonDraft.DRAFT_2019_09: ("prefixItems", "dependencies"),
    JsonDraft.DRAFT_2020_12: ("additionalItems", "dependencies", "$recursiveRef"),
}
_ANNOTATIONS: Final = ("title", "description", "default", "examples", "$comment", "$id", "$schema")


class _Position(NamedTuple):
    """A schema in the proposed document, and the schema at the same path in the earlier one."""

    path: tuple[str | int, ...]
    new: JsonObject
    old: JsonObject | None
    draft: JsonDraft

    def lint(self, kind: str, message: str, remedy: str) -> Lint:
        return Lint(kind, pointer_of(self.path), message, remedy)


def lints(proposed: JsonSchema, earlier: JsonSchema | None) -> Iterator[Lint]:
    """The warnings about `proposed` as the successor of `earlier`."""
    old = None if earlier is None else earlier.documents.root
    yield from _about_document(proposed)
    for position in _positions(proposed.documents.root, old, proposed.documents.draft):
        for check in _ALONE:
            yield from check(position)
        if position.old is not None:
            for compare in _CHANGES:
                yield from compare(position, position.old)
    if earlier is not None:
        yield from _lenient_only(proposed, earlier)


def _positions(new: JsonValue, old: JsonValue, draft: JsonDraft) -> Iterator[_Position]:
    waiting: list[tuple[tuple[str | int, ...], JsonValue, JsonValue]] = [((), new, old)]
    while waiting:
        path, schema, before = waiting.pop()
        if not isinstance(schema, dict):
            continue
        earlier = before if isinstance(before, dict) else None
        yield _Position(path, schema, earlier, draft)
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
        unknown = {draft_of(root, default) for default in (JsonDraft.DRAFT_4, JsonDraft.DRAFT_7)}
        if len(unknown) > 1:
            yield Lint(
                "UNKNOWN_DIALECT",
                "#/$schema",
                "this dialect is unknown, so the schema is read as draft 7",
                "use one of draft-04, draft-06, draft-07, 2019-09 and 2020-12",
            )
    for reference in schema.references:
        if reference.version < 1:
            yield Lint(
                "REFERENCE_TO_LATEST",
                "#",
                f"the reference {reference.name} is to the latest version of {reference.subject}: "
                "the meaning of this schema changes with the next version of that subject",
                "refer to a version by its number",
            )


def _open_content_model(position: _Position) -> Iterator[Lint]:
    is_open = position.new.get("additionalProperties") in (None, True) and not position.path
    if is_open and position.new.get("properties") and "unevaluatedProperties" not in position.new:
        yield position.lint(
            "OPEN_CONTENT_MODEL",
            "the object may contain properties that are not declared, so the strict policy refuses "
            "every new property with a type: older events may have it with another type",
            'set "additionalProperties": false, or use the lenient policy for this subject',
        )


def _type_missing(position: _Position) -> Iterator[Lint]:
    if not position.new.keys().isdisjoint(("type", "$ref", "enum", "const", *_LISTED[2:])):
        return
    if position.path and position.path[0] in (
        "allOf",
        "anyOf",
        "oneOf",
        "if",
        "then",
        "else",
        "not",
    ):
        return  # there the type is often in the enclosing schema
    for kind, keywords in _IMPLIED.items():
        used = [keyword for keyword in keywords if keyword in position.new]
        if used:
            yield position.lint(
                "TYPE_MISSING",
                f"without a type, {used[0]} constrains values of type {kind} only, and values of "
                "other types are valid",
                f'add "type": "{kind}"',
            )
            return


def _ignored(position: _Position) -> Iterator[Lint]:
    neighbours = sorted(position.new.keys() - {"$ref", "definitions", "$defs", *_ANNOTATIONS})
    if isinstance(position.new.get("$ref"), str) and not position.draft.is_modern and neighbours:
        yield position.lint(
            "REF_NEIGHBOUR_IGNORED",
            "before 2019-09, keywords beside a $ref are ignored: "
            f"{shortened(', '.join(neighbours))}",
            "put the $ref into an allOf, or use 2019-09 or later",
        )
    for keyword in _IGNORED[position.draft]:
        if keyword in position.new:
            yield position.lint(
                "KEYWORD_IGNORED",
                f"{keyword} is not a keyword in this draft and has no effect",
                "use the keyword of this draft, or set $schema to a draft that has it",
            )


def _required_not_declared(position: _Position) -> Iterator[Lint]:
    names = _names(position.new) - _names(position.old or {})
    declared = position.new.get("properties")
    missing = sorted(names - set(declared if isinstance(declared, dict) else ()))
    if missing and (not position.path or position.old is not None):
        yield position.lint(
            "REQUIRED_NOT_DECLARED",
            "required but not declared under properties: "
            f"{shortened(', '.join(missing))}; the rules ignore such names, but validators refuse "
            "values without them",
            "declare each required property, with a default if it is new",
        )


def _names(schema: JsonObject) -> set[str]:
    names = schema.get("required")
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()


def _required_with_default(position: _Position, old: JsonObject) -> Iterator[Lint]:
    properties = position.new.get("properties")
    for name in sorted(_names(position.new) - _names(old)):
        declared = properties.get(name) if isinstance(properties, dict) else None
        if isinstance(declared, dict) and "default" in declared:
            yield position.lint(
                "REQUIRED_WITH_DEFAULT",
                f"{name} is now required and has a default, which the rules allow; but most "
                "validators do not fill in defaults, and refuse older values",
                "keep it optional, or make sure that every reader fills in defaults",
            )


def _format_changed(position: _Position, old: JsonObject) -> Iterator[Lint]:
    before, after = old.get("format"), position.new.get("format")
    if before != after:
        old_format, new_format = shortened(write_json(before)), shortened(write_json(after))
        yield position.lint(
            "FORMAT_CHANGED",
            f"the format changes from {old_format} to {new_format}: the rules and some validators "
            "ignore it, other validators check it",
            "add a property with the new format, and remove the old one later",
        )


def _not_compared(position: _Position, old: JsonObject) -> Iterator[Lint]:
    for keyword in _NOT_COMPARED:
        before, after = old.get(keyword), position.new.get(keyword)
        if same_value_key(before) != same_value_key(after):
            yield position.lint(
                "CHANGE_NOT_COMPARED",
                f"{keyword} changes, and the rules do not compare it",
                "check by hand that older values are still valid",
            )


def _type_added(position: _Position, old: JsonObject) -> Iterator[Lint]:
    if "type" in position.new and "type" not in old and "$ref" not in old:
        implied = [word for words in _IMPLIED.values() for word in words if word in old]
        if implied:
            yield position.lint(
                "TYPE_ADDED",
                f"there was no type beside {implied[0]}: values of other types were valid and are "
                "refused now, which the rules allow",
                "make sure that no such value was written",
            )


def _default_changed(position: _Position, old: JsonObject) -> Iterator[Lint]:
    if "default" not in old or "default" not in position.new:
        return
    if same_value_key(old["default"]) != same_value_key(position.new["default"]):
        yield position.lint(
            "DEFAULT_CHANGED",
            "the default changes: old and new readers see different values in the same old event",
            "keep the default, or make sure that no reader depends on it",
        )


def _lenient_only(proposed: JsonSchema, earlier: JsonSchema) -> Iterator[Lint]:
    """Changes that only the lenient policy allows."""
    try:
        changes = proposed.lenient_changes(earlier)
    except (BudgetExceededError, InvalidSchemaError):
        return
    for change in changes:
        yield Lint(
            "LENIENT_ONLY",
            change.path,
            f"only the lenient policy allows {change.kind}: older values may contain something "
            "else under this name",
            "make sure that no such value was written",
        )


_Check = Callable[[_Position], Iterator[Lint]]
_Compare = Callable[[_Position, JsonObject], Iterator[Lint]]
_ALONE: Final[tuple[_Check, ...]] = (
    _open_content_model,
    _type_missing,
    _ignored,
    _required_not_declared,
)
_CHANGES: Final[tuple[_Compare, ...]] = (
    _required_with_default,
    _format_changed,
    _not_compared,
    _type_added,
    _default_changed,
)
