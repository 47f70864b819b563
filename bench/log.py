"""The log on disk: appends and reads, compared with write and read of the same bytes.

The peer is the operating system: `os.write` to an open file, and `os.pread` of the same size. A
ratio of 1.0 means that the log adds no cost.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from crc32c import crc32c

from bench.figures import Figure, report
from penstock.broker.settings import topic_settings
from penstock.config.resolve import NO_LAYERS
from penstock.log import OpenFiles, PartitionLog
from penstock.model import LeaderEpoch, Millis, Offset, ProducerEpoch, ProducerId, SequenceNumber
from penstock.protocol.batch import read_header
from penstock.protocol.records import build_batch

SETTINGS = topic_settings({}, NO_LAYERS).log
TOTAL_BYTES = 256 << 20
ROUNDS = 5  # the best is the result: noise only adds
SIZES = ((1_000, 200_000), (16_000, 16_000), (1_000_000, 256))
READ_BYTES = (16 << 10, 1 << 20, 8 << 20)


def measure() -> Iterator[Figure]:
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        for size_bytes, count in SIZES:
            yield from measure_append(folder, size_bytes, count)
        yield from measure_read(folder)
        yield from measure_open(folder)
    finally:
        shutil.rmtree(folder)


def best_of(work: Callable[[], float]) -> float:
    return min(work() for _ in range(ROUNDS))


def new_log(folder: Path) -> PartitionLog:
    shutil.rmtree(folder / "bench-0", ignore_errors=True)
    return PartitionLog.open(folder / "bench-0", SETTINGS, OpenFiles(64), now=Millis(0), clean=True)


def a_batch(size_bytes: int) -> bytearray:
    return build_batch([(None, b"v" * (size_bytes - 80))], timestamp=Millis(1_700_000_000_000))


def measure_append(folder: Path, size_bytes: int, count: int) -> Iterator[Figure]:
    batch = a_batch(size_bytes)

    def ours() -> float:
        log = new_log(folder)
        log.append(batch, read_header(batch), leader_epoch=LeaderEpoch(0), now=Millis(0))
        started = time.perf_counter()
        for _ in range(count):
            log.append(batch, read_header(batch), leader_epoch=LeaderEpoch(0), now=Millis(0))
        spent = time.perf_counter() - started
        log.abandon()
        return spent

    def peer() -> float:
        descriptor = os.open(folder / "plain", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        started = time.perf_counter()
        for _ in range(count):
            os.write(descriptor, batch)
        spent = time.perf_counter() - started
        os.close(descriptor)
        return spent

    taken, plain = best_of(ours), best_of(peer)
    micros = 1_000_000 / count
    megabytes = len(batch) * count / 1e6
    yield Figure(f"append {size_bytes} B batches, time", taken * micros, plain * micros, "us")
    yield Figure(f"append {size_bytes} B batches", megabytes / taken, megabytes / plain, "MB/s")


def measure_read(folder: Path) -> Iterator[Figure]:
    log = new_log(folder)
    batch = a_batch(16_000)
    while log.end_offset < TOTAL_BYTES // len(batch):
        log.append(batch, read_header(batch), leader_epoch=LeaderEpoch(0), now=Millis(0))
    # Both compute a checksum of what they read, so that each byte is accessed.
    source = os.open(log.active.log.path, os.O_RDONLY)
    per_batch = len(batch)
    for read_bytes in READ_BYTES:

        def ours(read_bytes: int = read_bytes) -> float:
            started = time.perf_counter()
            offset = 0
            while offset < log.end_offset:
                view = log.read(Offset(offset), max_bytes=read_bytes).view
                crc32c(view)
                offset += len(view) // per_batch
            return time.perf_counter() - started

        def peer(read_bytes: int = read_bytes) -> float:
            started = time.perf_counter()
            position = 0
            while chunk := os.pread(source, read_bytes, position):
                crc32c(chunk)
                position += len(chunk)
            return time.perf_counter() - started

        megabytes = log.size_bytes / 1e6
        name = f"read {read_bytes >> 10} kB at a time"
        yield Figure(name, megabytes / best_of(ours), megabytes / best_of(peer), "MB/s")
    os.close(source)


def measure_open(folder: Path) -> Iterator[Figure]:
    """Open a partition with one batch, after a clean stop and after a kill."""
    partitions = 500
    files = OpenFiles(64)
    folders = [folder / f"small-{number}" for number in range(partitions)]
    for path in folders:
        log = PartitionLog.open(path, SETTINGS, files, now=Millis(0), clean=True)
        batch = build_batch(
            [(b"k", b"v")],
            timestamp=Millis(1),
            producer_id=ProducerId(1),
            producer_epoch=ProducerEpoch(0),
            base_sequence=SequenceNumber(0),
        )
        log.append(batch, read_header(batch), leader_epoch=LeaderEpoch(0), now=Millis(0))
        log.close(sync=False)

    def opened(*, clean: bool) -> float:
        started = time.perf_counter()
        logs = [
            PartitionLog.open(path, SETTINGS, files, now=Millis(0), clean=clean) for path in folders
        ]
        spent = time.perf_counter() - started
        for log in logs:
            log.close(sync=False)
        return spent

    for name, clean in (("open a clean partition", True), ("recover a small partition", False)):
        taken = best_of(partial(opened, clean=clean))
        yield Figure(name, taken * 1_000_000 / partitions, None, "us")


if __name__ == "__main__":
    report(measure(), __doc__, peer="os.write and os.pread")
