import json
from typing import Any

import pytest

from penstock.schemas.avro import parse
from penstock.schemas.compatibility import (
    OLD_SCHEMA_CHARACTERS_MAX,
    EarlierVersion,
    Level,
    check,
    incompatibility_messages,
)
from penstock.schemas.model import (
    Difference,
    InvalidSchemaError,
    Policy,
    SchemaText,
    SchemaType,
    Tagging,
)
from penstock.schemas.parse_cache import LruCache, SchemaCache
from penstock.schemas.parse_cache import parse as parse_source


def text(*fields: tuple[str, str] | tuple[str, str, Any], doc: str | None = None) -> str:
    members: list[dict[str, Any]] = []
    for name, kind, *default in fields:
        members.append({"name": name, "type": kind} | ({"default": default[0]} if default else {}))
    record: dict[str, Any] = {"type": "record", "name": "R", "fields": members}
    return json.dumps(record | ({"doc": doc} if doc else {}))


BASE = text(("a", "int"))
READS_BASE = text(("a", "long"))  # reads BASE, is not read by it
NEEDS_B = text(("a", "int"), ("b", "int"))  # is read by BASE, does not read it
WITH_B = text(("a", "int"), ("b", "int", 0))  # both
OTHER = text(("a", "string"))  # neither


@pytest.mark.parametrize(
    ("level", "compatible"),
    [
        (Level.NONE, {READS_BASE, NEEDS_B, WITH_B, OTHER}),
        (Level.BACKWARD, {READS_BASE, WITH_B}),
        (Level.FORWARD, {NEEDS_B, WITH_B}),
        (Level.FULL, {WITH_B}),
        (Level.BACKWARD_TRANSITIVE, {READS_BASE, WITH_B}),
        (Level.FORWARD_TRANSITIVE, {NEEDS_B, WITH_B}),
        (Level.FULL_TRANSITIVE, {WITH_B}),
    ],
)
def test_a_level_allows_exactly_its_compatible_changes(level: Level, compatible: set[str]) -> None:
    for proposed in (READS_BASE, NEEDS_B, WITH_B, OTHER):
        result = check(level, parse(proposed), [EarlierVersion(1, parse(BASE))])
        assert result.is_compatible is (proposed in compatible), proposed
        assert bool(incompatibility_messages(result, level)) is not result.is_compatible


def test_only_transitive_levels_compare_older_versions_up_to_the_first_break() -> None:
    earlier = [
        EarlierVersion(1, parse(OTHER)),
        EarlierVersion(2, parse(OTHER)),
        EarlierVersion(3, parse(BASE)),
    ]
    assert check(Level.FULL, parse(WITH_B), earlier).is_compatible
    result = check(Level.FULL_TRANSITIVE, parse(WITH_B), earlier)
    assert result.against is earlier[1]
    assert check(Level.FULL_TRANSITIVE, parse(WITH_B), []).is_compatible


def test_a_backward_break_has_confluents_wording() -> None:
    result = check(Level.BACKWARD, parse(NEEDS_B), [EarlierVersion(7, parse(BASE))])
    assert incompatibility_messages(result, Level.BACKWARD) == [
        "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'b' at path "
        "'/fields/1' in the new schema has no default value and is missing in the old schema', "
        "additionalInfo:'b'}",
        "{oldSchemaVersion: 7}",
        f"{{oldSchema: '{parse(BASE).canonical}'}}",
        "{validateFields: 'false', compatibility: 'BACKWARD'}",
    ]


def test_old_and_new_are_exchanged_in_a_forward_break() -> None:
    result = check(Level.FORWARD, parse(READS_BASE), [EarlierVersion(1, parse(BASE))])
    messages = incompatibility_messages(result, Level.FORWARD)
    assert messages[0] == (
        "{errorType:'TYPE_MISMATCH', description:'The type (path '/fields/0/type') of a field in "
        "the old schema does not match with the new schema', additionalInfo:'reader type: INT not "
        "compatible with writer type: LONG'}"
    )
    assert len(messages) == 4


def test_under_full_old_reads_new_comes_first_and_the_old_schema_follows_the_second_direction() -> (
    None
):
    both = incompatibility_messages(
        check(Level.FULL, parse(OTHER), [EarlierVersion(1, parse(BASE))]), Level.FULL
    )
    assert ["the old schema does not match" in line for line in both[:2]] == [True, False]
    assert both[2] == "{oldSchemaVersion: 1}"
    first = incompatibility_messages(
        check(Level.FULL, parse(READS_BASE), [EarlierVersion(1, parse(BASE))]), Level.FULL
    )
    assert [line[:12] for line in first] == ["{errorType:'", "{validateFie"]


