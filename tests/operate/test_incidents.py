"""Rehearsals of the incidents in docs/operations: caused, seen, handled as the page says."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client import CollectorRegistry, start_http_server
from typer.testing import CliRunner, Result

from penstock.cli.main import COMMANDS, build
from penstock.client.consumer import Consumer
from penstock.client.metrics import ClientMetrics
from penstock.client.registry import Registry
from penstock.serde.contract import Contract
from penstock.testing.embedded_cluster import EmbeddedCluster
from tests.operate.conftest import Prometheus, Watched, free_port, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
OPERATIONS = Path(__file__).parents[2] / "docs" / "operations"
ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
Watch = Callable[..., Watched]
WatchCluster = Callable[[], tuple[EmbeddedCluster, Prometheus]]


def penstock(*words: str) -> Result:
    """A command of the page."""
    result = CliRunner().invoke(build(list(COMMANDS)), list(words))
    assert result.exit_code == 0, result.output
    return result


def create_topic(bootstrap: str, name: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)


@contextmanager
def writing(bootstrap: str, topic: str, partition: Callable[[int], int]) -> Iterator[list[int]]:
    """A producer of 500 records a second; yields how many were sent."""
    producer = KafkaProducer(
        {"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True}
    )
    ends, sent = threading.Event(), [0]

    def write() -> None:
        while not ends.wait(0.02):
            for _ in range(10):
                producer.produce(topic, b"x" * 100, partition=partition(sent[0]))
                sent[0] += 1
            producer.poll(0)
        producer.flush(30)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield sent
    finally:
        ends.set()
        thread.join(40)


def test_every_incident_page_names_a_rehearsal_that_exists() -> None:
    here = Path(__file__).read_text()
    pages = [path.read_text() for path in OPERATIONS.glob("*.md")]
    named = [text.split("test_incidents.py::")[1].split("`")[0] for text in pages if "::" in text]
    assert len(named) == 8
    for name in named:
        assert f"def {name}(" in here


def test_a_broker_that_is_killed(watch: Watch) -> None:
    watched = watch()
    prometheus = watched.prometheus
    wait_until(lambda: prometheus.value("count(up == 1)") == 2, "both are scraped")
    watched.broker.kill()
    prometheus.wait_firing("PenstockProcessDown", process="broker")
    prometheus.wait_firing("PenstockNotReady", process="http")
    watched.broker.start()
    prometheus.wait_cleared("PenstockProcessDown")
    prometheus.wait_cleared("PenstockNotReady")
    assert prometheus.value("penstock_log_was_clean") == 0


def test_a_broker_of_a_cluster_that_is_lost(watch_cluster: WatchCluster) -> None:
    cluster, prometheus = watch_cluster()
    bootstrap = cluster.bootstrap
    topic = NewTopic("orders", 6, 3, config={"min.insync.replicas": "2"})
    cluster.admin.create_topics([topic])["orders"].result(30)
    cluster.wait_in_sync("orders")
    brokers = 'count(up{process="broker"} == 1)'
    wait_until(lambda: prometheus.value(brokers) == 3, "all brokers are scraped")
    lost = cluster.leader("orders")
    with writing(bootstrap, "orders", lambda number: number % 6) as sent:
        cluster.kill(lost)
        prometheus.wait_firing("PenstockBrokerMissing")
        prometheus.wait_firing("PenstockUnderReplicated")
        assert prometheus.firing("PenstockUnderMinIsr") is None
        shown = json.loads(penstock("cluster", "status", "--json", "-b", bootstrap).output)
        states = {row["broker"]: row["state"] for row in shown["brokers"]}
        assert states == {number: "fenced" if number == lost else "live" for number in (1, 2, 3)}
        before = sent[0]
        wait_until(lambda: sent[0] > before + 500, "records while the broker is missing")
        cluster.brokers[lost].start()
        prometheus.wait_cleared("PenstockBrokerMissing")
        prometheus.wait_cleared("PenstockUnderReplicated")
    assert prometheus.value("sum(penstock_cluster_elections_total)") != 0
    assert prometheus.value("sum(penstock_cluster_unclean_elections_total)") == 0
    ends = penstock("topic", "describe", "orders", "--json", "-b", bootstrap).output
    assert sum(row["end_offset"] for row in json.loads(ends)["partitions"]) == sent[0]


def test_a_registry_that_is_killed(watch: Watch) -> None:
    watched = watch()
    prometheus = watched.prometheus
    wait_until(lambda: prometheus.value("penstock_registry_primary") == 1, "a primary")
    watched.registry.kill()
    prometheus.wait_firing("PenstockRegistryDown")
    watched.registry.start()
    assert httpx.get(f"{watched.registry.url}/health/live").status_code == 200
    prometheus.wait_cleared("PenstockRegistryDown")


def test_a_disk_that_cannot_be_written(watch: Watch) -> None:
    watched = watch()
    bootstrap, prometheus = watched.bootstrap, watched.prometheus
    create_topic(bootstrap, "orders")
    with writing(bootstrap, "orders", lambda _: 0) as sent:
        wait_until(lambda: sent[0] > 100, "records")
        wait_until(lambda: prometheus.value("penstock_disk_free_bytes"), "the first scrape")
        watched.broker.fill_disk()
        prometheus.wait_firing("PenstockStorageErrors")
        assert (
            '"value"' in penstock("consume", "orders", "-n", "1", "--json", "-b", bootstrap).output
        )
        watched.broker.free_disk()
        prometheus.wait_cleared("PenstockStorageErrors")
        before = sent[0]
        wait_until(lambda: sent[0] > before + 100, "records again")
    assert "orders" in penstock("topic", "trim", "orders", "--before", "50", "-b", bootstrap).output


def test_a_hot_partition(watch: Watch) -> None:
    watched = watch()
    bootstrap, prometheus = watched.bootstrap, watched.prometheus
    create_topic(bootstrap, "orders", partitions=8)
    with writing(bootstrap, "orders", lambda _: 3):
        assert prometheus.wait_firing("PenstockHotPartition")["topic"] == "orders"
        shown = penstock("topic", "describe", "orders", "-b", bootstrap).output
        assert sum(row.split()[-1] != "0" for row in shown.splitlines()[1:9]) == 1
    with writing(bootstrap, "orders", lambda number: number % 8):
        prometheus.wait_cleared("PenstockHotPartition")


def test_a_group_that_does_not_advance(watch: Watch) -> None:
    watched = watch()
    bootstrap, prometheus = watched.bootstrap, watched.prometheus
    create_topic(bootstrap, "orders")
    consumer = KafkaConsumer({"bootstrap.servers": bootstrap, "group.id": "billing"})
    with writing(bootstrap, "orders", lambda _: 0):
        consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
        found = prometheus.wait_firing("PenstockGroupStuck")
        assert (found["group"], found["topic"]) == ("billing", "orders")
    assert "billing" in penstock("group", "describe", "billing", "-b", bootstrap).output
    words = ("--topic", "orders", "--to-latest", "--execute", "-b", bootstrap)
    penstock("group", "reset", "billing", *words)
    prometheus.wait_cleared("PenstockGroupStuck")
    consumer.close()


def test_a_slow_consumer(watch: Watch) -> None:
    watched = watch()
    bootstrap, prometheus = watched.bootstrap, watched.prometheus
    create_topic(bootstrap, "orders")
    consumer = KafkaConsumer({"bootstrap.servers": bootstrap, "group.id": "billing"})
    positions: list[int] = []

    def commit(offset: int) -> None:
        consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)

    with writing(bootstrap, "orders", lambda _: 0) as sent:
        commit(0)

        def is_reported() -> bool:
            """Commits what was written about 8 s ago, so the lag stays at that."""
            positions.append(sent[0])
            time.sleep(0.3)
            commit(positions[-26] if len(positions) > 26 else 0)
            return prometheus.firing("PenstockConsumerSlow") is not None

        wait_until(is_reported, "PenstockConsumerSlow fires", 120)
        assert (
            '"seconds"'
            in penstock("group", "describe", "billing", "--json", "-b", bootstrap).output
        )
    commit(sent[0])
    prometheus.wait_cleared("PenstockConsumerSlow")
    consumer.close()


def test_a_poison_event(watch: Watch) -> None:
    port = free_port()
    watched = watch(static=(f"127.0.0.1:{port}",))
    bootstrap, prometheus = watched.bootstrap, watched.prometheus
    create_topic(bootstrap, "orders")
    collectors = CollectorRegistry()
    server, thread = start_http_server(port, "127.0.0.1", registry=collectors)
    try:
        with (
            Registry(watched.registry.url, client="test") as registry,
            Consumer(
                bootstrap, "orders", "billing", registry=registry, value=Contract(ORDER)
            ) as consumer,
        ):
            collectors.register(ClientMetrics(registry, consumers=[consumer]))
            wait_until(lambda: prometheus.value("penstock_client_quarantined_total") == 0, "a zero")
            time.sleep(2)
            producer = KafkaProducer({"bootstrap.servers": bootstrap})

            def is_reported() -> bool:
                producer.produce("orders", b"not framed")
                producer.flush(20)
                assert not list(consumer.events(idle_s=1))
                alert = "PenstockUnreadableEvents"
                return prometheus.firing(alert, reason="not_framed") is not None

            wait_until(is_reported, "PenstockUnreadableEvents fires", 60)
            listed = penstock("quarantine", "list", "orders", "-b", bootstrap)
            assert "not_framed" in listed.output
            prometheus.wait_cleared("PenstockUnreadableEvents")
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
