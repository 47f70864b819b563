"""Parsing .proto text: errors name line and column; no text raises anything but that."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.schemas.model import InvalidSchemaError
from penstock.schemas.protobuf import ProtobufSchema, parse
from penstock.schemas.protobuf.parse import CHARACTERS_MAX, read_proto
from penstock.schemas.protobuf.tree import (
    ListValue,
    MapType,
    MessageValue,
    NamePart,
    NumberValue,
    Range,
    StringValue,
    WordValue,
)

EVERYTHING = """
syntax = "proto2";
package a.b;
import "google/protobuf/descriptor.proto";
option java_package = "x.y";
message O { optional int32 n = 1; repeated O l = 2; optional string s = 3; }
extend google.protobuf.MessageOptions { optional O o = 50001; }
message M {
  option (o) = { n: -1, l: [{ n: 1 }, { s: 'x' "y" }] };
  required int32 a = 1 [default = 0x10, deprecated = true];
  map<string, O> m = 2;
  oneof choice { string c = 3; O d = 4; }
  optional group G = 5 { optional bool e = 1; }
  reserved 10, 12 to 14, 1000 to max;
  reserved "old";
  extensions 100 to 199;
  enum E { option allow_alias = true; Z = 0; Y = 0; reserved -2, 5 to max; }
  extend M { optional E ext = 100; }
}
service S { rpc Call (stream M) returns (O) { option deprecated = true; } }
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('syntax = "proto3";\nmessage M {\n  int32 a 1;\n}', "line 3, column 11: expected '='"),
        ("message", "line 1, column 8: expected a name, found the end of the text"),
        (
            'syntax = "proto4";',
            'line 1, column 10: unknown syntax; use "proto2" or "proto3", found "proto4"',
        ),
        ('edition = "2023";', "editions are not supported"),
        ('message M {} syntax = "proto3";', "syntax must come first"),
        ('option a = "x\ny";', "the string is not closed on its line"),
        ("/* no end", "line 1, column 1: the comment is not closed"),
        ("message M { §", "unexpected character '§'"),
        ('option a = "\\q";', "column 13: unknown escape \\q"),
        ('option a = "\\ud800";', "no such Unicode character"),
        ("package a; package b;", "the package is declared twice"),
        ("import x;", "expected the name of a file in quotes"),
        ("message M { int32 a = 1.5; }", "expected a whole number, found 1.5"),
        ("message M { int32 a = 09; }", "expected a whole number, found 09"),
        ("message M { int32 a = 99999999999999999999999; }", "expected a whole number"),
        ("enum E { A = 1 }", "expected ';', found }"),
        ("service S { foo }", "expected rpc or option"),
        ("option (a = 1;", "expected ')'"),
        ("option a = { b 1 };", "expected ':'"),
        ("option a = +1;", "expected a value, found +"),
        ("hello", "expected message, enum, service"),
        ("message M { int32 a = 1; ", "expected a name, found the end of the text"),
    ],
)
def test_a_syntax_error_has_line_and_column(text: str, message: str) -> None:
    with pytest.raises(InvalidSchemaError) as refusal:
        read_proto(text)
    assert message in str(refusal.value)
    assert str(refusal.value).startswith("line ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'syntax = "proto3";\nmessage M {\n  Foo a = 1;\n}',
            'line 3, column 3: "Foo" is not defined.',
        ),
        (
            'syntax = "proto3";\nmessage M { int32 a = 1; int32 b = 1; }',
            "line 2, column 36: Field number 1 has already been used",
        ),
        (
            'syntax = "proto3"; message M { required int32 a = 1; }',
            "Required fields are not allowed in proto3",
        ),
        ('syntax = "proto3"; enum E { A = 1; }', "The first enum value must be zero"),
        (
            'syntax = "proto3"; message M { reserved 1; int32 a = 1; }',
            'Field "a" uses reserved number 1',
        ),
        ('syntax = "proto3"; message M { option (foo) = 1; }', 'Option "(foo)" unknown'),
        ('syntax = "proto3"; message M { int32 a = 0; }', "positive"),
    ],
)
def test_an_error_of_the_compiler_has_line_and_column(text: str, message: str) -> None:
    with pytest.raises(InvalidSchemaError) as refusal:
        parse(text)
    assert message in str(refusal.value)
    assert str(refusal.value).startswith("line ")


def test_the_compiler_writes_nothing_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidSchemaError):
        parse("message M { Foo a = 1; }")
    parse("message M { }")  # no syntax: the compiler warns
    assert capfd.readouterr() == ("", "")


