"""A platform on which every feature is used, and a Prometheus that sees every metric."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

import httpx
import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client import CollectorRegistry, start_http_server

from penstock.client.consumer import Consumer
from penstock.client.metrics import ClientMetrics
from penstock.client.producer import Producer
from penstock.client.registry import Registry
from penstock.metrics.metrics_page import ALL_ROWS
from penstock.metrics.row import MetricType
from penstock.serde.contract import Contract
from tests.operate.conftest import Watched, free_port, wait_until
from tests.operate.test_deploy_files import expressions

if TYPE_CHECKING:
    from collections.abc import Callable

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
pytestmark = pytest.mark.timeout(300)


def produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = KafkaProducer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value, key=value)
    assert producer.flush(30) == 0


def use_everything(watched: Watched, registry: Registry) -> Consumer:
    """Topics, a compacted one, transactions, a group, schemas, and events that cannot be read."""
    bootstrap = watched.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {"cleanup.policy": "compact", "segment.ms": "100", "flush.messages": "1"}
    topics = [NewTopic("orders", 4, 1), NewTopic("state", 1, 1, config=settings)]
    for future in admin.create_topics(topics).values():
        future.result(30)
    for _ in range(3):
        produce(bootstrap, "state", [b"a", b"b"])
        time.sleep(0.2)
    order = Contract(ORDER)
    with Producer(bootstrap, "orders", registry=registry, value=order) as producer:
        producer.send_many([{"id": number} for number in range(100)]).wait()
    transactional = KafkaProducer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    transactional.init_transactions(30)
    transactional.begin_transaction()
    transactional.produce("state", b"1", key=b"c")
    transactional.commit_transaction(30)
    produce(bootstrap, "orders", [b"not framed"])
    consumer = Consumer(bootstrap, "orders", "billing", registry=registry, value=order)
    assert len(list(consumer.events(idle_s=3))) == 100
    consumer.commit()
    return consumer


def test_prometheus_sees_every_metric_of_a_platform_in_use(
    watch: Callable[..., Watched],
) -> None:
    port = free_port()
    watched = watch(static=(f"127.0.0.1:{port}",), log_cleaner_backoff_ms="200")
    collectors = CollectorRegistry()
    server, thread = start_http_server(port, "127.0.0.1", registry=collectors)
    try:
        with (
            Registry(watched.registry.url, client="test") as registry,
            use_everything(watched, registry) as consumer,
        ):
            collectors.register(ClientMetrics(registry, consumers=[consumer]))
            prometheus = watched.prometheus
            expected = {
                row.name + ("_bucket" if row.kind is MetricType.HISTOGRAM else "")
                for row in ALL_ROWS
            }
            wait_until(lambda: not expected - prometheus.names(), "every metric", 40)
            check_values(watched)
            for expression in expressions():
                prometheus.query(expression)
            check_lint(watched)
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def check_values(watched: Watched) -> None:
    value = watched.prometheus.value
    assert value('penstock_broker_records_total{topic="orders"}') == 101
    produced = value('sum(penstock_broker_requests_total{api="Produce",result="ok"})')
    assert produced is not None
    assert produced > 3
    assert value("count(up == 1)") == 3
    assert value('penstock_group_members{group="billing"}') == 1
    assert value("penstock_registry_versions") == 1
    assert value("penstock_registry_apply_lag_records") == 0
    assert value('penstock_client_deserialize_errors_total{reason="not_framed"}') == 1
    assert value('penstock_client_deserialize_errors_total{reason="undecodable"}') == 0
    lag = 'penstock_group_lag_records{group="billing",topic="orders"}'
    wait_until(lambda: value(lag) == 0, "the group is at the end", 20)
    assert value("count(penstock_health_ready == 1)") == 2


def check_lint(watched: Watched) -> None:
    for url in (watched.broker_metrics(), watched.registry.url):
        text = httpx.get(f"{url}/metrics", timeout=20).text
        command = ["promtool", "check", "metrics"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
def test_lag_counts_up_to_the_last_stable_offset_and_past_markers(
    watch: Callable[..., Watched],
) -> None:
    watched = watch()
    bootstrap, value = watched.bootstrap, watched.prometheus.value
    records = 'penstock_group_lag_records{group="g",topic="t"}'
    seconds = 'penstock_group_lag_seconds{group="g",topic="t"}'
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic("t", 1, 1)]).values():
        future.result(30)
    consumer = KafkaConsumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    producer = KafkaProducer({"bootstrap.servers": bootstrap, "transactional.id": "x"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(5):
        producer.produce("t", b"x", timestamp=1000)  # as if from 1970: lag must not believe it
    producer.commit_transaction(30)
    consumer.commit(offsets=[TopicPartition("t", 0, 0)], asynchronous=False)
    wait_until(lambda: value(records) == 6, "five records and their marker", 30)
    consumer.commit(offsets=[TopicPartition("t", 0, 5)], asynchronous=False)
    wait_until(lambda: value(records) == 0, "a marker is nothing to read", 30)
    assert value(seconds) == 0
    producer.begin_transaction()
    producer.produce("t", b"open", timestamp=1000)
    producer.flush(20)
    time.sleep(6)
    assert value(records) == 0, "an open transaction is nothing to read"
    producer.commit_transaction(30)
    wait_until(lambda: value(records), "a committed record", 30)
    wait_until(lambda: 0 < (value(seconds) or 0) < 60, "by the time of its append", 30)
    consumer.close()
