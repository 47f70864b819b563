"""The log of `__cluster_metadata` as a Raft replica sees it: batches of epochs, and snapshots.

Implements `consensus.raft.RaftLog`. Never compacted by key: a replica that slept through a
tombstone would keep what was deleted. Snapshots shorten it instead: the log starts at the older of
the two newest ones, so a replica that is a little behind still finds records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.broker.quorum.control_records import build_control_batch, read_control_batch
from penstock.broker.quorum.snapshot_files import find_snapshots, read_snapshot, snapshot_path
from penstock.consensus.raft import OffsetAndEpoch, VoterSet, VotersRecord
from penstock.errors import Malformed
from penstock.log.append_plan import read_replicated
from penstock.log.files import remove_files, sync_folder
from penstock.model import NO_EPOCH, LeaderEpoch, Offset
from penstock.protocol.batch import CONTROL, iterate_headers, read_header
from penstock.protocol.key_values import build_pairs, read_pairs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penstock.broker.quorum.control_records import ControlRecord
    from penstock.log.flush import FlushWork
    from penstock.log.partition_log import PartitionLog
    from penstock.machine import JournalRecord
    from penstock.model import Millis
    from penstock.protocol.batch import BatchHeader
    from penstock.protocol.key_values import Pair
    from penstock.protocol.varint import Buffer

FETCH_BYTES_MAX: Final = 1 << 20
SNAPSHOTS_KEPT: Final = 2

VoterSets = list[tuple[Offset, VoterSet]]


class StoredRecords(NamedTuple):
    """A data batch of the log: one command's events, all of them."""

    end: OffsetAndEpoch
    pairs: Sequence[Pair]  # none: a control batch
    size_bytes: int


