"""A platform on which every feature is used, and a Prometheus that sees every metric."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import contextmanager
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
from penstock.errors import ErrorCode
from penstock.metrics.metrics_page import ALL_ROWS
from penstock.metrics.row import MetricType
from penstock.serde.contract import Contract
from tests.operate.conftest import Watched, free_port, wait_until
from tests.operate.test_deploy_files import expressions
from tests.support.sse_client import sse
from tests.support.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
ALTER_CLIENT_QUOTAS = 49
pytestmark = pytest.mark.timeout(300)


def produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = KafkaProducer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value, key=value)
    assert producer.flush(30) == 0


def use_everything(watched: Watched, registry: Registry) -> Consumer:
    """Topics, a compacted one, transactions, a group, schemas, and events that cannot be read.

    Also a client above its quota, and requests that are refused.
    """
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
    exceed_quota(bootstrap)
    consumer = Consumer(bootstrap, "orders", "billing", registry=registry, value=order)
    assert len(list(consumer.events(idle_s=3))) == 100
    consumer.commit()
    return consumer


def exceed_quota(bootstrap: str) -> None:
    """A client that writes more than its quota allows."""
    entity = [{"entity_type": "client-id", "entity_name": "busy"}]
    limit = [{"key": "producer_byte_rate", "value": 10_000.0, "remove": False}]
    with Wire(int(bootstrap.rpartition(":")[2])) as wire:
        (row,) = wire.call(
            ALTER_CLIENT_QUOTAS, 1, entries=[{"entity": entity, "ops": limit}]
        ).entries
    assert row.error_code == ErrorCode.none
    producer = KafkaProducer({"bootstrap.servers": bootstrap, "client.id": "busy"})
    for _ in range(3):
        producer.produce("busy", os.urandom(10_000))
        producer.flush(1)
    assert producer.flush(30) == 0


@contextmanager
def use_gateway(url: str) -> Iterator[None]:
    """Events in and out over HTTP, one that cannot be read, an error; a stream that stays open."""
    records = [{"value": 1}, {"value_base64": "AAD///8C"}, {"value": 3}]  # of an unknown schema
    with httpx.Client(base_url=url, timeout=30) as http:
        http.post("/topics", json={"name": "web"}).raise_for_status()
        http.post("/topics/web/produce", json={"records": records}).raise_for_status()
        http.get("/topics/web/partitions/0/events").raise_for_status()
        wanted = {"topics": ["web"], "on_decode_error": "quarantine"}
        joined = http.post("/consumer-groups/web/subscribe", json=wanted).raise_for_status()
        member = f"/consumer-groups/web/members/{joined.json()['member']}"
        http.get(f"{member}/events", params={"max_wait_ms": 10_000}).raise_for_status()
        http.delete(member).raise_for_status()
        assert http.get("/subjects/none/versions").status_code == 404
    with sse(f"{url}/topics/web/stream?offset=earliest") as stream:
        assert stream.take(1)
        yield


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
            use_gateway(watched.registry.url),
        ):
            collectors.register(ClientMetrics(registry, consumers=[consumer]))
            prometheus = watched.prometheus
            expected = {
                row.name + ("_bucket" if row.kind is MetricType.HISTOGRAM else "")
                for row in ALL_ROWS
            }
            wait_until(lambda: not expected - prometheus.names(), "every metric", 40)
            check_values(watched)
            check_counters(watched)
            for expression in expressions():
                prometheus.query(expression)
            check_lint(watched, f"http://127.0.0.1:{port}")
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


# What the test uses must be counted.
USED = (
    'broker_requests_total{api="Fetch",result="ok"}', 'broker_requests_total{result="error"}',
    'broker_request_seconds_count{api="Produce"}', 'broker_wait_seconds_count{api="Fetch"}',
    'broker_received_bytes_total{topic="orders"}', 'broker_sent_bytes_total{topic="orders"}',
    'broker_batch_bytes_count', 'broker_errors_total', 'broker_connections',
    'broker_connections_accepted_total', 'broker_throttled_seconds_total{quota="produce"}',
    'cluster_brokers', 'cluster_topics', 'cluster_active_controller',
    'broker_partitions{role="leader"}', 'log_size_bytes{topic="orders"}', 'log_segments',
    'log_flush_seconds_count', 'log_recovery_seconds', 'disk_free_bytes',
    'compactions_total{result="done"}', 'compaction_last_run_timestamp_seconds',
    'compaction_removed_bytes_total', 'upkeep_rounds_total{duty="compaction",result="done"}',
    'groups', 'group_rebalances_total{group="billing"}',
    'http_requests_total{route="topics",code="2xx"}', 'http_requests_total{code="4xx"}',
    'http_request_seconds_count{route="topics"}', 'http_kafka_reachable', 'registry_primary',
    'registry_subjects', 'registry_log_end_offset',
    'gateway_operations_total{operation="records_written"}',
    'gateway_operations_total{operation="events_fetched"}',
    'gateway_operations_total{operation="events_quarantined"}',
    'streams_open', 'streams_chunks_total', 'streams_fetches_total',
    'client_registry_requests_total', 'client_serde_events_total{direction="read"}',
    'client_serde_latency_seconds_count{direction="read"}', 'client_consumer_records_total',
    'client_quarantined_total',
)  # fmt: skip


def check_counters(watched: Watched) -> None:
    def unused() -> list[str]:
        value = watched.prometheus.value
        return [each for each in USED if not value(f"sum(penstock_{each})")]

    deadline = time.monotonic() + 40
    while unused() and time.monotonic() < deadline:
        time.sleep(0.5)
    assert unused() == []


def check_lint(watched: Watched, client_url: str) -> None:
    for url in (watched.broker_metrics(), watched.registry.url, client_url):
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
