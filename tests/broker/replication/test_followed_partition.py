"""A follower whose leader is replaced while it truncates its log."""

import asyncio
import errno
import threading
from pathlib import Path
from uuid import UUID

import pytest

from penstock.broker.leadership import Leadership
from penstock.broker.partition import Partition
from penstock.broker.replication import followed_partition
from penstock.broker.replication.followed_partition import FollowedPartition, FollowerPhase
from penstock.broker.settings import topic_settings
from penstock.config.resolve import NO_LAYERS
from penstock.log import OpenFiles, PartitionLog
from penstock.log.truncation import Truncation
from penstock.model import LeaderEpoch, Millis, NodeId, TopicId
from penstock.protocol.batch import read_header, write_leader_fields
from penstock.protocol.messages.fetch import DivergingEpoch, FetchedPartition
from penstock.protocol.records import build_batch
from tests.support.appending import append_batch

LEADER, FOLLOWER, OTHER = NodeId(1), NodeId(2), NodeId(3)
REPLICAS = (LEADER, FOLLOWER, OTHER)
RECORDS = 3


def one_record() -> bytearray:
    return build_batch([(None, b"v")], timestamp=Millis(0))


class Flushes:
    """Flushes what is requested, in the next turn of the event loop."""

    def request(self, partition: Partition) -> None:
        """As far as the log goes now."""
        end_offset = partition.log.pending_flush().end_offset
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: partition.on_flushed(end_offset, Millis(0)))

    def request_within(self, partition: Partition, delay_ms: int) -> None:
        """No topic of these tests has such a policy."""
        raise AssertionError((partition, delay_ms))


def follow(folder: Path, **overrides: str) -> Partition:
    """A follower in epoch 1 whose last records, of epoch 0, its leader does not have."""
    settings = topic_settings(overrides, NO_LAYERS)
    log = PartitionLog.open(
        folder / "names-0", settings.log, OpenFiles(16), now=Millis(0), clean=False
    )
    for _ in range(RECORDS):
        append_batch(log, one_record(), leader_epoch=LeaderEpoch(0), now=Millis(0))
    return Partition(
        log,
        topic_id=TopicId(UUID(int=5)),
        node_id=FOLLOWER,
        leadership=Leadership(LEADER, LeaderEpoch(1), REPLICAS, REPLICAS),
        settings=settings,
        flush=Flushes(),
    )


def diverging(end_offset: int) -> FetchedPartition:
    """The response of a leader whose records of epoch 0 end there."""
    return FetchedPartition(
        0, high_watermark=0, log_start_offset=0, diverging_epoch=DivergingEpoch(0, end_offset)
    )


def next_record() -> FetchedPartition:
    """The response of a leader that has all, and one record more."""
    batch = one_record()
    write_leader_fields(batch, 0, RECORDS, read_header(batch).length, 2)
    return FetchedPartition(0, high_watermark=0, log_start_offset=0, records=memoryview(batch))


class Held:
    """Truncations wait in their thread until they may proceed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.proceed = threading.Event()
        run = Truncation.run

        def run_later(truncation: Truncation) -> None:
            self.proceed.wait(20)
            run(truncation)

        monkeypatch.setattr(Truncation, "run", run_later)


def followed_by(partition: Partition) -> tuple[FollowedPartition, list[FollowedPartition]]:
    ready: list[FollowedPartition] = []
    return FollowedPartition(partition, ready.append, lambda: Millis(0)), ready


async def let_it_end(held: Held) -> None:
    held.proceed.set()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others)


def test_a_follower_that_becomes_leader_while_it_truncates_keeps_its_log_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)

    async def scenario() -> None:
        partition = follow(tmp_path)
        followed, _ = followed_by(partition)
        followed.on_fetched(diverging(1), followed.state)
        assert followed.phase is FollowerPhase.TRUNCATING
        await asyncio.sleep(0)  # it is planned
        partition.lead(Leadership(FOLLOWER, LeaderEpoch(2), REPLICAS, (FOLLOWER, OTHER)))
        batch = one_record()
        appended = partition.append(batch, read_header(batch), now=Millis(0))
        assert appended.base_offset == RECORDS
        await let_it_end(held)
        followed.close()
        assert partition.log.end_offset == RECORDS + 1
        partition.append(batch, read_header(batch), now=Millis(0))

    asyncio.run(scenario())


@pytest.mark.parametrize("has_all", [True, False])
def test_a_follower_of_another_leader_removes_what_that_one_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_all: bool
) -> None:
    held = Held(monkeypatch)

    async def scenario() -> None:
        partition = follow(tmp_path)
        before, _ = followed_by(partition)
        before.on_fetched(diverging(1), before.state)
        await asyncio.sleep(0)
        partition.lead(Leadership(OTHER, LeaderEpoch(2), REPLICAS, (FOLLOWER, OTHER)))
        before.close()
        followed, ready = followed_by(partition)
        assert followed.phase is FollowerPhase.TRUNCATING  # it completes that of the last epoch
        await let_it_end(held)
        assert ready == [followed]
        followed.on_fetched(next_record() if has_all else diverging(2), followed.state)
        await let_it_end(held)
        assert partition.log.end_offset == (RECORDS + 1 if has_all else 2)

    asyncio.run(scenario())


def test_a_truncation_that_the_disk_refused_is_completed_before_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed_partition, "FULL_RETRY_S", 0.0)
    run, failures = Truncation.run, [OSError(errno.ENOSPC, "no space left on device")]

    def fail_once(truncation: Truncation) -> None:
        if failures:
            raise failures.pop()
        run(truncation)

    monkeypatch.setattr(Truncation, "run", fail_once)

    async def scenario() -> None:
        partition = follow(tmp_path, **{"flush.messages": "1"})
        partition.on_flushed(partition.log.end_offset, Millis(0))
        batch = one_record()
        append_batch(partition.log, batch, leader_epoch=LeaderEpoch(0), now=Millis(0))
        assert partition.waits_for_flush
        partition.on_flushed(partition.log.end_offset, Millis(0))
        followed, ready = followed_by(partition)
        followed.on_fetched(diverging(1), followed.state)
        async with asyncio.timeout(20):
            while not ready:  # noqa: ASYNC110 - of the code under test
                await asyncio.sleep(0.001)
        assert not failures
        followed.on_fetched(diverging(1), followed.state)
        async with asyncio.timeout(20):
            while partition.log.end_offset > 1:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.001)

    asyncio.run(scenario())
