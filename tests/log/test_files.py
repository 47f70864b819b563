"""Descriptors are limited, failed writes leave nothing, and no file is cut under a view."""

import errno
import os
from pathlib import Path

import pytest

from penstock.log.files import COPY_BYTES_MAX, IndexCache, LogFile, OpenFiles, create_file

LARGE = COPY_BYTES_MAX * 3


def a_file(path: Path, files: OpenFiles, content: bytes = b"") -> LogFile:
    create_file(str(path), content)
    return LogFile(str(path), files, len(content))


def test_the_number_of_open_descriptors_is_limited(tmp_path: Path) -> None:
    files = OpenFiles(3)
    logs = [a_file(tmp_path / str(number), files) for number in range(10)]
    for _ in range(2):
        for log in logs:
            log.append(b"x")
            assert len(files) <= 3
    assert [log.size_bytes for log in logs] == [2] * 10
    assert all((tmp_path / str(number)).read_bytes() == b"xx" for number in range(10))
    files.close_all()
    assert len(files) == 0


def test_the_file_used_last_stays_open(tmp_path: Path) -> None:
    files = OpenFiles(2)
    busy, other, third = (a_file(tmp_path / name, files) for name in "abc")
    busy.append(b"1")
    other.append(b"1")
    busy.append(b"2")
    third.append(b"1")
    assert busy.descriptor >= 0
    assert other.descriptor < 0
    files.close_all()


def test_a_file_is_opened_even_when_connections_use_all_other_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = OpenFiles(100)
    logs = [a_file(tmp_path / str(number), files) for number in range(6)]
    real = os.open

    def open_few(path: str, flags: int, mode: int = 0o777) -> int:
        if len(files) >= 3:
            raise OSError(errno.EMFILE, "too many")
        return real(path, flags, mode)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", open_few)
        for log in logs:
            log.append(b"x")
        assert len(files) == 3
    assert all(path.read_bytes() == b"x" for path in tmp_path.iterdir())
    files.close_all()


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_view_stays_valid_when_the_file_is_unlinked_closed_or_cut(
    tmp_path: Path, size: int
) -> None:
    files = OpenFiles(2)
    content = os.urandom(size)
    log = a_file(tmp_path / "log", files, content)
    view = log.read(1, size)
    assert view.readonly
    log.cut(4)
    assert log.append(b"new bytes at the same place") == 4
    log.rename(str(tmp_path / "renamed"))
    log.close()
    os.unlink(tmp_path / "renamed")
    assert bytes(view) == content[1:]


def test_a_large_view_is_mapped_and_counted_until_it_is_deleted(tmp_path: Path) -> None:
    files = OpenFiles(2)
    log = a_file(tmp_path / "log", files, bytes(LARGE))
    view = log.read(0, LARGE)
    part = view[5:10]
    assert log.live_views == 1
    del view
    assert log.live_views == 1
    assert bytes(part) == bytes(5)
    del part
    assert log.live_views == 0
    files.close_all()


def test_views_need_no_descriptors(tmp_path: Path) -> None:
    files = OpenFiles(2)
    log = a_file(tmp_path / "log", files, bytes(LARGE))
    before = len(os.listdir("/proc/self/fd"))
    views = [log.read(number, LARGE) for number in range(50)]
    assert len(os.listdir("/proc/self/fd")) <= before + 1
    assert len(views) == 50
    files.close_all()


class Failing(OpenFiles):
    """Accepts a number of bytes and then fails."""

    room_bytes = 10

    def write(self, descriptor: int, chunk: bytes, position: int) -> int:  # type: ignore[override] # a method where the real one is static
        taken = min(len(chunk), self.room_bytes)
        if taken == 0:
            raise OSError(errno.ENOSPC, "no space")
        self.room_bytes -= taken
        return os.pwrite(descriptor, chunk[:taken], position)


def test_a_write_that_fails_or_is_short_leaves_nothing_behind(tmp_path: Path) -> None:
    files = Failing(2)
    log = a_file(tmp_path / "log", files)
    log.append(b"12345")
    for _ in range(2):  # short the first time, an error the second
        with pytest.raises(OSError, match=r"written|no space"):
            log.append(b"67890abc")
        assert log.size_bytes == 5
        assert (tmp_path / "log").read_bytes() == b"12345"
    files.room_bytes = 100
    assert log.append(b"678") == 5
    assert bytes(log.read(0, 8)) == b"12345678"
    files.close_all()


class Loaded:
    def __init__(self) -> None:
        self.dropped = False

    def drop(self) -> None:
        self.dropped = True


def test_the_least_recently_used_index_is_dropped_at_the_limit() -> None:
    memory = IndexCache(100)
    first, second, third = Loaded(), Loaded(), Loaded()
    memory.add(first, 60)
    memory.add(second, 40)
    memory.touch(first)
    memory.add(third, 30)
    assert (first.dropped, second.dropped, third.dropped) == (False, True, False)
    assert memory.size_bytes == 90
    memory.remove(first)
    assert memory.size_bytes == 30
