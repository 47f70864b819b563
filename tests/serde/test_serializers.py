"""One event at a time, beside confluent-kafka's serializers, through a real registry."""

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from penstock.client.registry import Registry
from penstock.schemas.model import SchemaText, SchemaType
from penstock.serde.avro.limits import NESTING_MAX
from penstock.serde.contract import Contract, Form, SubjectNames
from penstock.serde.errors import (
    ClientError,
    DecodeError,
    EncodeError,
    Reason,
    RegistryUnavailableError,
    UnknownSchemaError,
)
from penstock.serde.frame import SchemaId, Side, read_frame, write_prefix
from penstock.serde.protobuf.event import MessageTypes, protobuf_schema
from penstock.serde.serializers import Deserializer, Serializer

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "count", "type": "int", "default": 1},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
EVENT = {"id": 7, "count": 2, "state": "PAID", "price": Decimal("9.99"), "note": "héé"}
PROTO = """syntax = "proto3";
package shop;
message Other { message Inner { int64 a = 1; } }
message Item { string id = 1; Kind kind = 2; repeated int32 sizes = 3; map<string, Item> parts = 4;
  optional bytes raw = 5; }
enum Kind { PLAIN = 0; FANCY = 1; }
"""
ITEM = {
    "id": "a", "kind": "FANCY", "sizes": [1, 2], "raw": b"\xff",
    "parts": {"x": {"id": "b", "kind": "PLAIN", "sizes": [], "parts": {}}},
}  # fmt: skip
PERSON = {
    "title": "Person",
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}


def avro(document: object = ORDER) -> Contract:
    return Contract(json.dumps(document))


def json_contract() -> Contract:
    return Contract(json.dumps(PERSON), SchemaType.JSON)


def proto(message: str | None = "shop.Item") -> Contract:
    return Contract(PROTO, SchemaType.PROTOBUF, message=message)


@pytest.fixture
def peer(registry_url: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry_url}) as client:
        yield client


def context(topic: str, headers: list[Any] | None = None) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE, headers)


@pytest.fixture(params=[Form.PREFIX, Form.HEADER])
def form(request: pytest.FixtureRequest) -> Form:
    assert isinstance(request.param, Form)
    return request.param


def peer_settings(form: Form) -> dict[str, Any]:
    return {} if form is Form.PREFIX else {"schema.id.serializer": header_schema_id_serializer}


def formed(contract: Contract, form: Form) -> Contract:
    return Contract(contract.schema, contract.type, message=contract.message, form=form)


def test_avro_goes_both_ways(
    registry: Registry, peer: SchemaRegistryClient, topic: str, form: Form
) -> None:
    framed = Serializer(registry, topic, formed(avro(), form)).serialize(EVENT)
    headers = list(framed.headers)
    theirs = AvroDeserializer(peer)(framed.content, context(topic, headers))
    assert theirs == EVENT
    sent: list[Any] = []
    write = AvroSerializer(peer, json.dumps(ORDER), conf=peer_settings(form))
    content = write(EVENT, context(topic, sent))
    assert (content, sent) == (framed.content, headers)
    assert Deserializer(registry, topic).deserialize(content, sent) == EVENT


def test_json_goes_both_ways(
    registry: Registry, peer: SchemaRegistryClient, topic: str, form: Form
) -> None:
    event = {"name": "Ü", "age": 3}
    framed = Serializer(registry, topic, formed(json_contract(), form)).serialize(event)
    reader = JSONDeserializer(json.dumps(PERSON), schema_registry_client=peer)
    assert reader(framed.content, context(topic, list(framed.headers))) == event
    sent: list[Any] = []
    write = JSONSerializer(json.dumps(PERSON), peer, conf=peer_settings(form))
    content = write(event, context(topic, sent))
    assert sent == list(framed.headers)
    assert Deserializer(registry, topic).deserialize(content, sent) == event


def test_protobuf_goes_both_ways(
    registry: Registry, peer: SchemaRegistryClient, topic: str, form: Form
) -> None:
    contract = formed(proto(), form)
    message_type = MessageTypes(
        protobuf_schema(registry.parse(SchemaText(SchemaType.PROTOBUF, PROTO)))
    ).named("shop.Item")
    framed = Serializer(registry, topic, contract).serialize(ITEM)
    reader = ProtobufDeserializer(message_type, {"use.deprecated.format": False}, peer)
    theirs = reader(framed.content, context(topic, list(framed.headers)))
    assert theirs == message_type(**ITEM)
    sent: list[Any] = []
    write = ProtobufSerializer(message_type, peer, conf=peer_settings(form))
    content = write(message_type(**ITEM), context(f"{topic}-peer", sent))
    read = Deserializer(registry, topic, as_dicts=True)
    assert read.deserialize(content, sent) == ITEM
    assert read.deserialize(framed.content, list(framed.headers)) == ITEM


