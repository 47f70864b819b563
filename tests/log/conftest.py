"""A partition's log in a temporary folder, and batches to append to it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from penstock.log import OpenFiles, PartitionLog
from penstock.log.settings import LogSettings
from penstock.model import (
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    LeaderEpoch,
    Millis,
    Offset,
    ProducerEpoch,
    ProducerId,
    SequenceNumber,
)
from penstock.protocol.batch import iterate_headers
from penstock.protocol.records import build_batch
from tests.support.appending import append_batch
from tests.support.settings import default_log_settings

SMALL = default_log_settings(
    segment_bytes=2_000, index_interval_bytes=200, file_delete_delay_ms=Millis(100)
)


class OpenLog(Protocol):
    def __call__(
        self, *, clean: bool = True, settings: LogSettings = SMALL, recovery_point: int = 0
    ) -> PartitionLog: ...


class Batch(Protocol):
    def __call__(
        self,
        *,
        records: int = 1,
        size: int = 100,
        timestamp: int = 1_000,
        producer: int = NO_PRODUCER,
        epoch: int = NO_PRODUCER_EPOCH,
        sequence: int = NO_SEQUENCE,
        transactional: bool = False,
    ) -> bytearray: ...


@pytest.fixture
def files() -> Iterator[OpenFiles]:
    files = OpenFiles(8)
    yield files
    files.close_all()


@pytest.fixture
def open_log(tmp_path: Path, files: OpenFiles) -> OpenLog:
    """Opens the same folder each time."""

    def open_(
        *, clean: bool = True, settings: LogSettings = SMALL, recovery_point: int = 0
    ) -> PartitionLog:
        log = PartitionLog.open(
            tmp_path / "orders-3",
            settings,
            files,
            now=Millis(0),
            clean=clean,
            recovery_point=Offset(recovery_point),
        )
        log.set_high_watermark(log.end_offset)
        return log

    return open_


@pytest.fixture
def batch() -> Batch:
    def build(
        *,
        records: int = 1,
        size: int = 100,
        timestamp: int = 1_000,
        producer: int = NO_PRODUCER,
        epoch: int = NO_PRODUCER_EPOCH,
        sequence: int = NO_SEQUENCE,
        transactional: bool = False,
    ) -> bytearray:
        return build_batch(
            [(b"key", bytes(size))] * records,
            timestamp=Millis(timestamp),
            producer_id=ProducerId(producer),
            producer_epoch=ProducerEpoch(epoch),
            base_sequence=SequenceNumber(sequence),
            transactional=transactional,
        )

    return build


@pytest.fixture
def fill(batch: Batch) -> Callable[..., None]:
    """Appends batches of one record each, a millisecond apart, and moves the high watermark."""

    def append(log: PartitionLog, count: int, *, size: int = 100, timestamp: int = 1_000) -> None:
        for number in range(count):
            append_batch(
                log,
                batch(size=size, timestamp=timestamp + number),
                leader_epoch=LeaderEpoch(0),
                now=Millis(timestamp + number),
            )
        log.set_high_watermark(log.end_offset)

    return append


@pytest.fixture
def offsets() -> Callable[[PartitionLog], list[int]]:
    """The base offset of every batch that can be read."""

    def read(log: PartitionLog) -> list[int]:
        offsets: list[int] = []
        offset = log.start_offset
        while offset < log.end_offset:
            view = log.read(offset, max_bytes=700).view
            for _, header in iterate_headers(view):
                offsets.append(header.base_offset)
                offset = header.end_offset
        return offsets

    return read
