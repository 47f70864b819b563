"""The table of compatibility cases, each proven by writing and reading events.

`cases.json` has one case per line: an old and a new schema, the kinds of difference when new reads
old (`backward`) and when old reads new (`forward`). Every sample of the one schema is written with
fastavro and read under the other: a compatible pair must read them all, an incompatible one must
fail on some. Where the rule is stricter or looser than decoding, `reality` says so.
"""

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest

from penstock.schemas.avro import parse

CASES = json.loads((Path(__file__).parent / "cases.json").read_text())
NAMES = [case["name"] for case in CASES]
SAMPLES: dict[str, list[Any]] = {
    "null": [None],
    "boolean": [True],
    "int": [7, -(2**31)],
    "long": [2**40],
    "float": [1.5],
    "double": [2.25, 1e300],
    "bytes": [b"ab"],
    "string": ["text"],
}


def test_the_table_is_large_and_its_names_are_unique() -> None:
    assert len(set(NAMES)) == len(NAMES) >= 150


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_the_rule_finds_the_expected_differences(case: dict[str, Any]) -> None:
    old, new = parse(json.dumps(case["old"])), parse(json.dumps(case["new"]))
    assert [difference.kind for difference in new.incompatibilities(old)] == case["backward"]
    assert [difference.kind for difference in old.incompatibilities(new)] == case["forward"]


@pytest.mark.parametrize("direction", ["backward", "forward"])
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_the_rule_agrees_with_decoding(case: dict[str, Any], direction: str) -> None:
    sides = ("old", "new") if direction == "backward" else ("new", "old")
    writer, reader = (without_logical_types(case[side]) for side in sides)
    written = case.get(f"{sides[0]}_values")
    values = samples(writer, {}, 0) if written is None else [from_table(one) for one in written]
    assert values
    all_decode = all(decodes(writer, reader, value) for value in values)
    is_compatible = not case[direction]
    deviation = case.get("reality", {}).get(direction, "")
    if deviation:
        assert deviation.startswith("looser" if is_compatible else "stricter")
    assert all_decode is (is_compatible if not deviation else not is_compatible)


def decodes(writer: Any, reader: Any, value: Any) -> bool:
    output = io.BytesIO()
    fastavro.schemaless_writer(output, fastavro.parse_schema(writer), value)
    output.seek(0)
    try:
        fastavro.schemaless_reader(
            output, fastavro.parse_schema(writer), fastavro.parse_schema(reader)
        )
    except (fastavro.read.SchemaResolutionError, UnicodeDecodeError):
        return False
    return True


def samples(node: Any, names: dict[str, Any], depth: int) -> list[Any]:
    """Values that cover every branch and every symbol."""
    if isinstance(node, list):
        return [(branch_name(one), value) for one in node for value in samples(one, names, depth)]
    if isinstance(node, str) and node not in SAMPLES:
        return samples(names[node], names, depth + 1) if depth < 3 else []
    kind = node if isinstance(node, str) else node["type"]
    match kind:
        case "array":
            return [[], *([value] for value in samples(node["items"], names, depth))]
        case "map":
            return [{}, *({"key": value} for value in samples(node["values"], names, depth))]
        case "enum":
            return list(node["symbols"])
        case "fixed":
            return [b"\x01" * node["size"]]
        case "record":
            return record_samples(node, names, depth)
    return SAMPLES[kind]


def record_samples(record: dict[str, Any], names: dict[str, Any], depth: int) -> list[Any]:
    names[record["name"]] = record
    by_field = {one["name"]: samples(one["type"], names, depth) for one in record["fields"]}
    if not all(by_field.values()):
        return []
    first = {name: values[0] for name, values in by_field.items()}
    return [
        first,
        *({**first, name: value} for name, values in by_field.items() for value in values[1:]),
    ]


def branch_name(branch: Any) -> str:
    name = branch if isinstance(branch, str) else branch.get("name", branch["type"])
    assert isinstance(name, str)
    return name


def without_logical_types(schema: Any) -> Any:
    """Logical types do not change the bytes; without them samples are plain values."""
    if isinstance(schema, list):
        return [without_logical_types(one) for one in schema]
    if isinstance(schema, dict):
        return {
            key: without_logical_types(value)
            for key, value in schema.items()
            if key != "logicalType"
        }
    return schema


def from_table(value: Any) -> Any:
    """A value of the table: a pair is a branch and its value, a single ÿ is the byte 255."""
    if isinstance(value, dict):
        return {key: from_table(one) for key, one in value.items()}
    if isinstance(value, list):
        return tuple(value)
    return b"\xff" if value == "\xff" else value
