"""The cost of a check is limited for any two schemas: time, memory and size of the result."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.schemas.compare_limits import DIFFERENCES_MAX
from penstock.schemas.compatibility import EarlierVersion, Level, check, incompatibility_messages
from penstock.schemas.model import SchemaText, SchemaType
from penstock.schemas.parse_cache import parse

WORKER = Path(__file__).parent / "budget_worker.py"
CPU_S_MAX = 1.0
MANY_CPU_S_MAX = 2.0  # of many cases, on a busy machine
LARGE_CPU_S_MAX = 4.0  # schemas as large as a registry stores, on a busy machine
PEAK_MB_MAX = 100
LARGE_PEAK_MB_MAX = 200  # of which most is the two parsed schemas
CHARACTERS_MAX = 1 << 20


def costs(*arguments: str) -> list[dict[str, Any]]:
    run = subprocess.run(
        [sys.executable, str(WORKER), *arguments], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-3_000:]
    return [json.loads(line) for line in run.stdout.splitlines()]


def exceeding(
    checks: list[dict[str, Any]], cpu_s_max: float, peak_mb_max: float = PEAK_MB_MAX
) -> list[dict[str, Any]]:
    return [
        check
        for check in checks
        if check["cpu_s"] > cpu_s_max
        or check["peak_mb"] > peak_mb_max
        or (check["check"] == "registry_check" and check["characters"] > CHARACTERS_MAX)
    ]


@pytest.mark.parametrize("language", ["avro", "json", "protobuf"])
def test_random_recursive_and_diamond_shaped_schemas_stay_within_the_budget(language: str) -> None:
    checks = costs(language, "1000", "40")
    assert len(checks) == 40 * 3
    assert exceeding(checks, CPU_S_MAX) == []
    assert any(check["first"] for check in checks), "at least one pair differs"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [5_000, 100_000, 2_000_000])
@pytest.mark.parametrize("language", ["avro", "json", "protobuf"])
def test_many_more_random_schemas_stay_within_the_budget(language: str, seed: int) -> None:
    checks = costs(language, str(seed), "400")
    assert exceeding(checks, MANY_CPU_S_MAX) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_large_and_hostile_schemas_stay_within_the_budget() -> None:
    checks = costs("named", "0", "0")
    assert exceeding(checks, LARGE_CPU_S_MAX, LARGE_PEAK_MB_MAX) == []
    first = {check["case"]: check["first"] for check in checks}
    assert first["avro 40 levels"] == "TYPE_MISMATCH"
    assert first["avro 40 levels that refer back"] == "TYPE_MISMATCH"
    assert first["avro union of 1500"] == "MISSING_UNION_BRANCH"
    assert first["avro union of 1500, extended"] is None
    assert first["json oneOf 400, extended"] is None
    assert first["protobuf 15000 fields changed"] == "FIELD_SCALAR_KIND_CHANGED"


def nested(levels: int, leaf: str) -> str:
    """Each record defines the record below it and uses it twice more."""
    schema: Any = {"type": "record", "name": "n0", "fields": [{"name": "v", "type": leaf}]}
    for level in range(1, levels + 1):
        below = f"n{level - 1}"
        fields = [{"name": "l", "type": schema}, {"name": "r", "type": below}]
        fields.append({"name": "s", "type": below})
        schema = {"type": "record", "name": f"n{level}", "fields": fields}
    return json.dumps(schema)


def avro(text: str) -> Any:
    return parse(SchemaText(SchemaType.AVRO, text))


def test_differences_that_triple_with_each_level_of_an_avro_schema_are_limited() -> None:
    reader, writer = avro(nested(40, "string")), avro(nested(40, "int"))
    differences = reader.incompatibilities(writer)
    assert 500 < len(differences) <= DIFFERENCES_MAX  # or fewer, because the paths are long
    assert {one.kind for one in differences} == {"TYPE_MISMATCH"}


def test_a_difference_is_reported_for_every_path_below_the_limit() -> None:
    reader, writer = avro(nested(5, "string")), avro(nested(5, "int"))
    differences = reader.incompatibilities(writer)
    assert len(differences) == 3**5
    assert (
        len(set(differences)) == 1
    )  # a pair is always reported with the path of its first comparison


def test_the_messages_say_how_many_differences_are_left_out() -> None:
    fields = [{"name": f"{'x' * 1_000}{number}", "type": "int"} for number in range(900)]
    new = avro(json.dumps({"type": "record", "name": "R", "fields": fields}))
    old = avro('{"type": "record", "name": "R", "fields": []}')
    result = check(Level.BACKWARD, new, [EarlierVersion(1, old)])
    messages = incompatibility_messages(result, Level.BACKWARD)
    assert sum(map(len, messages)) < 300_000
    left_out = len(result.breaks) - len(messages) + 4
    assert f"{{more: '{left_out} more differences are not listed'}}" in messages


def test_a_break_after_a_thousand_compatible_protobuf_changes_is_reported() -> None:
    fields = "".join(f"int32 f{number} = {number};" for number in range(2, 1_502))
    old = parse(SchemaText(SchemaType.PROTOBUF, 'syntax = "proto3"; message Z { int32 a = 1; }'))
    both = f'syntax = "proto3"; message A {{ {fields} }} message Z {{ string a = 1; }}'
    new = parse(SchemaText(SchemaType.PROTOBUF, both))
    grown = parse(
        SchemaText(
            SchemaType.PROTOBUF,
            f'syntax = "proto3"; message Z {{ string a = 2000; {fields} int32 b = 1999; }}',
        )
    )
    shrunk = parse(
        SchemaText(SchemaType.PROTOBUF, 'syntax = "proto3"; message Z { int32 b = 2000; }')
    )
    assert [one.kind for one in new.incompatibilities(old)] == ["FIELD_SCALAR_KIND_CHANGED"]
    assert [one.kind for one in grown.incompatibilities(shrunk)] == ["FIELD_SCALAR_KIND_CHANGED"]


def test_a_union_finds_its_branch_by_alias_and_by_short_name() -> None:
    def union(*records: dict[str, Any]) -> Any:
        fields = [{"name": "v", "type": "int"}]
        return avro(json.dumps([{"type": "record", "fields": fields, **one} for one in records]))

    writer = union({"name": "a.Old"}, {"name": "b.Same"})
    reader = union({"name": "c.New", "aliases": ["a.Old"]}, {"name": "d.Same"})
    assert reader.incompatibilities(writer) == ()
    assert [one.path for one in writer.incompatibilities(reader)] == ["/0"]
