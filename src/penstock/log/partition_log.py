"""One partition's batches on disk, in offset order, laid out as Apache Kafka lays them out.

Written by one task; what was read stays readable whatever happens to the files. Never opens a
record on the way in or out: only headers are read. An append that raised has changed nothing. What
its readers see is in `reading`.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from penstock.errors import ErrorCode, Refused
from penstock.log.append_plan import Appended, place_replicated, stage
from penstock.log.files import OpenFiles, remove_files
from penstock.log.flush import FlushWork, NotSynced, work_for
from penstock.log.leader_epochs import LeaderEpochs
from penstock.log.producer_snapshots import save_snapshot, snapshot_offsets, snapshot_path
from penstock.log.producer_state import BatchMark, Origin, ProducerTable, Staged
from penstock.log.readable_log import ReadableLog
from penstock.log.recovery import load_partition, reload_producers
from penstock.log.segment import NO_ROOM, Segment
from penstock.log.segment_list import Segments
from penstock.log.segment_policy import expired_count, must_roll, room_in
from penstock.log.segment_swap import Replacement
from penstock.log.settings import LogSettings, RetentionSettings
from penstock.model import NO_TIMESTAMP, LeaderEpoch, Millis, Offset, TopicPartition
from penstock.protocol.batch import BatchHeader, write_leader_fields
from penstock.protocol.varint import Buffer, WritableBuffer

# Up to here a start walks the log as quickly as it reads indexes and a snapshot; a broker with
# thousands of small partitions stops and starts in the time it takes to make those files.
_SMALL_BYTES: Final = 64 << 10
_ENDS_RECORDED_MAX: Final = 50  # small files in one sweep: some milliseconds


class PartitionLog(ReadableLog):
    """The log of one partition, for its one writer."""

    __slots__ = (
        "_snapshot_offset",
        "epochs",
        "folder",
        "last_flush_at",
        "recovery_point",
        "settings",
        "sync_failure",
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
        super().__init__(segments, end_offset=end_offset, producers=producers)
        topic, _, partition = folder.name.rpartition("-")
        self.topic_partition = TopicPartition(topic, int(partition))
        self.folder = folder
        self.settings = settings
        self.recovery_point = end_offset  # everything before is on disk, not only in memory
        self.last_flush_at = NO_TIMESTAMP
        self.sync_failure: NotSynced | None = None  # nothing is written from then on
        self.epochs = epochs
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
        is_start_known: bool = False,
    ) -> "PartitionLog":
        """The log in `folder`, made when absent and recovered unless it was closed `clean`.

        `is_start_known`: the log began at `start_offset` or before when it was closed. DamagedLog
        when it no longer does, or ends before `recovery_point`: what is missing was acknowledged.
        """
        if not os.path.isdir(folder):
            folder.mkdir(parents=True, exist_ok=True)
        loaded = load_partition(
            str(folder),
            files,
            index_interval_bytes=settings.index_interval_bytes,
            now=now,
            clean=clean,
            recovery_point=recovery_point,
            start_offset=start_offset,
            is_start_known=is_start_known,
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
        batch: WritableBuffer,
        header: BatchHeader,
        *,
        leader_epoch: LeaderEpoch,
        now: Millis,
        origin: Origin = "client",
    ) -> Appended:
        """The leader's append of one checked batch; `header` was read when it was checked.

        Offset and leader epoch are written into the batch. Refused when its producer may not write
        it; OSError when the disk did not take it. Either leaves the log as it was.
        """
        base_offset = self.end_offset
        staged = None
        if header.producer_id >= 0:
            if origin == "client":
                repeated = self.producers.duplicate_of(header)
                if repeated is not None:
                    return self._repeated(repeated)
            staged = Staged(self.producers)
            stage(staged, batch, 0, header, base_offset, origin)
        end_offset = Offset(base_offset + header.last_offset_delta + 1)
        segment = self._segment_for(len(batch), base_offset, end_offset, header.max_timestamp, now)
        write_leader_fields(batch, 0, base_offset, header.length, leader_epoch)
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        position = self._write(segment, batch, base_offset, end_offset, staged)
        segment.note_batch(position, header, base_offset, self.settings.index_interval_bytes)
        return tuple.__new__(Appended, (base_offset, end_offset, False, self.start_offset))

    def _repeated(self, mark: BatchMark) -> Appended:
        return Appended(mark.base_offset, Offset(mark.last_offset + 1), True, self.start_offset)

    def append_replicated(self, batches: Buffer) -> None:
        """The follower's append: offsets and epochs are the leader's and already in the bytes.

        Malformed when the batches cannot follow this log, which is left as it was.
        """
        placement = place_replicated(batches, self.producers, self.end_offset)
        if not placement.batches:
            return
        newest, (_, _, first) = placement.newest, placement.batches[0]
        segment = self._segment_for(len(batches), first, placement.end_offset, newest, newest)
        for _, header, base_offset in placement.batches:
            self.epochs.assign(LeaderEpoch(header.leader_epoch), base_offset)
        position = self._write(segment, batches, first, placement.end_offset, placement.staged)
        interval_bytes = self.settings.index_interval_bytes
        for at, header, base_offset in placement.batches:
            segment.note_batch(position + at, header, base_offset, interval_bytes)

    def _segment_for(
        self, size_bytes: int, first: Offset, end_offset: Offset, newest: int, now: Millis
    ) -> Segment:
        """Where batches of these offsets go: the active segment, or a new one."""
        active = self._segments.active
        full_at, last_end, too_old = active.room
        if (
            active.log.size_bytes + size_bytes <= full_at
            and end_offset <= last_end
            and 0 <= newest <= too_old
        ):
            return active
        if self.sync_failure is not None:
            raise self.sync_failure.refusal()
        if must_roll(active, self.settings, size_bytes, end_offset, Millis(newest), now):
            self._roll_at(first, now)
            return self._segments.active
        active.room = room_in(active, self.settings)
        return active

    def _write(
        self,
        segment: Segment,
        batches: Buffer,
        first: Offset,
        end_offset: Offset,
        staged: Staged | None,
    ) -> int:
        """Write at the end, all or nothing; the position in the segment."""
        aborted = self.producers.aborted_by(staged) if staged is not None and staged.ended else ()
        try:
            for transaction in aborted:
                segment.transaction_index.append(transaction)
            position = segment.log.append(batches)
        except OSError:
            if aborted:
                segment.transaction_index.cut(self.end_offset)
            raise
        self._segments.appended(first, position)
        self.end_offset = end_offset
        if staged is not None:
            self.producers.commit(staged)
        return position

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
        if count < len(self.segments):
            self._start_at_segment(count, now)
            return count
        self._start_at_segment(count - 1, now)  # first, for a new segment may need their room
        self.roll(now)
        self._start_at_segment(1, now)
        return count

    def _start_at_segment(self, number: int, now: Millis) -> None:
        """Let the log begin there; the segments before it go."""
        start_offset = self.segments[number].base_offset
        if start_offset > self.start_offset:  # first: no checkpoint may speak of what is gone
            self.start_offset = start_offset
            self.epochs.cut_start(start_offset)
        self._remove_first(number, now)

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
            folder, list(self.segments), snapshot_offsets(os.listdir(folder)), end
        )
        self.producers.on_high_watermark(self.high_watermark)

    def restart_at(self, offset: Offset, now: Millis = NO_TIMESTAMP) -> None:
        """Take away everything and begin anew at `offset`."""
        self._segments.restart(offset, now)
        folder = self._segments.folder
        remove_files(snapshot_path(folder, old) for old in snapshot_offsets(os.listdir(folder)))
        self.epochs.clear()
        self.producers = ProducerTable()
        self.start_offset = self.end_offset = self.high_watermark = offset
        self.recovery_point = self._snapshot_offset = offset

    def sweep(self, now: Millis) -> None:
        """Unlink files whose delay has passed; forget producers that were silent for too long.

        Closed segments of an older version get their `.end` files here, some in each sweep.
        """
        remove_files(self.take_due(now))
        if self.producers.producers:
            self.producers.expire(now, self.settings.producer_id_expiration_ms)
        self._segments.record_ends(_ENDS_RECORDED_MAX)

    def take_due(self, now: Millis) -> list[str]:
        """Retired files whose delay has passed: the caller unlinks them, perhaps in a thread."""
        return self._segments.take_due(now)

    # Compaction

    def check_closed_segments(self, count: int) -> None:
        """Malformed when one of the first `count` segments has lost batches since it was closed."""
        self._segments.check_ends(count)

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
        if self.recovery_point == self.end_offset or self.sync_failure is not None:
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
        if self.sync_failure is not None:
            return  # this sync does not speak of what the failed one lost
        self.recovery_point = max(self.recovery_point, min(offset, self.end_offset))
        self.last_flush_at = now

    def stop_writing(self, failure: NotSynced) -> None:
        """What was written last may be lost: the next start looks from the recovery point on."""
        self.sync_failure = failure
        self.active.room = NO_ROOM  # so that every append asks

    def flush(self, now: Millis = NO_TIMESTAMP) -> Offset:
        """Sync here and now; returns the recovery point."""
        if self.recovery_point < self.end_offset:
            work = self.pending_flush()
            work.run()
            self.flushed(work.end_offset, now)
        return self.recovery_point

    def close(self, *, sync: bool = True) -> None:
        """Write down all that a clean start trusts. Without `sync` the caller syncs the disk."""
        if self.sync_failure is not None:
            raise self.sync_failure.refusal()
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
