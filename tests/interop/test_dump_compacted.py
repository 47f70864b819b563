"""Apache Kafka's dump tool reads what compaction leaves: gaps, horizons, empty batches, indexes."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from penstock.log.files import OpenFiles
from penstock.log.partition_log import PartitionLog
from penstock.log.settings import RetentionSettings
from penstock.model import LeaderEpoch, Millis, ProducerEpoch, ProducerId, SequenceNumber
from penstock.protocol.compression import Codec
from penstock.protocol.control_records import build_marker
from penstock.protocol.records import build_batch
from penstock.upkeep.scheduler import Upkeep, UpkeepTarget
from penstock.upkeep.settings import CompactionSettings, UpkeepSettings
from penstock.upkeep.worker_process import WorkerProcess
from tests.support.apache_kafka import run_tool
from tests.support.appending import append_batch
from tests.support.settings import default_log_settings, default_settings

NOW: Final = Millis(1_700_000_000_000)
GRACE: Final = Millis(5000)
PRODUCER: Final[dict[str, Any]] = {
    "producer_id": ProducerId(7),
    "producer_epoch": ProducerEpoch(0),
}


def history() -> Iterator[bytearray]:
    """Updates in every codec, a tombstone, an aborted transaction, a last sequence to be held."""
    first = build_batch(
        [(b"gone", b"1"), (b"gone", b"2")], base_sequence=SequenceNumber(0), **PRODUCER
    )
    yield first
    for codec in Codec:
        yield build_batch(
            [(b"kept-%d" % codec, b"value " * 9), (b"old", b"%d" % codec)],
            timestamp=Millis(NOW - 1000 + codec),
            codec=codec,
        )
    yield build_batch(
        [(b"gone", None), (b"alive", b"3")], timestamp=Millis(NOW - 500), codec=Codec.LZ4
    )
    yield build_batch(
        [(b"alive", b"aborted")], base_sequence=SequenceNumber(2), transactional=True, **PRODUCER
    )
    yield build_marker(commit=False, coordinator_epoch=0, timestamp=Millis(NOW - 400), **PRODUCER)
    for number in range(200):  # enough bytes for some index entries
        yield build_batch([(b"many-%d" % number, b"x" * 100)], timestamp=Millis(NOW + number))


async def compact(log: PartitionLog) -> None:
    compaction = default_settings(
        CompactionSettings, compact=True, min_cleanable_dirty_ratio=0.0, delete_retention_ms=GRACE
    )
    kept = UpkeepTarget(log, default_settings(RetentionSettings, delete=False), compaction)
    worker = WorkerProcess()
    try:
        upkeep = Upkeep(
            lambda: [kept],
            worker,
            default_settings(UpkeepSettings),
            clock=lambda: NOW,
            steady_clock=lambda: NOW,
        )
        assert await upkeep.compact_one()
        assert upkeep.stats.compactions == 1
    finally:
        await worker.stop()


@pytest.fixture
def compacted(tmp_path: Path) -> Path:
    log = PartitionLog.open(
        tmp_path / "topic-0", default_log_settings(), OpenFiles(8), now=NOW, clean=True
    )
    for batch in history():
        is_marker = int.from_bytes(batch[21:23]) & 0x20
        append_batch(
            log,
            batch,
            leader_epoch=LeaderEpoch(3),
            now=NOW,
            origin="marker" if is_marker else "client",
        )
    log.set_high_watermark(log.end_offset)
    log.roll(NOW)
    asyncio.run(compact(log))
    log.close(sync=False)
    return log.folder


@pytest.mark.interop
def test_the_dump_tool_reads_compacted_segments_and_their_indexes(
    kafka_libs: Path, compacted: Path
) -> None:
    stem = str(compacted / f"{0:020d}")
    dump = run_tool(
        kafka_libs,
        "org.apache.kafka.tools.DumpLogSegments",
        "--deep-iteration",
        "--print-data-log",
        "--files",
        ",".join(stem + suffix for suffix in (".log", ".index", ".timeindex", ".txnindex")),
    )
    lines = dump.splitlines()
    batches = [line for line in lines if line.startswith("baseOffset:")]
    records = [line for line in lines if line.startswith("| offset:")]
    assert all("isvalid: true" in line for line in batches)
    assert len(records) == 1 + len(Codec) + 2 + 1 + 200  # old, kept-*, gone and alive, a marker
    assert f"deleteHorizonMs: OptionalLong[{NOW + GRACE}]" in dump
    (gone,) = [line for line in records if "key: gone" in line]
    assert f"CreateTime: {NOW - 500}" in gone
    held = [line for line in batches if " count: 0 " in line]
    assert [("producerId: 7" in line, "lastSequence: 2" in line) for line in held] == [(True, True)]
    assert "endTxnMarker: ABORT" in dump
    assert any(line.startswith("version: 0 producerId: 7") for line in lines)
    for complaint in ("Mismatch", "Found", "Non-consecutive", "WARN", "out of order", "isn't"):
        assert complaint not in dump
