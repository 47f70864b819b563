"""What a leader sends to a follower, and when."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.partitions import HostedTopic
from penstock.broker.replication.follower_sessions import FollowerSessions
from penstock.errors import ErrorCode
from penstock.machine import Deferred
from penstock.model import Millis, Offset
from penstock.protocol.batch import read_header
from penstock.protocol.messages.fetch import (
    FetchedPartition,
    FetchingReplica,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from tests.support.led_partition import lead, open_partition

MakeBatch = Callable[..., bytearray]

TOPIC = "names"
LONG_MS = 60_000
SHORT_MS = 20


class Leader:
    """Broker 1, which leads the partition `names-0` in epoch 1; brokers 2 and 3 follow."""

    def __init__(self, folder: Path, make_batch: MakeBatch) -> None:
        self.partition = open_partition(folder)
        lead(self.partition, 1, 1, 2, 3, replicas=3)
        topic = HostedTopic(TOPIC, self.partition.topic_id, self.partition.settings)
        topic.partitions[0] = self.partition
        self._make_batch = make_batch
        self._epochs: dict[int, int] = {}
        self._sessions = FollowerSessions(lambda: 7)
        self._broker: Any = SimpleNamespace(
            partitions=SimpleNamespace(topic=lambda _key: topic),
            in_sync_changes=SimpleNamespace(on_replica_fetch=lambda _partition: None),
            steady_clock=lambda: Millis(0),
            cluster=SimpleNamespace(state=SimpleNamespace(brokers=dict.fromkeys((1, 2, 3, 4, 5)))),
        )

    def append(self) -> None:
        batch = self._make_batch()
        self.partition.append(batch, read_header(batch), now=Millis(0))

    def fetch(
        self,
        follower: int,
        offset: int | None = None,
        *,
        wait_ms: int = LONG_MS,
        leader_epoch: int = 1,
    ) -> Deferred[FetchResponse]:
        """A follower's next fetch, which names the partition if it has come further."""
        epoch = self._epochs.get(follower, 0)
        self._epochs[follower] = epoch + 1
        partition = FetchPartition(0, leader_epoch, offset or 0, partition_max_bytes=10_000)
        named = [] if offset is None else [partition]
        request = FetchRequest(
            wait_ms,
            1,
            1_000_000,
            session_id=7 if epoch else 0,
            session_epoch=epoch,
            topics=[FetchTopic(TOPIC, named)] if named else [],
            replica=FetchingReplica(follower, 1),
        )
        answer = self._sessions.fetch(self._broker, request)
        if isinstance(answer, Deferred):
            return answer
        known: Deferred[FetchResponse] = Deferred()
        assert isinstance(answer, FetchResponse)
        known.resolve(answer)
        return known

    def open_sessions(self) -> None:
        """Both followers fetch the empty log, and know where it starts."""
        for follower in (2, 3):
            assert row_of(self.fetch(follower, 0)).high_watermark == 0


def row_of(response: Deferred[FetchResponse]) -> FetchedPartition:
    """The partition's row of a response that has come."""
    came: list[Any] = []
    response.listen(came.append)
    assert len(came) == 1, "it waits"
    (topic,) = came[0].topics
    (row,) = topic.partitions
    assert isinstance(row, FetchedPartition)
    return row


async def late_response(response: Deferred[FetchResponse]) -> Any:
    came: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    response.listen(came.set_result)
    return await came


@pytest.fixture
def run(tmp_path: Path, make_batch: MakeBatch) -> Callable[..., None]:
    """Runs a scenario with a leader that both followers fetch from."""

    def run_scenario(scenario: Callable[[Leader], Any]) -> None:
        async def with_leader() -> None:
            leader = Leader(tmp_path, make_batch)
            leader.open_sessions()
            await scenario(leader)

        asyncio.run(with_leader())

    return run_scenario


def test_a_high_watermark_alone_does_not_end_the_wait_of_a_follower(
    run: Callable[..., None],
) -> None:
    async def scenario(leader: Leader) -> None:
        fetches = [leader.fetch(2), leader.fetch(3)]
        leader.append()
        await asyncio.sleep(0)
        assert all(row_of(fetch).records for fetch in fetches)
        waiting = [leader.fetch(2, 1), leader.fetch(3, 1)]
        assert leader.partition.log.high_watermark == 1
        for _ in range(10):
            await asyncio.sleep(0)
        assert not any(fetch.is_resolved for fetch in waiting)

    run(scenario)


def test_a_high_watermark_goes_with_the_next_records(run: Callable[..., None]) -> None:
    async def scenario(leader: Leader) -> None:
        leader.append()
        for follower in (2, 3):
            assert row_of(leader.fetch(follower)).high_watermark == 0
        waiting = [leader.fetch(2, 1), leader.fetch(3, 1)]
        leader.append()
        await asyncio.sleep(0)
        for fetch in waiting:
            row = row_of(fetch)
            assert row.records
            assert row.high_watermark == 1

    run(scenario)


def test_an_idle_follower_learns_the_high_watermark_when_its_fetch_has_waited(
    run: Callable[..., None],
) -> None:
    async def scenario(leader: Leader) -> None:
        leader.append()
        waiting = []
        for follower in (2, 3):
            assert row_of(leader.fetch(follower)).records
            waiting.append(leader.fetch(follower, 1, wait_ms=SHORT_MS))
        for fetch in waiting:
            (topic,) = (await late_response(fetch)).topics
            assert topic.partitions[0].high_watermark == 1
        next_fetch = leader.fetch(2, wait_ms=SHORT_MS)
        assert (await late_response(next_fetch)).topics == []

    run(scenario)


def test_a_new_log_start_is_sent_to_a_follower_that_fetches(run: Callable[..., None]) -> None:
    async def scenario(leader: Leader) -> None:
        leader.append()
        for follower in (2, 3):
            assert row_of(leader.fetch(follower)).log_start_offset == 0
        waiting = [leader.fetch(2, 1), leader.fetch(3, 1)]
        leader.append()
        await asyncio.sleep(0)
        assert all(row_of(fetch).log_start_offset == 0 for fetch in waiting)
        leader.partition.log.advance_start_offset(Offset(1), Millis(0))
        assert row_of(leader.fetch(2, 2)).log_start_offset == 1

    run(scenario)


def test_only_a_broker_with_a_replica_reads_what_is_not_committed(run: Callable[..., None]) -> None:
    async def scenario(leader: Leader) -> None:
        leader.append()
        row = row_of(leader.fetch(4, 0))
        assert (row.error_code, row.records) == (ErrorCode.unknown_leader_epoch, b"")
        row = row_of(leader.fetch(5, 0, leader_epoch=-1))
        assert (row.error_code, row.records) == (ErrorCode.not_leader_or_follower, b"")

    run(scenario)


def test_a_client_that_says_it_is_a_broker_gets_no_session(run: Callable[..., None]) -> None:
    async def scenario(leader: Leader) -> None:
        response = await late_response(leader.fetch(9, 0))
        assert response.error_code is ErrorCode.broker_id_not_registered

    run(scenario)
