"""One partition's batches on disk, in offset order, laid out as Apache Kafka lays them out.

Written by one task; what was read stays readable whatever happens to the files. Never opens a
record on the way in or out: only headers are read. An append that raised has changed nothing.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from penstock.config.views import LogSettings, RetentionSettings
from penstock.errors import ErrorCode, Refused
from penstock.log.epochs import LeaderEpochs
from penstock.log.files import OpenFiles, remove_files
from penstock.log.flush import FlushWork, work_for
from penstock.log.placing import (
    Appended,
    Placement,
    place_produced,
    place_replicated,
    stage_one,
    stamp_all,
)
from penstock.log.producers import BatchMark, Origin, ProducerTable
from penstock.log.recovery import load_partition, reload_producers
from penstock.log.retention import expired_count
from penstock.log.rolling import must_roll, room_in
from penstock.log.segment import NO_ROOM, NOTHING, Segment
from penstock.log.segments import LogSlice, Segments
from penstock.log.snapshots import save_snapshot, snapshot_offsets, snapshot_path
from penstock.log.swap import Replacement
from penstock.log.timestamps import Found, find_by_timestamp, newest_timestamp
from penstock.log.txn_index import AbortedTransaction
from penstock.model import NO_TIMESTAMP, LeaderEpoch, Millis, Offset, TopicPartition
from penstock.protocol.batch import BatchHeader, stamp_first
from penstock.protocol.primitives import Buffer, WritableBuffer

# Up to here a start walks the log as quickly as it reads indexes and a snapshot; a broker with
# thousands of small partitions stops and starts in the time it takes to make those files.
_SMALL_BYTES: Final = 64 << 10


class PartitionLog:
    """The log of one partition.

    start_offset <= last_stable_offset <= high_watermark <= end_offset
    """

    __slots__ = (
        "_segments",
        "_snapshot_offset",
        "end_offset",
        "epochs",
        "folder",
        "high_watermark",
        "last_flush_at",
        "producers",
        "recovery_point",
        "settings",
        "start_offset",
        "topic_partition",
    )

    def __init__(
        self,
        folder: Path,
        settings: LogSettings,
        *,
        segments: Segments,
        end_offset: Offset,
        producers: ProducerTable,
        snapshot_offset: Offset,
        epochs: LeaderEpochs,
    ) -> None:
        topic, _, partition = folder.name.rpartition("-")
        self.topic_partition = TopicPartition(topic, int(partition))
        self.folder = folder
        self.settings = settings
        self.start_offset = segments.all[0].base_offset
        self.end_offset = end_offset
        self.high_watermark = self.start_offset
        self.recovery_point = end_offset  # everything before is on disk, not only in memory
        self.last_flush_at = NO_TIMESTAMP
        self.producers = producers
        self.epochs = epochs
        self._segments = segments
        self._snapshot_offset = snapshot_offset  # the newest snapshot there is

    @classmethod
    def open(
        cls,
        folder: Path,
        settings: LogSettings,
        files: OpenFiles,
        *,
        now: Millis,
        clean: bool,
        recovery_point: Offset = Offset(0),
        start_offset: Offset = Offset(0),
    ) -> "PartitionLog":
        """The log in `folder`, made when absent and recovered unless it was closed `clean`."""
        folder.mkdir(parents=True, exist_ok=True)
        loaded = load_partition(
            str(folder),
            files,
            index_interval_bytes=settings.index_interval_bytes,
            now=now,
            clean=clean,
            recovery_point=recovery_point,
            start_offset=start_offset,
        )
        log = cls(
            folder,
            settings,
            segments=Segments(str(folder), files, loaded.segments),
            end_offset=loaded.end_offset,
            producers=loaded.producers,
            snapshot_offset=loaded.snapshot_offset,
            epochs=loaded.epochs,
        )
        log.start_offset = Offset(min(max(log.start_offset, start_offset), log.end_offset))
        log.high_watermark = log.start_offset
        if not clean:
            log.recovery_point = Offset(min(recovery_point, log.end_offset))
        return log

    @property
    def segments(self) -> Sequence[Segment]:
        """Oldest first; the last is the active one."""
        return self._segments.all

    @property
    def active(self) -> Segment:
        return self._segments.active

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments.all)

    @property
    def last_stable_offset(self) -> Offset:
        """No transaction that began before it is undecided."""
        unstable = self.producers.first_unstable_offset
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.start_offset)

    def set_high_watermark(self, offset: Offset) -> None:
        assert self.start_offset <= offset <= self.end_offset
        self.high_watermark = offset
        if self.producers.unreplicated:
            self.producers.on_high_watermark(offset)

    def replace_settings(self, settings: LogSettings) -> None:
        self.settings = settings
        self.active.room = NO_ROOM

    # Appending

    def append(
        self,
        batches: WritableBuffer,
        *,
        leader_epoch: LeaderEpoch,
        now: Millis,
        origin: Origin = "client",
    ) -> Appended:
        """The leader's append of batches that were checked before.

        Offsets and leader epoch are stamped in place. Refused when a producer may not write this;
        OSError when the disk did not take it.
        """
        placement = place_produced(batches, self.producers, self.end_offset, origin)
        if isinstance(placement, BatchMark):
            return self._repeated(placement)
        return self._append_placed(batches, placement, leader_epoch, now)

    def append_alone(
        self, batch: WritableBuffer, header: BatchHeader, *, leader_epoch: LeaderEpoch, now: Millis
    ) -> Appended:
        """As `append`, of a client's single batch whose header was read when it was checked, and
        into a log that has no other replica: it is committed by that.

        In a straight line: a busy broker does little else.
        """
        first = self.end_offset
        staged = None
        if header.producer_id >= 0:
            found = stage_one(header, self.producers, first)
            if isinstance(found, BatchMark):
                return self._repeated(found)
            staged = found
        end_offset = Offset(first + header.last_offset_delta + 1)
        segments, newest = self._segments, header.max_timestamp
        segment = segments.active
        full_at, last_end, too_old = segment.room
        if (
            segment.log.size_bytes + len(batch) > full_at
            or end_offset > last_end
            or not 0 <= newest <= too_old
        ):
            segment = self._segment_for(len(batch), first, end_offset, Millis(newest), now)
        stamp_first(batch, 0, first, header.length, leader_epoch)
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, first)
        position = segment.log.append(batch)
        segment.note_batch(position, header, first, self.settings.index_interval_bytes)
        segments.appended(first, position)
        self.end_offset = end_offset
        if staged is not None:
            self.producers.commit(staged)
        self.high_watermark = end_offset
        if self.producers.unreplicated:
            self.producers.on_high_watermark(end_offset)
        return tuple.__new__(Appended, (first, end_offset, False, self.start_offset))

    def _append_placed(
        self,
        batches: WritableBuffer,
        placement: Placement,
        leader_epoch: LeaderEpoch,
        now: Millis,
    ) -> Appended:
        first = self.end_offset
        self._segment_for(len(batches), first, placement.end_offset, placement.newest, now)
        stamp_all(batches, placement, leader_epoch)
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, first)
        self._write(batches, placement)
        return Appended(first, self.end_offset, False, self.start_offset)

    def _repeated(self, mark: BatchMark) -> Appended:
        return Appended(mark.base_offset, Offset(mark.last_offset + 1), True, self.start_offset)

    def append_replicated(self, batches: Buffer) -> None:
        """The follower's append: offsets and epochs are the leader's and already in the bytes."""
        placement = place_replicated(batches, self.producers, self.end_offset)
        if not placement.batches:
            return
        newest, (_, _, first) = placement.newest, placement.batches[0]
        self._segment_for(len(batches), first, placement.end_offset, newest, newest)
        for _, header, base_offset in placement.batches:
            self.epochs.assign(LeaderEpoch(header.leader_epoch), base_offset)
        self._write(batches, placement)

    def _segment_for(
        self, size_bytes: int, first: Offset, end_offset: Offset, newest: Millis, now: Millis
    ) -> Segment:
        """Where batches of these offsets go: the active segment, or a new one."""
        active = self._segments.active
        if must_roll(active, self.settings, size_bytes, end_offset, newest, now):
            self._roll_at(first, now)
            return self._segments.active
        active.room = room_in(active, self.settings)
        return active

    def _write(self, batches: Buffer, placement: Placement) -> None:
        segment = self._segments.active
        staged = placement.staged
        aborted = self.producers.aborted_by(staged) if staged is not None else []
        try:
            for transaction in aborted:
                segment.transaction_index.append(transaction)
            position = segment.log.append(batches)
        except OSError:
            if aborted:
                segment.transaction_index.cut(self.end_offset)
            raise
        interval_bytes = self.settings.index_interval_bytes
        for at, header, base_offset in placement.batches:
            segment.note_batch(position + at, header, base_offset, interval_bytes)
        self._segments.appended(placement.batches[0][2], position)
        self.end_offset = placement.end_offset
        if staged is not None:
            self.producers.commit(staged)

    def roll(self, now: Millis) -> None:
        """Close the active segment and begin another, unless it is empty."""
        if self.active.size_bytes:
            self._roll_at(self.end_offset, now)

    def _roll_at(self, base_offset: Offset, now: Millis) -> None:
        active = self.active
        if active.base_offset == base_offset and active.size_bytes == 0:
            return
        self._snapshot(base_offset)
        self._segments.roll(base_offset, now)

    def _snapshot(self, offset: Offset) -> None:
        if self._snapshot_offset < offset:
            save_snapshot(self._segments.folder, offset, self.producers)
            self._snapshot_offset = offset

    # Reading

    def read(
        self,
        offset: Offset,
        *,
        max_bytes: int,
        end_offset: Offset | None = None,
        whole_first: bool = True,
    ) -> LogSlice:
        """Whole batches from the one that holds `offset`, all of them below `end_offset`.

        At most `max_bytes`, except that the first batch comes whole when `whole_first`, else a
        batch larger than every limit would stop its readers for ever.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise Refused(
                ErrorCode.offset_out_of_range,
                f"offset {offset} is not within {self.start_offset} to {self.end_offset}",
            )
        limit = self.end_offset if end_offset is None else min(end_offset, self.end_offset)
        if offset >= limit:
            return LogSlice(NOTHING, self.active.base_offset, 0)
        return self._segments.read(
            offset, limit, self.end_offset, max_bytes=max_bytes, whole_first=whole_first
        )

    def aborted_in(
        self, found: LogSlice, offset: Offset, end_offset: Offset
    ) -> list[AbortedTransaction]:
        """The aborted transactions with records in what `read` found from `offset` on."""
        holding = self.segments[self._segments.holding(offset) :]
        if not any(segment.transaction_index.may_have_entries for segment in holding):
            return []
        following = self._segments.offset_after(found)
        end = end_offset if following < 0 else min(following, end_offset)
        return self.aborted_transactions(offset, end)

    def aborted_transactions(self, start: Offset, end: Offset) -> list[AbortedTransaction]:
        """The aborted transactions with records in [start, end)."""
        found: list[AbortedTransaction] = []
        for segment in self.segments[self._segments.holding(start) :]:
            if segment.transaction_index.collect(start, end, found):
                break
        return found

    def offset_by_timestamp(
        self, timestamp: Millis, *, end_offset: Offset | None = None
    ) -> Found | None:
        """The first record at or after `timestamp`, below `end_offset`, with its own time."""
        limit = self.end_offset if end_offset is None else end_offset
        return find_by_timestamp(self.segments, timestamp, self.start_offset, limit)

    def offset_of_max_timestamp(self) -> Found | None:
        """The first record that has the largest timestamp of all."""
        newest = newest_timestamp(self.segments)
        return None if newest is None else self.offset_by_timestamp(newest)

    # Taking away

    def advance_start_offset(self, offset: Offset, now: Millis) -> int:
        """Forget everything before `offset`; whole segments go. Returns how many."""
        if offset > self.high_watermark:
            raise Refused(
                ErrorCode.offset_out_of_range,
                f"offset {offset} is past the high watermark {self.high_watermark}",
            )
        if offset <= self.start_offset:
            return 0
        self.start_offset = offset
        count = self._segments.holding(offset)
        self._remove_first(count, now)
        self.epochs.cut_start(offset)
        return count

    def delete_expired(self, retention: RetentionSettings, now: Millis) -> int:
        """Take away the segments that are too old or too many. Returns how many."""
        count = expired_count(
            self.segments,
            retention,
            now=now,
            high_watermark=self.high_watermark,
            end_offset=self.end_offset,
        )
        if count == 0:
            return 0
        if count == len(self.segments):
            self.roll(now)
        start_offset = self.segments[count].base_offset
        self._remove_first(count, now)
        if start_offset > self.start_offset:
            self.start_offset = start_offset
            self.epochs.cut_start(start_offset)
        return count

    def _remove_first(self, count: int, now: Millis) -> None:
        if count == 0:
            return
        folder = self._segments.folder
        remove_files(snapshot_path(folder, s.base_offset) for s in self.segments[:count])
        unlink_at = Millis(now + self.settings.file_delete_delay_ms)
        self._segments.remove_first(count, unlink_at=unlink_at)

    def truncate_to(self, offset: Offset, now: Millis = NO_TIMESTAMP) -> None:
        """Take away every batch that ends after `offset`: another history is the true one."""
        if offset >= self.end_offset:
            return
        if offset < self.start_offset:
            self.restart_at(offset, now)
            return
        end = self._segments.cut(offset)
        if end < self.start_offset:  # the batch with the first record is gone as well
            self.restart_at(offset, now)
            return
        self.end_offset = end
        self.high_watermark = min(self.high_watermark, end)
        self.recovery_point = min(self.recovery_point, end)
        self.epochs.cut_end(end)
        folder = self._segments.folder
        self.producers, self._snapshot_offset = reload_producers(
            folder, list(self.segments), snapshot_offsets(folder), end
        )
        self.producers.on_high_watermark(self.high_watermark)

    def restart_at(self, offset: Offset, now: Millis = NO_TIMESTAMP) -> None:
        """Take away everything and begin anew at `offset`."""
        self._segments.restart(offset, now)
        folder = self._segments.folder
        remove_files(snapshot_path(folder, old) for old in snapshot_offsets(folder))
        self.epochs.clear()
        self.producers = ProducerTable()
        self.start_offset = self.end_offset = self.high_watermark = offset
        self.recovery_point = self._snapshot_offset = offset

    def sweep(self, now: Millis) -> None:
        """Unlink files whose delay has passed; forget producers that were silent for too long."""
        remove_files(self.take_due(now))
        if self.producers.producers:
            self.producers.expire(now, self.settings.producer_id_expiration_ms)

    def take_due(self, now: Millis) -> list[str]:
        """Retired files whose delay has passed: the caller unlinks them, perhaps in a thread."""
        return self._segments.take_due(now)

    # Compaction

    def swap(self, replacements: Iterable[Replacement], now: Millis) -> None:
        """Put `.cleaned` segments in the place of those they were made from.

        From the log's start upwards: what a crash leaves is told apart by that order.
        """
        unlink_at = Millis(now + self.settings.file_delete_delay_ms)
        for replacement in sorted(replacements):
            self._segments.swap(replacement, unlink_at=unlink_at)

    # Lasting

    @property
    def unflushed_messages(self) -> int:
        return self.end_offset - self.recovery_point

    def flush_due(self, now: Millis) -> bool:
        """Whether a closed segment, `flush.messages` or `flush.ms` asks for a flush."""
        settings = self.settings
        if self.recovery_point == self.end_offset:
            return False
        return (
            self.recovery_point < self.active.base_offset
            or (
                settings.flush_messages is not None
                and self.unflushed_messages >= settings.flush_messages
            )
            or (settings.flush_ms is not None and now - self.last_flush_at >= settings.flush_ms)
        )

    def pending_flush(self) -> FlushWork:
        """What to sync, off the event loop; when it is done, say so with `flushed`."""
        unflushed = self.segments[self._segments.holding(self.recovery_point) :]
        return work_for(unflushed, self._segments.folder, self.epochs.path, self.end_offset)

    def flushed(self, offset: Offset, now: Millis = NO_TIMESTAMP) -> None:
        """Everything before `offset` is on disk; it becomes the recovery point."""
        self.recovery_point = max(self.recovery_point, min(offset, self.end_offset))
        self.last_flush_at = now

    def flush(self, now: Millis = NO_TIMESTAMP) -> Offset:
        """Sync here and now; returns the recovery point."""
        if self.recovery_point < self.end_offset:
            work = self.pending_flush()
            work.run()
            self.flushed(work.end_offset, now)
        return self.recovery_point

    def close(self, *, sync: bool = True) -> None:
        """Write down all that a clean start trusts. Without `sync` the caller syncs the disk."""
        is_small = len(self.segments) == 1 and self.size_bytes <= _SMALL_BYTES
        if not is_small or self.active.has_index_files:
            self.active.write_indexes()
            self._snapshot(self.end_offset)
        if sync:
            self.flush()
        self._segments.close()

    def abandon(self) -> None:
        """Let go of the files without writing anything: the partition is being deleted."""
        self._segments.close()
