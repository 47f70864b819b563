"""`penstock cluster`: brokers, partitions that are not in sync and why, voters."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from typer.testing import CliRunner

from penstock.cli.cluster_report import led_by_others, problem_counts, problems, under_replicated
from penstock.cli.main import build
from penstock.link.topic_admin import PartitionDescription, TopicDescription
from penstock.node.broker_process import BrokerOptions
from penstock.protocol.messages.cluster import DescribedBroker
from penstock.testing.embedded import EmbeddedBroker
from penstock.testing.embedded_cluster import EmbeddedCluster


def run(*words: str) -> Any:
    """The JSON that a command prints."""
    result = CliRunner().invoke(build(["cluster"]), ["cluster", *words, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def row(index: int, leader: int, in_sync: list[int]) -> PartitionDescription:
    return PartitionDescription(index, leader, (1, 2, 3), tuple(in_sync))


def test_partitions_that_are_not_in_sync_are_shown_with_the_replica_that_is_missing() -> None:
    partitions = [row(0, 1, [1, 2, 3]), row(1, 1, [1, 3]), row(2, 1, [1]), row(3, -1, [2])]
    brokers = [DescribedBroker(1, "h", 1), DescribedBroker(2, "h", 2, None, True)]
    affected = under_replicated([TopicDescription("orders", False, tuple(partitions))])
    rows = problems(affected, {"orders": 2}, brokers)
    assert [(each.partition, each.leader, each.missing) for each in rows] == [
        ("orders-3", None, {1: "lagging", 2: "fenced", 3: "not registered"}),
        ("orders-2", 1, {2: "fenced", 3: "not registered"}),
        ("orders-1", 1, {2: "fenced", 3: "not registered"}),
    ]
    assert problem_counts(rows) == {"under_replicated": 3, "under_min_insync": 2, "offline": 1}


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    give_up_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.1)


@pytest.mark.timeout(240)
def test_status_shows_a_broker_that_was_killed_and_what_it_misses(
    penstock_cluster: EmbeddedCluster,
) -> None:
    cluster = penstock_cluster
    topic = NewTopic("shown", num_partitions=3)
    cluster.admin.create_topics([topic])["shown"].result(30)
    cluster.wait_in_sync("shown")
    status = run("status", "-b", cluster.bootstrap)
    assert [each["state"] for each in status["brokers"]] == ["live"] * 3
    assert status["controller"] in (1, 2, 3)
    cluster.kill(2)
    others = ",".join(cluster.brokers[number].bootstrap for number in (1, 3))
    until(lambda: run("status", "-b", others)["brokers"][1]["state"] == "fenced")
    status = run("status", "-b", others)
    assert [each["state"] for each in status["brokers"]] == ["live", "fenced", "live"]
    assert status["partitions"]["under_replicated"] >= 3
    assert {"2": "fenced"} in [each["missing"] for each in status["problems"]]
    assert (status["partitions"]["under_min_insync"], status["partitions"]["offline"]) == (0, 0)
    text = CliRunner().invoke(build(["cluster"]), ["cluster", "status", "-b", others]).stdout
    assert "2 (fenced)" in text


def test_partitions_that_their_preferred_replica_does_not_lead_are_found() -> None:
    partitions = [row(0, 1, [1, 2, 3]), row(1, 2, [2, 3]), row(2, -1, [])]
    assert led_by_others([TopicDescription("orders", False, tuple(partitions))]) == {
        "orders": [1, 2]
    }


@pytest.mark.timeout(240)
def test_preferred_replicas_lead_again_after_an_election(penstock_cluster: EmbeddedCluster) -> None:
    cluster = penstock_cluster
    topic = NewTopic("elected", num_partitions=3)
    cluster.admin.create_topics([topic])["elected"].result(30)
    cluster.wait_in_sync("elected")
    cluster.kill(1)
    until(lambda: 1 not in {cluster.leader("elected", index) for index in range(3)})
    refused = CliRunner().invoke(
        build(["cluster"]), ["cluster", "elect", "elected", "-b", cluster.bootstrap]
    )
    assert (refused.exit_code, "Broker 1 is not in sync" in refused.output) == (1, True)
    cluster.restart(1)
    cluster.wait_in_sync("elected")
    assert len(run("elect", "elected", "-b", cluster.bootstrap)["elected"]) == 1
    until(lambda: {cluster.leader("elected", index) for index in range(3)} == {1, 2, 3})
    assert run("elect", "elected", "-b", cluster.bootstrap) == {"elected": [], "refused": {}}


def roles(bootstrap: str, *words: str) -> dict[int, str]:
    replicas = run("voters", *words, "-b", bootstrap)["replicas"]
    return {each["replica"]: each["role"] for each in replicas}


BEFORE = [b"event %d" % number for number in range(20)]
COMMITTED = 7


def use(bootstrap: str) -> None:
    """A topic with records, and a group that has committed an offset."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in BEFORE:
        producer.produce("kept", value, partition=0)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition("kept", 0, COMMITTED)], asynchronous=False)
    consumer.close()


