"""Canonical text, normal form and the form without extensions."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from penstock.schemas.protobuf import ProtobufSchema, parse
from penstock.schemas.protobuf.normalize import normal_number

RunCases: TypeAlias = Callable[[Path, Callable[[str], str]], None]


def with_bars(text: str) -> str:
    return "\n".join(f"|{line}" for line in text.removesuffix("\n").split("\n"))


def printed(step: str) -> tuple[ProtobufSchema, str]:
    if step.startswith("normal: "):
        schema = parse(step.removeprefix("normal: "))
        return schema, schema.normalized().canonical
    if step.startswith("bare: "):
        schema = parse(step.removeprefix("bare: "))
        return schema, schema.formatted("ignore_extensions")
    schema = parse(step)
    return schema, schema.canonical


def result_of(step: str) -> str:
    schema, text = printed(step)
    assert text.endswith("\n")
    if not step.startswith("bare: "):
        assert_same_meaning(schema, parse(text))
    return with_bars(text)


def assert_same_meaning(schema: ProtobufSchema, again: ProtobufSchema) -> None:
    """Both compile to the same descriptor, except for order without a meaning."""
    assert again.normalized().canonical == schema.normalized().canonical
    assert parse(schema.canonical).canonical == schema.canonical
    before, after = (
        one.normalized().formatted("serialized") for one in (schema, parse(schema.canonical))
    )
    assert before == after


def test_canonical_texts_are_those_of_confluents_registry(run_cases: RunCases) -> None:
    run_cases(Path(__file__).with_name("canonical.case"), result_of)


def test_the_normal_form_is_its_own_normal_form() -> None:
    text = 'syntax = "proto3"; package p; message M { N b = 2; string a = 1; message N { } }'
    once = parse(text).normalized()
    assert parse(once.canonical).normalized().canonical == once.canonical


def test_an_unknown_form_is_the_canonical_text() -> None:
    schema = parse('syntax = "proto3"; message M { }')
    assert schema.formatted("resolved") == schema.formatted("") == schema.canonical


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("0x1F", "31"), ("010", "8"), ("1e3", "1000"), ("-1.50", "-1.5"), ("0.0", "0"),
        ("-0", "0"), ("1.5f", "1.5"), ("3.14159", "3.14159"), ("1e400", "1" + "0" * 400),
        ("1e999999999", "1e999999999"), (".5", "0.5"), ("9" * 500, "9" * 500),
    ],
)  # fmt: skip
def test_numbers_have_one_spelling_and_keep_their_value(written: str, normal: str) -> None:
    assert normal_number(written) == normal


def test_equivalence_is_that_of_the_canonical_text() -> None:
    one = parse('syntax="proto3";message M{int32 a=1;}')
    assert one.equivalent(parse('syntax = "proto3"; /* hi */ message M { int32 a = 1; }'))
    assert not one.equivalent(parse('syntax = "proto3"; message M { int32 b = 1; }'))
