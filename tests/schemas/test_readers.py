"""What a proposed schema breaks for declared readers, in every language."""

import json
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from penstock.gate.reader_breaks import find_reader_breaks
from penstock.schemas.model import ParsedSchema, SchemaText, SchemaType
from penstock.schemas.parse_cache import parse
from penstock.schemas.reader_break import reader_break_messages
from penstock.schemas.readers import (
    EXPIRES,
    FIELDS,
    InvalidReaderError,
    Reader,
    read_reader,
    reader_name,
    reader_properties,
    reader_subject,
)


def avro(*fields: tuple[str, Any]) -> ParsedSchema:
    document = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": name, **more} for name, more in fields],
    }
    return parse(SchemaText(SchemaType.AVRO, json.dumps(document)))


ID = ("id", {"type": "long"})
COUPON = ("coupon", {"type": ["null", "string"], "default": None})
TOTAL = ("total", {"type": "int"})


def proto(body: str) -> ParsedSchema:
    return parse(SchemaText(SchemaType.PROTOBUF, f'syntax = "proto3"; message Order {{ {body} }}'))


def objects(*names: str) -> ParsedSchema:
    document = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
    return parse(
        SchemaText(SchemaType.JSON, json.dumps({**document, "additionalProperties": False}))
    )


def test_a_renamed_protobuf_field_breaks_a_reader_that_uses_the_name() -> None:
    before = parse(
        SchemaText(
            SchemaType.PROTOBUF,
            'syntax = "proto3"; message Order { string mail = 2; To to = 3; } '
            "message To { string city = 1; }",
        )
    )
    after = parse(
        SchemaText(
            SchemaType.PROTOBUF,
            'syntax = "proto3"; message Order { string email = 2; To to = 3; } '
            "message To { string town = 1; }",
        )
    )
    by_name = Reader("bi", "1", fields=("mail", "to.city", "to"), only_fields=True)
    for reader in (by_name, replace(by_name, schema=before)):
        assert [(one.kind, one.sentence) for one in find_reader_breaks(reader, after, before)] == [
            (
                "FIELD_IN_USE_RENAMED",
                "renaming `mail` to `email` breaks bi 1, which uses it by name",
            ),
            (
                "FIELD_IN_USE_RENAMED",
                "renaming `to.city` to `to.town` breaks bi 1, which uses it by name",
            ),
        ]
    assert find_reader_breaks(by_name, before, before) == ()
    own_schema = replace(by_name, schema=before, only_fields=False)
    assert find_reader_breaks(own_schema, after, before) == (), "its own schema has the old names"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (avro(ID, COUPON), avro(ID)),
        (proto("int64 id = 1; string coupon = 2;"), proto("int64 id = 1;")),
        (objects("id", "coupon"), objects("id")),
    ],
    ids=["avro", "protobuf", "json"],
)
def test_removing_a_used_field_breaks_its_reader(before: ParsedSchema, after: ParsedSchema) -> None:
    reader = Reader("fraud-scorer", "7", schema=before, fields=("coupon",))
    (broken,) = find_reader_breaks(reader, after, None)
    assert broken.sentence == "removing `coupon` breaks fraud-scorer 7, which uses it"
    assert (broken.kind, broken.path) == ("FIELD_IN_USE_REMOVED", "coupon")
    assert find_reader_breaks(Reader("other", schema=before, fields=("id",)), after, None) == ()
    assert find_reader_breaks(Reader("bi"), after, None) == (), (
        "without a version there is nothing to break"
    )
    assert find_reader_breaks(Reader("fraud-scorer", fields=("coupon",)), after, before) != ()


def test_a_reader_of_fields_depends_on_those_fields_only() -> None:
    before, after = avro(ID, TOTAL), avro(ID, ("total", {"type": "string"}))
    whole = Reader("all", schema=before)
    assert [one.kind for one in find_reader_breaks(whole, after, None)] == ["TYPE_MISMATCH"]
    some = Reader("some", schema=before, fields=("id",), only_fields=True)
    assert find_reader_breaks(some, after, None) == ()


def test_another_language_breaks_every_reader() -> None:
    (broken,) = find_reader_breaks(Reader("r", schema=avro(ID)), objects("id"), None)
    assert (broken.before, broken.after) == ("AVRO", "JSON")
    assert "reader:'r'" in reader_break_messages([broken])[0]


def test_a_stored_reader_is_read_back() -> None:
    schema = avro(ID)
    reader = Reader("a b", "7", "risk", schema, ("id", "x.y"), True, date(2026, 12, 31))
    stored = reader_subject(":.eu:orders/1", "a b")
    assert stored.startswith(":.readers:")
    assert read_reader(reader_name(stored), schema, reader_properties(reader)) == reader
    assert not reader.is_expired(date(2026, 12, 31))
    assert reader.is_expired(date(2027, 1, 1))


def test_an_invalid_reader_is_refused() -> None:
    for name in ("", "a/b"):
        with pytest.raises(InvalidReaderError, match="invalid reader name"):
            reader_subject("orders-value", name)
    with pytest.raises(InvalidReaderError, match="invalid expiry date"):
        read_reader("r", avro(ID), {EXPIRES: "soon", FIELDS: "id"})
