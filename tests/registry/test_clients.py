"""confluent-kafka's own registry client and serializers, end to end over a real broker."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Record = Callable[..., str]
StartNode = Callable[..., Any]


@pytest.fixture
def client(node: Any) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": node.url}) as client:
        yield client


def through_kafka(bootstrap: str, topic: str, payload: bytes) -> bytes:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, payload)
    assert producer.flush(20) == 0
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        value = message.value()
        assert isinstance(value, bytes)
        return value
    finally:
        consumer.close()


def test_the_whole_client(
    client: SchemaRegistryClient, node: Any, subject: str, record: Record
) -> None:
    first = Schema(record("a:int"), "AVRO")
    schema_id = client.register_schema(subject, first)
    with SchemaRegistryClient({"url": node.url}) as another:  # without what the first remembers
        assert another.register_schema(subject, first) == schema_id
        guid = another.lookup_schema(subject, first).guid
    assert client.get_schema(schema_id).schema_str == (
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
    )
    found = client.lookup_schema(subject, first)
    assert (found.subject, found.schema_id, found.version) == (subject, schema_id, 1)
    with SchemaRegistryClient({"url": node.url}) as another:
        assert (
            another.get_schema_by_guid(str(guid)).schema_str
            == client.get_schema(schema_id).schema_str
        )
    assert subject in client.get_subjects()
    second = Schema(record("a:int", "b:int=1"), "AVRO")
    assert client.test_compatibility(subject, second)
    assert not client.test_compatibility(subject, Schema(record("a:int", "b:int"), "AVRO"))
    later = client.register_schema_full_response(subject, second)
    assert client.get_latest_version(subject).version == 2
    assert client.get_version(subject, 2).schema_id == later.schema_id
    assert client.get_versions(subject) == [1, 2]
    client.set_compatibility(subject, "FULL")
    assert client.get_compatibility(subject) == "FULL"
    assert client.delete_version(subject, 1) == 1
    assert client.delete_subject(subject) == [2]
    assert client.delete_subject(subject, permanent=True) in ([1, 2], [2])
    with (
        SchemaRegistryClient({"url": node.url}) as another,
        pytest.raises(SchemaRegistryError) as caught,
    ):
        another.get_latest_version(subject)
    assert caught.value.error_code == 40401
    assert caught.value.http_status_code == 404


def test_avro_values_go_through_kafka(
    client: SchemaRegistryClient, broker: Any, subject: str, record: Record
) -> None:
    topic = subject.removesuffix("-value")
    context = SerializationContext(topic, MessageField.VALUE)
    serialize = AvroSerializer(client, record("a:int"))
    payload = through_kafka(broker.bootstrap, topic, serialize({"a": 7}, context))
    assert AvroDeserializer(client)(payload, context) == {"a": 7}
    newer = AvroDeserializer(client, record("a:int", "b:int=5"))
    assert newer(payload, context) == {"a": 7, "b": 5}
    assert client.get_latest_version(subject).version == 1


def test_json_values_go_through_kafka(
    client: SchemaRegistryClient, broker: Any, subject: str
) -> None:
    topic = subject.removesuffix("-value")
    context = SerializationContext(topic, MessageField.VALUE)
    schema = json.dumps(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": "Order",
            "type": "object",
            "properties": {"id": {"type": "integer"}},
            "required": ["id"],
        }
    )
    payload = through_kafka(
        broker.bootstrap, topic, JSONSerializer(schema, client)({"id": 3}, context)
    )
    assert JSONDeserializer(schema)(payload, context) == {"id": 3}
    assert client.get_latest_version(subject).schema.schema_type == "JSON"


def order_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=3, label=1)
    message.field.add(name="label", number=2, type=9, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_protobuf_values_go_through_kafka(
    client: SchemaRegistryClient, broker: Any, subject: str
) -> None:
    topic = subject.removesuffix("-value")
    context = SerializationContext(topic, MessageField.VALUE)
    order = order_class()
    serialize = ProtobufSerializer(order, client)
    payload = through_kafka(broker.bootstrap, topic, serialize(order(id=4, label="x"), context))
    found = ProtobufDeserializer(order, {}, client)(payload, context)
    assert (found.id, found.label) == (4, "x")
    assert client.get_latest_version(subject).schema.schema_type == "PROTOBUF"
    again = ProtobufSerializer(order, client, {"auto.register.schemas": False})
    assert again(order(id=4, label="x"), context) == serialize(order(id=4, label="x"), context)


def test_references_by_the_client(
    client: SchemaRegistryClient, subject: str, record: Record
) -> None:
    base = f"{subject}/base"
    client.register_schema(base, Schema(record("x:int", name="Base"), "AVRO"))
    outer = Schema(record("b:Base", name="Outer"), "AVRO", [SchemaReference("Base", base, 1)])
    schema_id = client.register_schema(subject, outer)
    found = client.get_schema(schema_id)
    assert [(one.name, one.subject, one.version) for one in found.references or ()] == [
        ("Base", base, 1)
    ]
    context = SerializationContext(subject.removesuffix("-value"), MessageField.VALUE)
    payload = AvroSerializer(client, outer)({"b": {"x": 1}}, context)
    assert AvroDeserializer(client)(payload, context) == {"b": {"x": 1}}


def test_fifty_clients_at_once_end_as_a_serial_run_would(
    start_node: StartNode, record: Record
) -> None:
    node = start_node("_schemas-crowd")
    barrier = threading.Barrier(50)

    def work(number: int) -> list[tuple[str, int, int]]:
        made = []
        with httpx.Client(base_url=node.url, timeout=60) as http:
            barrier.wait()
            for name in ("Same", f"Own{number}"):
                subject = "same" if name == "Same" else f"own-{number}"
                answer = http.post(
                    f"/subjects/{subject}/versions", json={"schema": record("a:int", name=name)}
                ).json()
                made.append((subject, answer["id"], answer["version"]))
        return made

    with ThreadPoolExecutor(50) as pool:
        results = [row for rows in pool.map(work, range(50)) for row in rows]
    ids = {subject: schema_id for subject, schema_id, _ in results}
    assert {version for _, _, version in results} == {1}
    assert all(ids[subject] == schema_id for subject, schema_id, _ in results)
    assert sorted(ids.values()) == list(range(1, 52))
    node.end()
