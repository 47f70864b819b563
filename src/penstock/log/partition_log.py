"""One partition's batches on disk, in offset order, in Apache Kafka's layout.

One writer, any number of readers: a view that was read stays valid whatever happens to the files.
Reading is in `readable_log`, syncing in `durable_log`, appending in `appendable_log`; here a log is
opened and closed, and batches are removed at its start and at its end.

    start_offset <= last_stable_offset <= high_watermark <= end_offset
"""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from penstock.errors import ErrorCode, Refused
from penstock.log.appendable_log import AppendableLog
from penstock.log.files import OpenFiles, remove_files
from penstock.log.producer_snapshots import snapshot_path
from penstock.log.producer_state import ProducerTable
from penstock.log.recovery import RecoveredBytes, load_partition
from penstock.log.scan import DAMAGE, unreadable
from penstock.log.segment import NO_HEADROOM
from penstock.log.segment_list import Segments
from penstock.log.segment_policy import expired_count
from penstock.log.segment_swap import Replacement
from penstock.log.settings import LogSettings, RetentionSettings
from penstock.log.truncation import Truncation, drop_snapshots
from penstock.model import NO_OFFSET, NO_TIMESTAMP, Millis, Offset

# Up to this size a start scans the log as quickly as it reads indexes and a snapshot; a broker with
# thousands of small partitions stops and starts faster without those files.
_SMALL_BYTES: Final = 64 << 10
_ENDS_RECORDED_MAX: Final = 50  # small files in one sweep: some milliseconds


class CheckpointPort(Protocol):
    """Stores recovery points and start offsets, which outlive the process."""

    def plan_lower(self, log: "PartitionLog") -> Callable[[], None]:
        """Take the log's offsets, which are lower now; call the result in any thread."""


