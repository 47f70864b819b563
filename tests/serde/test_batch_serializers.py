"""Whole batches beside the same events one by one, through a real registry."""

import json
from typing import Any

import pyarrow as pa
import pytest

from penstock.client.registry import Registry
from penstock.columns.arrow_records import HEADERS_TYPE
from penstock.model import Millis, Offset
from penstock.protocol.compression import Codec
from penstock.protocol.records import Record, build_batch
from penstock.schemas.model import SchemaType
from penstock.serde.batch_serializers import BatchDeserializer, BatchSerializer, to_arrow
from penstock.serde.contract import Contract, Form
from penstock.serde.errors import DecodeError, EncodeError, Reason
from penstock.serde.frame import Headers, SchemaId, write_prefix
from penstock.serde.serde_stats import SerdeStats
from penstock.serde.serializers import Deserializer, Framed, Serializer

FIRST = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
SECOND = {
    **FIRST,
    "fields": [*FIRST["fields"], {"name": "note", "type": "string", "default": "-"}],
}


def contract(document: object) -> Contract:
    return Contract(json.dumps(document))


def test_a_batch_is_the_events_one_by_one(registry: Registry, topic: str) -> None:
    rows = [{"id": number, "tags": ["a"] * (number % 3)} for number in range(100)]
    encoded = BatchSerializer(registry, topic, contract(FIRST)).serialize_many(rows)
    one = Serializer(registry, topic, contract(FIRST))
    assert encoded.contents() == [one.serialize(row).content for row in rows]
    batch, wrongs = BatchDeserializer(registry, topic).deserialize_many(encoded.contents())
    assert (batch.to_pylist(), wrongs) == (rows, [])
    arrow = pa.RecordBatch.from_pylist(rows)
    again = BatchSerializer(registry, topic, contract(FIRST)).serialize_many(arrow)
    assert again.contents() == encoded.contents()


def test_schemas_are_mixed_rows_keep_their_order_and_the_wrong_have_reasons(
    registry: Registry, topic: str
) -> None:
    old, new = (Serializer(registry, topic, contract(one)) for one in (FIRST, SECOND))
    a = old.serialize({"id": 1, "tags": ["x"]}).content
    b = new.serialize({"id": 2, "tags": [], "note": "n"}).content
    assert a is not None
    assert b is not None
    other = Contract('{"type":"object"}', SchemaType.JSON)
    in_json = Serializer(registry, f"{topic}-json", other).serialize({}).content
    unknown = write_prefix(SchemaId(2**31 + 5)) + b"x"
    values = [b, a, None, b"{}", b"\x00\x00", b"", a[:-1], b + b"!", unknown, in_json, b, a]
    read = BatchDeserializer(registry, topic)
    batch, wrongs = read.deserialize_many(values)
    good = {row["id"]: row for row in batch.to_pylist() if row["id"] is not None}
    assert good == {
        1: {"id": 1, "tags": ["x"], "note": "-"},
        2: {"id": 2, "tags": [], "note": "n"},
    }
    assert batch["id"].to_pylist() == [2, 1, *[None] * 8, 2, 1]
    assert [(one.row, one.reason) for one in wrongs] == [
        (3, Reason.NOT_FRAMED),
        (4, Reason.TRUNCATED_FRAME),
        (5, Reason.NOT_FRAMED),
        (6, Reason.UNDECODABLE),
        (7, Reason.TRAILING_BYTES),
        (8, Reason.UNKNOWN_SCHEMA),
        (9, Reason.UNRESOLVABLE),
    ]
    assert read.stats.events == 4
    assert sum(read.stats.errors.values()) == 7
    latest = Deserializer(registry, topic, reader=Contract())
    assert latest.deserialize(a) == good[1]
    narrow = BatchDeserializer(registry, topic, columns=["note"])
    assert narrow.deserialize_many(pa.array([a, b])).batch.to_pylist() == [
        {"note": "-"},
        {"note": "n"},
    ]


