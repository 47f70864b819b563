"""Parts shared between files: what is read from memory means what it would mean read anew."""

import pytest

from penstock.schemas.model import InvalidSchemaError
from penstock.schemas.protobuf import parse
from penstock.schemas.protobuf.parse import read_proto

PLAIN = "message Part { int64 id = 1; string label = 2 [deprecated = true]; }"


def test_a_message_of_scalars_is_one_object_in_two_files() -> None:
    one, other = read_proto(PLAIN), read_proto(f"message Other {{ int32 n = 1; }} {PLAIN}")
    assert one.messages[0] is other.messages[1]


def test_a_message_that_names_types_is_read_for_each_file() -> None:
    text = "message M { Part part = 1; int32 n = 2; }"
    one, other = read_proto(text).messages[0], read_proto(text).messages[0]
    assert one == other
    assert one is not other
    assert one.fields[0] is not other.fields[0]


def test_the_same_words_mean_different_types_in_different_places() -> None:
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


def test_labels_are_part_of_what_is_remembered() -> None:
    file = read_proto("message M { optional int32 a = 1; } message N { repeated int32 a = 1; }")
    assert [message.fields[0].label for message in file.messages] == ["optional", "repeated"]


def test_an_error_in_a_part_met_before_is_told_where_it_stands() -> None:
    wrong = "message Part { int64 id = ; }"
    with pytest.raises(InvalidSchemaError, match="line 1, column 27"):
        read_proto(wrong)
    with pytest.raises(InvalidSchemaError, match="line 3, column 27"):
        read_proto(f"\n\n{wrong}")


def test_a_remembered_message_may_stand_no_deeper_than_another() -> None:
    read_proto(PLAIN)
    with pytest.raises(InvalidSchemaError, match="nested deeper"):
        read_proto("message M { " * 64 + PLAIN + "}" * 64)


def test_the_end_of_one_message_is_not_taken_for_that_of_another() -> None:
    file = read_proto(
        'message M { option (a) = { b: "}" }; oneof o { int32 n = 1; } int32 m = 2; }'
    )
    (message,) = file.messages
    assert [field.name for field in message.fields] == ["m"]
    assert [oneof.name for oneof in message.oneofs] == ["o"]
