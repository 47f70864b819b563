"""`penstock top`, `cluster info`, `tx list` and `topic trim`, on a platform in use."""

import json

from confluent_kafka import Producer
from typer.testing import CliRunner, Result

from penstock.cli.main import COMMANDS, build


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
    words = ("top", "--once", "--interval", "0.5", "-r", registry_url)
    view = json.loads(penstock(*words, "--json").output)
    assert [row["ready"] for row in view["brokers"] if "connections" in row] == [1.0]
    assert topic in {row["topic"] for row in view["topics"]} or len(view["topics"]) == 15
    assert "busy ratio" in penstock(*words).output


def test_top_names_the_address_that_does_not_respond() -> None:
    result = penstock("top", "--once", "-r", "http://127.0.0.1:1")
    assert result.exit_code != 0
    assert "http://127.0.0.1:1/metrics/targets" in result.output
