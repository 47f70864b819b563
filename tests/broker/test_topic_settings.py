"""Settings of a topic that has records, changed while it is served: each takes effect."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import ErrorCode
from penstock.protocol.batch import read_header
from penstock.protocol.compression import Codec
from penstock.testing.embedded import EmbeddedBroker
from tests.support.wire import Wire

if TYPE_CHECKING:
    from tests.broker.conftest import RunningBroker, StartBroker

TOPIC, SET = 2, 0
LATEST, EARLIEST = -1, -2
MEGABYTE = 1 << 20
OLD_MS = 3_600_000
SECONDS_MAX = 60

MakeBatch = Callable[..., bytearray]


@pytest.fixture
def keeper(start_broker: StartBroker) -> RunningBroker:
    """A broker whose upkeep runs all the time."""
    broker = start_broker(
        log_retention_check_interval_ms="20",
        log_cleaner_backoff_ms="20",
        log_segment_delete_delay_ms="0",
    )
    broker.create_topic("t")
    return broker


@pytest.fixture
def keeper_wire(keeper: RunningBroker) -> Iterator[Wire]:
    with keeper.connect() as wire:
        yield wire


def alter(wire: Wire, **settings: str) -> None:
    changes = [
        {"name": key.replace("_", "."), "config_operation": SET, "value": value}
        for key, value in settings.items()
    ]
    resource = {"resource_type": TOPIC, "resource_name": "t", "configs": changes}
    (row,) = wire.call(44, 1, resources=[resource]).responses
    assert row.error_code == ErrorCode.none, row


def offset_at(wire: Wire, timestamp: int) -> int:
    requested = {"name": "t", "partitions": [{"partition_index": 0, "timestamp": timestamp}]}
    offset: int = wire.call(2, 6, replica_id=-1, topics=[requested]).topics[0].partitions[0].offset
    return offset


def await_true(what: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + SECONDS_MAX
    while not what():
        assert time.monotonic() < give_up_at, "the setting took no effect"
        time.sleep(0.01)


def logs(broker: RunningBroker) -> list[Path]:
    return sorted(Path(broker.settings.folder).glob("**/t-0/*.log"))


def write(wire: Wire, raw: bytearray, times: int = 1) -> None:
    for _ in range(times):
        assert wire.produce("t", raw).error_code == ErrorCode.none


def test_a_shorter_retention_time_deletes_old_records(
    keeper: RunningBroker, keeper_wire: Wire, make_batch: MakeBatch
) -> None:
    old = int(time.time() * 1000) - OLD_MS
    write(keeper_wire, make_batch(timestamp=old), 3)
    assert offset_at(keeper_wire, EARLIEST) == 0
    alter(keeper_wire, retention_ms=str(OLD_MS // 2))
    await_true(lambda: offset_at(keeper_wire, EARLIEST) == 3)
    write(keeper_wire, make_batch())
    assert (offset_at(keeper_wire, EARLIEST), offset_at(keeper_wire, LATEST)) == (3, 4)


def test_smaller_segments_and_a_retention_in_bytes_bound_the_log(
    keeper: RunningBroker, keeper_wire: Wire, make_batch: MakeBatch
) -> None:
    big = make_batch((b"k", bytes(MEGABYTE // 2)))
    write(keeper_wire, big, 4)
    assert len(logs(keeper)) == 1
    alter(keeper_wire, segment_bytes=str(MEGABYTE))
    write(keeper_wire, big, 4)
    assert len(logs(keeper)) >= 4
    alter(keeper_wire, retention_bytes=str(2 * MEGABYTE))
    # at least the retained size is left, and the first, large segment is deleted
    await_true(lambda: offset_at(keeper_wire, EARLIEST) >= 4)
    assert offset_at(keeper_wire, LATEST) == 8


def test_a_shorter_segment_time_rolls(
    keeper: RunningBroker, keeper_wire: Wire, make_batch: MakeBatch
) -> None:
    now = int(time.time() * 1000)
    write(keeper_wire, make_batch(timestamp=now - OLD_MS))
    write(keeper_wire, make_batch(timestamp=now))
    assert len(logs(keeper)) == 1
    alter(keeper_wire, segment_ms="1000")
    write(keeper_wire, make_batch(timestamp=now))
    assert len(logs(keeper)) == 2


@pytest.mark.slow
def test_a_topic_that_becomes_compacted_is_compacted(make_batch: MakeBatch) -> None:
    with EmbeddedBroker(settings={"log.cleaner.backoff.ms": "20"}) as broker:
        port = int(broker.bootstrap.rpartition(":")[2])
        with Wire(port) as wire:
            topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
            wire.call(19, 7, topics=[topic])
            alter(wire, segment_bytes=str(MEGABYTE))
            write(wire, make_batch((b"k", bytes(MEGABYTE // 2))), 8)
            before = stored_bytes(broker.folder)
            alter(wire, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
            await_true(lambda: stored_bytes(broker.folder) < before // 2)
            refused = wire.produce("t", make_batch((None, b"v")))
            assert refused.error_code == ErrorCode.invalid_record
            assert (offset_at(wire, EARLIEST), offset_at(wire, LATEST)) == (0, 8)
            assert read_header(wire.fetch("t", 0).records).base_offset == 6


def stored_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("**/t-0/*.log"))


def test_the_largest_batch_changes(
    keeper: RunningBroker, keeper_wire: Wire, make_batch: MakeBatch
) -> None:
    batch = make_batch((b"k", bytes(5000)))
    write(keeper_wire, batch)
    alter(keeper_wire, max_message_bytes="4000")
    assert keeper_wire.produce("t", batch).error_code == ErrorCode.message_too_large
    alter(keeper_wire, max_message_bytes="6000")
    write(keeper_wire, batch)


def test_the_brokers_time_replaces_the_producers(
    keeper: RunningBroker, keeper_wire: Wire, make_batch: MakeBatch
) -> None:
    old = int(time.time() * 1000) - OLD_MS
    first = keeper_wire.produce("t", make_batch(timestamp=old))
    alter(keeper_wire, message_timestamp_type="LogAppendTime")
    second = keeper_wire.produce("t", make_batch(timestamp=old))
    assert (first.log_append_time, second.log_append_time is None) == (None, False)
    stored = [read_header(keeper_wire.fetch("t", offset).records) for offset in (0, 1)]
    assert [header.is_log_append_time for header in stored] == [False, True]
    assert stored[1].max_timestamp > old


def test_timestamps_have_other_bounds(
    keeper: RunningBroker, keeper_wire: Wire, make_batch: MakeBatch
) -> None:
    old = make_batch(timestamp=int(time.time() * 1000) - OLD_MS)
    write(keeper_wire, old)
    alter(keeper_wire, message_timestamp_before_max_ms="1000")
    refused = keeper_wire.produce("t", old)
    assert refused.error_code == ErrorCode.invalid_timestamp
    assert "message.timestamp.before.max.ms is 1000" in refused.error_message
    write(keeper_wire, make_batch())


def test_the_codec_of_the_topic_replaces_the_producers(
    keeper: RunningBroker, keeper_wire: Wire, make_batch: MakeBatch
) -> None:
    plain = make_batch((b"k", bytes(1000)))
    write(keeper_wire, plain)
    alter(keeper_wire, compression_type="zstd")
    write(keeper_wire, plain)
    write(keeper_wire, make_batch((b"k", bytes(1000)), codec=Codec.GZIP))
    alter(keeper_wire, compression_type="uncompressed")
    write(keeper_wire, make_batch((b"k", bytes(1000)), codec=Codec.GZIP))
    alter(keeper_wire, compression_type="producer")
    write(keeper_wire, make_batch((b"k", bytes(1000)), codec=Codec.GZIP))
    codecs = [read_header(keeper_wire.fetch("t", offset).records).codec for offset in range(5)]
    assert codecs == [Codec.NONE, Codec.ZSTD, Codec.ZSTD, Codec.NONE, Codec.GZIP]


def test_a_batch_that_grows_in_the_topics_codec_is_bounded_too(
    keeper: RunningBroker, keeper_wire: Wire, make_batch: MakeBatch
) -> None:
    alter(keeper_wire, compression_type="uncompressed", max_message_bytes="1000")
    packed = make_batch((b"k", bytes(5000)), codec=Codec.GZIP)
    assert len(packed) < 1000
    assert keeper_wire.produce("t", packed).error_code == ErrorCode.message_too_large
    assert offset_at(keeper_wire, LATEST) == 0


def test_every_message_is_on_disk_before_it_is_acknowledged(
    keeper: RunningBroker, keeper_wire: Wire, make_batch: MakeBatch
) -> None:
    def recovery_point() -> Any:
        partition = keeper.partitions.find("t", 0)
        assert partition is not None
        return partition.log.recovery_point

    write(keeper_wire, make_batch(), 3)
    assert keeper.call(recovery_point) == 0
    alter(keeper_wire, flush_messages="1")
    write(keeper_wire, make_batch())
    assert keeper.call(recovery_point) == 4
