"""Real clients change from the classic to the consumer protocol and back, one after the other.

All members are polled in one thread, so their callbacks are in the true order of events: no member
may get a partition before its last owner was asked to revoke it.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.testing.embedded import EmbeddedBroker

PARTITIONS = 6
WAIT_S = 40
CLASSIC = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
CONSUMER = {"group.protocol": "consumer"}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    settings = {
        "group.min.session.timeout.ms": "1000",
        "group.initial.rebalance.delay.ms": "200",
        "group.consumer.heartbeat.interval.ms": "200",
        "group.consumer.min.heartbeat.interval.ms": "100",
    }
    with EmbeddedBroker(settings=settings) as broker:
        yield broker.bootstrap


class World:
    """A topic that is written to all the time, and the owners of its partitions."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap, self.name = bootstrap, name
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(10)
        self.owners: dict[int, Member] = {}
        self.read: list[int] = []
        self.written = 0
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})

    def write(self) -> None:
        for _ in range(10):
            partition = self.written % PARTITIONS
            self._producer.produce(self.name, str(self.written), partition=partition)
            self.written += 1
        assert self._producer.flush(10) == 0

    def settle(self, members: list["Member"]) -> None:
        """Continue until every member has an equal share, and a little longer."""
        share = PARTITIONS // len(members)
        self.run(members, lambda: all(len(m.consumer.assignment()) == share for m in members))
        seen = self.written
        self.run(members, lambda: self.written >= seen + 50)

    def run(self, members: list["Member"], is_done: Callable[[], bool]) -> None:
        until = time.monotonic() + WAIT_S
        while not is_done():
            parts = {m.label: sorted(p.partition for p in m.consumer.assignment()) for m in members}
            assert time.monotonic() < until, parts
            self.write()
            for member in members:
                member.poll()


class Member:
    """A consumer that commits when its partitions are revoked."""

    def __init__(self, world: World, label: str, settings: dict[str, Any]) -> None:
        self.world, self.label = world, label
        self.consumer = Consumer(
            {
                "bootstrap.servers": world.bootstrap,
                "group.id": f"group-{world.name}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **settings,
            }
        )
        self.consumer.subscribe(
            [world.name], on_assign=self._take, on_revoke=self._give, on_lost=self._lose
        )

    def _take(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for where in partitions:
            owner = self.world.owners.setdefault(where.partition, self)
            assert owner is self, f"{where.partition} is {owner.label}'s, not {self.label}'s"

    def _give(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        places = [p for p in consumer.position(partitions) if p.offset >= 0]
        if places:
            consumer.commit(offsets=places, asynchronous=False)
        self._remove(partitions)

    def _lose(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._remove(partitions)

    def _remove(self, partitions: list[TopicPartition]) -> None:
        for where in partitions:
            if self.world.owners.get(where.partition) is self:
                del self.world.owners[where.partition]

    def poll(self) -> None:
        for message in self.consumer.consume(100, 0.05):
            error = message.error()
            if error is not None and error.code() == KafkaError.REBALANCE_IN_PROGRESS:
                continue  # the group changed during a classic rebalance: the member joins again
            assert error is None, error
            value = message.value()
            assert value is not None
            self.world.read.append(int(value))


def group_type(bootstrap: str, group: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})  # must outlive the future
    listed = admin.list_consumer_groups().result(10).valid
    return next(str(row.type.name) for row in listed if row.group_id == group)


STRATEGIES = {
    "cooperative": {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky"},
    "eager": {**CLASSIC, "partition.assignment.strategy": "range"},
}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_rolling_upgrade_and_back_loses_nothing(bootstrap: str, strategy: str) -> None:
    world = World(bootstrap, strategy)
    group = f"group-{strategy}"
    classic = STRATEGIES[strategy]
    members = [Member(world, f"classic-{number}", classic) for number in range(3)]
    world.settle(members)
    for number in range(3):
        members.append(Member(world, f"consumer-{number}", CONSUMER))
        members.pop(0).consumer.close()
        world.settle(members)
        assert group_type(bootstrap, group) == "CONSUMER"
    for number in range(3):
        members.append(Member(world, f"back-{number}", classic))
        members.pop(0).consumer.close()
        world.settle(members)
        assert group_type(bootstrap, group) == ("CLASSIC" if number == 2 else "CONSUMER")
    world.run(members, lambda: set(world.read) >= set(range(world.written - 20)))
    for member in members:
        member.consumer.close()


def test_static_members_change_their_protocol_one_by_one(bootstrap: str) -> None:
    world = World(bootstrap, "static")
    members = [
        Member(world, f"classic-{n}", {**STRATEGIES["eager"], "group.instance.id": f"i{n}"})
        for n in range(2)
    ]
    world.settle(members)
    for settings in (CONSUMER, STRATEGIES["eager"]):
        for number in range(2):
            members[number].consumer.close()
            own = {**settings, "group.instance.id": f"i{number}"}
            members[number] = Member(world, f"next-{number}", own)
            world.settle(members)
    assert group_type(bootstrap, "group-static") == "CLASSIC"
    world.run(members, lambda: set(world.read) >= set(range(world.written - 20)))
    for member in members:
        member.consumer.close()