def test_writers_that_take_turns_keep_their_order(registry: Registry, topic: str) -> None:
    old, new = (Serializer(registry, topic, contract(one)) for one in (FIRST, SECOND))
    values = [
        (old if number // 50 % 2 else new).serialize({"id": number, "tags": ["x"]}).content
        for number in range(400)
    ]
    batch, wrongs = BatchDeserializer(registry, topic).deserialize_many(values)
    assert (batch["id"].to_pylist(), wrongs) == (list(range(400)), [])


def test_the_columns_are_known_before_any_value(registry: Registry, topic: str) -> None:
    Serializer(registry, topic, contract(FIRST)).prepare()
    read = BatchDeserializer(registry, topic, columns=["tags", "id"])
    assert read.arrow_schema() == pa.schema(
        [("tags", pa.list_(pa.field("item", pa.string(), nullable=False))), ("id", pa.int64())]
    )
    assert read.deserialize_many([]).batch.schema == read.arrow_schema()


def test_a_schema_may_be_named_in_a_header(registry: Registry, topic: str) -> None:
    in_header = Contract(json.dumps(FIRST), form=Form.HEADER)
    content, headers = Serializer(registry, topic, in_header).serialize({"id": 1, "tags": []})
    prefixed = Serializer(registry, topic, contract(FIRST)).serialize({"id": 2, "tags": []}).content
    name, guid = headers[0]
    values = [content, prefixed, content, None, content, content, guid + (content or b"")]
    rows: list[Headers | None] = [
        [("trace", b"1"), (name, None), (name, guid), (name, b"rubbish")],
        [("trace", None)],
        [(name, guid + b"!")],
        headers,
        None,
        [(name, guid[:9])],
        (),
    ]
    read = BatchDeserializer(registry, topic)
    batch, wrongs = read.deserialize_many(values, rows)
    assert batch["id"].to_pylist() == [1, 2, None, None, None, None, 1]
    assert [(one.row, one.reason) for one in wrongs] == [
        (2, Reason.TRAILING_BYTES),
        (4, Reason.NOT_FRAMED),
        (5, Reason.TRUNCATED_FRAME),
    ]
    arrow = pa.array([None, *rows], HEADERS_TYPE).slice(1)
    assert read.deserialize_many(pa.array([b"", *values]).slice(1), arrow) == (batch, wrongs)


def test_no_values_and_only_nulls_are_batches_too(registry: Registry, topic: str) -> None:
    Serializer(registry, topic, contract(FIRST)).prepare()
    read = BatchDeserializer(registry, topic)
    assert read.deserialize_many([]).batch.num_rows == 0
    batch, wrongs = read.deserialize_many([None, None])
    assert (batch.to_pylist(), wrongs) == ([{"id": None, "tags": None}] * 2, [])


def test_a_row_that_does_not_fit_is_named(registry: Registry, topic: str) -> None:
    write = BatchSerializer(registry, topic, contract(FIRST))
    with pytest.raises(EncodeError, match="row 1"):
        write.serialize_many([{"id": 1, "tags": []}, {"id": None, "tags": []}])


SHOP = """syntax = "proto3"; package shop;
message Order {
  int64 id = 1;
  optional string note = 2;
  message Line { string sku = 1; }
  repeated Line lines = 3;
}
message Refund { int64 id = 1; Order order = 2; }
"""
JSON_ORDER = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": ["null", "number"]},
        "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
        "states": {"type": "object", "additionalProperties": {"type": "boolean"}},
        "extra": {},
    },
    "definitions": {"line": {"type": "object", "properties": {"sku": {"type": "string"}}}},
}


def protobuf(form: Form = Form.PREFIX, message: str | None = None) -> Contract:
    return Contract(SHOP, SchemaType.PROTOBUF, form=form, message=message)


def content_of(framed: Framed) -> bytes:
    assert framed.content is not None
    return framed.content


@pytest.mark.parametrize("message", [None, "shop.Order.Line", "shop.Refund"])
@pytest.mark.parametrize("form", list(Form))
def test_protobuf_rows_are_the_events_one_by_one(
    registry: Registry, topic: str, form: Form, message: str | None
) -> None:
    of_messages: dict[str | None, list[dict[str, Any]]] = {
        None: [{"id": 1, "note": "n", "lines": [{"sku": "a"}]}, {"id": 2, "lines": []}],
        "shop.Order.Line": [{"sku": "a"}, {"sku": ""}],
        "shop.Refund": [{"id": 3, "order": {"id": 7, "note": None, "lines": []}}],
    }
    rows = of_messages[message]
    of_message = protobuf(form, message)
    one = Serializer(registry, topic, of_message)
    encoded = BatchSerializer(registry, topic, of_message).serialize_many(rows)
    assert encoded.contents() == [one.serialize(row).content for row in rows]
    headers = [encoded.headers for _ in rows] if form is Form.HEADER else None
    assert encoded.headers == one.serialize(rows[0]).headers
    read = BatchDeserializer(registry, topic, reader=of_message)
    batch, wrongs = read.deserialize_many(encoded.contents(), headers)
    names = read.arrow_schema().names
    wanted = [{name: row.get(name) for name in names} for row in rows]
    assert (batch.to_pylist(), wrongs) == (wanted, [])
    again = BatchSerializer(registry, topic, of_message).serialize_many(batch)
    assert again.contents() == encoded.contents()


