"""Trials with JSON events: values that the writer's schema allows, validated by the reader's."""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

from penstock.gate.proof.json_cost import validation_cost
from penstock.gate.proof.json_examples import DEPTH_MAX, JsonExamples
from penstock.gate.proof.prove import (
    SHOWN_CHARACTERS_MAX,
    Attempt,
    DifferenceLocation,
    UnprovableError,
    shortened,
)
from penstock.schemas.json import JsonSchema
from penstock.schemas.json.jsontext import JsonObject, JsonValue, write_start
from penstock.schemas.json.references import JsonDraft, reference_in
from penstock.schemas.json.schema import validate
from penstock.schemas.model import Difference, InvalidSchemaError

VALIDATIONS_COST_MAX: Final = 400_000  # schemas evaluated for all events together


def trials(
    writer: JsonSchema, reader: JsonSchema, differences: Sequence[Difference], seed: int
) -> Iterator[Attempt]:
    """Events that the writer's schema allows; values at the paths that differ vary first."""
    changed = frozenset(step for difference in differences for step in _steps(difference.path))
    writes, reads = ReferenceFollower(writer), ReferenceFollower(reader)
    cost = max(
        validation_cost(follower.root, follower.followed, DEPTH_MAX) for follower in (writes, reads)
    )
    if cost > VALIDATIONS_COST_MAX:
        raise UnprovableError("the schemas have too many combinations to try events on them")
    examples = JsonExamples(writes, reads, changed, seed)
    tried: set[str] = set()
    for event in islice(examples.events(), VALIDATIONS_COST_MAX // cost):
        text = json.dumps(event, ensure_ascii=False)
        if text in tried or validate(writer, event) is not None:
            continue
        tried.add(text)
        failure = validate(reader, event)
        yield Attempt(text, text.encode(), None if failure else text, failure)


def shown(event: str) -> str:
    """The event itself, which is a text already."""
    return event


class ReferenceFollower:
    """One schema, with its references followed."""

    def __init__(self, schema: JsonSchema) -> None:
        self._documents = schema.documents

    @property
    def root(self) -> JsonValue:
        """The schema itself."""
        return self._documents.root

    def followed(self, schema: JsonValue) -> JsonValue:
        """The target of a schema's reference, with the keywords beside the reference added."""
        beside: JsonObject = {}
        seen: set[int] = set()
        while isinstance(schema, dict) and id(schema) not in seen:
            seen.add(id(schema))
            if reference_in(schema, self._documents.draft) is None:
                break
            if self._documents.draft not in (
                JsonDraft.DRAFT_4,
                JsonDraft.DRAFT_6,
                JsonDraft.DRAFT_7,
            ):
                beside |= {key: value for key, value in schema.items() if key != "$ref"}
            try:
                schema = self._documents.target(schema).schema
            except InvalidSchemaError:
                return True
        return {**schema, **beside} if beside and isinstance(schema, dict) else schema


def locate(writer: JsonSchema, reader: JsonSchema, difference: Difference) -> DifferenceLocation:
    """The elements of both schemas at the path."""
    steps = _steps(difference.path)
    fields = [steps[index + 1] for index, step in enumerate(steps[:-1]) if step == "properties"]
    if len(steps) >= 2 and steps[-2] == "required":
        fields.append(steps[-1])
    return DifferenceLocation(
        _at(ReferenceFollower(writer), steps), _at(ReferenceFollower(reader), steps), tuple(fields)
    )


def _steps(path: str) -> list[str]:
    return [step for step in path.removeprefix("#").split("/") if step]


def _at(follower: ReferenceFollower, steps: Sequence[str]) -> str | None:
    current: JsonValue = follower.followed(follower.root)
    for step in steps:
        if isinstance(current, dict) and step in current:
            current = follower.followed(current[step])
        elif isinstance(current, list) and step.isdecimal() and int(step) < len(current):
            current = follower.followed(current[int(step)])
        elif isinstance(current, list) and step in current:
            return f"required {step}"
        else:
            return None
    return shortened(write_start(current, SHOWN_CHARACTERS_MAX + 1))


def loses(before: JsonSchema, after: JsonSchema, steps: Sequence[str]) -> bool:
    """Whether the declaration of a property was removed."""
    return _declares(ReferenceFollower(before), steps) and not _declares(
        ReferenceFollower(after), steps
    )


def _declares(follower: ReferenceFollower, steps: Sequence[str]) -> bool:
    current = [follower.root]
    for step in steps:
        current = [
            schema["properties"][step]
            for schema in _with_parts(follower, current)
            if step in schema.get("properties", {})
        ]
    return bool(current)


def _with_parts(follower: ReferenceFollower, schemas: Sequence[JsonValue]) -> list[Any]:
    """The schemas, the branches of their combinations and the items of arrays, each once."""
    parts: list[Any] = []
    waiting = list(schemas)
    seen: set[int] = set()
    while waiting:
        written = waiting.pop()
        schema = follower.followed(written)
        if not isinstance(schema, dict) or not seen.isdisjoint((id(written), id(schema))):
            continue
        seen |= {id(written), id(schema)}
        parts.append(schema)
        combinations = [schema.get(word) for word in ("allOf", "anyOf", "oneOf")]
        waiting += [
            branch for branches in combinations if isinstance(branches, list) for branch in branches
        ]
        waiting += [schema[word] for word in ("items", "then", "else") if word in schema]
    return parts
