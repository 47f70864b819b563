"""Real clients in groups on a real broker: eager, cooperative, consumer protocol, static."""

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.testing.embedded import EmbeddedBroker

PARTITIONS = 6
RECORDS = 300
WAIT_S = 40


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    settings = {
        "group.min.session.timeout.ms": "1000",
        "group.consumer.heartbeat.interval.ms": "200",
        "group.consumer.min.heartbeat.interval.ms": "100",
    }
    with EmbeddedBroker(settings=settings) as broker:
        yield broker.bootstrap


@pytest.fixture
def topic(bootstrap: str, request: pytest.FixtureRequest) -> str:
    """A new topic with numbers in it."""
    name = f"t{abs(hash(request.node.nodeid))}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(10)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(name, str(number), partition=number % PARTITIONS)
    assert producer.flush(10) == 0
    return name


class Member:
    """A confluent-kafka consumer that remembers what it read, and its assignments."""

    def __init__(self, bootstrap: str, group: str, topic: str, **settings: Any) -> None:
        self.rebalances = 0
        self.read: list[int] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **({} if settings.get("group.protocol") else {"session.timeout.ms": 6000}),
                **({} if settings.get("group.protocol") else {"heartbeat.interval.ms": 200}),
                **settings,
            }
        )
        self.consumer.subscribe([topic], on_assign=self._count, on_revoke=self._count)

    def _count(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.rebalances += 1

    def poll(self) -> None:
        for message in self.consumer.consume(100, 0.1):
            assert message.error() is None, message.error()
            value = message.value()
            assert value is not None
            self.read.append(int(value))

    @property
    def owned(self) -> set[int]:
        return {where.partition for where in self.consumer.assignment()}


def poll_until(members: list[Member], is_done: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_S
    while not is_done():
        assert time.monotonic() < until, [sorted(member.owned) for member in members]
        for member in members:
            member.poll()


def is_spread(members: list[Member]) -> bool:
    """Every member has an equal share and every partition one owner."""
    parts = [member.owned for member in members]
    share = PARTITIONS // len(members)
    return all(len(part) == share for part in parts) and len(set().union(*parts)) == PARTITIONS


PROTOCOLS = {
    "eager": {"partition.assignment.strategy": "range"},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
    "consumer-range": {"group.protocol": "consumer", "group.remote.assignor": "range"},
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_share_a_topic_and_take_over_from_each_other(
    bootstrap: str, topic: str, protocol: str
) -> None:
    group = f"share-{protocol}"
    members = [Member(bootstrap, group, topic, **PROTOCOLS[protocol])]
    poll_until(members, lambda: len(members[0].read) == RECORDS)
    members[0].consumer.commit(asynchronous=False)
    members += [Member(bootstrap, group, topic, **PROTOCOLS[protocol]) for _ in range(2)]
    poll_until(members, lambda: is_spread(members))
    owned_before = members[0].owned
    members.pop().consumer.close()
    poll_until(members, lambda: is_spread(members))
    if protocol in ("cooperative", "consumer"):
        assert owned_before <= members[0].owned, "partitions do not move without need"
    assert sorted(number for member in members for number in member.read) == list(range(RECORDS))
    for member in members:
        member.consumer.close()


@pytest.mark.parametrize("protocol", ["eager", "consumer"])
def test_a_successor_continues_where_the_group_was(
    bootstrap: str, topic: str, protocol: str
) -> None:
    first = Member(bootstrap, f"go-on-{protocol}", topic, **PROTOCOLS[protocol])
    poll_until([first], lambda: len(first.read) >= 100)
    first.consumer.commit(asynchronous=False)
    first.consumer.close()
    second = Member(bootstrap, f"go-on-{protocol}", topic, **PROTOCOLS[protocol])
    poll_until([second], lambda: len(first.read) + len(second.read) >= RECORDS)
    assert sorted(first.read + second.read) == list(range(RECORDS))
    second.consumer.close()


def test_a_static_member_that_restarts_causes_no_rebalance(bootstrap: str, topic: str) -> None:
    members = [
        Member(bootstrap, "static", topic, **{"group.instance.id": f"instance-{number}"})
        for number in range(2)
    ]
    poll_until(members, lambda: is_spread(members))
    before = members[0].rebalances
    had = members[1].owned
    members[1].consumer.close()
    members[1] = Member(bootstrap, "static", topic, **{"group.instance.id": "instance-1"})
    poll_until(members, lambda: is_spread(members))
    assert members[1].owned == had
    assert members[0].rebalances == before
    for member in members:
        member.consumer.close()


def test_a_fenced_static_member_gets_an_error(bootstrap: str, topic: str) -> None:
    first = Member(bootstrap, "fenced", topic, **{"group.instance.id": "one"})
    poll_until([first], lambda: len(first.owned) == PARTITIONS)
    second = Member(bootstrap, "fenced", topic, **{"group.instance.id": "one"})
    poll_until([second], lambda: len(second.owned) == PARTITIONS)
    until = time.monotonic() + WAIT_S
    codes: set[str] = set()
    while "_FATAL" not in codes and time.monotonic() < until:
        message = first.consumer.poll(0.2)
        if message is not None and (error := message.error()) is not None:
            codes.add(error.name())
    assert "_FATAL" in codes
    second.consumer.close()
    first.consumer.close()


def test_a_pattern_of_the_consumer_protocol_follows_new_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("pattern-1", 1, 1)])["pattern-1"].result(10)
    member = Member(bootstrap, "pattern", "^pattern-.*", **PROTOCOLS["consumer"])
    poll_until([member], lambda: len(member.consumer.assignment()) == 1)
    admin.create_topics([NewTopic("pattern-2", 2, 1)])["pattern-2"].result(10)
    poll_until([member], lambda: len(member.consumer.assignment()) == 3)
    member.consumer.close()


def test_administrators_see_and_remove_groups(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    member = Member(bootstrap, "seen", topic)
    poll_until([member], lambda: len(member.read) == RECORDS)
    member.consumer.commit(asynchronous=False)
    described = admin.describe_consumer_groups(["seen"])["seen"].result(10)
    assert described.state.name == "STABLE"
    assert described.partition_assignor == "range"
    (seen,) = described.members
    assert {where.partition for where in seen.assignment.topic_partitions} == member.owned
    listed = admin.list_consumer_groups().result(10).valid
    assert ("seen", "STABLE", "CLASSIC") in [
        (g.group_id, g.state.name, g.type.name) for g in listed
    ]
    member.consumer.close()
    admin.delete_consumer_groups(["seen"])["seen"].result(10)
    listed = admin.list_consumer_groups().result(10).valid
    assert "seen" not in [g.group_id for g in listed]


def is_at(member: Member, offset: int) -> bool:
    """Whether it has read so far in each of its partitions."""
    consumer = member.consumer
    return all(place.offset == offset for place in consumer.position(consumer.assignment()))


def test_a_group_survives_a_killed_broker() -> None:
    with EmbeddedBroker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(10)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(RECORDS):
            producer.produce("t", str(number), partition=number % PARTITIONS)
        assert producer.flush(10) == 0
        members = [Member(broker.bootstrap, "g", "t"), Member(broker.bootstrap, "g", "t")]
        poll_until(members, lambda: is_spread(members))
        # The reader of a partition before the second member joined no longer owns it: what is
        # committed below is what its present owner has read.
        poll_until(members, lambda: all(is_at(m, RECORDS // PARTITIONS) for m in members))
        for member in members:
            member.consumer.commit(asynchronous=False)
        before = [member.rebalances for member in members]
        broker.kill()
        broker.start()
        for number in range(RECORDS, RECORDS + 60):
            producer.produce("t", str(number), partition=number % PARTITIONS)
        assert producer.flush(20) == 0

        def seen() -> set[int]:
            return {number for member in members for number in member.read}

        poll_until(members, lambda: len(seen()) == RECORDS + 60)
        assert [member.rebalances for member in members] == before, "no member had to join again"
        offsets = members[0].consumer.committed([TopicPartition("t", 0)], 10)
        assert offsets[0].offset == RECORDS // PARTITIONS
        for member in members:
            member.consumer.close()


def test_aiokafka_members_share_a_topic(bootstrap: str, topic: str) -> None:
    async def consume() -> set[int]:
        members = [
            aiokafka.AIOKafkaConsumer(
                topic,
                bootstrap_servers=bootstrap,
                group_id="aio",
                auto_offset_reset="earliest",
                session_timeout_ms=6000,
                heartbeat_interval_ms=200,
            )
            for _ in range(2)
        ]
        await asyncio.gather(*(member.start() for member in members))
        read: set[int] = set()
        async with asyncio.timeout(WAIT_S):
            while len(read) < RECORDS or any(len(m.assignment()) != 3 for m in members):
                for member in members:
                    for batch in (await member.getmany(timeout_ms=200)).values():
                        read |= {int(record.value) for record in batch}
        await members[0].commit()
        for member in members:
            await member.stop()
        return read

    assert asyncio.run(consume()) == set(range(RECORDS))


def test_kafka_python_reads_and_commits(bootstrap: str, topic: str) -> None:
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id="kafka-python",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=WAIT_S * 1000,
    )
    read = set()
    for record in consumer:
        read.add(int(record.value))
        if len(read) == RECORDS:
            break
    consumer.commit()
    where = kafka.TopicPartition(topic, 0)
    assert consumer.committed(where) == RECORDS // PARTITIONS
    consumer.close()
    assert read == set(range(RECORDS))


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (make tools)")
def test_kcat_consumes_in_a_group(bootstrap: str, topic: str) -> None:
    command = ["kcat", "-b", bootstrap, "-G", "kcat", "-X", "auto.offset.reset=earliest"]
    said = subprocess.run(
        [*command, "-c", str(RECORDS), "-J", "-q", topic],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    )
    values = {int(json.loads(line)["payload"]) for line in said.stdout.splitlines()}
    assert values == set(range(RECORDS))
