"""Events as Arrow batches: columns, quarantine, and what is committed when."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.client.aio import AsyncConsumer
from penstock.client.commit_tracker import CommitMode
from penstock.client.consumer import Consumer
from penstock.client.decode_filter import OnDecodeError
from penstock.client.event_batch import EventBatch
from penstock.client.producer import Producer
from penstock.client.quarantine import quarantine_topic, read_quarantined
from penstock.client.registry import Registry
from penstock.schemas.model import SchemaType
from penstock.serde.contract import Contract, Form
from penstock.serde.errors import (
    ArgumentError,
    ClientError,
    DecodeError,
    Reason,
    RegistryUnavailableError,
)

MakeTopic = Callable[..., str]
V1 = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "state", "type": "string"}],
}
V2 = {**V1, "fields": [*V1["fields"], {"name": "total", "type": "double", "default": 0.5}]}


def committed(bootstrap: str, topic: str) -> int:
    consumer = KafkaConsumer({"bootstrap.servers": bootstrap, "group.id": topic})
    (offset,) = consumer.committed([KafkaPartition(topic, 0)], timeout=20)
    consumer.close()
    return int(offset.offset)


def send(
    bootstrap: str, registry: Registry, topic: str, schema: Any, start: int, count: int, **more: Any
) -> None:
    contract = Contract(json.dumps(schema), **more)
    with Producer(bootstrap, topic, registry=registry, value=contract) as producer:
        rows = [{"id": n, "state": "new", "total": n / 2} for n in range(start, start + count)]
        names = {field["name"] for field in schema["fields"]}
        producer.send_many([{name: row[name] for name in names} for row in rows]).wait(30)


def send_bytes(bootstrap: str, topic: str, *values: bytes | None, key: bytes | None = None) -> None:
    with Producer(bootstrap, topic) as producer:
        for value in values:
            producer.send(value, key=key, timestamp=1_000).result(30)


def read(consumer: Consumer, count: int, columns: list[str] | None = None) -> list[EventBatch]:
    """Batches until `count` events came; the last one is not handled."""
    batches: list[EventBatch] = []
    for batch in consumer.arrow_batches(columns, idle_s=20):
        batches.append(batch)
        if sum(map(len, batches)) >= count:
            break
    return batches


def table(batches: list[EventBatch]) -> Any:
    return pa.Table.from_batches([batch.values for batch in batches])


def test_columns_have_the_latest_schema_whatever_schema_wrote_them(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    send(bootstrap, registry, topic, V1, 0, 50)
    send(bootstrap, registry, topic, V2, 50, 50, form=Form.HEADER)
    send_bytes(bootstrap, topic, None, key=b"deleted")
    with Consumer(bootstrap, topic, topic, registry=registry) as consumer:
        batches = read(consumer, 101)
    values = table(batches)
    assert values.schema.names == ["id", "state", "total"]
    assert values["id"].to_pylist() == [*range(100), None]
    assert values["total"].to_pylist() == [0.5] * 50 + [n / 2 for n in range(50, 100)] + [None]
    offsets = [offset for batch in batches for offset in batch.offsets.to_pylist()]
    assert offsets == list(range(101))
    last = batches[-1]
    assert last.topic == topic
    assert last.deletes.to_pylist()[-1] is True
    assert (last.keys.to_pylist()[-1], last.partitions.to_pylist()[-1]) == (b"deleted", 0)
    assert last.timestamps.cast(pa.int64()).to_pylist()[-1] == 1_000
    assert "id, state, total" in repr(last)
    rows = last.values.to_pylist()
    assert last.to_polars().to_dicts() == rows
    assert last.to_pandas()["state"].tolist() == [row["state"] for row in rows]


def test_only_the_requested_columns_of_the_reader_schema_are_read(
    bootstrap: str, registry: Registry, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic()
    send(bootstrap, registry, topic, V1, 0, 10)
    path = tmp_path / "reader.avsc"
    path.write_text(json.dumps(V2))
    reader = Contract(path, auto_register=False)
    with Consumer(bootstrap, topic, topic, registry=registry, value=reader) as consumer:
        values = table(read(consumer, 10, ["total", "id"]))
    assert values.to_pylist() == [{"total": 0.5, "id": n} for n in range(10)]


def test_unreadable_events_are_quarantined_and_the_others_are_delivered(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    send(bootstrap, registry, topic, V1, 0, 3)
    send_bytes(bootstrap, topic, b"unreadable", b"\x00\x00", key=b"k")
    send(bootstrap, registry, topic, V1, 3, 3)
    with Consumer(bootstrap, topic, topic, registry=registry) as consumer:
        batches = list(consumer.arrow_batches(idle_s=1))
        assert table(batches)["id"].to_pylist() == list(range(6))
        offsets = [offset for batch in batches for offset in batch.offsets.to_pylist()]
        assert offsets == [0, 1, 2, 5, 6, 7]
        assert consumer.quarantined == 2
        ((subject, stats),) = consumer.read_stats
        assert subject == f"{topic}-value"
        assert (stats.events, sum(stats.errors.values())) == (6, 2)
    assert committed(bootstrap, topic) == 8
    with Consumer(bootstrap, quarantine_topic(topic), f"{topic}-look") as look:
        records = [
            read_quarantined(event.key, event.value, event.headers)
            for event in look.events(idle_s=1)
        ]
    reasons = [(one.failure.reason, one.origin.offset, one.origin.key) for one in records]
    assert reasons == [(Reason.NOT_FRAMED, 3, b"k"), (Reason.TRUNCATED_FRAME, 4, b"k")]


def test_events_before_an_unreadable_one_are_delivered_before_it_raises(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    send(bootstrap, registry, topic, V1, 0, 2)
    send_bytes(bootstrap, topic, b"unreadable")
    send(bootstrap, registry, topic, V1, 2, 2)
    strict = Consumer(
        bootstrap, topic, topic, registry=registry, on_decode_error=OnDecodeError.RAISE
    )
    seen: list[Any] = []
    with strict as consumer:
        while len(seen) < 2:
            batch = consumer.take_arrow(["id"], wait_s=20)
            seen += [] if batch is None else batch.values["id"].to_pylist()
        with pytest.raises(DecodeError, match=f"{topic}-0 at 2"):
            consumer.take_arrow(["id"], wait_s=20)
        while len(seen) < 4:
            batch = consumer.take_arrow(["id"], wait_s=20)
            seen += [] if batch is None else batch.values["id"].to_pylist()
        assert consumer.quarantined == 0
    assert seen == [0, 1, 2, 3]


def test_an_unhandled_batch_comes_again_unless_at_most_once(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    send(bootstrap, registry, topic, V1, 0, 20)
    with Consumer(bootstrap, topic, topic, registry=registry) as consumer:
        read(consumer, 1)
    assert committed(bootstrap, topic) < 1, "the first batch is not handled"
    once = Consumer(bootstrap, topic, topic, registry=registry, commit_mode=CommitMode.AT_MOST_ONCE)
    with once as consumer:
        (first, *_) = read(consumer, 1)
    assert committed(bootstrap, topic) >= len(first)


def test_a_transaction_covers_the_delivered_batches(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    source, target = make_topic(), make_topic()
    send(bootstrap, registry, source, V1, 0, 20)
    send_bytes(bootstrap, source, b"unreadable")
    fails = iter([True])
    consumer = Consumer(
        bootstrap, source, source, registry=registry, commit_mode=CommitMode.EXACTLY_ONCE
    )
    with consumer, Producer(bootstrap, target, transactional_id=source) as producer:
        for batch in consumer.arrow_batches(["id"], records_max=7, idle_s=1.5):
            try:
                with producer.transaction(consumer):
                    producer.send_many(map(str, batch.values["id"].to_pylist()))
                    if next(fails, False):
                        raise ArithmeticError
            except ArithmeticError:
                continue
        with producer.transaction(consumer):
            """Events quarantined since the last batch are committed too."""
    assert committed(bootstrap, source) == 21
    with Consumer(bootstrap, target, target) as look:
        assert [int(event.value) for event in look.events(idle_s=1)] == list(range(20))
    with Consumer(bootstrap, quarantine_topic(source), source) as look:
        assert [event.value for event in look.events(idle_s=1)] == [b"unreadable"]


def test_a_batch_has_events_of_one_topic(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topics = [make_topic(), make_topic()]
    for number, topic in enumerate(topics):
        send(bootstrap, registry, topic, V1, number * 100, 10)
    with Consumer(bootstrap, topics, topics[0], registry=registry) as consumer:
        batches = read(consumer, 20, ["id"])
    for number, topic in enumerate(topics):
        ids = [one for b in batches if b.topic == topic for one in b.values["id"].to_pylist()]
        assert ids == list(range(number * 100, number * 100 + 10))


def test_an_unreachable_registry_delays_batches_and_loses_none(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    send(bootstrap, registry, topic, V1, 0, 5)
    with (
        Registry("http://127.0.0.1:1", attempts=1) as down,
        Consumer(bootstrap, topic, topic, registry=down, registry_wait_s=0) as consumer,
    ):
        for _ in range(2):
            with pytest.raises(RegistryUnavailableError):
                consumer.take_arrow(wait_s=20)
        assert consumer.quarantined == 0
    with Consumer(bootstrap, topic, topic, registry=registry) as consumer:
        assert len(table(read(consumer, 5))) == 5


@pytest.mark.parametrize("columns", [["colour"], ["id", "id"]])
def test_invalid_columns_are_a_client_error_and_lose_nothing(
    bootstrap: str, registry: Registry, make_topic: MakeTopic, columns: list[str]
) -> None:
    topic = make_topic()
    contract = Contract(
        '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}'
    )
    with Producer(bootstrap, topic, registry=registry, value=contract) as producer:
        producer.send({"id": 1}).result(30)
    with Consumer(bootstrap, topic, topic, registry=registry) as consumer:
        with pytest.raises(ArgumentError, match=f"cannot read the columns of {topic}"):
            consumer.take_arrow(columns, wait_s=30)
        batch = consumer.take_arrow(["id"], wait_s=30)
    assert batch is not None
    assert batch.values.to_pylist() == [{"id": 1}]


def test_columns_need_a_registry(bootstrap: str, topic: str) -> None:
    with (
        Consumer(bootstrap, topic, topic) as consumer,
        pytest.raises(ClientError, match="registry="),
    ):
        next(consumer.arrow_batches())


def test_batches_are_read_on_an_event_loop(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    send(bootstrap, registry, topic, V1, 0, 30)

    async def work() -> list[int]:
        seen: list[Any] = []
        async with AsyncConsumer(bootstrap, topic, topic, registry=registry) as consumer:
            async for batch in consumer.arrow_batches(["id"], records_max=10):
                assert len(batch) <= 10
                seen += batch.values["id"].to_pylist()
                if len(seen) == 30:
                    return seen
        return seen

    assert asyncio.run(work()) == list(range(30))


@pytest.mark.parametrize(
    "contract",
    [
        Contract(
            'syntax = "proto3"; message O { int64 id = 1; string state = 2; }', SchemaType.PROTOBUF
        ),
        Contract(
            json.dumps(
                {
                    "type": "object",
                    "properties": {"id": {"type": "integer"}, "state": {"type": "string"}},
                    "required": ["id", "state"],
                }
            ),
            SchemaType.JSON,
        ),
    ],
    ids=["protobuf", "json"],
)
@pytest.mark.parametrize("form", Form)
def test_other_languages_are_read_as_columns_too(
    bootstrap: str, registry: Registry, make_topic: MakeTopic, contract: Contract, form: Form
) -> None:
    topic = make_topic()
    rows = [{"id": number, "state": f"s{number}"} for number in range(20)]
    framed = replace(contract, form=form)
    with Producer(bootstrap, topic, registry=registry, value=framed) as producer:
        producer.send_many(pa.RecordBatch.from_pylist(rows)).wait(30)
    send_bytes(bootstrap, topic, b"unreadable")
    with Consumer(bootstrap, topic, topic, registry=registry) as consumer:
        values = table(list(consumer.arrow_batches(["id", "state"], idle_s=1)))
        assert consumer.quarantined == 1
    assert values.to_pylist() == rows