def test_protobuf_frames_that_lead_elsewhere_are_wrong(registry: Registry, topic: str) -> None:
    one = Serializer(registry, topic, protobuf())
    order = content_of(one.serialize({"id": 1}))
    refund = content_of(Serializer(registry, topic, protobuf(message="shop.Refund")).serialize({}))
    schema = order[:5]
    values = [
        order,
        refund,
        schema,
        schema + b"\x02\x0c",  # [6]
        schema + b"\x02\x01" + b"\x08\x05",  # [1] by old Python clients: two, and the second of it
        schema + b"\x01\x00" + b"\x08\x05",  # [0] by them
        schema + b"\x04\x00\x80",
        schema + b"\x0e" * 20,
        order + b"\x0a\x05a",
        order,
    ]
    batch, wrongs = BatchDeserializer(registry, topic).deserialize_many(values)
    assert batch["id"].to_pylist() == [1, *[None] * 4, 5, *[None] * 3, 1]
    assert [(wrong.row, wrong.reason) for wrong in wrongs] == [
        (1, Reason.UNRESOLVABLE),
        (2, Reason.TRUNCATED_FRAME),
        (3, Reason.BAD_INDEXES),
        (4, Reason.BAD_INDEXES),
        (6, Reason.TRUNCATED_FRAME),
        (7, Reason.BAD_INDEXES),
        (8, Reason.UNDECODABLE),
    ]
    one_by_one = Deserializer(registry, topic, as_dicts=True)
    for wrong in wrongs:
        if wrong.row != 1:  # by itself, it is what it is
            with pytest.raises(DecodeError) as refused:
                one_by_one.deserialize(values[wrong.row])
            assert refused.value.reason is wrong.reason


def test_a_string_of_proto2_that_is_no_text_is_refused_alone_and_in_a_batch(
    registry: Registry, topic: str
) -> None:
    old = Contract(
        'syntax = "proto2"; message Row { optional string name = 1; }', SchemaType.PROTOBUF
    )
    sound = content_of(Serializer(registry, topic, old).serialize({"name": "a"}))
    corrupt = sound[:-1] + b"\xff"
    batch, wrongs = BatchDeserializer(registry, topic).deserialize_many([sound, corrupt])
    assert batch["name"].to_pylist() == ["a", None]
    assert [(wrong.row, wrong.reason) for wrong in wrongs] == [(1, Reason.UNDECODABLE)]
    one = Deserializer(registry, topic, as_dicts=True)
    assert one.deserialize(sound) == {"name": "a"}
    with pytest.raises(DecodeError, match="not UTF-8"):
        one.deserialize(corrupt)


def test_json_rows_are_validated_and_typed(registry: Registry, topic: str) -> None:
    of_order = Contract(json.dumps(JSON_ORDER), SchemaType.JSON)
    rows: list[dict[str, Any]] = [
        {"id": 1, "price": 2.5, "lines": [{"sku": "a"}], "states": {"x": True}, "extra": [1, {}]},
        {"id": 2**53 + 1},
    ]
    write = BatchSerializer(registry, topic, of_order)
    encoded = write.serialize_many(rows)
    one = Serializer(registry, topic, of_order)
    assert encoded.contents() == [one.serialize(row).content for row in rows]
    prefix = encoded.contents()[0][:5]
    texts = [
        b'{"id": 1.0, "price": null, "id": 7}',
        b'{"id": 9223372036854775808}',
        b'{"id": 1, "price": 9007199254740993}',
        b'{"price": 1}',
        b'{"id": 1.5}',
        b'{"id": 1} {}',
        b'{"id": NaN}',
        b"",
        b"null",
        b"[" * 100_000,
        b'{"id": 1, "extra": "\\ud800"}',
        b'{"id": 1, "lines": "ab"}',
        b'{"id": 3, "unknown": "\xff"}',
    ]
    values = [*encoded.contents(), *[prefix + text for text in texts]]
    read = BatchDeserializer(registry, topic)
    batch, wrongs = read.deserialize_many(values)
    batch.validate(full=True)
    assert batch.schema == read.arrow_schema()
    assert batch["id"].to_pylist() == [1, 2**53 + 1, 7, *[None] * 12]
    assert batch["extra"].to_pylist()[:2] == ["[1,{}]", None]
    assert batch["states"].to_pylist()[0] == [("x", True)]
    assert batch["lines"].to_pylist()[0] == [{"sku": "a"}]
    violated = {5, 6, 10, 13}
    assert {wrong.row: wrong.reason for wrong in wrongs} == {
        row: Reason.RULE_VIOLATED if row in violated else Reason.UNDECODABLE for row in range(3, 15)
    }
    assert write.serialize_many(batch.slice(0, 2)).contents() == encoded.contents()
    two = BatchDeserializer(registry, topic, columns=["extra", "id"]).deserialize_many(values[:2])
    assert two.batch.to_pylist() == [{"extra": "[1,{}]", "id": 1}, {"extra": None, "id": 2**53 + 1}]
    with pytest.raises(EncodeError, match="row 1"):
        write.serialize_many([{"id": 1}, {"id": "x"}])


