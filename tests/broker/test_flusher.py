"""The flusher: a failed sync affects only the partitions that it was for."""

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.broker.flusher import Flusher
from penstock.broker.partition import Partition
from penstock.errors import ErrorCode
from penstock.model import Millis, Offset
from tests.broker.conftest import RunningBroker
from tests.support.wire import Wire

MakeBatch = Callable[..., bytearray]
OFFSETS = "__consumer_offsets"


def test_a_sync_requested_while_the_broker_stops_is_left_to_closing_the_logs(
    broker: RunningBroker,
) -> None:
    broker.create_topic("orders")

    async def stop_and_ask() -> int:
        partition = broker.partitions.find("orders", 0)
        assert isinstance(partition, Partition)
        flusher = Flusher([partition], clock=lambda: Millis(0))
        flusher.start()
        flusher.request_within(partition, Millis(1))
        flusher.close()
        flusher.request(partition)
        await asyncio.sleep(0.05)  # the timer that was set before the close fires here
        return sum(flusher.seconds.counts)

    assert asyncio.run_coroutine_threadsafe(stop_and_ask(), broker.loop).result(20) == 0


def test_what_a_failed_sync_may_have_lost_is_never_acknowledged(
    broker: RunningBroker,
    wire: Wire,
    make_batch: MakeBatch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("safe", "neighbour"):
        broker.create_topic(name, flush_messages="1")

    def produce(topic: str, sequence: int) -> ErrorCode:
        produced = make_batch(producer_id=7, producer_epoch=0, base_sequence=sequence)
        return ErrorCode(wire.produce(topic, produced).error_code)

    sync = os.fsync

    def refuse(descriptor: int) -> None:
        if "/safe-0/" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.EIO, "bad sector")
        sync(descriptor)

    assert produce("safe", 0) == ErrorCode.none
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        assert produce("safe", 1) == ErrorCode.kafka_storage_error
        assert produce("neighbour", 0) == ErrorCode.none
    # The next sync succeeds, as it does: the page that was lost counts as written.
    for sequence in (1, 2):  # a retry of the client, and a new batch
        assert produce("safe", sequence) == ErrorCode.kafka_storage_error
    assert wire.fetch("safe", 0).high_watermark == 1


def test_a_topic_deleted_during_its_sync_costs_its_neighbours_nothing(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "deleted", "safe"):
        broker.create_topic(name, flush_messages="1000")
        assert wire.produce(name, make_batch()).error_code == ErrorCode.none

    def find(name: str) -> Partition:
        partition = broker.partitions.find(name, 0)
        assert partition is not None
        return partition

    async def sync_all() -> int:
        first, deleted, safe = find("first"), find("deleted"), find("safe")
        flusher = Flusher([], clock=lambda: Millis(0))
        synced = asyncio.Event()
        on_flushed = Partition.on_flushed

        def note(partition: Partition, offset: Offset, now: Millis) -> None:
            on_flushed(partition, offset, now)
            if partition is safe:
                synced.set()

        monkeypatch.setattr(Partition, "on_flushed", note)
        aside = deleted.log.folder.with_name("aside")
        deleted.log.folder.rename(aside)
        for partition in (
            first,
            deleted,
            safe,
        ):  # the last two wait for the first, and are synced together
            flusher.request(partition)
        await asyncio.wait_for(synced.wait(), 10)
        flusher.close()
        aside.rename(deleted.log.folder)
        return safe.log.recovery_point

    assert asyncio.run_coroutine_threadsafe(sync_all(), broker.loop).result(20) == 1


def test_what_the_controller_replies_is_on_disk(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync = os.fsync

    def note(descriptor: int) -> None:
        sync(descriptor)
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    monkeypatch.setattr(os, "fsync", note)
    assert _create(wire, "t") == ErrorCode.none
    assert any("/__cluster_metadata-0/" in path for path in synced)


def test_a_change_of_the_cluster_that_may_be_lost_is_refused_at_once(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fsync

    def refuse(descriptor: int) -> None:
        if "/__cluster_metadata-0/" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.EIO, "bad sector")
        sync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        assert _create(wire, "lost") == ErrorCode.not_controller
    assert _create(wire, "later") == ErrorCode.not_controller


def test_a_coordinator_whose_log_may_be_lost_refuses_reads_too(
    broker: RunningBroker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply that waited for the high watermark would never come."""
    wire.call(10, 4, key_type=0, coordinator_keys=["g"])  # creates the log of groups
    change = {"name": "flush.messages", "config_operation": 0, "value": "1"}
    resource = {"resource_type": 2, "resource_name": OFFSETS, "configs": [change]}
    altered = wire.call(44, 1, resources=[resource], validate_only=False)
    assert altered.responses[0].error_code == ErrorCode.none
    broker.create_topic("t")
    offset = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    commit = {"group_id": "g", "topics": [{"name": "t", "partitions": [offset]}]}

    def refuse(descriptor: int) -> None:
        raise OSError(errno.EIO, "bad sector")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        response = wire.call(8, 8, generation_id_or_member_epoch=-1, member_id="", **commit)
        assert response.topics[0].partitions[0].error_code != ErrorCode.none
    for _ in range(3):
        (described,) = wire.call(15, 5, groups=["g"]).groups
        assert described.error_code == ErrorCode.not_coordinator


def _create(wire: Wire, name: str) -> ErrorCode:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
    response = wire.call(19, 7, topics=[topic], timeout=20_000, validate_only=False)
    return ErrorCode(response.topics[0].error_code)
