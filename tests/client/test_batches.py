"""Whole batches beside the same events one by one, through a real registry."""

import json

import pyarrow as pa
import pytest

from penstock.client.batches import BatchDeserializer, BatchSerializer
from penstock.client.contract import Contract, Form
from penstock.client.errors import ClientError, Reason, Unencodable
from penstock.client.frame import Headers, SchemaId, write_prefix
from penstock.client.registry import Registry
from penstock.client.serializers import Deserializer, Serializer
from penstock.columns.shape import HEADERS_TYPE
from penstock.schemas.model import SchemaType

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
    with pytest.raises(Unencodable, match="row 1"):
        write.serialize_many([{"id": 1, "tags": []}, {"id": None, "tags": []}])


def test_other_languages_go_one_by_one(registry: Registry, topic: str) -> None:
    other = Contract('{"type":"object"}', SchemaType.JSON)
    with pytest.raises(ClientError, match="one by one"):
        BatchSerializer(registry, topic, other).serialize_many([{}])
