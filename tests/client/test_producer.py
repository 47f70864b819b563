"""The producer against a real broker and registry."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import Message, TopicPartition

from penstock.client.delivery import RecordMetadata
from penstock.client.errors import ClosedError, DeliveryError
from penstock.client.producer import Producer, RoundRobin, Sticky
from penstock.client.registry import Registry
from penstock.columns.build_batches import bytes_layout
from penstock.columns.partitioner import Unkeyed, assign_partitions
from penstock.model import Millis
from penstock.schemas.model import SchemaType
from penstock.serde.contract import Contract, Form
from penstock.serde.errors import ClientError, EncodeError
from penstock.serde.frame import Side
from penstock.serde.serializers import Deserializer, Serializer

ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
MakeTopic = Callable[..., str]


def read_all(bootstrap: str, topic: str, partitions: int = 1) -> list[Message]:
    """Everything that was committed, partition by partition."""
    consumer = KafkaConsumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    messages, ended = [], 0
    while ended < partitions:
        message = consumer.poll(10)
        assert message is not None, "the end of the partition"
        if message.error() is None:
            messages.append(message)
        else:
            ended += 1
    consumer.close()
    return messages


def test_events_are_written_under_a_contract(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    contract, key = Contract(ORDER), Contract('"string"', form=Form.HEADER)
    with Producer(bootstrap, topic, registry=registry, value=contract, key=key) as producer:
        sent = producer.send({"id": 1}, key="a", headers=[("trace", b"x")], timestamp=Millis(1_000))
        assert sent.result(30) == RecordMetadata(topic, 0, 0, 1_000)  # type: ignore[arg-type]  # an Offset
        assert producer.send_many([{"id": 2}, {"id": 3}], keys=["b", "c"]).wait(30) == 2
        with pytest.raises(EncodeError):
            producer.send({"id": "no"})
        producer.send(None, key="a").result(30)
    values, keys = Deserializer(registry, topic), Deserializer(registry, topic, side=Side.KEY)
    read = [
        (
            keys.deserialize(one.key(), one.headers()),  # type: ignore[arg-type]  # read as bytes
            values.deserialize(one.value()),
        )
        for one in read_all(bootstrap, topic)
    ]
    assert read == [("a", {"id": 1}), ("b", {"id": 2}), ("c", {"id": 3}), ("a", None)]


ORDERS: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
    ],
}


def events(count: int) -> list[dict[str, Any]]:
    return [{"id": number, "tags": ["t"] * (number % 3)} for number in range(count)]


@pytest.mark.parametrize("kind", ["list", "generator", "batch", "table"])
@pytest.mark.parametrize("form", Form)
def test_many_events_are_written_as_one_by_one(
    bootstrap: str, registry: Registry, make_topic: MakeTopic, kind: str, form: Form
) -> None:
    topic, rows = make_topic(partitions=2), events(100)
    batch = pa.RecordBatch.from_pylist(rows)
    given: dict[str, Any] = {
        "list": rows,
        "generator": iter(rows),
        "batch": batch,
        "table": pa.Table.from_batches([batch]),
    }
    keys: Any = [str(row["id"]) for row in rows]
    contract = Contract(json.dumps(ORDERS), form=form)
    with Producer(bootstrap, topic, registry=registry, value=contract) as producer:
        sent = producer.send_many(given[kind], keys=pa.array(keys) if kind == "batch" else keys)
        assert sent.wait(30) == 100
        assert sum(sent.end_offsets.values()) == 100
        assert isinstance(producer.values, Serializer)
        assert producer.values.stats.events == 100
        one = producer.values
        expected = {key.encode(): one.serialize(row) for key, row in zip(keys, rows, strict=True)}
    messages = read_all(bootstrap, topic, 2)
    assert {one.key(): one.value() for one in messages} == {
        key: framed.content for key, framed in expected.items()
    }
    if form is Form.HEADER:
        assert all(one.headers() for one in messages)


@pytest.mark.parametrize(
    "contract",
    [
        Contract('syntax = "proto3"; message O { int64 id = 1; }', SchemaType.PROTOBUF),
        Contract('{"type": "object", "required": ["id"]}', SchemaType.JSON),
        Contract('["long", "string"]'),
    ],
    ids=["protobuf", "json", "avro-union"],
)
def test_many_events_of_any_language_round_trip(
    bootstrap: str, registry: Registry, make_topic: MakeTopic, contract: Contract
) -> None:
    topic = make_topic()
    rows: list[Any] = [{"id": number} for number in range(50)]
    if contract.type is None:
        rows = [number if number % 2 else str(number) for number in range(50)]
    with Producer(bootstrap, topic, registry=registry, value=contract) as producer:
        assert producer.send_many(rows).wait(30) == 50
    read = Deserializer(registry, topic, as_dicts=True)
    assert [read.deserialize(one.value()) for one in read_all(bootstrap, topic)] == rows


def test_many_events_may_be_deletes_and_have_keys_under_a_contract(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic, rows = make_topic(), [*events(20), None, *events(20)]
    contract, key = Contract(json.dumps(ORDERS)), Contract('"string"')
    with Producer(bootstrap, topic, registry=registry, value=contract, key=key) as producer:
        producer.send_many(rows, keys=[str(number) for number in range(41)]).wait(30)
    values, keys = Deserializer(registry, topic), Deserializer(registry, topic, side=Side.KEY)
    messages = read_all(bootstrap, topic)
    assert [values.deserialize(one.value()) for one in messages] == rows
    assert [keys.deserialize(one.key()) for one in messages] == [str(n) for n in range(41)]


def test_an_event_among_many_that_does_not_fit_is_named_and_none_is_sent(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic, rows = make_topic(), events(40)
    rows[33]["tags"] = [7]
    contract = Contract(json.dumps(ORDERS))
    with Producer(bootstrap, topic, registry=registry, value=contract) as producer:
        with pytest.raises(EncodeError, match=r"event 33: .*tags"):
            producer.send_many(rows)
        with pytest.raises(EncodeError, match=r"event 3: .*tags"):
            producer.send_many(rows[30:36])
        with pytest.raises(ClientError, match="columns"):
            producer.send_many(pa.RecordBatch.from_pylist([{"other": 1}] * 20))
        with pytest.raises(ClientError, match="event 2 has none"):
            producer.send_many(events(20), keys=["a", "b"])
        with pytest.raises(ClientError, match="more keys"):
            producer.send_many(events(1), keys=["a", "b"])
    assert [one.key() for one in read_all(bootstrap, topic)] == [b"a"]


def test_keys_have_the_same_partition_as_in_java_clients(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=7)
    keys = [f"key-{number}".encode() * (number % 5 + 1) for number in range(50)]
    with Producer(bootstrap, topic) as producer:
        sent = [producer.send(b"x", key=key) for key in keys]
        messages = [one.result(30).partition for one in sent]
    layout = bytes_layout("key", pa.array(keys, pa.binary()))
    assert messages == assign_partitions(layout, 7, Unkeyed.sticky(0)).tolist()


def test_partitioners_distribute_as_documented(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=4)

    def partitions(partitioner: Callable[[bytes | None, int], int]) -> list[int]:
        with Producer(bootstrap, topic, partitioner=partitioner) as producer:
            sent = [producer.send(b"x", key=b"same") for _ in range(40)]
            return [one.result(30).partition for one in sent]

    assert Counter(partitions(RoundRobin())) == {0: 10, 1: 10, 2: 10, 3: 10}
    sticky = partitions(Sticky(events=10, seed=1))
    assert all(len(set(sticky[at : at + 10])) == 1 for at in range(0, 40, 10))
    assert len(set(sticky)) > 1
    assert set(partitions(lambda _key, count: count - 1)) == {3}


def test_an_explicit_partition_is_used(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3)
    with Producer(bootstrap, topic, partitioner=RoundRobin()) as producer:
        assert producer.send("text", partition=2).result(30).partition == 2
        with pytest.raises(ClientError, match="fewer partitions"):
            producer.send("text", partition=9).result(30)


def test_the_error_for_a_large_record_names_the_setting(bootstrap: str, topic: str) -> None:
    with (
        Producer(bootstrap, topic) as producer,
        pytest.raises(ClientError, match=r"max\.message\.bytes"),
    ):
        producer.send(b"x" * (2 << 20)).result(30)


def test_a_failed_delivery_is_reported() -> None:
    settings = {"message.timeout.ms": 300, "socket.timeout.ms": 300}
    with Producer("127.0.0.1:1", "t", settings=settings) as producer:
        with pytest.raises(DeliveryError, match="reachable"):
            producer.send(b"x").result(30)
        sent = producer.send_many([b"x", b"y"])
        with pytest.raises(DeliveryError, match="event 0"):
            sent.wait(30)
        assert sorted(one.row or 0 for one in sent.failures) == [0, 1]


def test_a_value_without_a_contract_is_bytes_or_text(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, topic) as producer:
        with pytest.raises(ClientError, match="a contract"):
            producer.send({"id": 1})
        producer.send(memoryview(b"x")).result(30)
    with pytest.raises(ClosedError):
        producer.send(b"late")
    with pytest.raises(ClientError, match="registry="):
        Producer(bootstrap, topic, value=Contract(ORDER))


def test_a_transaction_is_all_or_nothing(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with Producer(bootstrap, topic, transactional_id=topic) as producer:
        with producer.transaction():
            producer.send(b"1")
            producer.send(b"2")
        with pytest.raises(ClientError, match="a contract"), producer.transaction():
            producer.send_many([b"never", {"not": "bytes"}])
        with producer.transaction():
            producer.send(b"3")
            with pytest.raises(ClientError, match="is open; end it first"), producer.transaction():
                pass
    assert [one.value() for one in read_all(bootstrap, topic)] == [b"1", b"2", b"3"]


def test_the_error_of_a_fenced_producer_gives_the_reason(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    with Producer(bootstrap, topic, transactional_id=topic) as old:
        with old.transaction():
            old.send(b"1")
        with Producer(bootstrap, topic, transactional_id=topic) as new:
            with new.transaction():
                new.send(b"2")
            with (
                pytest.raises(ClientError, match="took over the transactional id"),
                old.transaction(),
            ):
                old.send(b"3")
    assert [one.value() for one in read_all(bootstrap, topic)] == [b"1", b"2"]


def test_transactions_need_a_transactional_id(bootstrap: str, topic: str) -> None:
    with (
        Producer(bootstrap, topic) as producer,
        pytest.raises(ClientError, match="transactional_id"),
    ):
        producer.transaction()
