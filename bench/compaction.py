"""Compaction: its speed, and the latency of appends meanwhile.

The worker compacts a partition of small records, once with most records overwritten and once with
none; the peer is a synced copy of the same files. Then appends are made at a constant rate while
the worker compacts another partition continuously; the peer is the same rate with the worker idle.
"""

import asyncio
import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Final

from bench.figures import Figure, report
from penstock.broker.settings import topic_settings
from penstock.config.broker_keys import broker_values
from penstock.config.resolve import NO_LAYERS, view
from penstock.log.files import OpenFiles
from penstock.log.partition_log import PartitionLog
from penstock.model import LeaderEpoch, Millis
from penstock.protocol.batch import read_header
from penstock.protocol.records import build_batch
from penstock.upkeep.scheduler import Upkeep, UpkeepTarget
from penstock.upkeep.settings import UpkeepSettings
from penstock.upkeep.worker_process import WorkerProcess

NOW: Final = Millis(1_700_000_000_000)
RECORD_BYTES: Final = 320
IN_BATCH: Final = 100
LOG_BYTES: Final = 256 << 20
TOPIC: Final = topic_settings(
    {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0",
        "segment.bytes": str(64 << 20),
    },
    NO_LAYERS,
)
UPKEEP: Final = view(UpkeepSettings, broker_values(NO_LAYERS))
APPENDS_PER_SECOND: Final = 500
PHASE_SECONDS: Final = 3
PHASES: Final = 7  # of each kind, in turns; the result is the median
MB: Final = 1e6


def main() -> None:
    report(measure(), __doc__, peer="a synced copy")


def measure() -> Iterator[Figure]:
    """Measure each figure in its own folder and event loop."""
    with tempfile.TemporaryDirectory() as folder:
        yield asyncio.run(speed(Path(folder), "overwritten", key_count=10_000))
    with tempfile.TemporaryDirectory() as folder:
        alive = LOG_BYTES // RECORD_BYTES
        yield asyncio.run(speed(Path(folder), "all alive", key_count=alive))
    with tempfile.TemporaryDirectory() as folder:
        yield asyncio.run(latency_of_appends(Path(folder)))


def dirty_log(folder: Path, *, key_count: int) -> PartitionLog:
    """A partition of about LOG_BYTES whose records repeat `key_count` keys in turn."""
    log = PartitionLog.open(folder, TOPIC.log, OpenFiles(64), now=NOW, clean=True)
    value = random.Random(1).randbytes(RECORD_BYTES - 30)
    keys = [b"key-%010d" % key for key in range(key_count)]
    key = 0
    while log.size_bytes < LOG_BYTES:
        records = [(keys[(key + n) % key_count], value) for n in range(IN_BATCH)]
        key = (key + IN_BATCH) % key_count
        batch = build_batch(records, timestamp=NOW)
        log.append(batch, read_header(batch), leader_epoch=LeaderEpoch(0), now=NOW)
    log.set_high_watermark(log.end_offset)
    log.roll(NOW)
    log.flush()
    return log


def upkeep_of(log: PartitionLog, worker: WorkerProcess) -> Upkeep:
    target = UpkeepTarget(log, TOPIC.retention, TOPIC.compaction)
    return Upkeep(lambda: [target], worker, UPKEEP, clock=lambda: NOW, steady_clock=lambda: NOW)


