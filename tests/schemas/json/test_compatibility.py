"""Compatibility by the registry's rules, each case compared with what jsonschema-rs allows."""

import json
from collections.abc import Callable, Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any, Final, TypeAlias

import jsonschema_rs

from penstock.schemas.compatibility import EarlierVersion, Level, check, incompatibility_messages
from penstock.schemas.json import JsonSchema, compare, parse, validate
from penstock.schemas.model import Difference, Policy

RunCases: TypeAlias = Callable[[Path, Callable[[str], str]], None]
CASES: Final = Path(__file__).parent / "cases.case"
DRAFTS: Final = {
    "4": "http://json-schema.org/draft-04/schema#",
    "6": "http://json-schema.org/draft-06/schema#",
    "7": "http://json-schema.org/draft-07/schema#",
    "19": "https://json-schema.org/draft/2019-09/schema",
    "20": "https://json-schema.org/draft/2020-12/schema",
}
SCALARS: Final[list[Any]] = [
    *(None, True, False),
    *(
        "",
        "a",
        "b",
        "ab",
        "abc",
        "abcd",
        "abcdef",
        "x",
        "y",
        "z",
        "2020-01-01",
        "2020-01-01T00:00:00Z",
    ),
    *(*range(-1, 13), 0.5, 1.5, 5.5, 100, 2**70),
]
NAMES: Final = ("a", "b", "c", "x-1")


def samples() -> Iterator[Any]:
    """Values of all types, including one for every limit that the cases change."""
    yield from SCALARS
    items: list[Any] = [None, True, 1, 2, 0.5, "a", "abcd", [1], [True], ["s"], {}, {"a": 1}]
    for length in range(3):
        yield from map(list, product(items, repeat=length))
    yield ["a", 1, "b"]
    yield ["a", 1, 2]
    yield ["a", True, 2]
    members: list[Any] = [1, 0.5, "s", None, {}, {"b": "s"}, {"b": 0.5}, {"a": {"b": 0.5}}]
    for name in NAMES:
        yield from ({name: value} for value in members)
    for first, second in product(NAMES, repeat=2):
        yield from ({first: x, second: y} for x, y in product(members[:4], repeat=2))
    yield from ({"a": x, "b": x, "c": x} for x in members[:4])
    yield {}


SAMPLES: Final = list(samples())


def schema(text: str, draft: str) -> JsonSchema:
    value = json.loads(text, parse_float=str)  # only to see its type
    if not isinstance(value, dict):
        return parse(text)
    separator = "," if value else ""
    return parse(f'{{"$schema":"{DRAFTS[draft]}"{separator}{text[1:]}')


def refused_value(writer: JsonSchema, reader: JsonSchema, more: list[Any]) -> str | None:
    """A value that is valid for the writer and invalid for the reader."""
    valid = [value for value in [*SAMPLES, *more] if validate(writer, value) is None]
    assert valid or writer.canonical == "false"
    refused = [value for value in valid if validate(reader, value) is not None]
    return json.dumps(min(refused, key=lambda value: len(json.dumps(value)))) if refused else None


def agrees(writer: JsonSchema, reader: JsonSchema, refused: str | None) -> bool:
    """Whether a proof over all values, if there is one, agrees with the samples."""
    texts = (json.loads(one.canonical) for one in (reader, writer))
    try:
        readers, writers = (
            jsonschema_rs.canonicalize(
                one, draft=writer.documents.draft.value, validate_formats=False
            )
            for one in texts
        )
        proof = str(readers.covers(writers))
    except ValueError:  # recursive schemas, and definitions in unusual places
        return True
    return proof == "unknown" or (proof == "yes") is (refused is None)


def kinds(differences: tuple[Difference, ...]) -> str:
    return ", ".join(f"{one.kind} {one.path}" for one in differences) or "compatible"


def describe(writer: JsonSchema, reader: JsonSchema, more: list[Any]) -> str:
    strict, lenient = (kinds(reader.incompatibilities(writer, policy)) for policy in Policy)
    refused = refused_value(writer, reader, more)
    assert agrees(writer, reader, refused), "add a sample that shows the difference"
    words = [strict, "reads" if refused is None else f"refuses {refused}"]
    if (strict == "compatible") is not (refused is None):
        words.append(f"the rule is {'looser' if refused else 'stricter'}")
    if lenient != strict:
        words.append(f"lenient: {lenient}")
    return "; ".join(words)


def result_of(step: str) -> str:
    draft, _, change = step.partition(": ") if step.split(":")[0] in DRAFTS else ("7", "", step)
    change, _, values = change.partition(" with ")
    old, new = (schema(text, draft) for text in change.split(" => "))
    more = json.loads(values or "[]")
    return f"new reads old: {describe(old, new, more)}\nold reads new: {describe(new, old, more)}"


def test_the_rules_give_the_results_in_the_case_file(run_cases: RunCases) -> None:
    run_cases(CASES, result_of)


def test_the_case_file_is_large_and_has_no_duplicates() -> None:
    lines = CASES.read_text().splitlines()
    steps = [line for line, rule in pairwise(lines) if rule == "----"]
    assert len(set(steps)) == len(steps) >= 150


def test_messages_have_confluents_wording() -> None:
    old = parse('{"type":"object"}')
    new = parse('{"type":"object","properties":{"a":{"type":"string"}}}')
    result = check(Level.BACKWARD, new, [EarlierVersion(1, old)])
    assert incompatibility_messages(result, Level.BACKWARD) == [
        '{errorType:"OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", description:"The new schema '
        "has an open content model and has a property or item at path '#/properties/a' which is "
        "missing in the old schema'}",
        "{oldSchemaVersion: 1}",
        """{oldSchema: '{"type":"object"}'}""",
        "{validateFields: 'false', compatibility: 'BACKWARD'}",
    ]
    assert check(Level.BACKWARD, new, [EarlierVersion(1, old)], Policy.LENIENT).is_compatible
    forward = check(Level.FORWARD, old, [EarlierVersion(1, new)])
    assert (
        "The old schema has an open content model"
        in incompatibility_messages(forward, Level.FORWARD)[0]
    )


def test_cached_differences_never_change_another_comparison() -> None:
    narrow = {"type": "object", "properties": {"n": {"type": "integer"}}}
    wide = {"type": "object", "properties": {"n": {"type": "number"}, "m": {"type": "string"}}}
    choice = {"anyOf": [narrow, {"type": "string"}]}
    shapes = [narrow, wide, choice, {**narrow, "type": ["object", "null"]}, {"$ref": "#/$defs/n"}]

    def containing(part: Any, draft: str) -> JsonSchema:
        whole = {"$schema": DRAFTS[draft], "properties": {"p": part}, "$defs": {"n": narrow}}
        return parse(json.dumps(whole))

    comparisons = [
        (containing(old, draft), containing(new, draft), policy)
        for draft, policy in product(("7", "20"), Policy)
        for old, new in product(shapes, repeat=2)
    ]
    compare.clear_cache()
    together = [list(new.incompatibilities(old, policy)) for old, new, policy in comparisons]
    alone = []
    for old, new, policy in comparisons:
        compare.clear_cache()
        alone.append(list(new.incompatibilities(old, policy)))
    assert together == alone
    assert any(together)
