"""Proofs by example: generated events agree with the tables of compatibility cases."""

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.gate.proof import Evidence, locate, missing_fields, prove
from penstock.gate.proof.pattern_examples import texts_of
from penstock.schemas.avro import parse as parse_avro
from penstock.schemas.json import parse as parse_json
from penstock.schemas.model import ParsedSchema
from penstock.schemas.protobuf import parse as parse_protobuf

HERE = Path(__file__).parents[1] / "schemas"
AVRO_CASES = json.loads((HERE / "avro" / "cases.json").read_text())
# The rules ignore logical types; readers do not, and some events are outside of the new type.
BEWARE = {
    ("a long becomes a timestamp", "backward"),
    ("the scale of a decimal changes", "backward"),
    ("the scale of a decimal changes", "forward"),
    ("the precision of a decimal grows", "forward"),
    ("a string becomes a uuid", "backward"),
}
# Penstock's readers match full names before short names.
READ_BY_PENSTOCK = ("a namesake from another namespace joins a union", "backward")
AVRO_NAMES = [case["name"] for case in AVRO_CASES]


def evidence(writer: ParsedSchema, reader: ParsedSchema, seed: int = 1) -> Evidence:
    return prove(writer, reader, reader.incompatibilities(writer), seed=seed)


def record(*fields: dict[str, Any], name: str = "Order") -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields)})


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


@pytest.mark.parametrize("direction", ["backward", "forward"])
@pytest.mark.parametrize("case", AVRO_CASES, ids=AVRO_NAMES)
def test_incompatible_schemas_have_an_event_that_fails_and_compatible_ones_have_none(
    case: dict[str, Any], direction: str
) -> None:
    old, new = parse_avro(json.dumps(case["old"])), parse_avro(json.dumps(case["new"]))
    writer, reader = (old, new) if direction == "backward" else (new, old)
    proof = evidence(writer, reader)
    has_own_values = ("old" if direction == "backward" else "new") + "_values" in case
    deviation = "" if has_own_values else case.get("reality", {}).get(direction, "")
    is_compatible = not case[direction]
    assert proof.trials, proof.missing
    if is_compatible and proof.fails and "UTF-8" in str(proof.fails.failure):
        return  # bytes that are not UTF-8; the values of the table are
    if (case["name"], direction) in BEWARE:
        assert is_compatible
        assert proof.fails
        return
    if (case["name"], direction) == READ_BY_PENSTOCK:
        assert proof.fails is None
        return
    assert (proof.fails is None) is (is_compatible if not deviation else not is_compatible)


LOGICAL_CHANGES: dict[str, tuple[Any, Any, str | None, str | None]] = {
    "date as timestamp": (
        *(
            {"type": "int", "logicalType": "date"},
            {"type": "long", "logicalType": "timestamp-millis"},
        ),
        *(None, "date cannot be read as timestamp-millis"),
    ),
    "date as local timestamp": (
        {"type": "int", "logicalType": "date"},
        {"type": "long", "logicalType": "local-timestamp-millis"},
        *('{"x": "2026-01-01T00:00:00"}', None),
    ),
    "timestamp as local timestamp": (
        {"type": "long", "logicalType": "timestamp-millis"},
        {"type": "long", "logicalType": "local-timestamp-millis"},
        *(None, "timestamp-millis cannot be read as local-timestamp-millis"),
    ),
    "decimal of more places and digits": (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        {"type": "bytes", "logicalType": "decimal", "precision": 11, "scale": 4},
        *('{"x": "1234567.8900"}', None),
    ),
    "decimal of fewer places": (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 4},
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        *(None, "a decimal has more than 2 decimal places"),
    ),
}


@pytest.mark.parametrize("name", LOGICAL_CHANGES)
def test_events_are_read_with_the_logical_types_of_their_reader(name: str) -> None:
    before, after, seen, failure = LOGICAL_CHANGES[name]
    old, new = (parse_avro(record(field("x", kind))) for kind in (before, after))
    assert not new.incompatibilities(old)  # the rules allow it
    proof = evidence(old, new)
    assert (proof.fails.failure if proof.fails else None) == failure
    if seen is not None:
        assert proof.reads is not None
        assert proof.reads.seen == seen