async def warm_up(worker: WorkerProcess) -> None:
    """Start the worker and load its kernels."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "warm-0"
        log = PartitionLog.open(path, TOPIC.log, OpenFiles(8), now=NOW, clean=True)
        for _ in range(2):
            batch = build_batch([(b"a", b"1"), (b"b", None)], timestamp=NOW)
            log.append(batch, read_header(batch), leader_epoch=LeaderEpoch(0), now=NOW)
            log.set_high_watermark(log.end_offset)
            log.roll(NOW)
        assert await upkeep_of(log, worker).compact_one()
        log.close(sync=False)


async def speed(folder: Path, name: str, *, key_count: int) -> Figure:
    """Megabytes per second, from the job to the swap, compared with a synced copy."""
    log = dirty_log(folder / "speed-0", key_count=key_count)
    worker = WorkerProcess()
    await warm_up(worker)
    size_bytes = log.size_bytes
    copied_s = await asyncio.to_thread(copy_synced, log.folder, folder / "copy")
    started = time.perf_counter()
    assert await upkeep_of(log, worker).compact_one()
    compacted_s = time.perf_counter() - started
    retained_bytes = log.size_bytes
    await worker.stop()
    log.close(sync=False)
    shutil.rmtree(log.folder)
    return Figure(
        f"compaction, {name}",
        ours=size_bytes / compacted_s / MB,
        peer=size_bytes / copied_s / MB,
        unit="MB/s",
        note=f"{size_bytes / MB:.0f} MB to {retained_bytes / MB:.1f} MB; peer: a synced copy",
    )


def copy_synced(folder: Path, target: Path) -> float:
    """Seconds to copy and sync each log file."""
    started = time.perf_counter()
    for path in sorted(folder.glob("*.log")):
        shutil.copyfile(path, target)
        with target.open("rb+") as copy:
            os.fsync(copy.fileno())
    return time.perf_counter() - started


async def latency_of_appends(folder: Path) -> Figure:
    """p99 of an append, from its due time to its end, with and without compaction."""
    appended = PartitionLog.open(folder / "live-0", TOPIC.log, OpenFiles(8), now=NOW, clean=True)
    worker = WorkerProcess()
    await warm_up(worker)
    source = folder / "dirty-0"
    dirty_log(source, key_count=10_000).close(sync=False)
    quiet_ms: list[float] = []
    busy_ms: list[float] = []
    for _ in range(PHASES):
        quiet_ms.append(percentile(await append_steadily(appended), 0.99))
        compaction = asyncio.create_task(compact_repeatedly(source, worker))
        busy_ms.append(percentile(await append_steadily(appended), 0.99))
        compaction.cancel()
        await asyncio.gather(compaction, return_exceptions=True)
        await warm_up(worker)
    await worker.stop()
    appended.close(sync=False)
    return Figure(
        "append p99 while compacting",
        ours=median(busy_ms),
        peer=median(quiet_ms),
        unit="ms",
        target="<= 1.5",
        note="peer: the same appends with the worker idle",
        peer_name="the worker idle",
        floor=median(quiet_ms),
    )


async def append_steadily(log: PartitionLog) -> list[float]:
    """Append batches of 16 kB at a constant rate; the delay of each in milliseconds."""
    batch = build_batch([(b"key-%d" % n, b"v" * 300) for n in range(50)], timestamp=NOW)
    late_ms = []
    due = time.perf_counter()
    for _ in range(APPENDS_PER_SECOND * PHASE_SECONDS):
        due += 1 / APPENDS_PER_SECOND
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        log.append(batch, read_header(batch), leader_epoch=LeaderEpoch(0), now=NOW)
        late_ms.append((time.perf_counter() - due) * 1000)
    return late_ms


async def compact_repeatedly(source: Path, worker: WorkerProcess) -> None:
    """Compact the same dirty partition, linked again for each round."""
    target = source.parent / "again" / "round-0"
    while True:
        await asyncio.to_thread(link_again, source, target)
        log = PartitionLog.open(target, TOPIC.log, OpenFiles(8), now=NOW, clean=True)
        log.set_high_watermark(log.end_offset)
        await upkeep_of(log, worker).compact_one()
        log.close(sync=False)


def link_again(source: Path, target: Path) -> None:
    shutil.rmtree(target.parent, ignore_errors=True)
    shutil.copytree(source, target, copy_function=os.link)


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[int(len(values) * part)]


if __name__ == "__main__":
    main()