class PartitionLog(AppendableLog):
    """The log of one partition, for its one writer."""

    __slots__ = ("_reset_to", "checkpoints", "recovered")

    checkpoints: CheckpointPort | None  # of the log directory
    recovered: RecoveredBytes  # by its open
    _reset_to: Offset | None  # of a reset that is planned
    # A truncation moves all of these.
    start_offset: Offset
    recovery_point: Offset
    high_watermark: Offset
    end_offset: Offset
    producers: ProducerTable

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
        is_checked: bool = False,
    ) -> "PartitionLog":
        """The log in `folder`: created if absent, recovered unless it was closed cleanly.

        `is_checked`: it was recovered and closed since; what it contains may not be on disk yet.
        `is_start_known`: the log started at `start_offset` or before when it was closed.
        DamagedLogError when it no longer does, or ends before `recovery_point`: acknowledged
        batches are missing.
        """
        if not os.path.isdir(folder):
            folder.mkdir(parents=True, exist_ok=True)
        loaded = load_partition(
            str(folder),
            files,
            index_interval_bytes=settings.index_interval_bytes,
            now=now,
            clean=clean or is_checked,
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
        log.checkpoints = log._reset_to = None
        log.recovered = loaded.recovered
        if not clean:
            log.recovery_point = Offset(min(recovery_point, log.end_offset))
        return log

    def set_high_watermark(self, offset: Offset) -> None:
        """Limited to the log: a leader's may be outside a follower's log. May decrease."""
        self.high_watermark = min(max(offset, self.start_offset), self.end_offset)
        if self.producers.unreplicated:
            self.producers.on_high_watermark(self.high_watermark)

    # Removing batches at the start

    def advance_start_offset(self, offset: Offset, now: Millis) -> int:
        """Remove everything before `offset`. Returns how many segments were removed."""
        if offset > self.high_watermark:
            raise Refused(
                ErrorCode.offset_out_of_range,
                f"offset {offset} is past the high watermark {self.high_watermark}",
            )
        if offset <= self.start_offset:
            return 0
        self.start_offset = offset
        count = self._segments.index_of(offset)
        self._remove_first(count, now)
        self.epochs.cut_start(offset)
        return count

    def delete_expired(self, retention: RetentionSettings, now: Millis) -> int:
        """Remove segments by the retention policy. Returns how many."""
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
        self._start_at_segment(count - 1, now)  # first: a new segment may need their space
        self.roll(now)
        self._start_at_segment(1, now)
        return count

    def _start_at_segment(self, number: int, now: Millis) -> None:
        """Start the log with this segment; remove those before it."""
        start_offset = self.segments[number].base_offset
        if start_offset > self.start_offset:  # first: checkpoints must not refer to removed offsets
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

    # Truncation: planned here, prepared in a thread, finished here

    def plan_truncation(self, offset: Offset) -> Truncation | None:
        """Plan to remove every batch that ends after `offset`; None: there is none.

        Nothing is appended until `finish_truncation` has returned True. Refused when the log
        cannot be read at that offset.
        """
        if offset >= self.end_offset and not self._is_truncating:
            self.epochs.cut_end(self.end_offset)  # epochs without a batch
            return None
        offset = min(offset, self.end_offset)  # one that failed in the middle is completed
        if offset < self.start_offset:
            return self.plan_reset(offset)
        try:
            cut = self._segments.plan_cut(offset)
        except DAMAGE as damage:
            raise unreadable(self._segments.folder, damage) from damage
        if cut.end_offset < self.start_offset:  # the batch that contains the log's start goes
            return self.plan_reset(self.start_offset)
        return self._hold(Truncation(self.end_offset, cut.end_offset, cut))

    def is_before(self, leader_start_offset: Offset) -> bool:
        """Whether a follower must be reset: the leader has nothing of this log any more.

        Also at the very end of it: the leader's first batch may start before the leader's log.
        """
        if leader_start_offset == self.end_offset:
            return not self._has_no_batch
        return leader_start_offset > self.end_offset

    def plan_reset(self, offset: Offset) -> Truncation:
        """Plan to remove everything and to start again at `offset`."""
        return self._hold(Truncation(self.end_offset, offset, None))

    def _hold(self, truncation: Truncation) -> Truncation:
        """Before anything is removed, no checkpoint may say that it is on disk or committed."""
        new_end = Offset(0) if truncation.cut is None else truncation.end_offset
        self._is_truncating = True
        self._reset_to = truncation.end_offset if truncation.cut is None else None
        self._flush_limit = new_end
        self.recovery_point = min(self.recovery_point, new_end)
        self.set_high_watermark(min(self.high_watermark, new_end))
        self.active.headroom = NO_HEADROOM  # so that an append checks
        if self.checkpoints is not None:
            truncation.lower_checkpoints = self.checkpoints.plan_lower(self)
        return truncation

    @property
    def start_to_store(self) -> Offset:
        """The start offset for checkpoints: not above that of a planned reset."""
        return (
            self.start_offset if self._reset_to is None else min(self.start_offset, self._reset_to)
        )

    def finish_truncation(self, truncation: Truncation, now: Millis = NO_TIMESTAMP) -> bool:
        """Remove what was planned; False when the log has changed meanwhile: plan again."""
        if not truncation.is_ready(self.segments, self.end_offset):
            return False
        unlink_at = Millis(now + self.settings.file_delete_delay_ms)
        cut, end_offset = truncation.cut, truncation.end_offset
        self._has_removed = True
        if cut is None:
            drop_snapshots(self._segments.folder, after=NO_OFFSET)
            self._segments.reset(end_offset, now, unlink_at=unlink_at)
            self.start_offset = self.recovery_point = end_offset
            self.producers, self._snapshot_offset = ProducerTable(), end_offset
        else:
            drop_snapshots(self._segments.folder, after=end_offset)
            while self.active is not cut.segment:  # the last one first: a crash leaves no gap
                self.end_offset = self._segments.remove_last(unlink_at=unlink_at)
            self.producers, self._snapshot_offset = self._segments.cut(cut)
        self.epochs.cut_end(end_offset if cut is not None else Offset(0))
        with suppress(OSError):  # a full disk: the next append writes them
            self.epochs.save()
        self.end_offset = end_offset
        self.set_high_watermark(self.high_watermark)
        self.producers.on_high_watermark(self.high_watermark)
        self._is_truncating = self._has_removed = False
        self._reset_to = None
        return True

    def give_up_truncation(self) -> None:
        """A log that was to be truncated is its leader's now: nothing of it is to be removed.

        One that failed in the middle is completed, or nothing can be appended.
        """
        if not self._has_removed:
            self._is_truncating, self._reset_to = False, None
            return
        with suppress(OSError):
            self.truncate_to(self.end_offset)

    def truncate_to(self, offset: Offset, now: Millis = NO_TIMESTAMP) -> None:
        """Plan, prepare and finish a truncation here and now."""
        while (truncation := self.plan_truncation(offset)) is not None:
            truncation.run()
            self.finish_truncation(truncation, now)

    def reset_to(self, offset: Offset, now: Millis = NO_TIMESTAMP) -> None:
        """Remove everything and start again at `offset`, here and now."""
        self.finish_truncation(self.plan_reset(offset), now)

    # Upkeep

    def sweep(self, now: Millis) -> None:
        """Unlink retired files whose delay has passed, and remove expired producers.

        Closed segments of an older version get their `.end` files here, some in each sweep.
        """
        remove_files(self.take_due(now))
        if self.producers.producers:
            self.producers.expire(now, self.settings.producer_id_expiration_ms)
        self._segments.record_ends(_ENDS_RECORDED_MAX)

    def take_due(self, now: Millis) -> list[str]:
        """Retired files whose delay has passed, for the caller to unlink in any thread."""
        return self._segments.take_due(now)

    def check_closed_segments(self, count: int) -> None:
        """Malformed when one of the first `count` segments has lost batches since it was closed."""
        self._segments.check_ends(count)

    def swap(self, replacements: Iterable[Replacement], now: Millis) -> None:
        """Replace segments by the `.cleaned` ones that were made from them.

        In offset order: recovery relies on it to tell what a crash left.
        """
        unlink_at = Millis(now + self.settings.file_delete_delay_ms)
        for replacement in sorted(replacements):
            self._segments.swap(replacement, unlink_at=unlink_at)

    # Closing

    def close(self, *, sync: bool = True) -> None:
        """Write all that a clean start relies on. Without `sync` the caller syncs the disk."""
        if self.disk_failure is not None:
            raise self.disk_failure.refusal()
        if not self._has_no_batch:
            self.epochs.save()
        is_small = len(self.segments) == 1 and self.size_bytes <= _SMALL_BYTES
        if not is_small or self.active.has_index_files:
            self.active.write_indexes()
            self._snapshot(self.end_offset)
        if sync:
            self.flush()
        self._segments.close()

    def abandon(self) -> None:
        """Close the files without writing anything: the partition is being deleted."""
        self._segments.close()