def protobuf_cases() -> list[tuple[str, str]]:
    """Step and result of each case of the Protobuf table."""
    lines = (HERE / "protobuf" / "cases.case").read_text().splitlines()
    return [
        (lines[index - 1].split(" #")[0].strip(), "\n".join(lines[index + 1 : index + 3]))
        for index, line in enumerate(lines)
        if line == "----"
    ]


def protobuf(text: str, syntax: str) -> ParsedSchema:
    body = text if "message " in text else f"message M {{ {text} }}"
    return parse_protobuf(f'syntax = "{syntax}"; {body}')


RENUMBERED = (  # upb reads the same numbers, which have other names
    "message M { E e = 1; } enum E { Z = 0; A = 1; B = 2; } => "
    "message M { E e = 1; } enum E { Z = 0; A = 2; B = 1; }"
)


@pytest.mark.parametrize(("step", "expected"), protobuf_cases())
def test_a_lost_protobuf_value_is_found(step: str, expected: str) -> None:
    syntax = "proto2" if step.startswith("2: ") else "proto3"
    old, new = (protobuf(text, syntax) for text in step.removeprefix("2: ").split("=>"))
    for line, writer, reader in zip(expected.splitlines(), (old, new), (new, old), strict=True):
        proof = evidence(writer, reader)
        if line.endswith("; no events"):
            continue
        if "loses" in line or "in range" in line or step == RENUMBERED:
            assert proof.fails is not None, line
        elif "compatible; reads" in line:
            assert proof.fails is None, line


ORDER = record(
    field("id", "long"), field("status", {"type": "enum", "name": "S", "symbols": ["A"]})
)


def test_equal_seeds_give_equal_events_and_others_do_not() -> None:
    schema = parse_avro(ORDER)
    events = [prove(schema, schema, seed=seed).reads for seed in (1, 1, 2)]
    assert events[0] == events[1] != events[2]


def test_the_counter_example_has_the_symbol_that_the_reader_lacks() -> None:
    old = parse_avro(ORDER)
    new = parse_avro(ORDER.replace('["A"]', '["A", "B"]'))
    proof = evidence(new, old)
    assert proof.fails is not None
    assert json.loads(proof.fails.event)["status"] == "B"
    assert proof.trials <= 2


def test_the_counter_example_has_the_changed_branch_deep_inside_a_large_event() -> None:
    wide = [field(f"f{number}", ["null", "string", "int"]) for number in range(300)]
    line = {"type": "record", "name": "Line", "fields": [field("price", ["null", "int"])]}
    lines = field("lines", {"type": "array", "items": line})
    other = json.loads(json.dumps(lines).replace('["null", "int"]', '["null", "int", "string"]'))
    old, new = parse_avro(record(*wide, lines)), parse_avro(record(*wide, other))
    proof = evidence(new, old)
    assert proof.fails is not None
    assert isinstance(json.loads(proof.fails.event)["lines"][0]["price"], str)
    assert proof.trials <= 3


def test_a_recursive_schema_has_finite_events() -> None:
    tree = record(
        field("value", "int"),
        field("left", ["null", "Order"]),
        field("children", {"type": "array", "items": "Order"}),
    )
    proof = evidence(parse_avro(tree), parse_avro(tree.replace('"int"', '"long"')))
    assert proof.trials
    assert proof.fails is None


def test_a_schema_without_finite_events_has_no_proof() -> None:
    endless = parse_avro(record(field("next", "Order")))
    proof = evidence(endless, endless)
    assert proof.trials == 0
    assert "infinite" in proof.missing


def test_types_that_double_at_every_level_have_no_proof() -> None:
    text: Any = {"type": "record", "name": "R0", "fields": [field("x", "int")]}
    for level in range(1, 30):
        text = {
            "type": "record",
            "name": f"R{level}",
            "fields": [field("a", text), field("b", f"R{level - 1}")],
        }
    schema = parse_avro(json.dumps(text))
    assert prove(schema, schema).missing


def test_any_reader_of_the_schema_reads_the_payload() -> None:
    schema = parse_avro(ORDER)
    proof = prove(schema, schema, seed=3)
    assert proof.reads is not None
    event = fastavro.schemaless_reader(
        io.BytesIO(proof.reads.payload), json.loads(schema.canonical), None
    )
    assert event == json.loads(proof.reads.event)


