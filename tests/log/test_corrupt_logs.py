"""Corrupt bytes on disk: reads of them are refused, everything else is served, nothing hangs."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from struct import pack

import pytest

from penstock.errors import ErrorCode, Refused
from penstock.log import OpenFiles, PartitionLog
from penstock.log.files import LogFile
from penstock.model import LeaderEpoch, Millis, Offset
from penstock.protocol.batch import iterate_headers
from tests.support.appending import append_batch

OpenLog = Callable[..., PartitionLog]
Fill = Callable[..., None]
Batch = Callable[..., bytearray]
Offsets = Callable[[PartitionLog], list[int]]

LENGTH_AT = 8
CORRUPT = 3  # the offset of the corrupt batch


@pytest.fixture
def closed(open_log: OpenLog, fill: Fill) -> PartitionLog:
    """A log of some segments after a clean stop."""
    log = open_log()
    fill(log, 60)
    assert log.segments[1].base_offset > CORRUPT + 1
    log.close(sync=False)
    return log


def change(path: str, position: int, content: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(content)


def read_one(log: PartitionLog, offset: int, *, max_bytes: int = 1) -> int | str:
    """The batch that a reader gets at this offset, or the name of the error."""
    try:
        view = log.read(Offset(offset), max_bytes=max_bytes).view
    except Refused as refusal:
        return refusal.code.name  # not the code: it equals an offset
    return next(iter(iterate_headers(view)))[1].base_offset


@pytest.mark.parametrize("length", [-12, -13, 0, 48, -(1 << 31), (1 << 31) - 1, 5_000])
@pytest.mark.parametrize("clean", [True, False])
def test_a_read_of_a_batch_with_a_corrupt_length_is_refused(
    closed: PartitionLog, open_log: OpenLog, length: int, clean: bool
) -> None:
    first = closed.segments[0]
    change(first.log.path, first.position_of(Offset(CORRUPT)) + LENGTH_AT, pack(">i", length))
    log = open_log(clean=clean, recovery_point=60)
    for max_bytes in (1, 200, 500, 1_000, 1 << 20):
        before = [read_one(log, offset, max_bytes=max_bytes) for offset in range(CORRUPT)]
        assert before == list(range(CORRUPT))
    assert read_one(log, CORRUPT) == ErrorCode.corrupt_message.name
    after = log.segments[1].base_offset
    assert [read_one(log, offset) for offset in range(after, 60)] == list(range(after, 60))


def test_a_closed_segment_that_is_cut_short_loses_only_the_end(
    closed: PartitionLog, files: OpenFiles, tmp_path: Path
) -> None:
    first = closed.segments[0]
    starts = [first.position_of(Offset(offset)) for offset in range(closed.segments[1].base_offset)]
    for size in range(starts[CORRUPT], starts[CORRUPT + 1] + 1):
        folder = tmp_path / f"cut-{size}"
        shutil.copytree(closed.folder, folder)
        os.truncate(folder / Path(first.log.path).name, size)
        log = PartitionLog.open(folder, closed.settings, files, now=Millis(0), clean=True)
        whole = sum(1 for start in starts[1:] if start <= size)
        assert [read_one(log, offset) for offset in range(whole)] == list(range(whole))
        after = len(starts)
        assert [read_one(log, offset) for offset in range(after, 60)] == list(range(after, 60))
        if size != starts[whole]:
            assert read_one(log, whole) == ErrorCode.corrupt_message.name
        log.abandon()
        shutil.rmtree(folder)


def test_a_lost_index_of_an_old_corrupt_segment_loses_no_batch(
    closed: PartitionLog, open_log: OpenLog, offsets: Offsets
) -> None:
    first = closed.segments[0]
    change(first.log.path, first.position_of(Offset(CORRUPT)) + 70, b"bad")
    os.unlink(first.offset_index.file.path)
    log = open_log(clean=False, recovery_point=closed.segments[2].base_offset)
    assert offsets(log) == list(range(60)), "readers see by the checksum which batch it is"


def test_a_corrupt_record_of_a_small_log_affects_no_other_after_a_clean_stop(
    open_log: OpenLog, fill: Fill, offsets: Offsets
) -> None:
    log = open_log()
    fill(log, 6)
    log.close(sync=False)
    change(log.active.log.path, log.active.position_of(Offset(CORRUPT)) + 70, b"bad")
    assert offsets(open_log()) == list(range(6))


@pytest.mark.parametrize("garbage", [bytes(5), bytes(100), b"\xff" * 26, b"\xff" * 500])
@pytest.mark.parametrize("count", [6, 60])
def test_bytes_after_the_last_batch_are_cut_off_even_after_a_clean_stop(
    open_log: OpenLog, fill: Fill, offsets: Offsets, garbage: bytes, count: int
) -> None:
    log = open_log()
    fill(log, count)
    log.close(sync=False)
    with open(log.active.log.path, "ab") as file:  # a failed write that could not be undone
        file.write(garbage)
    again = open_log()
    assert again.end_offset == count
    fill(again, 3)
    again.abandon()
    assert offsets(open_log(clean=False)) == list(range(count + 3))


@pytest.mark.parametrize("at", [LENGTH_AT, 70])
def test_recovery_does_not_cut_corrupt_bytes_that_were_on_disk(
    open_log: OpenLog, fill: Fill, offsets: Offsets, at: int
) -> None:
    """They are not an incomplete write, and what follows was acknowledged."""
    log = open_log()
    fill(log, 6)
    log.abandon()
    position = log.active.position_of(Offset(CORRUPT)) + at
    content = Path(log.active.log.path).read_bytes()
    change(log.active.log.path, position, b"bad")
    if at == LENGTH_AT:  # the end of the log cannot be determined
        for clean in (True, False):
            with pytest.raises(OSError, match="restore it from a copy"):
                open_log(clean=clean, recovery_point=CORRUPT + 1)
        assert len(Path(log.active.log.path).read_bytes()) == len(content)
        change(log.active.log.path, 0, content)
    assert offsets(open_log(clean=False, recovery_point=CORRUPT + 1)) == list(range(6))


def test_a_batch_with_an_impossible_offset_ends_the_log(
    open_log: OpenLog, fill: Fill, offsets: Offsets
) -> None:
    log = open_log()
    fill(log, 6)
    log.abandon()
    change(log.active.log.path, log.active.position_of(Offset(CORRUPT)), b"\x7f")
    assert offsets(open_log(clean=False)) == list(range(CORRUPT))


def test_a_read_error_of_the_disk_is_reported_to_the_reader(
    open_log: OpenLog, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: LogFile, position: int, end: int) -> memoryview:
        raise OSError(errno.EIO, "bad sector")

    log = open_log()
    fill(log, 6)
    with monkeypatch.context() as patched:
        patched.setattr(LogFile, "read", refuse)
        assert read_one(log, 2) == ErrorCode.kafka_storage_error.name
        with pytest.raises(Refused, match="bad sector"):
            log.offset_by_timestamp(Millis(1_002))
    assert read_one(log, 2) == 2


def test_a_search_by_time_in_corrupt_bytes_is_refused(
    closed: PartitionLog, open_log: OpenLog
) -> None:
    first = closed.segments[0]
    change(first.log.path, first.position_of(Offset(CORRUPT)) + 70, b"bad")
    log = open_log()
    with pytest.raises(Refused) as refused:
        log.offset_by_timestamp(Millis(1_000 + CORRUPT))
    assert refused.value.code == ErrorCode.corrupt_message
    match = log.offset_by_timestamp(Millis(1_040))
    assert match is not None
    assert match.offset == 40


def test_a_search_by_time_over_a_length_past_the_files_end_is_refused(
    closed: PartitionLog, open_log: OpenLog
) -> None:
    first = closed.segments[0]
    change(first.log.path, first.position_of(Offset(CORRUPT)) + LENGTH_AT, pack(">i", 1 << 30))
    with pytest.raises(Refused) as refused:
        open_log().offset_by_timestamp(Millis(1_000 + CORRUPT))
    assert refused.value.code == ErrorCode.corrupt_message


def test_a_segment_whose_first_batch_is_corrupt_has_no_first_timestamp(
    closed: PartitionLog, open_log: OpenLog
) -> None:
    os.truncate(closed.segments[0].log.path, 20)
    log = open_log()
    assert log.segments[0].first_timestamp == -1


def test_a_log_with_a_corrupt_segment_can_be_appended_to(
    closed: PartitionLog, open_log: OpenLog, batch: Batch
) -> None:
    change(closed.segments[1].log.path, 0, bytes(61))
    log = open_log(clean=False, recovery_point=60)
    appended = append_batch(log, batch(), leader_epoch=LeaderEpoch(0), now=Millis(0))
    assert appended.base_offset == 60
    assert read_one(log, 60) == 60


@pytest.mark.parametrize("length", [-13, 0, 48, (1 << 31) - 1, 5_000, 200])
def test_a_read_of_any_size_that_starts_with_a_corrupt_batch_is_refused(
    closed: PartitionLog, open_log: OpenLog, length: int, caplog: pytest.LogCaptureFixture
) -> None:
    first = closed.segments[0]
    change(first.log.path, first.position_of(Offset(CORRUPT)) + LENGTH_AT, pack(">i", length))
    log = open_log()
    caplog.clear()
    for max_bytes in (100, 500, 1_000, 1 << 20):
        with pytest.raises(Refused) as refused:
            log.read(Offset(CORRUPT), max_bytes=max_bytes)
        assert refused.value.code == ErrorCode.corrupt_message
    assert [record.levelname for record in caplog.records] == ["ERROR"], "one line for all of them"
    assert "restore the folder from a copy" in caplog.text


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("left", [0, CORRUPT])
def test_a_closed_segment_that_lost_its_last_batches_is_not_skipped(
    closed: PartitionLog, open_log: OpenLog, left: int, clean: bool
) -> None:
    first, after = closed.segments[0], closed.segments[1].base_offset
    os.truncate(first.log.path, first.position_of(Offset(left)))
    for _ in range(2):  # the second start finds what the first one has left
        log = open_log(clean=clean, recovery_point=60)
        assert [read_one(log, offset) for offset in range(left)] == list(range(left))
        for offset in range(left, after):
            assert read_one(log, offset) == ErrorCode.corrupt_message.name
        assert [read_one(log, offset) for offset in range(after, 60)] == list(range(after, 60))
        log.close(sync=False)


def test_a_reader_that_reaches_the_cut_end_of_a_segment_is_refused_there(
    closed: PartitionLog, open_log: OpenLog
) -> None:
    first = closed.segments[0]
    size_bytes = first.position_of(Offset(CORRUPT))
    os.truncate(first.log.path, size_bytes)
    log = open_log()
    for max_bytes in (1, size_bytes - 1, size_bytes, size_bytes + 1):
        offset, read = Offset(0), []
        while offset < CORRUPT:
            for _, header in iterate_headers(log.read(offset, max_bytes=max_bytes).view):
                read.append(header.base_offset)
                offset = header.end_offset
        assert read == list(range(CORRUPT))
        assert read_one(log, offset) == ErrorCode.corrupt_message.name


def test_a_segment_that_was_removed_from_the_middle_is_not_skipped(
    closed: PartitionLog, open_log: OpenLog
) -> None:
    removed, after = closed.segments[1], closed.segments[2].base_offset
    for path in removed.paths():
        Path(path).unlink(missing_ok=True)
    log = open_log(clean=False, recovery_point=60)
    assert read_one(log, removed.base_offset - 1) == removed.base_offset - 1
    assert read_one(log, removed.base_offset) == ErrorCode.corrupt_message.name
    assert [read_one(log, offset) for offset in range(after, 60)] == list(range(after, 60))


def test_a_log_of_an_older_version_gets_end_files(
    closed: PartitionLog, open_log: OpenLog, offsets: Offsets
) -> None:
    for path in closed.folder.glob("*.end"):
        path.unlink()
    first, second = closed.segments[:2]
    os.truncate(first.log.path, first.position_of(Offset(CORRUPT)))
    log = open_log()
    rest = [*range(CORRUPT), *range(second.base_offset, 60)]
    assert offsets(log) == rest, "compaction could have done this"
    log.sweep(Millis(0))
    log.close(sync=False)
    os.truncate(second.log.path, second.position_of(Offset(second.base_offset + 1)))
    again = open_log()
    assert read_one(again, second.base_offset + 1) == ErrorCode.corrupt_message.name
    assert read_one(again, CORRUPT) == second.base_offset


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("is_cut", [True, False])
def test_a_log_that_ends_before_its_recovery_point_is_not_opened(
    closed: PartitionLog, open_log: OpenLog, is_cut: bool, clean: bool
) -> None:
    path = Path(closed.active.log.path)
    content = path.read_bytes()
    if is_cut:
        os.truncate(path, closed.active.position_of(Offset(59)))
    else:
        path.unlink()
    for _ in range(2):
        with pytest.raises(OSError, match=r"was on disk up to 60: restore .* the line 'orders 3'"):
            open_log(clean=clean, recovery_point=60)
    path.write_bytes(content)
    assert open_log(clean=clean, recovery_point=60).end_offset == 60


def test_a_log_that_lost_all_its_files_is_not_opened_as_an_empty_one(
    closed: PartitionLog, open_log: OpenLog
) -> None:
    for path in closed.folder.glob("*.log"):
        path.unlink()
    with pytest.raises(OSError, match="ends at offset 0, but was on disk up to 60"):
        open_log(recovery_point=60)


def test_the_end_file_of_a_replaced_log_does_not_apply_to_the_new_one(
    closed: PartitionLog, open_log: OpenLog, offsets: Offsets
) -> None:
    """As after a compaction by a version without `.end` files."""
    first, second = closed.segments[:2]
    path = Path(first.log.path)
    content = path.read_bytes()[: first.position_of(Offset(CORRUPT))]
    path.rename(path.with_suffix(".aside"))
    path.write_bytes(content)
    assert offsets(open_log()) == [*range(CORRUPT), *range(second.base_offset, 60)]


@pytest.mark.parametrize("kind", ["folder", "dangling link"])
def test_a_log_whose_first_segment_is_not_a_file_is_not_opened(
    closed: PartitionLog, open_log: OpenLog, offsets: Offsets, kind: str
) -> None:
    path = Path(closed.segments[0].log.path)
    aside = path.rename(path.with_suffix(".aside"))
    if kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("nowhere")
    for clean in (True, False):
        with pytest.raises(OSError, match="from a copy"):
            open_log(clean=clean, recovery_point=60)
    if kind == "folder":
        path.rmdir()
    aside.rename(path)  # also over a link
    assert offsets(open_log(clean=False, recovery_point=60)) == list(range(60))


def test_a_file_whose_name_is_not_an_offset_is_ignored(
    closed: PartitionLog, open_log: OpenLog, offsets: Offsets, caplog: pytest.LogCaptureFixture
) -> None:
    strange = [closed.folder / name for name in ("9" * 23 + ".log", "9" * 20 + ".log", "7.log")]
    for path in strange:
        path.write_bytes(b"what is this")
    (closed.folder / ("9" * 23 + ".snapshot")).write_bytes(b"and this")
    log = open_log(clean=False, recovery_point=60)
    assert offsets(log) == list(range(60))
    assert all(path.read_bytes() == b"what is this" for path in strange)
    assert caplog.text.count("not the name of a segment") == 3
