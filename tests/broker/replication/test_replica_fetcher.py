"""How a follower fetches: in turns, and only past what its flush policy has on disk."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from penstock.broker.leadership import Leadership
from penstock.broker.partition import Partition
from penstock.broker.replication.followed_partition import FollowedPartition, FollowerPhase
from penstock.broker.replication.replica_fetcher import TURN_BYTES_MAX, ReplicaFetcher
from penstock.broker.settings import topic_settings
from penstock.broker.suspected_leaders import SuspectedLeaders
from penstock.config.resolve import NO_LAYERS
from penstock.log import OpenFiles, PartitionLog
from penstock.model import LeaderEpoch, Millis, NodeId, TopicId
from penstock.protocol.messages.fetch import (
    FetchedPartition,
    FetchedTopic,
    FetchingReplica,
    FetchResponse,
)
from penstock.protocol.records import build_batch
from tests.support.appending import append_batch

LEADER, FOLLOWER = NodeId(1), NodeId(2)


class Flush:
    """Keeps what is to be synced until it is done by hand."""

    def __init__(self) -> None:
        self.requested: list[Partition] = []

    def request(self, partition: Partition) -> None:
        self.requested.append(partition)

    def request_within(self, partition: Partition, wait_ms: Millis) -> None:
        self.requested.append(partition)

    def run(self) -> None:
        while self.requested:
            partition = self.requested.pop()
            work = partition.log.pending_flush()
            work.run()
            partition.on_flushed(work.end_offset, Millis(0))


class Link:
    """A connection on which nothing is answered."""

    is_open = True

    def start(self, request: Any) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    def abort(self) -> None:
        self.is_open = False


def follow(folder: Path, flush: Flush) -> Partition:
    """A follower's partition with three records that a killed process has not synced."""
    settings = topic_settings({"flush.messages": "1"}, NO_LAYERS)
    log = PartitionLog.open(
        folder / "names-0", settings.log, OpenFiles(16), now=Millis(0), clean=False
    )
    for _ in range(3):
        batch = build_batch([(None, b"v")], timestamp=Millis(0))
        append_batch(log, batch, leader_epoch=LeaderEpoch(0), now=Millis(0))
    replicas = (LEADER, FOLLOWER)
    return Partition(
        log,
        topic_id=TopicId(UUID(int=5)),
        node_id=FOLLOWER,
        leadership=Leadership(LEADER, LeaderEpoch(1), replicas, (LEADER,)),
        settings=settings,
        flush=flush,
    )


def suspicions() -> SuspectedLeaders:
    return SuspectedLeaders(lambda: Millis(0), Millis(1000))


def test_what_a_killed_process_left_is_synced_before_the_first_fetch(tmp_path: Path) -> None:
    flush = Flush()

    async def scenario() -> None:
        partition = follow(tmp_path, flush)
        fetcher = ReplicaFetcher(
            LEADER,
            None,  # type: ignore[arg-type]  # the connection is given below
            lambda _: None,
            FetchingReplica(FOLLOWER, 1),
            suspicions(),
        )
        link = fetcher._link = Link()  # type: ignore[assignment]  # noqa: SLF001 - no socket
        followed = FollowedPartition(partition, fetcher.add, lambda: Millis(0))
        fetcher.add(followed)
        phases = [followed.phase]
        fetcher._send(link)  # type: ignore[arg-type]  # noqa: SLF001 - as the task does
        assert not fetcher._in_flight[-1].named  # noqa: SLF001 - what the fetch names
        flush.run()
        phases.append(followed.phase)
        assert phases == [FollowerPhase.FLUSHING, FollowerPhase.FETCHING]
        fetcher._send(link)  # type: ignore[arg-type]  # noqa: SLF001 - as the task does
        ((_, state),) = fetcher._in_flight[-1].named.values()  # noqa: SLF001 - likewise
        assert state.fetch_offset == 3
        fetcher.close()

    asyncio.run(scenario())


def test_a_replica_is_marked_as_synced_once_it_is_in_sync(tmp_path: Path) -> None:
    flush = Flush()
    partition = follow(tmp_path, flush)
    flush.run()
    assert not partition.log.has_synced_marker, "it may lack what it had before"
    joined = partition.leadership._replace(isr=(LEADER, FOLLOWER), partition_epoch=1)
    partition.lead(joined)
    flush.run()
    marked = partition.log
    assert marked.has_synced_marker
    partition.lead(partition.leadership._replace(isr=(LEADER,), partition_epoch=2))
    flush.run()
    assert marked.has_synced_marker, "all that it acknowledges is still synced first"


def test_a_laxer_policy_takes_effect_when_the_marker_is_gone(tmp_path: Path) -> None:
    flush = Flush()
    partition = follow(tmp_path, flush)
    partition.lead(partition.leadership._replace(isr=(LEADER, FOLLOWER), partition_epoch=1))
    flush.run()
    partition.replace_settings(topic_settings({}, NO_LAYERS))
    batch = build_batch([(None, b"v")], timestamp=Millis(0))
    append_batch(partition.log, batch, leader_epoch=LeaderEpoch(0), now=Millis(0))
    assert partition.waits_for_flush
    flush.run()
    assert not partition.log.has_synced_marker
    append_batch(partition.log, batch, leader_epoch=LeaderEpoch(0), now=Millis(0))
    assert not partition.waits_for_flush


class Followed:
    """A followed partition that takes records and appends none."""

    is_fetching, state = True, None

    def __init__(self, partition: Partition, on_fetched: Callable[[int], None]) -> None:
        self.partition = partition
        self._on_fetched = on_fetched

    def on_fetched(self, row: FetchedPartition, _asked: object) -> None:
        self._on_fetched(row.partition)


def test_a_large_response_is_carried_out_in_several_turns(tmp_path: Path) -> None:
    partition = follow(tmp_path, Flush())
    topic_id = partition.topic_id.bytes
    records = bytes(TURN_BYTES_MAX // 2)
    rows = [FetchedPartition(index, records=records) for index in range(5)]

    async def scenario() -> list[tuple[int, int]]:
        fetched: list[tuple[int, int]] = []  # turn, partition
        turn, is_over = 0, False

        def on_turn() -> None:
            nonlocal turn
            turn += 1
            if not is_over:
                asyncio.get_running_loop().call_soon(on_turn)

        fetcher = ReplicaFetcher(
            LEADER,
            None,  # type: ignore[arg-type]  # no socket
            lambda _: None,
            FetchingReplica(FOLLOWER, 1),
            suspicions(),
        )
        for index in range(len(rows)):
            followed: Any = Followed(partition, lambda index: fetched.append((turn, index)))
            key = topic_id, index
            fetcher._followed[key] = followed  # noqa: SLF001 - as a fetch that named them
            fetcher._requested[key] = followed, followed.state  # noqa: SLF001 - likewise
        on_turn()
        await fetcher._on_response(FetchResponse(topics=[FetchedTopic(topic_id, rows)]))  # noqa: SLF001 - likewise
        is_over = True
        return fetched

    fetched = asyncio.run(scenario())
    assert [index for _, index in fetched] == [0, 1, 2, 3, 4]
    assert [turn - fetched[0][0] for turn, _ in fetched] == [0, 0, 1, 1, 2]