def test_a_generated_class_is_its_own_contract(
    registry: Registry, peer: SchemaRegistryClient, topic: str
) -> None:
    pool = descriptor_pool.DescriptorPool()
    money = FileDescriptorProto(name=f"{topic}/money.proto", package="m", syntax="proto3")
    money.message_type.add(name="Money").field.add(name="cents", number=1, type=3, label=1)
    bill = FileDescriptorProto(
        name=f"{topic}/bill.proto", package="b", syntax="proto3", dependency=[money.name]
    )
    bill.message_type.add(name="Bill").field.add(
        name="sum", number=1, type=11, label=1, type_name=".m.Money"
    )
    for file in (money, bill):
        pool.AddSerializedFile(file.SerializeToString())
    bill_type = message_factory.GetMessageClass(pool.FindMessageTypeByName("b.Bill"))
    event = bill_type(sum={"cents": 5})
    framed = Serializer(registry, topic, Contract(bill_type)).serialize(event)
    assert peer.get_latest_version(f"{topic}/money.proto").version == 1
    theirs = ProtobufDeserializer(bill_type, {"use.deprecated.format": False}, peer)
    assert theirs(framed.content, context(topic)) == event
    mine = Deserializer(registry, topic, reader=Contract(bill_type))
    assert mine.deserialize(framed.content) == event
    other = Deserializer(registry, topic, as_dicts=True)
    assert other.deserialize(framed.content) == {"sum": {"cents": 5}}


def test_indexes_of_old_python_clients_are_read(registry: Registry, topic: str) -> None:
    write = Serializer(registry, topic, proto())
    content = write.serialize({"id": "a"}).content
    assert content is not None
    frame = read_frame(content)
    assert frame.message()[0] == (1,)
    plain = write_prefix(SchemaId(int(frame.schema))) + b"\x01\x01" + frame.message()[1]
    read = Deserializer(registry, topic, as_dicts=True)
    assert read.deserialize(plain)["id"] == "a"
    forced = Deserializer(registry, topic, as_dicts=True, plain_indexes=True)
    assert forced.deserialize(plain)["id"] == "a"


def test_a_message_within_a_message_has_its_path(registry: Registry, topic: str) -> None:
    content = Serializer(registry, topic, proto("shop.Other.Inner")).serialize({"a": 5}).content
    assert content is not None
    assert read_frame(content).message()[0] == (0, 0)
    message = Deserializer(registry, topic).deserialize(content)
    assert (message.DESCRIPTOR.full_name, message.a) == ("shop.Other.Inner", 5)


def test_a_reader_sees_events_through_its_own_schema(registry: Registry, topic: str) -> None:
    content = Serializer(registry, topic, avro()).serialize(EVENT).content
    document = json.loads(json.dumps(ORDER))
    document["fields"] = [
        {"name": "number", "aliases": ["id"], "type": "double"},
        {"name": "coupon", "type": "string", "default": "none"},
    ]
    read = Deserializer(registry, topic, reader=avro(document))
    assert read.deserialize(content) == {"number": 7.0, "coupon": "none"}
    document["fields"] = [{"name": "missing", "type": "string"}]
    with pytest.raises(DecodeError) as caught:
        Deserializer(registry, topic, reader=avro(document)).deserialize(content)
    assert caught.value.reason is Reason.UNRESOLVABLE
    wrong_language = Deserializer(registry, topic, reader=json_contract())
    with pytest.raises(DecodeError, match="to be read as JSON"):
        wrong_language.deserialize(content)


def test_the_latest_version_is_written_and_read_without_a_schema(
    registry: Registry, topic: str
) -> None:
    with pytest.raises(UnknownSchemaError):
        Serializer(registry, topic).serialize(EVENT)
    Serializer(registry, topic, avro()).prepare()
    content = Serializer(registry, topic).serialize(EVENT).content
    assert Deserializer(registry, topic, reader=Contract()).deserialize(content) == EVENT


def test_nothing_is_registered_without_auto_register(registry: Registry, topic: str) -> None:
    contract = Contract(json.dumps(ORDER), auto_register=False)
    with pytest.raises(UnknownSchemaError):
        Serializer(registry, topic, contract).serialize(EVENT)
    Serializer(registry, topic, avro()).prepare()
    assert Serializer(registry, topic, contract).serialize(EVENT).content


def test_the_subject_follows_the_strategy(registry: Registry, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(ORDER))
    for names, subject in (
        (SubjectNames.TOPIC, f"{topic}-key"),
        (SubjectNames.RECORD, "shop.Order"),
        (SubjectNames.TOPIC_RECORD, f"{topic}-shop.Order"),
    ):
        write = Serializer(registry, topic, Contract(path, names=names), side=Side.KEY)
        assert write.subject == subject
    nameless = Serializer(registry, topic, Contract('"string"', names=SubjectNames.RECORD))
    with pytest.raises(ClientError, match="TopicNameStrategy"):
        nameless.serialize("x")


