"""How far a partition's log is on disk, and what must be synced.

Knows which offsets a power cut cannot take; syncs nothing except in `flush`. After a sync
that failed nothing more is written, because a later sync would not report what was lost.
"""

from pathlib import Path

from penstock.log.flush import FlushWork, SyncError, work_for
from penstock.log.leader_epochs import LeaderEpochs
from penstock.log.producer_state import ProducerTable
from penstock.log.readable_log import ReadableLog
from penstock.log.segment import NO_HEADROOM
from penstock.log.segment_list import Segments
from penstock.log.settings import LogSettings
from penstock.model import NO_TIMESTAMP, Millis, Offset, TopicPartition


class DurableLog(ReadableLog):
    """A log with a recovery point: everything before it is on disk."""

    __slots__ = (
        "_flush_limit",
        "_is_name_durable",
        "_is_truncating",
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
        self.sync_failure: SyncError | None = None  # nothing is written from then on
        self._is_name_durable = False  # until the first flush: a power cut may take the folder
        self._is_truncating = False
        self._flush_limit: Offset | None = None  # for a flush that began before a truncation

    @property
    def unflushed_messages(self) -> int:
        return self.end_offset - self.recovery_point

    def flush_due(self, now: Millis) -> bool:
        """Whether a closed segment, a new epoch or the topic's settings require a flush."""
        settings = self.settings
        if self.sync_failure is not None or self._is_truncating:
            return False
        if self.recovery_point == self.end_offset:
            return self.epochs.must_sync
        return self.epochs.must_sync or (
            self.recovery_point < self.active.base_offset
            or (
                settings.flush_messages is not None
                and self.unflushed_messages >= settings.flush_messages
            )
            or (settings.flush_ms is not None and now - self.last_flush_at >= settings.flush_ms)
        )

    def pending_flush(self) -> FlushWork:
        """The files to sync, in any thread; call `flushed` when that is done."""
        self.epochs.must_sync = False
        if not self._is_truncating:
            self._flush_limit = None
        unflushed = self.segments[self._segments.index_of(self.recovery_point) :]
        folder = self._segments.folder
        folders = (folder,) if self._is_name_durable else (folder, str(self.folder.parent))
        return work_for(unflushed, folders, self.epochs.path, self.end_offset)

    def flushed(self, offset: Offset, now: Millis = NO_TIMESTAMP) -> None:
        """Everything before `offset` is on disk; it becomes the recovery point."""
        if self.sync_failure is not None:
            return  # this sync does not cover what the failed one lost
        self._is_name_durable = True
        limit = self.end_offset if self._flush_limit is None else self._flush_limit
        self.recovery_point = max(self.recovery_point, min(offset, self.end_offset, limit))
        self.last_flush_at = now

    def stop_writing(self, failure: SyncError) -> None:
        """The last writes may be lost: the next start checks all after the recovery point."""
        self.sync_failure = failure
        self.active.headroom = NO_HEADROOM  # so that every append checks

    def flush(self, now: Millis = NO_TIMESTAMP) -> Offset:
        """Sync now; returns the recovery point."""
        if self.recovery_point < self.end_offset:
            work = self.pending_flush()
            work.run()
            self.flushed(work.end_offset, now)
        return self.recovery_point