def test_json_that_is_no_object_is_one_column_of_text(registry: Registry, topic: str) -> None:
    any_list = Contract('{"type":"array"}', SchemaType.JSON)
    encoded = BatchSerializer(registry, topic, any_list).serialize_many([[1, None], []])  # type: ignore[list-item]  # a schema of lists
    batch, wrongs = BatchDeserializer(registry, topic).deserialize_many(encoded.contents())
    assert (batch.to_pylist(), wrongs) == ([{"value": "[1,null]"}, {"value": "[]"}], [])
    again = BatchSerializer(registry, topic, any_list).serialize_many(batch)
    assert again.contents() == encoded.contents()


def test_raw_batches_are_opened_with_their_errors(registry: Registry, topic: str) -> None:
    in_header = Contract(json.dumps(FIRST), form=Form.HEADER)
    content, headers = Serializer(registry, topic, in_header).serialize({"id": 1, "tags": ["x"]})
    prefixed = Serializer(registry, topic, contract(FIRST)).serialize({"id": 2, "tags": []}).content
    rows = [
        Record(0, Millis(5), b"k", content, tuple(headers)),
        Record(1, Millis(6), None, prefixed, ()),
        Record(2, Millis(7), b"k", b"rubbish", ()),
        Record(3, Millis(8), b"k", None, ()),
    ]
    raw = build_batch(rows[:2]) + build_batch(rows[2:], base_offset=Offset(2), codec=Codec.ZSTD)
    read = BatchDeserializer(registry, topic)
    [(records, found)] = read.deserialize_batches(raw, start_offset=Offset(1))
    assert found.batch["id"].to_pylist() == [2, None, None]
    table = to_arrow(records, found)
    assert table.column("offset").to_pylist() == [1, 2, 3]
    assert table.column("key").to_pylist() == [None, b"k", b"k"]
    assert table.column("value").to_pylist()[0] == {"id": 2, "tags": []}
    assert [error and error.split(":")[0] for error in table.column("error").to_pylist()] == [
        None,
        "not_framed",
        None,
    ]
    [(_, whole)] = read.deserialize_batches(raw)
    assert whole.batch["id"].to_pylist() == [1, 2, None, None]


class FakeMessage:
    """What confluent-kafka hands out, as far as it is looked at."""

    def __init__(self, value: bytes | None, headers: Headers | None) -> None:
        self._value = value
        self._headers = headers

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> Headers | None:
        return self._headers


def test_messages_bring_their_headers(registry: Registry, topic: str) -> None:
    in_header = Contract(json.dumps(FIRST), form=Form.HEADER)
    content, headers = Serializer(registry, topic, in_header).serialize({"id": 1, "tags": []})
    prefixed = Serializer(registry, topic, contract(FIRST)).serialize({"id": 2, "tags": []}).content
    messages = [FakeMessage(content, headers), FakeMessage(prefixed, None), FakeMessage(None, None)]
    batch, wrongs = BatchDeserializer(registry, topic).deserialize_many(messages)
    assert (batch["id"].to_pylist(), wrongs) == ([1, 2, None], [])


def test_what_batches_take_is_measured(registry: Registry, topic: str) -> None:
    write = BatchSerializer(registry, topic, contract(FIRST))
    encoded = write.serialize_many([{"id": 1, "tags": []}] * 50)
    read = BatchDeserializer(registry, topic)
    read.deserialize_many(encoded.contents())
    for stats in (write.stats, read.stats):
        assert (stats.events, sum(stats.by_latency)) == (50, 50)
        assert stats.seconds > 0
        assert 0 < stats.latency_s(0.5) <= stats.latency_s(0.99)
    assert SerdeStats().latency_s(0.5) == 0
