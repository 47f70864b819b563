"""A cluster that loses brokers while it is written to: what was acknowledged is read, once."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # undeclared

from penstock.testing.embedded_cluster import EmbeddedCluster

PARTITIONS = 3
ROUNDS = 20
PAUSE_S = 5.0
WAIT_S = 60.0


class Writer:
    """Writes numbered messages with acks=all until it is stopped, and notes what was confirmed."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.errors: list[Any] = []
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2,
                "socket.timeout.ms": 10_000, "retry.backoff.ms": 50, "log_level": 0,
            }
        )  # fmt: skip
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopping.set()
        self._thread.join()
        assert self._producer.flush(WAIT_S) == 0

    def wait_for(self, more: int) -> None:
        """Wait until this many more messages are acknowledged."""
        goal, give_up_at = len(self.acknowledged) + more, time.monotonic() + WAIT_S
        while len(self.acknowledged) < goal:
            assert time.monotonic() < give_up_at, "nothing is acknowledged any more"
            time.sleep(0.01)

    def _write(self) -> None:
        number = 0
        while not self._is_stopping.is_set():
            try:
                self._producer.produce(self._topic, b"%d" % number, on_delivery=self._delivered)
                number += 1
            except BufferError:
                pass
            self._producer.poll(0.001)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.acknowledged[message.partition(), message.offset()] = message.value()


def read_all(bootstrap: str, topic: str) -> dict[tuple[int, int], bytes]:
    """Every message of the topic by partition and offset."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    messages: dict[tuple[Any, Any], Any] = {}
    ends = 0
    while ends < PARTITIONS:
        message = consumer.poll(WAIT_S)
        assert message is not None, "the topic cannot be read to its end"
        if message.error() is not None:
            ends += 1
        else:
            messages[message.partition(), message.offset()] = message.value()
    consumer.close()
    return messages


@contextmanager
def checked_writes(cluster: EmbeddedCluster, topic: str) -> Iterator[Writer]:
    """Write during the block; then everything acknowledged must be read, exactly once."""
    new = NewTopic(topic, num_partitions=PARTITIONS)
    cluster.admin.create_topics([new])[topic].result(WAIT_S)
    with Writer(cluster.bootstrap, topic) as writer:
        writer.wait_for(100)
        yield writer
    cluster.heal()
    messages = read_all(cluster.bootstrap, topic)
    assert writer.errors == []
    lost = [at for at, value in writer.acknowledged.items() if messages.get(at) != value]
    assert lost == []
    assert [value for value, count in Counter(messages.values()).items() if count > 1] == []


@pytest.mark.timeout(180)
def test_nothing_acknowledged_is_lost_when_a_leader_is_killed(
    penstock_cluster: EmbeddedCluster,
) -> None:
    cluster = penstock_cluster
    with checked_writes(cluster, "one-kill") as writer:
        victim = cluster.leader("one-kill")
        cluster.kill(victim)
        writer.wait_for(100)
        cluster.restart(victim)
        cluster.wait_in_sync("one-kill")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_nothing_acknowledged_is_lost_in_many_failures(penstock_cluster: EmbeddedCluster) -> None:
    cluster, topic = penstock_cluster, "many-failures"
    with checked_writes(cluster, topic) as writer:
        for round_number in range(ROUNDS):
            victim = cluster.leader(topic, round_number % PARTITIONS)
            if round_number % 3 == 1:
                cluster.pause(victim)
                time.sleep(PAUSE_S)
                cluster.resume(victim)
            else:
                cluster.kill(victim)
                writer.wait_for(50)
                cluster.restart(victim)
            if round_number % 3 == 2:  # then another one, as soon as the first is back
                cluster.wait_in_sync(topic)
                other = cluster.leader(topic, (round_number + 1) % PARTITIONS)
                cluster.kill(other)
                writer.wait_for(50)
                cluster.restart(other)
            cluster.wait_in_sync(topic)
            writer.wait_for(50)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_brokers_restarted_one_after_the_other_cost_no_error(
    penstock_cluster: EmbeddedCluster,
) -> None:
    cluster = penstock_cluster
    with checked_writes(cluster, "rolling") as writer:
        for number in cluster.brokers:
            cluster.restart(number)
            cluster.wait_in_sync("rolling")
            writer.wait_for(50)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_writes_wait_while_two_of_three_brokers_are_down_and_continue_when_one_is_back(
    penstock_cluster: EmbeddedCluster,
) -> None:
    cluster = penstock_cluster
    with checked_writes(cluster, "two-down") as writer:
        left = cluster.leader("two-down")
        first, second = (number for number in cluster.brokers if number != left)
        cluster.kill(first)
        cluster.kill(second)
        time.sleep(PAUSE_S)
        before = len(writer.acknowledged)
        time.sleep(1)
        assert len(writer.acknowledged) == before
        cluster.restart(first)
        writer.wait_for(50)