def test_the_tree_contains_everything_in_the_file() -> None:
    file = read_proto(EVERYTHING)
    message = file.messages[1]
    assert message.options[0].parts == (NamePart("o", is_extension=True),)
    assert message.options[0].value == MessageValue(
        (
            ("n", NumberValue("-1")),
            (
                "l",
                ListValue(
                    (
                        MessageValue((("n", NumberValue("1")),)),
                        MessageValue((("s", StringValue("xy")),)),
                    )
                ),
            ),
        )
    )
    assert message.fields[0].options[1].value == NumberValue("0x10")
    assert message.fields[1].type == MapType("string", "O")
    assert message.reserved[0].values[2] == Range(1000, 536_870_911, is_single=False)
    assert message.enums[0].reserved[0].values[0] == Range(-2, -2, is_single=True)
    assert message.groups[0].body.fields[0].name == "e"
    assert file.services[0].rpcs[0].options[0].value == WordValue("true")
    assert parse(EVERYTHING).name == "a.b.O"


def test_comments_are_allowed_everywhere() -> None:
    text = "/*a*/syntax/**/=//x\n'proto3';message/* { */M{//}\nint32/**/a=1;}"
    assert read_proto(text) == read_proto('syntax = "proto3"; message M { int32 a = 1; }')


@pytest.mark.parametrize(
    "text",
    [
        "message M {" * 5000,
        "message M {" * 5000 + "}" * 5000,
        "option a = " + "{a:" * 5000 + "1" + "}" * 5000 + ";",
        "option a = " + "[" * 5000,
        "message M { optional group G = 1 {" * 5000,
        "option (" * 5000,
        "a." * 5000,
        "message M { oneof o {" * 5000,
    ],
)
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchemaError):
        parse(text)


def test_messages_may_nest_as_deep_as_the_compiler_allows() -> None:
    def nested(depth: int) -> str:
        return (
            'syntax = "proto3";' + "".join(f"message M{n} {{" for n in range(depth)) + "}" * depth
        )

    assert parse(nested(31)).message_at([0] * 31).count(".") == 30
    with pytest.raises(InvalidSchemaError, match="recursion limit"):
        parse(nested(32))


def test_a_long_text_is_refused() -> None:
    with pytest.raises(InvalidSchemaError, match="characters"):
        parse("/" * (CHARACTERS_MAX + 1))


@pytest.mark.parametrize(
    "text", [" " * 900_000, '"' + "\\" * 900_001, "/" * 900_000, "/* " * 500_000, '\\"' * 500_000]
)
def test_unterminated_tokens_take_linear_time(text: str) -> None:
    with pytest.raises(InvalidSchemaError):
        read_proto(text + "\n§")


@pytest.mark.parametrize(
    "body",
    [
        "int32 a = 1; " * 20_000,
        "".join(f"int32 a{n} = 1; " for n in range(20_000)),
        "message N { } " * 20_000,
        "reserved 1; " * 20_000,
        "enum E { " + "Z = 0; " * 20_000 + "}",
        "option (a) = { " + "a: 1 " * 60_000 + "};",
    ],
)
def test_thousands_of_repeated_elements_are_refused_quickly(body: str) -> None:
    with pytest.raises(InvalidSchemaError):
        parse(f'syntax = "proto3"; message M {{ {body} }}')


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(InvalidSchemaError, match="surrogate"):
        parse('syntax = "proto3"; option java_package = "\ud800";')


def parsed_or_none(text: str) -> ProtobufSchema | None:
    """The schema; None if it was refused. Any other exception fails the test."""
    try:
        return parse(text)
    except InvalidSchemaError:
        return None


@st.composite
def mutated(draw: st.DrawFn) -> str:
    text = EVERYTHING
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        piece = draw(
            st.one_of(
                st.sampled_from(["{", "}", ";", "=", "(", '"', "[", "<", "-", "message M", "/*"]),
                st.sampled_from(["0", "-1", "1e9", "max", "reserved", "group G = 7 {}", "\x00"]),
                st.text(max_size=4),
            )
        )
        text = text[:start] + piece + text[end:]
    return text


@settings(max_examples=300)
@given(mutated())
def test_a_mutated_text_is_a_schema_or_is_refused(text: str) -> None:
    schema = parsed_or_none(text)
    if schema is None:
        return
    assert parse(schema.canonical).canonical == schema.canonical
    assert schema.incompatibilities(schema) == ()
    schema.normalized().formatted("serialized")


@settings(max_examples=200)
@given(st.text(max_size=200))
def test_any_text_is_a_schema_or_is_refused(text: str) -> None:
    schema = parsed_or_none(text)
    assert schema is None or parse(schema.canonical).canonical == schema.canonical
