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
from penstock.schemas.parse_cache import Recent, SchemaCache
from penstock.schemas.parse_cache import parse as parse_source


def text(*fields: tuple[str, str] | tuple[str, str, Any], doc: str | None = None) -> str:
    members: list[dict[str, Any]] = []
    for name, kind, *default in fields:
        members.append({"name": name, "type": kind} | ({"default": default[0]} if default else {}))
    record: dict[str, Any] = {"type": "record", "name": "R", "fields": members}
    return json.dumps(record | ({"doc": doc} if doc else {}))


BASE = text(("a", "int"))
READS_BASE = text(("a", "long"))  # reads BASE, is not read by it
WANTS_B = text(("a", "int"), ("b", "int"))  # is read by BASE, does not read it
WITH_B = text(("a", "int"), ("b", "int", 0))  # both
OTHER = text(("a", "string"))  # neither


@pytest.mark.parametrize(
    ("level", "compatible"),
    [
        (Level.NONE, {READS_BASE, WANTS_B, WITH_B, OTHER}),
        (Level.BACKWARD, {READS_BASE, WITH_B}),
        (Level.FORWARD, {WANTS_B, WITH_B}),
        (Level.FULL, {WITH_B}),
        (Level.BACKWARD_TRANSITIVE, {READS_BASE, WITH_B}),
        (Level.FORWARD_TRANSITIVE, {WANTS_B, WITH_B}),
        (Level.FULL_TRANSITIVE, {WITH_B}),
    ],
)
def test_a_level_allows_what_it_promises(level: Level, compatible: set[str]) -> None:
    for proposed in (READS_BASE, WANTS_B, WITH_B, OTHER):
        verdict = check(level, parse(proposed), [EarlierVersion(1, parse(BASE))])
        assert verdict.is_compatible is (proposed in compatible), proposed
        assert bool(incompatibility_messages(verdict, level)) is not verdict.is_compatible


def test_only_transitive_levels_look_behind_the_latest_and_stop_at_the_first_break() -> None:
    earlier = [
        EarlierVersion(1, parse(OTHER)),
        EarlierVersion(2, parse(OTHER)),
        EarlierVersion(3, parse(BASE)),
    ]
    assert check(Level.FULL, parse(WITH_B), earlier).is_compatible
    verdict = check(Level.FULL_TRANSITIVE, parse(WITH_B), earlier)
    assert verdict.against is earlier[1]
    assert check(Level.FULL_TRANSITIVE, parse(WITH_B), []).is_compatible


def test_a_backward_break_is_worded_as_the_peer_words_it() -> None:
    verdict = check(Level.BACKWARD, parse(WANTS_B), [EarlierVersion(7, parse(BASE))])
    assert incompatibility_messages(verdict, Level.BACKWARD) == [
        "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'b' at path "
        "'/fields/1' in the new schema has no default value and is missing in the old schema', "
        "additionalInfo:'b'}",
        "{oldSchemaVersion: 7}",
        f"{{oldSchema: '{parse(BASE).canonical}'}}",
        "{validateFields: 'false', compatibility: 'BACKWARD'}",
    ]


def test_old_and_new_trade_places_in_a_forward_break() -> None:
    verdict = check(Level.FORWARD, parse(READS_BASE), [EarlierVersion(1, parse(BASE))])
    said = incompatibility_messages(verdict, Level.FORWARD)
    assert said[0] == (
        "{errorType:'TYPE_MISMATCH', description:'The type (path '/fields/0/type') of a field in "
        "the old schema does not match with the new schema', additionalInfo:'reader type: INT not "
        "compatible with writer type: LONG'}"
    )
    assert len(said) == 4


def test_under_full_old_reads_new_comes_first_and_the_old_schema_with_the_second_only() -> None:
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
    said = incompatibility_messages(
        check(Level.BACKWARD, parse(OTHER), [EarlierVersion(1, old)]), Level.BACKWARD
    )
    kept = old.canonical[:OLD_SCHEMA_CHARACTERS_MAX]
    assert said[2] == f"{{oldSchema: <truncated> '{kept}...'}}"


def test_an_alias_that_fits_two_fields_cannot_be_checked() -> None:
    aliased = '{"type":"record","name":"R","fields":[{"name":"b","type":"int","aliases":["a"]}]}'
    old = EarlierVersion(1, parse(text(("a", "int"), ("b", "int"))))
    said = incompatibility_messages(check(Level.BACKWARD, parse(aliased), [old]), Level.BACKWARD)
    assert said[0].startswith(
        "Unexpected exception during compatibility check: Reader record field b type:INT pos:0 "
        "matches multiple fields in writer record schema {"
    )


class OtherLanguage:
    """A schema of another type than Avro, as far as the check looks at it."""

    type = SchemaType.JSON
    canonical = "{}"
    references = ()
    name = None

    def normalized(self) -> "OtherLanguage":
        return self

    def tagged(self, tagging: Tagging) -> "OtherLanguage":
        return self

    def formatted(self, form: str) -> str:
        return form

    def equivalent(self, other: "OtherLanguage") -> bool:
        return self is other

    def incompatibilities(
        self, writer: "OtherLanguage", policy: Policy = Policy.STRICT
    ) -> tuple[Difference, ...]:
        raise AssertionError("never asked")


def test_schemas_of_two_languages_never_follow_each_other() -> None:
    verdict = check(Level.FULL, parse(BASE), [EarlierVersion(1, OtherLanguage())])
    assert incompatibility_messages(verdict, Level.FULL) == [
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


def test_imports_tell_cached_schemas_apart() -> None:
    cache = SchemaCache()
    source = SchemaText(SchemaType.AVRO, '{"type":"array","items":"E"}')
    small = cache.parse(source, {"E": '{"type":"enum","name":"E","symbols":["A"]}'})
    large = cache.parse(source, {"E": '{"type":"enum","name":"E","symbols":["A","B"]}'})
    assert [one.kind for one in cache.incompatibilities(small, large)] == ["MISSING_ENUM_SYMBOLS"]
    assert cache.incompatibilities(large, small) == ()


def test_a_cache_forgets_what_was_not_used_for_longest() -> None:
    recent: Recent[str, int] = Recent(weight_max=10)
    assert recent.keep("a", 1, 4) == []
    assert recent.keep("b", 2, 4) == []
    assert recent.find("a") == 1
    assert recent.keep("c", 3, 4) == [2]
    assert recent.find("b") is None
    assert recent.keep("d", 4, 11) == [1, 3, 4]
    assert len(recent) == 0


def test_a_full_cache_still_answers() -> None:
    cache = SchemaCache(parsed_characters_max=len(BASE) + 1, verdicts_characters_max=1)
    base = cache.parse(SchemaText(SchemaType.AVRO, BASE))
    with_b = cache.parse(SchemaText(SchemaType.AVRO, WITH_B))
    assert cache.incompatibilities(with_b, base) == ()
    assert [one.kind for one in cache.incompatibilities(parse(WANTS_B), base)] == [
        "READER_FIELD_MISSING_DEFAULT_VALUE"
    ]
