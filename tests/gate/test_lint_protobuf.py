"""Lints of Protobuf schemas."""

import pytest

from penstock.gate.lint import lint
from penstock.schemas.protobuf import parse


def kinds(old: str | None, new: str, syntax: str = "proto3") -> list[tuple[str, str]]:
    proposed, earlier = (
        parse(f'syntax = "{syntax}"; {text}') if text is not None else None for text in (new, old)
    )
    assert proposed is not None
    return [(one.kind, one.path) for one in lint(proposed, earlier)]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("message M { int32 a = 1; }", "message M { int32 a = 1; int32 b = 2; }", []),
        (
            "message M { int32 a = 1; int32 b = 2; }",
            "message M { int32 a = 1; }",
            [("FIELD_REMOVED_NOT_RESERVED", "#/M/2")],
        ),
        ("message M { int32 a = 1; int32 b = 2; }", "message M { int32 a = 1; reserved 2; }", []),
        (
            "message M { reserved 2; }",
            "message M { int32 b = 2; }",
            [("RESERVED_NUMBER_REUSED", "#/M/2")],
        ),
        (
            'message M { reserved 2; reserved "b"; }',
            "message M { reserved 2; int32 b = 3; }",
            [("RESERVED_NAME_REUSED", "#/M/b")],
        ),
        (
            "message M { reserved 2, 5 to 7; }",
            "message M { reserved 2; }",
            [("RESERVATION_DROPPED", "#/M/5")],
        ),
        (
            "enum E { UNKNOWN = 0; }",
            "enum E { PAID = 0; }",
            [("ENUM_ZERO_RENAMED", "#/E/0")],
        ),
        ("enum E { Z = 0; A = 1; }", "enum E { Z = 0; B = 1; }", []),
        (
            "message M { int32 a = 1; }",
            "message Head { int32 a = 1; } message M { int32 a = 1; }",
            [("FIRST_MESSAGE_CHANGED", "#/Head")],
        ),
        ("message M { int32 a = 1; }", "message M { int32 a = 1; } message Tail {}", []),
        (
            "enum E { Z = 0; A = 1; }",
            "enum E { Z = 0; }",
            [("ENUM_VALUE_REMOVED_NOT_RESERVED", "#/E/1")],
        ),
        ("enum E { Z = 0; A = 1; }", "enum E { Z = 0; reserved 1; }", []),
        (
            "message M { int32 first_name = 1; }",
            "message M { int32 given_name = 1; }",
            [("JSON_NAME_CHANGED", "#/M/1")],
        ),
        (
            "message M { int32 first_name = 1; }",
            'message M { int32 given_name = 1 [json_name = "firstName"]; }',
            [],
        ),
        (
            "message M { message N { enum E { Z = 0; } oneof o { int32 a = 4; } } }",
            "message M { message N { enum E { Y = 0; } } }",
            [("FIELD_REMOVED_NOT_RESERVED", "#/M/N/4"), ("ENUM_ZERO_RENAMED", "#/M/N/E/0")],
        ),
    ],
)
def test_a_risky_change_gets_a_warning(old: str, new: str, expected: list[tuple[str, str]]) -> None:
    assert kinds(old, new) == expected


def test_a_required_field_gets_one_warning() -> None:
    required = "message M { required int32 a = 1; }"
    assert kinds(None, required, "proto2") == [("REQUIRED_FIELD", "#/M/1")]
    assert kinds(required, required, "proto2") == []
    assert kinds("message M { optional int32 a = 1; }", required, "proto2") == [
        ("REQUIRED_FIELD", "#/M/1")
    ]


def test_a_warning_has_a_remedy() -> None:
    old = parse('syntax = "proto3"; message M { int32 a = 1; string b = 2; }')
    (warning,) = lint(parse('syntax = "proto3"; message M { int32 a = 1; }'), old)
    assert warning.remedy == 'add: reserved 2; reserved "b";'
