"""The lag of groups on a real broker, with a clock of the test."""

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.link.aio import AsyncCluster
from penstock.link.settings import LinkSettings
from penstock.model import Millis, Offset
from penstock.model import TopicPartition as Place
from penstock.monitor import group_lag
from penstock.monitor.cluster_requests import request_brokers
from penstock.monitor.group_lag import FirstUnread, GroupLag, Lag

HOUR_MS = 3_600_000


class Watched:
    """A topic, a group that has read nothing of it, and rounds of lag."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.bootstrap, self.topic, self.group = bootstrap, topic, group
        self.now_ms = int(time.time() * 1000)
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": self.group})

    def produce(self, count: int, timestamp: int) -> None:
        for _ in range(count):
            self._producer.produce(self.topic, b"x", partition=0, timestamp=timestamp)
        assert self._producer.flush(30) == 0

    def commit(self, offset: int) -> None:
        place = TopicPartition(self.topic, 0, offset)
        self._consumer.commit(offsets=[place], asynchronous=False)

    def seconds(self, rounds: int = 1, between: Callable[[], None] = lambda: None) -> float:
        """Of the last of several rounds, with five seconds between them."""

        async def refresh() -> Lag:
            cluster = AsyncCluster(self.bootstrap, LinkSettings())
            lag = GroupLag(cluster, lambda: Millis(self.now_ms))
            try:
                await cluster.run(request_brokers())
                await lag.refresh()
                for _ in range(rounds - 1):
                    self.now_ms += 5000
                    between()
                    await lag.refresh()
            finally:
                await cluster.close()
            return lag.by_group_and_topic[self.group, self.topic]

        return asyncio.run(refresh()).seconds(Millis(self.now_ms))

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def watched(bootstrap: str, topic: str) -> Iterator[Watched]:
    watched = Watched(bootstrap, topic, f"{topic}-group")
    yield watched
    watched.close()


def test_below_all_samples_the_timestamp_of_the_batch_counts(watched: Watched) -> None:
    watched.produce(200, watched.now_ms - HOUR_MS)
    watched.commit(0)
    assert watched.seconds() == 3600


def test_a_timestamp_of_the_future_does_not_hide_a_group_that_is_behind(watched: Watched) -> None:
    watched.produce(200, watched.now_ms + HOUR_MS)
    watched.commit(0)
    assert watched.seconds(rounds=5) == 20, "at least since the oldest sample"


def test_a_group_is_behind_even_if_no_batch_header_may_be_read(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_lag, "READS_MAX", 0)
    watched.produce(200, watched.now_ms - HOUR_MS)
    watched.commit(0)
    assert watched.seconds(rounds=3) == 10


def test_a_group_is_behind_even_if_its_offset_was_removed(watched: Watched) -> None:
    watched.produce(200, watched.now_ms - HOUR_MS)
    watched.commit(0)
    removed = TopicPartition(watched.topic, 0, 50)
    admin = AdminClient({"bootstrap.servers": watched.bootstrap})
    admin.delete_records([removed])[removed].result(30)
    assert watched.seconds(rounds=3) == 10


@pytest.fixture
def reads(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> list[Offset]:
    """Where headers of the topic were read, in order."""
    offsets: list[Offset] = []
    read = GroupLag._first_unread  # noqa: SLF001 - its calls are counted

    async def note_and_read(
        self: GroupLag, partition: Place, offset: Offset, end: Offset
    ) -> FirstUnread | None:
        if partition.topic == watched.topic:
            offsets.append(offset)
        return await read(self, partition, offset, end)

    monkeypatch.setattr(GroupLag, "_first_unread", note_and_read)
    return offsets


def test_a_header_is_read_once_while_its_partition_grows(
    watched: Watched, reads: list[Offset]
) -> None:
    watched.produce(200, watched.now_ms - HOUR_MS)
    watched.commit(0)
    seconds = watched.seconds(rounds=4, between=lambda: watched.produce(10, watched.now_ms))
    assert seconds == 3615
    assert reads == [0]


def test_offsets_below_all_samples_are_read_before_those_near_the_end(
    watched: Watched, reads: list[Offset]
) -> None:
    watched.produce(200, watched.now_ms)
    near = Watched(watched.bootstrap, watched.topic, f"{watched.group}-near")
    near.commit(200)
    last = Watched(watched.bootstrap, watched.topic, f"a-{watched.group}-near")
    last.commit(201)

    def fall_behind() -> None:
        watched.produce(10, watched.now_ms)
        watched.commit(0)

    try:
        watched.seconds(rounds=2, between=fall_behind)
    finally:
        near.close()
        last.close()
    assert reads[0] == 0
    assert sorted(reads) == [0, 200, 201]
