"""How far a partition's log is on disk, and what must be synced.

Knows which offsets a power cut cannot take; syncs nothing except in `flush`. After a sync
that failed nothing more is written, because a later sync would not report what was lost.

A replica under `flush.messages=1` acknowledges only what is on disk. `has_synced_marker`: a file on
disk tells the next start so. The owner of the log decides whether it may (`marks_synced`).
"""

import os
from pathlib import Path

from penstock.errors import ErrorCode, Refused
from penstock.log.flush import SYNCED_MARKER, DiskError, FlushWork, MarkerChange, work_for
from penstock.log.leader_epochs import LeaderEpochs
from penstock.log.producer_state import ProducerTable
from penstock.log.readable_log import ReadableLog
from penstock.log.segment import NO_HEADROOM
from penstock.log.segment_list import Segments
from penstock.log.settings import LogSettings
from penstock.model import NO_TIMESTAMP, EpochEnd, LeaderEpoch, Millis, Offset, TopicPartition


class DurableLog(ReadableLog):
    """A log with a recovery point: everything before it is on disk."""

    __slots__ = (
        "_flush_limit",
        "_folder_inode",
        "_is_cut",
        "_is_name_durable",
        "_is_truncating",
        "_marker_after_flush",
        "disk_failure",
        "epochs",
        "folder",
        "has_synced_marker",
        "last_flush_at",
        "marks_synced",
        "recovery_point",
        "settings",
        "topic_partition",
        "was_synced",
    )

    def __init__(
        self,
        folder: Path,
        settings: LogSettings,
        *,
        segments: Segments,
        end_offset: Offset,
        producers: ProducerTable,
        epochs: LeaderEpochs,
    ) -> None:
        super().__init__(segments, end_offset=end_offset, producers=producers)
        topic, _, partition = folder.name.rpartition("-")
        self.topic_partition: TopicPartition = TopicPartition(topic, int(partition))
        self.folder: Path = folder
        self.settings: LogSettings = settings
        self.epochs: LeaderEpochs = epochs
        self.recovery_point: Offset = end_offset
        self.last_flush_at: Millis = NO_TIMESTAMP
        self.disk_failure: DiskError | None = None  # nothing is written from then on
        self.has_synced_marker: bool = os.path.exists(f"{folder}/{SYNCED_MARKER}")
        self.was_synced: bool = self.has_synced_marker  # when it was opened
        self.marks_synced: bool = self.has_synced_marker
        self._marker_after_flush: bool | None = None
        self._folder_inode = os.stat(folder).st_ino
        self._is_name_durable = False  # until the first flush: a power cut may take the folder
        self._is_truncating = False  # planned, or being finished
        self._is_cut = False  # being finished
        self._flush_limit: Offset | None = None  # for a flush that began before a truncation

    @property
    def unflushed_messages(self) -> int:
        return self.end_offset - self.recovery_point

    def flush_due(self, now: Millis) -> bool:
        """Whether a closed segment, a new epoch or the topic's settings require a flush."""
        settings = self.settings
        if self.disk_failure is not None or self._is_truncating:
            return False
        if self.epochs.must_sync or self.must_change_marker:
            return True
        return self.recovery_point < self.end_offset and (
            self.recovery_point < self.active.base_offset
            or (
                settings.flush_messages is not None
                and self.unflushed_messages >= settings.flush_messages
            )
            or (settings.flush_ms is not None and now - self.last_flush_at >= settings.flush_ms)
        )

    @property
    def must_change_marker(self) -> bool:
        """Whether the next flush makes the marker or removes it."""
        return self.marks_synced != self.has_synced_marker

    def pending_flush(self) -> FlushWork:
        """The files to sync, in any thread; call `flushed` when that is done."""
        self.epochs.must_sync = False
        if not self._is_truncating:
            self._flush_limit = None
        unflushed = self.segments[self._segments.index_of(self.recovery_point) :]
        folder = self._segments.folder
        folders = (folder,) if self._is_name_durable else (folder, str(self.folder.parent))
        marker = None
        if self.must_change_marker:
            marker = MarkerChange(self.marks_synced, self._folder_inode)
        self._marker_after_flush = None if marker is None else marker.is_made
        return work_for(unflushed, folders, self.epochs.path, self.end_offset, marker)

    def flushed(self, offset: Offset, now: Millis = NO_TIMESTAMP) -> None:
        """Everything before `offset` is on disk; it becomes the recovery point."""
        if self.disk_failure is not None:
            return  # this sync does not cover what the failed one lost
        self._is_name_durable = True
        limit = self.end_offset if self._flush_limit is None else self._flush_limit
        self.recovery_point = max(self.recovery_point, min(offset, self.end_offset, limit))
        self.last_flush_at = now
        if self._marker_after_flush is not None:
            self.has_synced_marker = self._marker_after_flush
            self._marker_after_flush = None

    def find_divergence(self, last_epoch: LeaderEpoch, end_offset: Offset) -> EpochEnd | None:
        """Where a log that ends at `end_offset` with a batch of `last_epoch` parts from this one.

        None: it is a part of this one. Refused when this log has nothing as old.
        """
        end = self.epochs.end_offset_for(last_epoch, self.end_offset)
        if end.end_offset < 0:
            raise Refused(ErrorCode.offset_out_of_range, "that leader epoch is unknown")
        if end.epoch < last_epoch or end.end_offset < end_offset:
            return EpochEnd(end.epoch, end.end_offset)
        return None

    def stop_writing(self, failure: DiskError) -> None:
        """The last writes may be lost: the next start checks all after the recovery point."""
        self.disk_failure = failure
        self.active.headroom = NO_HEADROOM  # so that every append checks

    def flush(self, now: Millis = NO_TIMESTAMP) -> Offset:
        """Sync now; returns the recovery point."""
        if self.recovery_point < self.end_offset:
            work = self.pending_flush()
            work.run()
            self.flushed(work.end_offset, now)
        return self.recovery_point