class MetadataLog:
    """One replica's log and snapshots. Written by its quorum node alone."""

    def __init__(self, log: PartitionLog) -> None:
        self.folder: Path = log.folder
        self._log = log
        self._unfinished: Buffer | None = None  # an append that failed for want of space
        sync_folder(str(log.folder.parent))  # a new folder's name must last with what is in it
        self._snapshots = find_snapshots(log.folder)
        snapshot = self.latest_snapshot
        if snapshot is not None and log.end_offset < snapshot.offset:
            log.reset_to(snapshot.offset)  # a stop between the two steps of installing it

    @property
    def start_offset(self) -> Offset:
        return self._log.start_offset

    @property
    def end_offset(self) -> Offset:
        return self._log.end_offset

    @property
    def last_epoch(self) -> LeaderEpoch:
        return self.end_offset_for(LeaderEpoch(2**31 - 1)).epoch

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return self._snapshots[-1] if self._snapshots else None

    def end_offset_for(self, epoch: LeaderEpoch) -> OffsetAndEpoch:
        """The largest epoch that is not above `epoch`, and where it ends.

        An epoch whose first append failed is noted and has no batch: it is not in the log.
        """
        following = self.end_offset
        for entry in reversed(self._log.epochs.entries):
            if entry.epoch <= epoch and entry.start_offset < self.end_offset:
                return OffsetAndEpoch(following, entry.epoch)
            following = min(following, entry.start_offset)
        at_start = self._epoch_at_start()
        if at_start <= epoch:
            return OffsetAndEpoch(following, at_start)
        return OffsetAndEpoch(self.start_offset, NO_EPOCH)

    def _epoch_at_start(self) -> LeaderEpoch:
        """Of the record before the first one: from the snapshot that ends there."""
        for snapshot in self._snapshots:
            if snapshot.offset == self.start_offset:
                return snapshot.epoch
        return LeaderEpoch(0)

    def voter_sets(self) -> VoterSets:
        """Those of the newest snapshot before the log's end, and of the records after it."""
        snapshot = self.latest_snapshot
        sets: VoterSets = []
        start = self.start_offset
        if snapshot is not None:
            voters = next(
                each for each in read_snapshot(self.folder, snapshot) if isinstance(each, VoterSet)
            )
            sets.append((Offset(snapshot.offset - 1), voters))
            start = snapshot.offset
        for position, header, chunk in self._batches(start, self.end_offset):
            if header.attributes & CONTROL:
                sets += _voter_sets_in(chunk, position)
        return sets

    # Writing.

    def append_records(
        self, records: Sequence[JournalRecord], epoch: LeaderEpoch, now: Millis
    ) -> Offset:
        """The leader's append of one command's events, as one batch; the new end offset."""
        batch = build_pairs(records, now)
        return self._append(batch, epoch, now)

    def append_control(
        self, records: Sequence[ControlRecord], epoch: LeaderEpoch, now: Millis
    ) -> VoterSets:
        """The leader's append of records about the log itself; the voter sets among them."""
        batch = build_control_batch(records, now, leader_epoch=epoch)
        self._append(batch, epoch, now)
        return _voter_sets_in(batch, 0)

    def _append(self, batch: bytearray, epoch: LeaderEpoch, now: Millis) -> Offset:
        appended = self._log.append(
            batch, read_header(batch), leader_epoch=epoch, now=now, origin="internal"
        )
        return appended.end_offset

    def append_fetched(
        self, batches: Buffer, *, leader_epoch: LeaderEpoch, now: Millis
    ) -> VoterSets:
        """A follower's append of what the leader sent; the voter sets in it.

        Malformed or Refused: a batch is corrupt or does not follow this log, which is left as it
        was. OSError: call it again with the same batches, of which the first may be here.
        """
        headers = read_replicated(batches)  # a fetch may end inside a batch
        if not headers:
            raise Malformed("the leader sent no whole batch", 0)
        sets: VoterSets = []
        position = 0
        for header in headers:
            if header.attributes & CONTROL:
                sets += _voter_sets_in(batches, position)
            position += header.size_bytes
        missing = memoryview(batches)
        if batches is self._unfinished:
            here = [each for each in headers if each.end_offset <= self.end_offset]
            missing, headers = (
                missing[sum(each.size_bytes for each in here) :],
                headers[len(here) :],
            )
        self._unfinished = batches
        self._log.append_replicated(missing, headers, leader_epoch=leader_epoch, now=now)
        self._unfinished = None
        return sets

    def truncate_to(self, offset: Offset) -> None:
        """Drop records that another leader's log does not have."""
        self._log.truncate_to(offset)

    def set_high_watermark(self, offset: Offset) -> None:
        """Everything below is committed."""
        self._log.set_high_watermark(offset)

    def pending_sync(self) -> FlushWork | None:
        """What to sync in a thread; None: everything is on disk."""
        log = self._log
        return log.pending_flush() if log.recovery_point < log.end_offset else None

    def synced(self, work: FlushWork, now: Millis) -> None:
        """The work was done."""
        self._log.flushed(work.end_offset, now)

    # Reading.

    def read_raw(self, offset: Offset) -> bytes:
        """Batches from an offset on, for a follower; at least one if there is one."""
        if offset >= self.end_offset:
            return b""
        read = self._log.read(offset, max_bytes=FETCH_BYTES_MAX, end_offset=self.end_offset)
        return bytes(read.view)

    def read_batches(self, start: Offset, end: Offset) -> Iterator[StoredRecords]:
        """The batches between two offsets, in order."""
        for position, header, chunk in self._batches(start, end):
            stored_end = OffsetAndEpoch(header.end_offset, LeaderEpoch(header.leader_epoch))
            if header.attributes & CONTROL or not header.record_count:
                yield StoredRecords(stored_end, (), header.size_bytes)
            else:
                pairs = read_pairs(chunk, position, header=header)
                yield StoredRecords(stored_end, pairs, header.size_bytes)

    def _batches(self, start: Offset, end: Offset) -> Iterator[tuple[int, BatchHeader, bytes]]:
        offset = start
        while offset < end:
            chunk = self.read_raw(offset)
            before = offset
            for position, header in iterate_headers(chunk):
                if header.end_offset <= offset:
                    continue
                if header.end_offset > end:
                    return
                yield position, header, chunk
                offset = header.end_offset
            if offset == before:
                return  # what follows was taken by compaction, before this was a quorum's log

    # Snapshots.

    def snapshot_stored(self, snapshot: OffsetAndEpoch, now: Millis) -> None:
        """A snapshot of this log is on disk: the log may start later now, and older ones go."""
        self._snapshots = sorted({*self._snapshots, snapshot})
        self._drop_old_snapshots()
        oldest = self._snapshots[0]
        if len(self._snapshots) == SNAPSHOTS_KEPT and oldest.offset <= self._log.high_watermark:
            self._log.advance_start_offset(oldest.offset, now)

    def install_snapshot(self, snapshot: OffsetAndEpoch) -> VoterSet:
        """Let a snapshot from the leader replace the log; the voter set that it holds."""
        voters = next(
            each for each in read_snapshot(self.folder, snapshot) if isinstance(each, VoterSet)
        )
        self._log.reset_to(snapshot.offset)
        self._snapshots = [snapshot]
        self._drop_files_but(self._snapshots)
        return voters

    def _drop_old_snapshots(self) -> None:
        self._snapshots = self._snapshots[-SNAPSHOTS_KEPT:]
        self._drop_files_but(self._snapshots)

    def _drop_files_but(self, kept: Sequence[OffsetAndEpoch]) -> None:
        others = [each for each in find_snapshots(self.folder) if each not in kept]
        remove_files(str(snapshot_path(self.folder, each)) for each in others)


def _voter_sets_in(batch: Buffer, position: int) -> VoterSets:
    return [
        (offset, record.voters)
        for offset, record in read_control_batch(batch, position)
        if isinstance(record, VotersRecord)
    ]
