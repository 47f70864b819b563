"""Segments made by hand, and jobs over them."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias
from unittest import mock

import pytest

from penstock.model import Millis, Offset
from penstock.protocol.batch import BatchHeader, iterate_headers
from penstock.protocol.records import Record, read_records
from penstock.upkeep.cleaned_files import SUFFIX, segment_path
from penstock.upkeep.compact_partition import clean
from penstock.upkeep.jobs import Cleaned, CleanJob

NOW = Millis(1_700_000_000_000)


def write_segment(folder: Path, base_offset: int, batches: Iterable[bytes | bytearray]) -> None:
    """Write the log file of a closed segment."""
    Path(segment_path(str(folder), Offset(base_offset), "log")).write_bytes(b"".join(batches))


def make_job(folder: Path, **changes: Any) -> CleanJob:
    """A round over every segment of the folder, up to the last offset of the last batch."""
    names = sorted(path for path in folder.iterdir() if path.name.endswith(".log"))
    last = names[-1].read_bytes()
    end = max(header.end_offset for _, header in iterate_headers(last))
    fields: dict[str, Any] = {
        "folder": str(folder),
        "base_offsets": tuple(Offset(int(path.name.split(".")[0])) for path in names),
        "first_dirty_offset": Offset(0),
        "end_offset": end,
        "segment_bytes": 1 << 30,
        "segment_index_bytes": 10 << 20,
        "index_interval_bytes": 4096,
        "delete_retention_ms": Millis(1000),
        "now": NOW,
        "map_bytes": 1 << 20,
        "bytes_per_second": None,
        "seed": (1, 2),
    }
    return CleanJob(**{**fields, **changes})


def swap_by_hand(folder: Path, cleaned: Cleaned) -> None:
    """Replace segments by the cleaned ones."""
    for segment in cleaned.segments:
        for old in segment.replaces:
            for kind in ("log", "index", "timeindex", "txnindex"):
                Path(segment_path(str(folder), old, kind)).unlink(missing_ok=True)
        for kind in ("log", "index", "timeindex", "txnindex"):
            path = segment_path(str(folder), segment.base_offset, kind)
            if os.path.exists(path + SUFFIX):
                os.rename(path + SUFFIX, path)


def batches_in(folder: Path) -> list[tuple[BatchHeader, list[Record]]]:
    """Every batch of every segment, headers and records."""
    batches = []
    for path in sorted(folder.iterdir()):
        if path.name.endswith(".log"):
            content = path.read_bytes()
            batches += [
                (header, read_records(content, position))
                for position, header in iterate_headers(content)
            ]
    return batches


class Compacted:
    """A folder of segments that is compacted round by round."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def segment(self, base_offset: int, *batches: bytes | bytearray) -> None:
        write_segment(self.folder, base_offset, batches)

    def clean(self, **changes: Any) -> Cleaned:
        cleaned = clean(make_job(self.folder, **changes), lambda _: None)
        swap_by_hand(self.folder, cleaned)
        return cleaned

    def batches(self) -> list[tuple[BatchHeader, list[Record]]]:
        return batches_in(self.folder)

    def records(self) -> list[Record]:
        return [record for _, records in self.batches() for record in records]

    def values(self) -> dict[bytes | None, bytes | None]:
        return {record.key: record.value for record in self.records()}


NewCompacted: TypeAlias = Callable[[], Compacted]


@pytest.fixture(autouse=True, scope="package")
def no_waiting_for_the_disk() -> Iterator[None]:
    """Crashes here are killed processes, which lose nothing that was written."""
    with mock.patch.object(os, "fsync", return_value=None):
        yield


@pytest.fixture
def compacted(tmp_path: Path) -> Compacted:
    """An empty folder to compact."""
    return Compacted(tmp_path)


@pytest.fixture(scope="session")
def new_compacted(tmp_path_factory: pytest.TempPathFactory) -> NewCompacted:
    """A new empty folder for each call: for tests that hypothesis runs many times."""
    return lambda: Compacted(tmp_path_factory.mktemp("segments"))


@pytest.fixture
def job_over() -> Callable[..., CleanJob]:
    """Makes a job over all segments of a folder, with any of its fields given."""
    return make_job
