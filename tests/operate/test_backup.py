"""Backup and restore as docs/operations/backup.md says: a copy of a stopped broker's folder."""

import shutil
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.client.registry_api import RegistryApi
from penstock.testing.embedded import EmbeddedBroker, EmbeddedRegistry

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'


def records(bootstrap: str) -> list[tuple[int, bytes | None]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    try:
        taken = consumer.consume(100, timeout=20)
        return [(each.offset() or 0, each.value()) for each in taken]
    finally:
        consumer.close()


def committed(bootstrap: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing"})
    try:
        return consumer.committed([TopicPartition("orders", 0)], timeout=20)[0].offset
    finally:
        consumer.close()


def test_a_restored_copy_has_the_same_records_groups_and_schemas(tmp_path: Path) -> None:
    folder, copy = tmp_path / "data", tmp_path / "backup"
    with EmbeddedBroker(folder) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(100):
            producer.produce("orders", b"%d" % number)
        assert producer.flush(30) == 0
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "billing"})
        consumer.commit(offsets=[TopicPartition("orders", 0, 42)], asynchronous=False)
        consumer.close()
        with EmbeddedRegistry(broker.bootstrap) as registry, RegistryApi(registry.url) as api:
            schema = {"schema": ORDER}
            registered = api.register("orders-value", schema)
        before = records(broker.bootstrap)
        broker.halt()
        shutil.copytree(folder, copy)
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    with EmbeddedBroker(folder) as restored:
        assert records(restored.bootstrap) == before
        assert len(before) == 100
        assert committed(restored.bootstrap) == 42
        with EmbeddedRegistry(restored.bootstrap) as registry, RegistryApi(registry.url) as api:
            assert api.register("orders-value", schema) == registered