@pytest.mark.parametrize(
    ("old", "new", "writer", "reader"),
    [
        ([field("a", "int")], [field("a", "string")], '"int"', '"string"'),
        ([field("a", "int")], [field("a", "int"), field("b", "int")], None, 'b: "int"'),
        (
            [field("a", ["null", "int"])],
            [field("a", ["null", "string"])],
            '"int"',
            '["null","string"]',
        ),
    ],
)
def test_a_location_has_the_elements_of_both_schemas(
    old: list[Any], new: list[Any], writer: str | None, reader: str | None
) -> None:
    before, after = parse_avro(record(*old)), parse_avro(record(*new))
    (difference,) = after.incompatibilities(before)
    location = locate(before, after, difference)
    assert (location.writer, location.reader) == (writer, reader)


def test_a_location_in_protobuf_is_a_field_by_its_number() -> None:
    old, new = protobuf("int32 a = 1;", "proto3"), protobuf("string b = 1;", "proto3")
    (difference,) = new.incompatibilities(old)
    assert locate(old, new, difference) == ("int32 a = 1", "string b = 1", ("b",))


JSON_BREAKS = [
    ({"type": "string"}, {"type": "integer"}),
    ({"type": "integer"}, {"type": "integer", "maximum": 1000}),
    ({"type": "string"}, {"type": "string", "maxLength": 30}),
    ({"enum": ["a", "b"]}, {"enum": ["a"]}),
    ({"type": ["string", "null"]}, {"type": "string"}),
    (
        {"type": "array", "items": {"type": "number"}},
        {"type": "array", "items": {"type": "integer"}},
    ),
    ({"type": "array"}, {"type": "array", "minItems": 3}),
    ({"type": "array"}, {"type": "array", "uniqueItems": True}),
    ({"anyOf": [{"type": "string"}, {"type": "boolean"}]}, {"type": "string"}),
    ({"type": "string", "format": "uuid"}, {"type": "string", "pattern": "^x"}),
]


@pytest.mark.parametrize(("old", "new"), JSON_BREAKS)
@pytest.mark.parametrize("nested", [False, True])
def test_a_narrowed_json_schema_has_an_event_that_fails(old: Any, new: Any, nested: bool) -> None:
    if nested:
        old, new = (
            {"$defs": {"x": one}, "properties": {"a": {"$ref": "#/$defs/x"}}, "type": "object"}
            for one in (old, new)
        )
    writer, reader = parse_json(json.dumps(old)), parse_json(json.dumps(new))
    assert reader.incompatibilities(writer)
    proof = evidence(writer, reader)
    assert proof.fails is not None, proof
    assert evidence(writer, writer).fails is None


def test_a_property_added_to_an_open_object_fails_on_values_that_were_allowed() -> None:
    old = parse_json('{"type": "object", "properties": {"a": {"type": "string"}}}')
    new = parse_json(
        '{"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}'
    )
    proof = evidence(old, new)
    assert proof.fails is not None
    assert not isinstance(json.loads(proof.fails.event)["b"], int)


TEXT = {"type": "string"}
NAMED = {"type": "object", "properties": {"a": TEXT, "b": TEXT}}
IS_X = {"properties": {"a": {"const": "x"}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (TEXT, {**TEXT, "not": {"enum": ["x"]}}),
        ({"type": "integer"}, {"type": "integer", "not": {"const": 41}}),
        (NAMED, {**NAMED, "not": IS_X}),
        (NAMED, {**NAMED, "if": IS_X, "then": {"required": ["b"]}}),
        ({**TEXT, "pattern": "^[A-Z]{2,3}$"}, {**TEXT, "pattern": "^[A-Z]{3}$"}),
        ({**TEXT, "pattern": "^a|^b"}, {**TEXT, "pattern": "^a"}),
        ({**TEXT, "pattern": r"^\d{4}-\d{2}$"}, {**TEXT, "pattern": r"^\d{4}/\d{2}$"}),
        ({**TEXT, "pattern": "^(?:foo|bar)+$"}, {**TEXT, "pattern": "^foo$"}),
        ({**TEXT, "pattern": r"^[^@\s]+@\w+\.(de|fr)$"}, {**TEXT, "pattern": r"\.de$"}),
    ],
)
def test_a_failing_event_is_found_for_not_if_and_patterns(old: Any, new: Any) -> None:
    writer, reader = (parse_json(json.dumps(one)) for one in (old, new))
    assert reader.incompatibilities(writer)
    assert evidence(writer, reader).fails is not None


