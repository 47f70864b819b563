"""References, names, descriptors and message indexes of a schema."""

import base64
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka.schema_registry.common import protobuf as confluent
from google.protobuf import descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given
from hypothesis import strategies as st

from penstock.schemas.model import InvalidSchemaError, Reference, SchemaText, SchemaType
from penstock.schemas.parse_cache import parse as parse_source
from penstock.schemas.protobuf import ProtobufSchema, parse
from penstock.schemas.protobuf.well_known import WRITTEN_OUT

ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order {
  map<string, Line> lines = 1;
  google.protobuf.Timestamp at = 2;
  message Line { int32 count = 1; message Tax { } }
  message Note { }
}
message Refund { message Reason { } }
"""


def descriptor(schema: ProtobufSchema, name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in schema.descriptors:
        pool.AddSerializedFile(file.SerializeToString())
    return pool.FindMessageTypeByName(name)


def test_a_schema_has_type_name_and_references() -> None:
    schema = parse_source(SchemaText(SchemaType.PROTOBUF, ORDER))
    assert schema.type is SchemaType.PROTOBUF
    assert schema.name == "shop.Order"
    assert schema.references == ()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('syntax = "proto3"; enum E { Z = 0; } message M { }', "M"),
        ('syntax = "proto3"; package p; enum E { Z = 0; }', "p.E"),
        ('syntax = "proto3";', None),
        ('syntax = "proto3"; import public "google/protobuf/any.proto";', "google.protobuf.Any"),
    ],
)
def test_a_schema_is_named_after_its_first_message_or_enum(text: str, name: str | None) -> None:
    assert parse(text).name == name


@pytest.mark.parametrize(
    ("indexes", "name"),
    [
        ((), "shop.Order"),
        ((0,), "shop.Order"),
        ((1,), "shop.Refund"),
        ((0, 0), "shop.Order.Line"),
        ((0, 1), "shop.Order.Note"),
        ((0, 0, 0), "shop.Order.Line.Tax"),
        ((1, 0), "shop.Refund.Reason"),
    ],
)
def test_message_indexes_are_positions_in_the_file(indexes: tuple[int, ...], name: str) -> None:
    schema = parse(ORDER)
    assert schema.message_at(indexes) == name
    assert schema.indexes_of(name) == (indexes or (0,))


def test_unknown_message_indexes_are_refused() -> None:
    schema = parse(ORDER)
    for indexes in ((2,), (0, 2), (-1,), (0, 0, 0, 0)):
        with pytest.raises(InvalidSchemaError):
            schema.message_at(indexes)
    with pytest.raises(InvalidSchemaError, match=r"shop\.Nothing"):
        schema.indexes_of("shop.Nothing")


def test_message_indexes_of_a_descriptor_count_map_entries_as_confluents_client_does() -> None:
    schema = parse(ORDER)
    compiled = parse(schema.formatted("serialized"))
    for name in ("shop.Order", "shop.Refund", "shop.Order.Line", "shop.Order.Note"):
        assert list(compiled.indexes_of(name)) == confluent._create_index_array(  # noqa: SLF001  # the client's own indexes are the reference
            descriptor(schema, name)
        )


def test_the_compiled_file_that_confluents_client_sends_is_parsed() -> None:
    sent = confluent._schema_to_str(timestamp_pb2.DESCRIPTOR)  # noqa: SLF001  # the bytes on the wire
    schema = parse(sent)
    assert schema.name == "google.protobuf.Timestamp"
    assert "int64 seconds = 1" in schema.canonical
    assert parse(schema.canonical).canonical == schema.canonical


def test_confluents_client_reads_the_serialized_form() -> None:
    schema = parse(ORDER)
    file = confluent._str_to_proto("order.proto", schema.formatted("serialized"))  # noqa: SLF001  # as above
    assert file.package == "shop"
    assert [one.name for one in file.message_type] == ["Order", "Refund"]
    assert not file.message_type[0].field[0].HasField("json_name")


def test_a_descriptor_with_map_entries_compiles() -> None:
    schema = parse(parse(ORDER).formatted("serialized"))
    assert "option map_entry = true;" in schema.canonical
    assert "map<string, .shop.Order.Line> lines = 1;" in schema.normalized().canonical
    again = parse(schema.canonical)
    assert again.canonical == schema.canonical
    assert again.formatted("serialized") == schema.formatted("serialized")
    assert schema.incompatibilities(parse(ORDER)) == parse(ORDER).incompatibilities(schema) == ()


def test_events_written_with_the_descriptor_are_read_with_it() -> None:
    kind = message_factory.GetMessageClass(descriptor(parse(ORDER), "shop.Order"))
    order = kind()
    order.lines["a"].count = 3
    other = message_factory.GetMessageClass(descriptor(parse(parse(ORDER).canonical), "shop.Order"))
    assert other.FromString(order.SerializeToString()).lines["a"].count == 3


@pytest.mark.parametrize(
    "text",
    ["", "AAAA", "aGVsbG8=", "====", "not base64 at all", base64.b64encode(b"\xff").decode()],
)
def test_a_text_that_is_no_descriptor_gets_the_error_of_the_parser(text: str) -> None:
    if text:
        with pytest.raises(InvalidSchemaError, match="line 1"):
            parse(text)
    else:
        assert parse(text).canonical == ""


def test_a_descriptor_of_an_edition_is_refused() -> None:
    file = FileDescriptorProto(name="a", package="p", syntax="editions")
    with pytest.raises(InvalidSchemaError, match="editions"):
        parse(base64.b64encode(file.SerializeToString()).decode())


@given(st.binary(max_size=60))
def test_any_bytes_in_base64_are_a_schema_or_are_refused(raw: bytes) -> None:
    file = FileDescriptorProto(name="x", package="p").SerializeToString()
    for text in (base64.b64encode(raw).decode(), base64.b64encode(file + raw).decode()):
        with suppress(InvalidSchemaError):
            assert parse(text).type is SchemaType.PROTOBUF


def test_references_are_imported_by_name_at_any_depth() -> None:
    imports = {
        "c.proto": 'syntax = "proto3"; package c; message C { int32 x = 1; }',
        "b/b.proto": 'syntax = "proto3"; package b; import "c.proto"; message B { c.C c = 1; }',
    }
    references = (Reference("b/b.proto", "b", 1),)
    text = 'syntax = "proto3"; import "b/b.proto"; message A { b.B b = 1; }'
    schema = parse(text, references, imports)
    assert schema.references == references
    assert [file.name for file in schema.descriptors] == ["c.proto", "b/b.proto", "default"]
    assert ".b.B b = 1;" in schema.normalized().canonical


def test_a_reference_may_be_a_descriptor() -> None:
    compiled = parse('syntax = "proto3"; package d; message D { map<string, int32> m = 1; }')
    text = 'syntax = "proto3"; import "d.proto"; message A { d.D d = 1; }'
    assert parse(text, (), {"d.proto": compiled.formatted("serialized")}).name == "A"


def test_the_error_names_a_missing_import() -> None:
    text = 'syntax = "proto3"; import "missing.proto"; message A { }'
    with pytest.raises(InvalidSchemaError, match=r'the import "missing\.proto" is not among'):
        parse(text)
    stored = parse_source(SchemaText(SchemaType.PROTOBUF, text), strict=False)
    assert stored.name == "A"


def test_the_error_names_an_invalid_import() -> None:
    text = 'syntax = "proto3"; import "b.proto"; message A { }'
    with pytest.raises(InvalidSchemaError, match=r'in the import "b\.proto": line 1, column 1'):
        parse(text, (), {"b.proto": "rubbish"})
    with pytest.raises(InvalidSchemaError, match=r'in the import "b\.proto", line 1, column 32'):
        parse(text, (), {"b.proto": 'syntax = "proto3"; message B { X x = 1; }'})


def test_cyclic_imports_are_refused() -> None:
    imports = {
        "a.proto": 'syntax = "proto3"; import "b.proto";',
        "b.proto": 'syntax = "proto3"; import "a.proto";',
    }
    with pytest.raises(InvalidSchemaError, match="recursively imports itself"):
        parse('syntax = "proto3"; import "a.proto"; message M { }', (), imports)


@pytest.mark.parametrize(
    "name",
    ["../x.proto", "/etc/passwd", "a//b", "a/./b", "", "a\\b", "a:b", "a=b", "default", "a\n"],
)
def test_an_import_name_is_a_plain_relative_path(name: str) -> None:
    quoted = name.replace("\\", "\\\\").replace("\n", "\\n")
    with pytest.raises(InvalidSchemaError, match="invalid import name"):
        parse(f'syntax = "proto3"; import "{quoted}";', (), {name: 'syntax = "proto3";'})


@pytest.mark.parametrize("name", [*sorted(WRITTEN_OUT), "google/protobuf/struct.proto"])
def test_well_known_imports_need_no_reference(name: str) -> None:
    schema = parse(f'syntax = "proto3"; import "{name}"; message M {{ }}')
    assert schema.descriptors[-2].name == name


def test_the_normal_form_of_a_negative_constant_compiles() -> None:
    text = 'syntax = "proto3"; enum E { Z = 0; N = -1; } message M { E e = 1; }'
    normal = parse(text).normalized()
    assert normal.canonical.index("N = -1") < normal.canonical.index("Z = 0")
    assert parse(normal.canonical).formatted("serialized")


def test_normalized_references_are_sorted_and_unique() -> None:
    imports = dict.fromkeys(("a.proto", "b.proto"), 'syntax = "proto3";')
    first, second = Reference("a.proto", "a", 1), Reference("b.proto", "b", 1)
    text = 'syntax = "proto3"; import "b.proto"; import "a.proto"; message M { }'
    assert parse(text, (second, first, second), imports).normalized().references == (first, second)
