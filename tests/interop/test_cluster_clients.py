"""Clients that know one broker of a cluster work with all of it, whichever broker that is."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # undeclared
from kafka import KafkaConsumer, KafkaProducer

from penstock.testing.embedded_cluster import EmbeddedCluster
from tests.support.apache_kafka import run_tool

JAVA = Path(__file__).parent / "java"
COUNT = 30
VALUES = [b"%d" % number for number in range(COUNT)]


def with_confluent_kafka(bootstrap: str, topic: str) -> list[bytes]:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    messages = consumer.consume(COUNT, 30)
    values = [message.value() or b"" for message in messages if not message.error()]
    consumer.commit(asynchronous=False)
    consumer.close()
    return values


def with_aiokafka(bootstrap: str, topic: str) -> list[bytes]:
    async def run() -> list[bytes]:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value)
        values: list[bytes] = []
        async with AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest"
        ) as consumer:
            while len(values) < COUNT:
                message = await asyncio.wait_for(consumer.getone(), 30)
                values.append(message.value)
            await consumer.commit()
        return values

    return asyncio.run(run())


def with_kafka_python(bootstrap: str, topic: str) -> list[bytes]:
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    for value in VALUES:
        producer.send(topic, value)
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest",
        consumer_timeout_ms=30_000,
    )  # fmt: skip
    values = []
    for message in consumer:
        values.append(message.value)
        if len(values) == COUNT:
            break
    consumer.commit()
    consumer.close()
    return values


@pytest.mark.timeout(180)
@pytest.mark.parametrize("broker", [1, 2, 3])
@pytest.mark.parametrize("client", [with_confluent_kafka, with_aiokafka, with_kafka_python])
def test_a_client_works_through_any_broker(
    penstock_cluster: EmbeddedCluster, client: Callable[[str, str], list[bytes]], broker: int
) -> None:
    topic = f"{client.__name__}-{broker}-{uuid4().hex[:8]}"
    assert sorted(client(penstock_cluster.brokers[broker].bootstrap, topic)) == sorted(VALUES)


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.timeout(300)
@pytest.mark.parametrize("broker", [1, 2, 3])
def test_the_tools_of_apache_kafka_describe_the_quorum_and_topics_through_any_broker(
    penstock_cluster: EmbeddedCluster, kafka_libs: Path, broker: int
) -> None:
    server = ("--bootstrap-server", penstock_cluster.brokers[broker].bootstrap)
    tools = "org.apache.kafka.tools"
    status = run_tool(kafka_libs, f"{tools}.MetadataQuorumCommand", *server, "describe", "--status")
    assert re.search(r"^LeaderId:\s+[123]$", status, re.MULTILINE), status
    replicas = run_tool(
        kafka_libs, f"{tools}.MetadataQuorumCommand", *server, "describe", "--replication"
    )
    roles = [line.split()[-1] for line in replicas.splitlines()[1:] if line.strip()]
    assert sorted(roles) == ["Follower", "Follower", "Leader"], replicas
    topic = f"tools-{broker}-{uuid4().hex[:8]}"
    created = run_tool(kafka_libs, f"{tools}.TopicCommand", *server, "--create", "--topic", topic)
    assert f"Created topic {topic}." in created
    described = run_tool(
        kafka_libs, f"{tools}.TopicCommand", *server, "--describe", "--topic", topic
    )
    assert "ReplicationFactor: 3" in described


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.timeout(300)
@pytest.mark.parametrize("broker", [1, 2, 3])
def test_the_admin_client_of_java_works_through_any_broker(
    penstock_cluster: EmbeddedCluster, kafka_libs: Path, broker: int
) -> None:
    topic = f"admin-{broker}-{uuid4().hex[:8]}"
    bootstrap = penstock_cluster.brokers[broker].bootstrap
    said = run_tool(kafka_libs, str(JAVA / "ClusterAdmin.java"), bootstrap, topic)
    assert said.splitlines() == [
        "brokers [1, 2, 3]",
        "voters [1, 2, 3]",
        "replicas 3",
        "partitions 3",
        "retention 3600000",
        "start 4",
        "end 10",
        "logs 3",
        "election ElectionNotNeededException",
        "reassignments 0",
        "deleted true",
    ]


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.timeout(300)
def test_the_election_tool_of_apache_kafka_returns_leaders_to_their_preferred_replicas(
    penstock_cluster: EmbeddedCluster, kafka_libs: Path
) -> None:
    cluster, topic = penstock_cluster, f"elected-{uuid4().hex[:8]}"
    new = NewTopic(topic, num_partitions=3)
    cluster.admin.create_topics([new])[topic].result(30)
    cluster.restart(2)
    cluster.wait_in_sync(topic)
    assert {cluster.leader(topic, index) for index in range(3)} == {1, 3}
    tool = "org.apache.kafka.tools.LeaderElectionCommand"
    words = ("--election-type", "preferred", "--all-topic-partitions")
    said = run_tool(kafka_libs, tool, "--bootstrap-server", cluster.bootstrap, *words)
    assert f"{topic}-" in said
    assert {cluster.leader(topic, index) for index in range(3)} == {1, 2, 3}
