"""Lints of JSON Schemas."""

import pytest

from penstock.gate.lint import lint
from penstock.schemas.json import parse
from penstock.schemas.model import Reference

CLOSED = '{"type":"object","additionalProperties":false,"properties":{"a":%s}}'


def kinds(new: str, old: str | None = None) -> list[str]:
    lints = lint(parse(new), None if old is None else parse(old))
    assert all(one.message and one.remedy and one.path.startswith("#") for one in lints)
    return [f"{one.kind} {one.path}" for one in lints]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ('{"type":"object","properties":{"a":{"type":"string"}}}', ["OPEN_CONTENT_MODEL #"]),
        (CLOSED % '{"type":"string"}', []),
        (CLOSED % '{"maxLength":3}', ["TYPE_MISSING #/properties/a"]),
        ('{"$schema":"http://acme.com/mine"}', ["UNKNOWN_DIALECT #/$schema"]),
        ('{"$schema":"http://json-schema.org/draft-07/schema#"}', []),
        (
            '{"items":{"$ref":"#","maxItems":3},"type":"array"}',
            ["REF_NEIGHBOUR_IGNORED #/items"],
        ),
        ('{"type":"array","prefixItems":[{}]}', ["KEYWORD_IGNORED #"]),
        (
            '{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",'
            '"dependencies":{"a":["b"]}}',
            ["KEYWORD_IGNORED #"],
        ),
        ('{"type":"object","required":["a"]}', ["REQUIRED_NOT_DECLARED #"]),
        ("true", []),
    ],
)
def test_a_single_schema_gets_warnings(schema: str, expected: list[str]) -> None:
    assert kinds(schema) == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            CLOSED % '{"type":"string","format":"date"}',
            CLOSED % '{"type":"string","format":"time"}',
            ["FORMAT_CHANGED #/properties/a"],
        ),
        (
            CLOSED % '{"type":"string","default":"x"}',
            CLOSED % '{"type":"string","default":"y"}',
            ["DEFAULT_CHANGED #/properties/a"],
        ),
        (
            CLOSED % '{"type":"string","default":"x"}',
            CLOSED[:-1] % '{"type":"string","default":"x"}' + ',"required":["a"]}',
            ["REQUIRED_WITH_DEFAULT #"],
        ),
        (
            '{"type":"array","contains":{"type":"string"}}',
            '{"type":"array","contains":{"type":"integer"}}',
            ["CHANGE_NOT_COMPARED #"],
        ),
        ('{"type":"object"}', '{"type":"object","required":["a"]}', ["REQUIRED_NOT_DECLARED #"]),
        ('{"maxLength":3}', '{"type":"string","maxLength":3}', ["TYPE_ADDED #"]),
        (
            '{"type":"object"}',
            '{"type":"object","properties":{"a":{"type":"string"}}}',
            ["OPEN_CONTENT_MODEL #", "LENIENT_ONLY #/properties/a"],
        ),
        ('{"type":"string"}', '{"type":"string","maxLength":3}', []),
    ],
)
def test_a_change_gets_warnings(old: str, new: str, expected: list[str]) -> None:
    assert kinds(new, old) == expected


def test_an_unchanged_schema_gets_no_warning() -> None:
    schema = CLOSED % '{"type":"string","format":"date","default":"x"}'
    assert kinds(schema, schema) == []


def test_a_reference_to_the_latest_version_gets_a_warning() -> None:
    schema = parse("true", (Reference("a.json", "a", -1),))
    assert [one.kind for one in lint(schema)] == ["REFERENCE_TO_LATEST"]
