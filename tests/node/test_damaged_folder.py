"""A broker whose data folder lacks files: it does not start, or the partition is offline."""

import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import ErrorCode
from penstock.node.supervisor import CannotStartError
from penstock.testing.embedded import EmbeddedBroker
from tests.support.wire import Wire, batch

RECORD_BYTES = 50_000
SEGMENT_BYTES = 1 << 20
SEGMENT_RECORDS = 20
RECORDS = 50
LENGTH_AT = 8  # of a batch, after its base offset
LENGTH = struct.Struct(">i")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """With two topics of some segments each."""
    settings = {"log.segment.bytes": str(SEGMENT_BYTES)}
    with EmbeddedBroker(tmp_path, settings=settings) as broker:
        with wire_to(broker) as wire:
            for name in ("lost", "whole"):
                topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
                assert wire.call(19, 7, topics=[topic], timeout=5000).topics[0].error_code == 0
                for _ in range(RECORDS):
                    assert wire.produce(name, batch((b"k", bytes(RECORD_BYTES)))).error_code == 0
        yield broker


def wire_to(broker: EmbeddedBroker) -> Wire:
    return Wire(int(broker.bootstrap.rpartition(":")[2]))


def read_all(wire: Wire, topic: str) -> ErrorCode | int:
    """How many offsets were read from the start, or the first error."""
    offset = 0
    while offset < RECORDS:
        row = wire.fetch(topic, offset, partition_max_bytes=RECORD_BYTES)
        if row.error_code:
            return ErrorCode(row.error_code)
        offset += 1
    return offset


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("what", ["__cluster_metadata-0", "__cluster_metadata-0/*.log"])
def test_a_broker_without_its_metadata_log_does_not_start_an_empty_cluster(
    broker: EmbeddedBroker, tmp_path: Path, what: str, is_killed: bool
) -> None:
    if is_killed:
        broker.kill()
    else:
        broker.halt()
    shutil.copytree(tmp_path / "__cluster_metadata-0", tmp_path / "copy")
    for path in tmp_path.glob(what):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    for _ in range(2):
        with pytest.raises(CannotStartError, match="restore it from a copy"):
            broker.start()
    shutil.rmtree(tmp_path / "__cluster_metadata-0", ignore_errors=True)
    (tmp_path / "copy").rename(tmp_path / "__cluster_metadata-0")
    broker.start()
    with wire_to(broker) as wire:
        assert read_all(wire, "whole") == read_all(wire, "lost") == RECORDS


@pytest.mark.parametrize("what", ["lost-0", "lost-0/*[0-9].log"])
def test_a_partition_without_its_files_is_offline_and_reuses_no_offset(
    broker: EmbeddedBroker, tmp_path: Path, what: str, capfd: pytest.CaptureFixture[str]
) -> None:
    broker.halt()
    aside = tmp_path / "aside"
    lost = max(tmp_path.glob(what))  # the folder, or the active segment
    lost.rename(aside)
    capfd.readouterr()
    broker.start()
    with wire_to(broker) as wire:
        assert read_all(wire, "whole") == RECORDS
        assert wire.produce("lost", batch()).error_code != ErrorCode.none
    lines = [line for line in capfd.readouterr().err.splitlines() if "lost" in line]
    assert len(lines) == 1, lines
    assert "is offline" in lines[0]
    assert "restore it from a copy" in lines[0]
    broker.halt()
    aside.rename(lost)
    broker.start()
    with wire_to(broker) as wire:
        assert read_all(wire, "lost") == RECORDS
        assert wire.produce("lost", batch()).base_offset == RECORDS


def test_a_consumer_gets_an_error_where_a_closed_segment_was_truncated(
    broker: EmbeddedBroker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broker.halt()
    first = min((tmp_path / "lost-0").glob("*.log"))
    os.truncate(first, first.stat().st_size * 3 // SEGMENT_RECORDS)
    capfd.readouterr()
    broker.start()
    with wire_to(broker) as wire:
        assert read_all(wire, "lost") == ErrorCode.corrupt_message
        assert read_all(wire, "lost") == ErrorCode.corrupt_message
        assert read_all(wire, "whole") == RECORDS
    lines = [line for line in capfd.readouterr().err.splitlines() if "lost-0" in line]
    assert len(lines) == 1, lines
    assert "was closed with" in lines[0]


@pytest.mark.parametrize("length", [0, -1, 1 << 30])
def test_a_consumer_gets_an_error_at_a_batch_with_a_wrong_length(
    broker: EmbeddedBroker, tmp_path: Path, capfd: pytest.CaptureFixture[str], length: int
) -> None:
    broker.halt()
    first = min((tmp_path / "lost-0").glob("*.log"))
    with first.open("r+b") as file:
        file.seek(LENGTH_AT)
        batch_bytes = LENGTH_AT + LENGTH.size + LENGTH.unpack(file.read(LENGTH.size))[0]
        file.seek(3 * batch_bytes + LENGTH_AT)  # all batches are of one size
        file.write(LENGTH.pack(length))
    capfd.readouterr()
    broker.start()
    with wire_to(broker) as wire:
        for offset in range(3):
            row = wire.fetch("lost", offset, partition_max_bytes=RECORD_BYTES)
            assert row.error_code == ErrorCode.none
        for _ in range(2):
            assert read_all(wire, "lost") == ErrorCode.corrupt_message
        assert read_all(wire, "whole") == RECORDS
    lines = [line for line in capfd.readouterr().err.splitlines() if "lost-0" in line]
    assert len(lines) == 1, lines