def check_use(bootstrap: str) -> None:
    """What `use` left is there."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
    (row,) = consumer.committed([TopicPartition("kept", 0)], timeout=60)
    assert row.offset == COMMITTED
    consumer.assign([TopicPartition("kept", 0, 0)])
    values: list[bytes | None] = []
    give_up_at = time.monotonic() + 60
    while len(values) < len(BEFORE) and time.monotonic() < give_up_at:
        values += [each.value() for each in consumer.consume(100, 1.0) if each.error() is None]
    consumer.close()
    assert values == BEFORE


def replicas(bootstrap: str, topic: str) -> set[int]:
    """How many replicas its partitions have."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    partitions = admin.list_topics(topic, timeout=30).topics[topic].partitions
    return {len(each.replicas) for each in partitions.values()}


@pytest.mark.timeout(300)
def test_a_single_broker_with_data_grows_by_brokers_that_join_and_get_votes(
    tmp_path: Path,
) -> None:
    first = EmbeddedBroker(tmp_path / "1").start()
    use(first.bootstrap)
    others = [
        EmbeddedBroker(
            options=BrokerOptions(
                str(tmp_path / str(number)), kafka_port=0, node_id=number, join=first.bootstrap,
                quick=True, metrics_port=0, log_level="ERROR",
            )
        )
        for number in (2, 3)
    ]  # fmt: skip
    try:
        others[0].start()
        assert roles(first.bootstrap) == {1: "leader", 2: "observer"}
        assert roles(first.bootstrap, "add", "2") == {1: "leader", 2: "voter"}
        others[1].start()
        assert roles(first.bootstrap, "add", "3") == {1: "leader", 2: "voter", 3: "voter"}
        assert roles(first.bootstrap, "remove", "3")[3] == "observer"
        assert roles(first.bootstrap, "add", "3")[3] == "voter"
        first.kill()
        left = ",".join(other.bootstrap for other in others)
        until(lambda: "leader" in roles(left).values())
        first.restart()
        check_use(left)
        run_alter = ["cluster", "alter", "-b", left]
        for setting in ("default.replication.factor=3", "min.insync.replicas=2"):
            run_alter += ["-c", setting]
        assert CliRunner().invoke(build(["cluster"]), run_alter).exit_code == 0
        admin = AdminClient({"bootstrap.servers": left})
        admin.create_topics([NewTopic("new", num_partitions=1)])["new"].result(60)
        assert replicas(left, "new") == {3}
        assert replicas(left, "kept") == replicas(left, "__consumer_offsets") == {1}
        use(left)
    finally:
        for broker in (first, *others):
            broker.halt(hand_over=False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["voters", "add", "7"], "does not follow the cluster's metadata"),
        (["voters", "remove", "7"], "broker 7 is not a voter"),
        (["voters", "add", "1"], "broker 1 is a voter already"),
        (["elect", "no-such-topic"], "no such topic: no-such-topic"),
        (["alter", "--unset", "min.insync.replicas"], "Cannot remove these configs"),
        (["alter", "-c", "num.partitions=3"], "Cannot update these configs dynamically"),
    ],
)
def test_changes_that_cannot_be_are_refused(
    penstock_cluster: EmbeddedCluster, words: list[str], message: str
) -> None:
    result = CliRunner().invoke(
        build(["cluster"]), ["cluster", *words, "-b", penstock_cluster.bootstrap]
    )
    assert (result.exit_code, message in result.output) == (1, True), result.output


def test_a_change_of_voters_names_a_broker() -> None:
    assert CliRunner().invoke(build(["cluster"]), ["cluster", "voters", "add"]).exit_code == 2
