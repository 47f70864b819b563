"""Parts cached between files: the result is that of parsing without a cache."""

import pytest

from penstock.schemas.model import InvalidSchemaError
from penstock.schemas.protobuf import parse
from penstock.schemas.protobuf.parse import read_proto

SCALARS = "message Part { int64 id = 1; string label = 2 [deprecated = true]; }"


def test_a_message_of_scalars_is_one_object_in_two_files() -> None:
    one, other = read_proto(SCALARS), read_proto(f"message Other {{ int32 n = 1; }} {SCALARS}")
    assert one.messages[0] is other.messages[1]


def test_a_message_that_uses_types_is_copied_for_each_file() -> None:
    text = "message M { Part part = 1; int32 n = 2; }"
    one, other = read_proto(text).messages[0], read_proto(text).messages[0]
    assert one == other
    assert one is not other
    assert one.fields[0] is not other.fields[0]


def test_the_same_type_name_is_resolved_in_its_scope() -> None:
    use = "message Use { Key key = 1; }"
    numbers, texts = "message Key { int32 n = 1; }", "message Key { string s = 1; }"
    swapped = (
        f'syntax = "proto3"; message A {{ {use} {numbers} }} message B {{ {use} {texts} }}',
        f'syntax = "proto3"; message A {{ {use} {texts} }} message B {{ {use} {numbers} }}',
    )
    before, after = map(parse, swapped)
    kinds = {(one.kind, one.path) for one in after.incompatibilities(before)}
    assert kinds == {
        ("FIELD_SCALAR_KIND_CHANGED", "#/A/Key/1"),
        ("FIELD_SCALAR_KIND_CHANGED", "#/B/Key/1"),
    }


def test_labels_are_part_of_the_cache_key() -> None:
    file = read_proto("message M { optional int32 a = 1; } message N { repeated int32 a = 1; }")
    assert [message.fields[0].label for message in file.messages] == ["optional", "repeated"]


def test_an_error_in_a_cached_part_has_its_own_line() -> None:
    invalid = "message Part { int64 id = ; }"
    with pytest.raises(InvalidSchemaError, match="line 1, column 27"):
        read_proto(invalid)
    with pytest.raises(InvalidSchemaError, match="line 3, column 27"):
        read_proto(f"\n\n{invalid}")


def test_the_nesting_limit_holds_for_a_cached_message() -> None:
    read_proto(SCALARS)
    with pytest.raises(InvalidSchemaError, match="nested deeper"):
        read_proto("message M { " * 64 + SCALARS + "}" * 64)


def test_a_closing_brace_in_a_string_does_not_end_a_message() -> None:
    file = read_proto(
        'message M { option (a) = { b: "}" }; oneof o { int32 n = 1; } int32 m = 2; }'
    )
    (message,) = file.messages
    assert [field.name for field in message.fields] == ["m"]
    assert [oneof.name for oneof in message.oneofs] == ["o"]
