"""On a full disk appends fail and nothing else; they work again when there is space."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.log import OpenFiles, PartitionLog
from penstock.log.settings import RetentionSettings
from penstock.model import LeaderEpoch, Millis, Offset, ProducerEpoch, ProducerId
from penstock.protocol.control_records import build_marker
from tests.support.appending import append_batch
from tests.support.settings import default_log_settings, default_settings

Batch = Callable[..., bytearray]
Offsets = Callable[[PartitionLog], list[int]]


class SmallDisk(OpenFiles):
    """A disk with limited space for log files."""

    space_bytes = 1 << 30

    def write(self, descriptor: int, chunk: bytes, position: int) -> int:  # type: ignore[override] # a method where the real one is static
        taken = min(len(chunk), self.space_bytes)
        if taken == 0:
            raise OSError(errno.ENOSPC, "no space")
        self.space_bytes -= taken
        return os.pwrite(descriptor, chunk[:taken], position)


@pytest.mark.parametrize("space_bytes", [0, 1, 50, 61, 100])
def test_a_failed_append_changes_nothing_and_can_be_repeated(
    tmp_path: Path, batch: Batch, offsets: Offsets, space_bytes: int
) -> None:
    files = SmallDisk(4)
    log = PartitionLog.open(
        tmp_path / "orders-0", default_log_settings(), files, now=Millis(0), clean=True
    )

    def append(sequence: int, *, leader_epoch: int = 0) -> int:
        produced = batch(producer=1, epoch=0, sequence=sequence, transactional=True)
        appended = append_batch(
            log, produced, leader_epoch=LeaderEpoch(leader_epoch), now=Millis(0)
        )
        return appended.base_offset

    append(0)
    before = (log.size_bytes, log.end_offset, dict(log.producers.producers))
    files.space_bytes = space_bytes
    for _ in range(2):
        with pytest.raises(OSError, match=r"written|no space"):
            append(1, leader_epoch=1)
        files.space_bytes = 0
        assert (log.size_bytes, log.end_offset, dict(log.producers.producers)) == before
        assert offsets(log) == [0]
    files.space_bytes = 1 << 20
    assert append(1, leader_epoch=2) == 1
    assert offsets(log) == [0, 1]
    assert log.epochs.entries == [(0, 0), (2, 1)]
    log.abandon()
    again = PartitionLog.open(
        tmp_path / "orders-0", default_log_settings(), files, now=Millis(0), clean=False
    )
    assert offsets(again) == [0, 1]
    assert again.producers.producers == log.producers.producers
    files.close_all()


def test_an_abort_that_was_not_written_is_not_listed(tmp_path: Path, batch: Batch) -> None:
    files = SmallDisk(4)
    log = PartitionLog.open(
        tmp_path / "orders-0", default_log_settings(), files, now=Millis(0), clean=True
    )
    produced = batch(producer=1, epoch=0, sequence=0, transactional=True)
    append_batch(log, produced, leader_epoch=LeaderEpoch(0), now=Millis(0))
    marker = build_marker(
        commit=False,
        producer_id=ProducerId(1),
        producer_epoch=ProducerEpoch(0),
        coordinator_epoch=0,
        timestamp=Millis(1),
    )
    files.space_bytes = 10
    with pytest.raises(OSError, match="written"):
        append_batch(log, marker, leader_epoch=LeaderEpoch(0), now=Millis(0), origin="marker")
    assert log.aborted_transactions(Offset(0), Offset(10)) == []
    assert log.producers.first_unstable_offset == 0
    files.space_bytes = 1 << 20
    append_batch(log, marker, leader_epoch=LeaderEpoch(0), now=Millis(0), origin="marker")
    assert len(log.aborted_transactions(Offset(0), Offset(10))) == 1
    files.close_all()


FILLS_ITS_LIMIT = """
import resource, signal, sys
from pathlib import Path
from penstock.log import OpenFiles, PartitionLog
from penstock.protocol.batch import iterate_headers, read_header
from penstock.protocol.records import build_batch
from tests.support.settings import default_log_settings

def append():
    batch = build_batch([(b"k", bytes(999))])
    log.append(batch, read_header(batch), leader_epoch=0, now=0)

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder, settings = Path(sys.argv[1]) / "t-0", default_log_settings()
log = PartitionLog.open(folder, settings, OpenFiles(4), now=0, clean=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
refused = 0
while refused < 3:
    try:
        append()
    except OSError:
        refused += 1
whole = [h.base_offset for _, h in iterate_headers(log.read(0, max_bytes=1 << 20).view)]
assert whole == list(range(log.end_offset)), whole
assert log.size_bytes <= 100_000
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
append()
log.close()
print(log.end_offset)
"""


def test_a_file_at_its_size_limit_is_a_real_write_error(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FILLS_ITS_LIMIT, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    log = PartitionLog.open(
        tmp_path / "t-0", default_log_settings(), OpenFiles(4), now=Millis(0), clean=True
    )
    assert log.end_offset == int(done.stdout)
    log.close()


def test_an_abort_is_listed_completely_or_the_marker_is_refused(
    tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With space for half an entry and then for the marker, aborted records would be visible."""
    files = OpenFiles(4)
    log = PartitionLog.open(
        tmp_path / "orders-0", default_log_settings(), files, now=Millis(0), clean=True
    )

    def abort(producer: int) -> None:
        marker = build_marker(
            commit=False,
            producer_id=ProducerId(producer),
            producer_epoch=ProducerEpoch(0),
            coordinator_epoch=0,
            timestamp=Millis(1),
        )
        append_batch(log, marker, leader_epoch=LeaderEpoch(0), now=Millis(0), origin="marker")

    for producer in (1, 2):
        produced = batch(producer=producer, epoch=0, sequence=0, transactional=True)
        append_batch(log, produced, leader_epoch=LeaderEpoch(0), now=Millis(0))
    real, path = os.pwrite, tmp_path / "orders-0" / f"{0:020d}.txnindex"

    def write_a_part(descriptor: int, chunk: bytes, position: int) -> int:
        return real(descriptor, chunk[:10], position)

    abort(1)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", write_a_part)
        with pytest.raises(OSError, match="of an entry were written"):
            abort(2)
    assert path.stat().st_size == 34
    path.write_bytes(path.read_bytes() + bytes(10))  # the part that could not be undone
    abort(2)
    aborted = log.aborted_transactions(Offset(0), log.end_offset)
    assert [transaction.producer_id for transaction in aborted] == [1, 2]
    files.close_all()


def test_old_segments_are_removed_even_without_space_for_a_new_one(
    open_log: Callable[..., PartitionLog],
    fill: Callable[..., None],
    offsets: Offsets,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise a full disk stays full: the whole log is old, and its active segment must roll."""

    def no_space(path: str, content: bytes = b"", **_: bool) -> None:
        raise OSError(errno.ENOSPC, "no space")

    log = open_log()
    fill(log, 60)
    kept = list(range(log.active.base_offset, 60))
    retention = default_settings(RetentionSettings, retention_ms=Millis(1))
    with monkeypatch.context() as patched:
        patched.setattr("penstock.log.segment.create_file", no_space)
        with pytest.raises(OSError, match="no space"):
            log.delete_expired(retention, Millis(99_999))
    assert offsets(log) == kept
    log.delete_expired(retention, Millis(99_999))
    assert (log.start_offset, log.end_offset, offsets(log)) == (60, 60, [])
