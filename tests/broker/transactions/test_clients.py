"""Transactional producers of the clients that people use, against a real broker."""

from __future__ import annotations

import asyncio
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import ProducerFenced

COMMITTED = [f"{number}" for number in range(30) if number // 10 != 1]


def read_committed(
    bootstrap: str, topic: str = "a", isolation: str = "read_committed"
) -> list[str]:
    """Everything in the topic, in the order of each partition."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    partitions = len(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
    consumer.assign(
        [confluent_kafka.TopicPartition(topic, index, 0) for index in range(partitions)]
    )
    values, ended = [], 0
    while ended < partitions:
        message = consumer.poll(10)
        assert message is not None
        error, value = message.error(), message.value()
        if error is None:
            assert value is not None
            values.append(value.decode())
        else:
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF  # noqa: SLF001 - the library's public constant has that name
            ended += 1
    consumer.close()
    return sorted(values, key=int)


def confluent_producer(bootstrap: str, transactional_id: str = "t") -> Any:
    return confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0}
    )


def test_librdkafka_commits_and_aborts(prepared: Any) -> None:
    producer = confluent_producer(prepared.bootstrap)
    producer.init_transactions(10)
    for number in range(30):
        if number % 10 == 0:
            producer.begin_transaction()
        producer.produce("a", str(number), partition=number % 3)
        if number % 10 == 9:
            producer.flush()
            if number == 19:
                producer.abort_transaction(10)
            else:
                producer.commit_transaction(10)
    assert read_committed(prepared.bootstrap) == COMMITTED
    everything = read_committed(prepared.bootstrap, isolation="read_uncommitted")
    assert everything == [str(number) for number in range(30)]


def test_two_librdkafka_producers_with_one_transactional_id(prepared: Any) -> None:
    first, second = (confluent_producer(prepared.bootstrap) for _ in range(2))
    first.init_transactions(10)
    first.begin_transaction()
    first.produce("a", "1")
    first.flush()
    second.init_transactions(10)
    second.begin_transaction()
    second.produce("a", "2")
    second.commit_transaction(10)
    with pytest.raises(confluent_kafka.KafkaException) as fenced:
        first.commit_transaction(10)
    assert fenced.value.args[0].fatal()
    assert read_committed(prepared.bootstrap) == ["2"]


# kafka-python reads its schemas in a way that is deprecated in Python 3.11 to 3.12
@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")
def test_kafka_python_commits_and_aborts(prepared: Any) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=prepared.bootstrap, transactional_id="t")
    producer.init_transactions()
    for number in range(30):
        if number % 10 == 0:
            producer.begin_transaction()
        producer.send("a", str(number).encode(), partition=number % 3)
        if number % 10 == 9:
            if number == 19:
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    producer.close()
    assert read_committed(prepared.bootstrap) == COMMITTED


def test_aiokafka_commits_aborts_and_is_fenced(prepared: Any) -> None:
    async def produce() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=prepared.bootstrap, transactional_id="t")
        await producer.start()
        for start in (0, 10, 20):
            await producer.begin_transaction()
            for number in range(start, start + 10):
                await producer.send_and_wait("a", str(number).encode(), partition=number % 3)
            await (producer.abort_transaction() if start == 10 else producer.commit_transaction())
        successor = AIOKafkaProducer(bootstrap_servers=prepared.bootstrap, transactional_id="t")
        await successor.start()
        with pytest.raises(ProducerFenced):
            async with producer.transaction():
                await producer.send_and_wait("a", b"99")
        await producer.stop()
        await successor.stop()

    asyncio.run(produce())
    assert read_committed(prepared.bootstrap) == COMMITTED


def test_a_committed_transaction_wakes_a_waiting_consumer(prepared: Any) -> None:
    async def exchange() -> bytes | None:
        consumer = AIOKafkaConsumer(
            "a",
            bootstrap_servers=prepared.bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            fetch_max_wait_ms=60_000,  # only the marker can end the wait
        )
        producer = AIOKafkaProducer(bootstrap_servers=prepared.bootstrap, transactional_id="t")
        await consumer.start()
        await producer.start()
        waiting = asyncio.create_task(consumer.getone())
        await producer.begin_transaction()
        await producer.send_and_wait("a", b"1", partition=0)
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await producer.commit_transaction()
        message = await asyncio.wait_for(waiting, 20)
        await producer.stop()
        await consumer.stop()
        value: bytes | None = message.value
        return value

    assert asyncio.run(exchange()) == b"1"