def test_a_long_old_schema_is_cut() -> None:
    old = parse(text(("a", "int"), doc="x" * 20_000))
    messages = incompatibility_messages(
        check(Level.BACKWARD, parse(OTHER), [EarlierVersion(1, old)]), Level.BACKWARD
    )
    start = old.canonical[:OLD_SCHEMA_CHARACTERS_MAX]
    assert messages[2] == f"{{oldSchema: <truncated> '{start}...'}}"


def test_an_alias_that_matches_two_fields_cannot_be_checked() -> None:
    aliased = '{"type":"record","name":"R","fields":[{"name":"b","type":"int","aliases":["a"]}]}'
    old = EarlierVersion(1, parse(text(("a", "int"), ("b", "int"))))
    messages = incompatibility_messages(
        check(Level.BACKWARD, parse(aliased), [old]), Level.BACKWARD
    )
    assert messages[0].startswith(
        "Unexpected exception during compatibility check: Reader record field b type:INT pos:0 "
        "matches multiple fields in writer record schema {"
    )


class OtherLanguage:
    """A schema of another type than Avro, with what the check needs."""

    type = SchemaType.JSON
    canonical = "{}"
    references = ()
    name = None

    def normalized(self) -> "OtherLanguage":
        return self

    def tagged(self, _tagging: Tagging, /) -> "OtherLanguage":
        return self

    def formatted(self, form: str) -> str:
        return form

    def equivalent(self, other: "OtherLanguage") -> bool:
        return self is other

    def incompatibilities(
        self, _writer: "OtherLanguage", _policy: Policy = Policy.STRICT, /
    ) -> tuple[Difference, ...]:
        raise AssertionError("never compared")


def test_schemas_of_two_languages_are_incompatible() -> None:
    result = check(Level.FULL, parse(BASE), [EarlierVersion(1, OtherLanguage())])
    assert incompatibility_messages(result, Level.FULL) == [
        "Incompatible because of different schema type",
        "{validateFields: 'false', compatibility: 'FULL'}",
    ]


def test_the_same_input_gives_the_same_object_and_a_pair_is_compared_once() -> None:
    cache = SchemaCache()
    source = SchemaText(SchemaType.AVRO, BASE)
    base, other = cache.parse(source), cache.parse(SchemaText(SchemaType.AVRO, OTHER))
    assert cache.parse(SchemaText(SchemaType.AVRO, BASE)) is base
    assert cache.parse(source, strict=False) is not base
    first = cache.incompatibilities(base, other)
    assert [one.kind for one in first] == ["TYPE_MISMATCH"]
    assert cache.incompatibilities(base, other) is first
    fresh = parse_source(source)
    assert cache.incompatibilities(fresh, other) == first
    with pytest.raises(InvalidSchemaError):
        cache.parse(SchemaText(SchemaType.AVRO, ""))


def test_imports_are_part_of_the_cache_key() -> None:
    cache = SchemaCache()
    source = SchemaText(SchemaType.AVRO, '{"type":"array","items":"E"}')
    small = cache.parse(source, {"E": '{"type":"enum","name":"E","symbols":["A"]}'})
    large = cache.parse(source, {"E": '{"type":"enum","name":"E","symbols":["A","B"]}'})
    assert [one.kind for one in cache.incompatibilities(small, large)] == ["MISSING_ENUM_SYMBOLS"]
    assert cache.incompatibilities(large, small) == ()


def test_a_cache_evicts_the_least_cachely_used_values() -> None:
    cache: LruCache[str, int] = LruCache(weight_max=10)
    assert cache.add("a", 1, 4) == []
    assert cache.add("b", 2, 4) == []
    assert cache.find("a") == 1
    assert cache.add("c", 3, 4) == [2]
    assert cache.find("b") is None
    assert cache.add("d", 4, 11) == [1, 3, 4]
    assert len(cache) == 0


def test_a_full_cache_still_returns_results() -> None:
    cache = SchemaCache(parsed_characters_max=len(BASE) + 1, results_characters_max=1)
    base = cache.parse(SchemaText(SchemaType.AVRO, BASE))
    with_b = cache.parse(SchemaText(SchemaType.AVRO, WITH_B))
    assert cache.incompatibilities(with_b, base) == ()
    assert [one.kind for one in cache.incompatibilities(parse(NEEDS_B), base)] == [
        "READER_FIELD_MISSING_DEFAULT_VALUE"
    ]
