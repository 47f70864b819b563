"""Snapshots of the committed metadata, one file each: `<end offset>-<epoch>.checkpoint`.

A snapshot stands for all records before its end offset. It is a list of batches: a control batch
with a header and the voter set, the controller's events, a control batch with the footer. A file
gets its name once it is complete and synced; one without the footer is not a snapshot.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.broker.quorum.control_records import (
    SnapshotFooter,
    SnapshotHeader,
    build_control_batch,
    read_control_batch,
)
from penstock.consensus.raft import OffsetAndEpoch, VoterSet, VotersRecord
from penstock.errors import ErrorCode, Malformed
from penstock.log.files import remove_files, sync_folder
from penstock.model import LeaderEpoch, Millis, Offset
from penstock.protocol.batch import (
    CONTROL,
    check_stored_batch,
    iterate_headers,
    write_leader_fields,
)
from penstock.protocol.key_values import build_pairs, read_pairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.consensus.raft import SnapshotFetch, SnapshotFetchReply
    from penstock.machine import JournalRecord
    from penstock.protocol.key_values import Pair

_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_PART: Final = ".part"
_BATCH_RECORDS: Final = 1000
CHUNK_BYTES: Final = 1 << 20  # of a reply to a replica that fetches a snapshot


def snapshot_path(folder: Path, snapshot: OffsetAndEpoch) -> Path:
    """Where a snapshot is."""
    return folder / f"{snapshot.offset:020d}-{snapshot.epoch:010d}.checkpoint"


def find_snapshots(folder: Path) -> list[OffsetAndEpoch]:
    """Every complete snapshot, the newest last; what an interrupted write left is removed."""
    names = [entry.name for entry in folder.iterdir()]
    remove_files(str(folder / name) for name in names if name.endswith(_PART))
    matches = (_NAME.fullmatch(name) for name in names)
    return sorted(
        OffsetAndEpoch(Offset(int(match[1])), LeaderEpoch(int(match[2])))
        for match in matches
        if match is not None
    )


def write_snapshot(
    folder: Path,
    snapshot: OffsetAndEpoch,
    voters: VoterSet,
    records: Iterable[JournalRecord],
    now: Millis,
) -> None:
    """Write, sync and name a snapshot. Takes seconds for a large cluster: run it in a thread."""
    path = snapshot_path(folder, snapshot)
    part = Path(f"{path}{_PART}")
    epoch = snapshot.epoch
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        head = (SnapshotHeader(now), VotersRecord(voters))
        offset = len(head)
        _write(descriptor, build_control_batch(head, now, leader_epoch=epoch))
        for pairs in _chunks(records):
            batch = build_pairs(pairs, now)
            write_leader_fields(batch, 0, Offset(offset), len(batch) - 12, epoch)
            offset += len(pairs)
            _write(descriptor, batch)
        footer = build_control_batch(
            (SnapshotFooter(),), now, base_offset=Offset(offset), leader_epoch=epoch
        )
        _write(descriptor, footer)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    part.rename(path)
    sync_folder(str(folder))


class SnapshotDownload:
    """A snapshot that arrives from the leader in chunks."""

    def __init__(self, folder: Path, snapshot: OffsetAndEpoch) -> None:
        self.snapshot = snapshot
        self._folder = folder
        self._path = snapshot_path(folder, snapshot)
        self._part = Path(f"{self._path}{_PART}")
        os.close(os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644))

    def write(self, position: int, chunk: bytes) -> None:
        """Store a chunk."""
        descriptor = os.open(self._part, os.O_WRONLY | os.O_CLOEXEC)
        try:
            written = os.pwrite(descriptor, chunk, position)
        finally:
            os.close(descriptor)
        if written != len(chunk):
            raise OSError(28, "the chunk was not written whole", str(self._part))

    def finish(self) -> bool:
        """Sync and name it, if it is complete; False: it is damaged, and removed."""
        try:
            for _ in read_snapshot_file(self._part):
                pass
        except Malformed:
            remove_files((str(self._part),))
            return False
        descriptor = os.open(self._part, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._part.rename(self._path)
        sync_folder(str(self._folder))
        return True


def read_snapshot(folder: Path, snapshot: OffsetAndEpoch) -> Iterator[VoterSet | Sequence[Pair]]:
    """The voter set, then the events in chunks. Malformed: it is damaged or incomplete."""
    return read_snapshot_file(snapshot_path(folder, snapshot))


def read_snapshot_file(path: Path) -> Iterator[VoterSet | Sequence[Pair]]:
    """As `read_snapshot`, of a file under any name."""
    with path.open("rb", buffering=0) as file:
        content = file.read()
    has_footer, end = False, 0
    for position, header in iterate_headers(content, 0):
        if has_footer:
            raise Malformed("records after the footer of a snapshot", position)
        check_stored_batch(content, position)
        if header.attributes & CONTROL:
            for _, record in read_control_batch(content, position):
                has_footer = has_footer or isinstance(record, SnapshotFooter)
                if isinstance(record, VotersRecord):
                    yield record.voters
        else:
            yield read_pairs(content, position, header=header)
        end = position + header.size_bytes
    if not has_footer or end != len(content):
        raise Malformed("a snapshot is incomplete", end)


def fill_chunk(
    folder: Path, request: SnapshotFetch, reply: SnapshotFetchReply
) -> SnapshotFetchReply:
    """The reply to a replica that fetches a snapshot, with the bytes that it requested."""
    if reply.error != ErrorCode.none:
        return reply
    try:
        with snapshot_path(folder, request.snapshot).open("rb", buffering=0) as file:
            size_bytes = os.fstat(file.fileno()).st_size
            chunk = os.pread(file.fileno(), CHUNK_BYTES, request.position)
    except FileNotFoundError:
        return reply._replace(error=ErrorCode.snapshot_not_found)
    if request.position > size_bytes:
        return reply._replace(error=ErrorCode.position_out_of_range)
    return reply._replace(position=request.position, size_bytes=size_bytes, chunk=chunk)


def _chunks(records: Iterable[JournalRecord]) -> Iterator[list[JournalRecord]]:
    chunk: list[JournalRecord] = []
    for record in records:
        chunk.append(record)
        if len(chunk) == _BATCH_RECORDS:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _write(descriptor: int, batch: bytearray) -> None:
    if os.write(descriptor, batch) != len(batch):
        raise OSError(28, "the snapshot was not written whole")