@pytest.mark.parametrize(
    "change",
    [
        {"count": 2**40},
        {"count": 1.5},
        {"state": "LOST"},
        {"price": Decimal("1.234")},
        {"note": 5},
        {"id": None},
        {"stranger": 1},
    ],
)
def test_a_value_that_does_not_fit_is_not_written(
    registry: Registry, topic: str, change: dict[str, Any]
) -> None:
    with pytest.raises(EncodeError) as caught:
        Serializer(registry, topic, avro()).serialize({**EVENT, **change})
    assert f"{topic}-value" in str(caught.value)


def test_values_that_do_not_fit_other_languages_are_not_written(
    registry: Registry, topic: str
) -> None:
    as_json = Serializer(registry, topic, json_contract())
    for value in (
        {"age": 1},
        {"name": "a", "age": -1},
        {"name": "a", "b": 1},
        {"name": float("nan")},
    ):
        with pytest.raises(EncodeError):
            as_json.serialize(value)
    as_proto = Serializer(registry, f"{topic}-p", proto())
    for wrong in ({"nope": 1}, {"sizes": ["a"]}, {"id": 5}, "text"):
        with pytest.raises(EncodeError):
            as_proto.serialize(wrong)


def test_null_stays_null_and_plain_bytes_stay_raw(
    registry: Registry, peer: SchemaRegistryClient, topic: str
) -> None:
    write, read = Serializer(registry, topic, Contract('"bytes"')), Deserializer(registry, topic)
    assert write.serialize(None).content is None
    assert read.deserialize(None) is None
    content = write.serialize(b"\x01\x02").content
    assert content is not None
    assert content[5:] == b"\x01\x02"
    assert read.deserialize(content) == b"\x01\x02"
    assert AvroSerializer(peer, '"bytes"')(b"\x01\x02", context(topic)) == content


def test_what_cannot_be_read_says_why_and_is_counted(registry: Registry, topic: str) -> None:
    content = Serializer(registry, topic, avro()).serialize(EVENT).content
    assert content is not None
    bad = {
        Reason.NOT_FRAMED: b"{}",
        Reason.TRUNCATED_FRAME: content[:3],
        Reason.UNKNOWN_SCHEMA: write_prefix(SchemaId(2**31)) + content[5:],
        Reason.UNDECODABLE: content[:-1],
        Reason.TRAILING_BYTES: content + b"!",
    }
    read = Deserializer(registry, topic)
    for reason, wrong in bad.items():
        with pytest.raises(DecodeError) as caught:
            read.deserialize(wrong)
        assert caught.value.reason is reason
        assert read.stats.errors[f"{topic}-value", reason] == 1
    as_json = Serializer(registry, f"{topic}-j", json_contract()).serialize({"name": "a"}).content
    assert as_json is not None
    for wrong, reason in (
        (as_json[:-1], Reason.UNDECODABLE),
        (as_json[:5] + b'{"name":NaN}', Reason.UNDECODABLE),
        (as_json[:5] + b'{"name":1}', Reason.RULE_VIOLATED),
        (as_json[:5] + b"[" * 100_000, Reason.UNDECODABLE),
    ):
        with pytest.raises(DecodeError) as caught:
            read.deserialize(wrong)
        assert caught.value.reason is reason


def test_a_few_bytes_cannot_ask_for_everything(registry: Registry, topic: str) -> None:
    chain = {
        "type": "record",
        "name": "Chain",
        "fields": [{"name": "next", "type": ["null", "Chain"]}],
    }
    write, read = Serializer(registry, topic, avro(chain)), Deserializer(registry, topic)
    short = write.serialize({"next": {"next": None}}).content
    assert short is not None
    assert read.deserialize(short) == {"next": {"next": None}}
    for levels in (NESTING_MAX + 1, 100_000):
        with pytest.raises(DecodeError, match="nested"):
            read.deserialize(short[:5] + b"\x02" * levels + b"\x00")
    nothings = Serializer(registry, f"{topic}-n", avro({"type": "array", "items": "null"}))
    few = nothings.serialize([None, None]).content
    assert few is not None
    assert read.deserialize(few) == [None, None]
    with pytest.raises(DecodeError, match="items"):
        read.deserialize(few[:5] + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00")


def test_an_event_with_a_new_schema_waits_for_the_registry_and_is_not_bad() -> None:
    with Registry("http://127.0.0.1:1", attempts=1) as registry:
        read = Deserializer(registry, "t")
        with pytest.raises(RegistryUnavailableError):
            read.deserialize(write_prefix(SchemaId(1)))
        assert not read.stats.errors
