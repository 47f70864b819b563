"""JSON events: values that the writer's schema allows, validated with the reader's schema."""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

from penstock.gate.proof.json_cost import validation_cost
from penstock.gate.proof.json_examples import DEPTH_MAX, EventMaker
from penstock.gate.proof.prove import (
    SHOWN_CHARACTERS_MAX,
    Attempt,
    DifferenceLocation,
    UnprovableError,
    shortened,
)
from penstock.schemas.json import JsonSchema
from penstock.schemas.json.jsontext import JsonObject, JsonValue, write_start
from penstock.schemas.json.references import Draft, reference_in
from penstock.schemas.json.schema import validate
from penstock.schemas.model import Difference, InvalidSchemaError

VALIDATIONS_COST_MAX: Final = 400_000  # schemas looked at for all events together


def trials(
    writer: JsonSchema, reader: JsonSchema, differences: Sequence[Difference], seed: int
) -> Iterator[Attempt]:
    """Events the writer's schema allows, what differs between the two varied first."""
    aims = frozenset(step for one in differences for step in _steps(one.path))
    writes, reads = Follower(writer), Follower(reader)
    cost = max(validation_cost(one.root, one.followed, DEPTH_MAX) for one in (writes, reads))
    if cost > VALIDATIONS_COST_MAX:
        raise UnprovableError("the schemas combine others in too many ways to try events on them")
    maker = EventMaker(writes, reads, aims, seed)
    tried: set[str] = set()
    for event in islice(maker.events(), VALIDATIONS_COST_MAX // cost):
        text = json.dumps(event, ensure_ascii=False)
        if text in tried or validate(writer, event) is not None:
            continue
        tried.add(text)
        failure = validate(reader, event)
        yield Attempt(text, text.encode(), None if failure else text, failure)


def shown(event: str) -> str:
    """Events are texts already."""
    return event


class Follower:
    """One schema, in which references are followed."""

    def __init__(self, schema: JsonSchema) -> None:
        self._documents = schema.documents

    @property
    def root(self) -> JsonValue:
        """The schema itself."""
        return self._documents.root

    def followed(self, schema: JsonValue) -> JsonValue:
        """What a schema is once its reference is followed; what stands beside it goes on top."""
        beside: JsonObject = {}
        seen: set[int] = set()
        while isinstance(schema, dict) and id(schema) not in seen:
            seen.add(id(schema))
            if reference_in(schema, self._documents.draft) is None:
                break
            if self._documents.draft not in (Draft.DRAFT_4, Draft.DRAFT_6, Draft.DRAFT_7):
                beside |= {key: one for key, one in schema.items() if key != "$ref"}
            try:
                schema = self._documents.target(schema).schema
            except InvalidSchemaError:
                return True
        return {**schema, **beside} if beside and isinstance(schema, dict) else schema


def locate(writer: JsonSchema, reader: JsonSchema, difference: Difference) -> DifferenceLocation:
    """What both sides say at the path."""
    steps = _steps(difference.path)
    fields = [steps[index + 1] for index, step in enumerate(steps[:-1]) if step == "properties"]
    if len(steps) >= 2 and steps[-2] == "required":
        fields.append(steps[-1])
    return DifferenceLocation(
        _at(Follower(writer), steps), _at(Follower(reader), steps), tuple(fields)
    )


def _steps(path: str) -> list[str]:
    return [step for step in path.removeprefix("#").split("/") if step]


def _at(follower: Follower, steps: Sequence[str]) -> str | None:
    here: JsonValue = follower.followed(follower.root)
    for step in steps:
        if isinstance(here, dict) and step in here:
            here = follower.followed(here[step])
        elif isinstance(here, list) and step.isdecimal() and int(step) < len(here):
            here = follower.followed(here[int(step)])
        elif isinstance(here, list) and step in here:
            return f"required {step}"
        else:
            return None
    return shortened(write_start(here, SHOWN_CHARACTERS_MAX + 1))


def loses(before: JsonSchema, after: JsonSchema, steps: Sequence[str]) -> bool:
    """Whether a property that was named is not named any more."""
    return _names(Follower(before), steps) and not _names(Follower(after), steps)


def _names(follower: Follower, steps: Sequence[str]) -> bool:
    here = [follower.root]
    for step in steps:
        here = [
            schema["properties"][step]
            for schema in _with_parts(follower, here)
            if step in schema.get("properties", {})
        ]
    return bool(here)


def _with_parts(follower: Follower, schemas: Sequence[JsonValue]) -> list[Any]:
    """Objects among the schemas, what they combine and the items of arrays; each once."""
    found: list[Any] = []
    waiting = list(schemas)
    seen: set[int] = set()
    while waiting:
        written = waiting.pop()
        schema = follower.followed(written)
        if not isinstance(schema, dict) or not seen.isdisjoint((id(written), id(schema))):
            continue
        seen |= {id(written), id(schema)}
        found.append(schema)
        parts = [schema.get(word) for word in ("allOf", "anyOf", "oneOf")]
        waiting += [part for listed in parts if isinstance(listed, list) for part in listed]
        waiting += [schema[word] for word in ("items", "then", "else") if word in schema]
    return found
