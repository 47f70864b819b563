"""`penstock top`, `cluster info`, `tx list` and `topic trim`, on a platform in use."""

import json
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from typer.testing import CliRunner, Result

from penstock.cli.main import COMMANDS, build
from penstock.cli.top import SampleKey, summarize


def penstock(*words: str) -> Result:
    return CliRunner().invoke(build(list(COMMANDS)), list(words))


def test_the_cluster_is_shown_with_its_brokers(bootstrap: str) -> None:
    shown = json.loads(penstock("cluster", "info", "--json", "-b", bootstrap).output)
    assert [row["address"] for row in shown["brokers"]] == [bootstrap]
    assert shown["offline"] == 0
    assert "BROKER" in penstock("cluster", "info", "-b", bootstrap).output


def test_transactions_are_listed_by_state(topic: str, bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"x")
    producer.flush(30)
    listed = json.loads(penstock("tx", "list", "--open", "--json", "-b", bootstrap).output)
    assert topic in {row["transactional_id"] for row in listed}
    producer.commit_transaction(30)
    listed = json.loads(penstock("tx", "list", "--open", "--json", "-b", bootstrap).output)
    assert topic not in {row["transactional_id"] for row in listed}
    assert topic in penstock("tx", "list", "-b", bootstrap).output


def test_a_topic_is_trimmed(topic: str, bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(10):
        producer.produce(topic, b"x")
    assert producer.flush(30) == 0
    words = ("topic", "trim", topic, "--json", "-b", bootstrap)
    (row,) = json.loads(penstock(*words, "--before", "4").output)
    assert row["start_offset"] == 4
    (row,) = json.loads(penstock(*words, "--all").output)
    assert row["start_offset"] == 10
    assert penstock(*words).exit_code == 2


def test_top_shows_brokers_topics_and_groups(topic: str, bootstrap: str, registry_url: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"x")
    assert producer.flush(30) == 0
    group = f"{topic}-group"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()
    words = ("top", "--once", "--interval", "0.5", "-r", registry_url)

    def view() -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(penstock(*words, "--json").output)
        return shown

    (broker,) = view()["brokers"]
    assert broker["broker"] != registry_url.removeprefix("http://")
    assert broker["ready"] == 1
    assert broker["connections"] > 0
    assert topic in {row["topic"] for row in view()["topics"]} or len(view()["topics"]) == 15
    deadline = time.monotonic() + 30  # lag is computed every five seconds
    while group not in {row["group"] for row in view()["groups"]} and len(view()["groups"]) < 15:
        assert time.monotonic() < deadline
    assert any(row.get("lag_records", 0) > 0 for row in view()["groups"])
    assert "busy ratio" in penstock(*words).output


def test_top_shows_a_broker_that_recovers_and_no_http_process() -> None:
    def samples(process: str, **values: float) -> dict[SampleKey, float]:
        return {
            SampleKey(process, f"{process}:1", f"penstock_{name}", ()): value
            for name, value in values.items()
        }

    of_process = {"health_ready": 0.0, "loop_busy_ratio": 0.5, "process_resident_bytes": 1e6}
    after = samples("broker", **of_process) | samples("http", **of_process)
    (row,) = summarize(after, after, 1.0)["brokers"]
    assert row == {"broker": "broker:1", "ready": 0, "busy_ratio": 0.5, "memory_bytes": 1e6}


def test_top_names_the_address_that_does_not_respond() -> None:
    result = penstock("top", "--once", "-r", "http://127.0.0.1:1")
    assert result.exit_code != 0
    assert "http://127.0.0.1:1/metrics/targets" in result.output