def test_a_removed_member_of_a_oneof_is_lost() -> None:
    writer = protobuf("oneof k { int32 a = 1; int32 b = 2; }", "proto3")
    reader = protobuf("oneof k { int32 a = 1; }", "proto3")
    proof = evidence(writer, reader).fails
    assert proof is not None
    assert proof.failure == "oneof k: written with b, but the reader sees it unset"


@given(st.text(alphabet="ab^$.*+?{}()[]|\\d1,2-<>:=!p", max_size=12))
def test_any_pattern_gives_short_candidates(pattern: str) -> None:
    assert all(len(text) <= 50**3 for text in texts_of(pattern))


def test_languages_cannot_read_each_other() -> None:
    proof = prove(parse_avro(ORDER), parse_json("{}"))
    assert "cannot read" in proof.missing


@pytest.mark.parametrize(
    ("parsed", "before", "after", "lost"),
    [
        (
            parse_avro,
            record(field("id", "long"), field("coupon", ["null", "string"], default=None)),
            record(field("id", "long")),
            ("coupon",),
        ),
        (
            parse_protobuf,
            'syntax = "proto3"; message M { string coupon = 1; N n = 2; } message N { int32 x=1; }',
            'syntax = "proto3"; message M { string voucher = 1; N n = 2; } message N { }',
            ("n.x",),
        ),
        (
            parse_json,
            '{"properties": {"n": {"type": "array", "items": {"properties": {"x": true}}}}}',
            '{"properties": {"n": {"type": "array", "items": {"properties": {"y": true}}}}}',
            ("n.x",),
        ),
    ],
)
def test_removed_fields_that_are_used_are_missing(
    parsed: Any, before: str, after: str, lost: tuple[str, ...]
) -> None:
    used = ("id", "coupon", "n", "n.x", "never.existed")
    assert missing_fields(parsed(before), parsed(after), used) == lost


JSON_DRAFTS = {
    "4": "http://json-schema.org/draft-04/schema#",
    "6": "http://json-schema.org/draft-06/schema#",
    "7": "http://json-schema.org/draft-07/schema#",
    "19": "https://json-schema.org/draft/2019-09/schema",
    "20": "https://json-schema.org/draft/2020-12/schema",
}


def json_cases() -> list[tuple[str, str]]:
    lines = (HERE / "json" / "cases.case").read_text().splitlines()
    return [
        (lines[index - 1], "\n".join(lines[index + 1 : index + 3]))
        for index, line in enumerate(lines)
        if line == "----"
    ]


def json_schema(text: str, draft: str) -> ParsedSchema:
    if text.startswith("{"):
        comma = "," if text != "{}" else ""
        text = f'{{"$schema":"{JSON_DRAFTS[draft]}"{comma}{text[1:]}'
    return parse_json(text)


@pytest.mark.parametrize(("step", "expected"), json_cases())
def test_a_refused_json_event_is_found(step: str, expected: str) -> None:
    draft, _, change = step.partition(": ")
    if draft not in JSON_DRAFTS:
        draft, change = "7", step
    change, _, special = change.partition(" with ")
    old, new = (json_schema(text, draft) for text in change.split(" => "))
    for line, writer, reader in zip(expected.splitlines(), (old, new), (new, old), strict=True):
        proof = evidence(writer, reader)
        if "; refuses " in line and not special:
            assert proof.fails is not None, line
        elif "; reads" in line:
            assert proof.fails is None, line


def test_a_difference_inside_an_infinite_type_is_skipped() -> None:
    endless = {"type": "record", "name": "E", "fields": [field("x", "int"), field("next", "E")]}
    items = field("items", {"type": "array", "items": endless})
    old = parse_avro(record(field("id", "int"), items))
    new = parse_avro(old.canonical.replace('"x","type":"int"', '"x","type":"string"'))
    proof = evidence(new, old)
    assert proof.fails is None
    assert proof.reads is not None
