"""The writing end of a partition's log: appends of a leader and of a follower, and new segments.

An append that raised has changed nothing, except that a follower keeps the batches before the one
that failed. Never opens a record: only headers are read, and the markers that end transactions.
"""

import errno
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from penstock.log.append_plan import Appended, check_replicated, stage, stage_replicated
from penstock.log.durable_log import DurableLog
from penstock.log.leader_epochs import LeaderEpochs
from penstock.log.producer_snapshots import save_snapshot
from penstock.log.producer_state import BatchMark, Origin, ProducerTable, Staged
from penstock.log.segment import NO_HEADROOM, Segment
from penstock.log.segment_list import Segments
from penstock.log.segment_policy import fitting_batches, headroom_in, must_roll
from penstock.log.settings import LogSettings
from penstock.model import LeaderEpoch, Millis, Offset
from penstock.protocol.batch import BatchHeader, write_leader_fields
from penstock.protocol.varint import Buffer, WritableBuffer


class AppendableLog(DurableLog):
    """A log that grows at its end."""

    __slots__ = ("_snapshot_offset",)

    end_offset: Offset  # moved by appends

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
        super().__init__(
            folder,
            settings,
            segments=segments,
            end_offset=end_offset,
            producers=producers,
            epochs=epochs,
        )
        self._snapshot_offset = snapshot_offset  # of the newest snapshot of the producers

    def replace_settings(self, settings: LogSettings) -> None:
        self.settings = settings
        self.active.headroom = NO_HEADROOM

    def start_epoch(self, epoch: LeaderEpoch) -> None:
        """Note that this broker leads from the log's end on, before it writes anything.

        In an empty log, or on a full disk, the first append writes the note to its file.
        """
        if epoch <= self.epochs.latest:
            return
        self.epochs.assign(epoch, self.end_offset)
        if self.end_offset > self.start_offset:
            with suppress(OSError):
                self.epochs.save()
                self.epochs.must_sync = True

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
        it, OSError when the write failed: both leave the log unchanged.
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
        if leader_epoch > self.epochs.saved_epoch:
            self.epochs.assign(leader_epoch, base_offset)
            self.epochs.save()
        position = self._write(segment, batch, base_offset, end_offset, staged)
        segment.note_batch(position, header, base_offset, self.settings.index_interval_bytes)
        return tuple.__new__(Appended, (base_offset, end_offset, False, self.start_offset))

    def _repeated(self, mark: BatchMark) -> Appended:
        return Appended(mark.base_offset, Offset(mark.last_offset + 1), True, self.start_offset)

    def append_replicated(
        self,
        batches: Buffer,
        headers: Sequence[BatchHeader],
        *,
        leader_epoch: LeaderEpoch,
        now: Millis,
    ) -> None:
        """The follower's append of what a leader of `leader_epoch` sent from the log's end on.

        `headers` are those that `read_replicated` returned. Malformed or Refused: nothing was
        written. OSError: the log ends before the batch that failed; fetch again from there.
        """
        if not headers:
            return
        first = headers[0]
        # After DeleteRecords the leader's log, and so ours, may start within a batch.
        starts_within = (
            self._has_no_batch and first.base_offset < self.end_offset < first.end_offset
        )
        check_replicated(
            headers,
            end_offset=Offset(first.base_offset) if starts_within else self.end_offset,
            last_epoch=self.epochs.epoch_at(Offset(self.end_offset - 1)),
            leader_epoch=leader_epoch,
        )
        view = memoryview(batches)
        if starts_within:
            self._append_first(view[: first.size_bytes], first, now)
            view, headers = view[first.size_bytes :], headers[1:]
        while headers:
            segment = self._segment_for(
                headers[0].size_bytes,
                Offset(headers[0].base_offset),
                headers[0].end_offset,
                headers[0].max_timestamp,
                now,
            )
            count, size_bytes = fitting_batches(segment, headers)
            self._append_run(segment, view[:size_bytes], headers[:count])
            view, headers = view[size_bytes:], headers[count:]

    @property
    def _has_no_batch(self) -> bool:
        return len(self.segments) == 1 and self.active.size_bytes == 0

    def _append_run(self, segment: Segment, run: Buffer, headers: Sequence[BatchHeader]) -> None:
        """Write neighbouring batches of a leader into one segment, all or none."""
        first, end_offset = Offset(headers[0].base_offset), headers[-1].end_offset
        self._note_epochs(headers)
        staged = stage_replicated(self.producers, run, headers)
        position = self._write(segment, run, first, end_offset, staged)
        for header in headers:
            base_offset = Offset(header.base_offset)
            segment.note_batch(position, header, base_offset, self.settings.index_interval_bytes)
            position += header.size_bytes

    def _append_first(self, batch: Buffer, header: BatchHeader, now: Millis) -> None:
        """Start with a batch whose first records are before the log's start."""
        self._note_epochs([header])
        staged = stage_replicated(self.producers, batch, [header])
        base_offset = Offset(header.base_offset)
        self._segments.begin_with(base_offset, bytes(batch), now)
        self.end_offset = header.end_offset
        if staged is not None:
            self.producers.commit(staged)
        self.active.note_batch(0, header, base_offset, self.settings.index_interval_bytes)

    def _note_epochs(self, headers: Sequence[BatchHeader]) -> None:
        for header in headers:
            start_offset = max(Offset(header.base_offset), self.start_offset)
            self.epochs.assign(LeaderEpoch(header.leader_epoch), start_offset)
        self.epochs.save()

    def _segment_for(
        self, size_bytes: int, first: Offset, end_offset: Offset, newest: int, now: Millis
    ) -> Segment:
        """The segment for batches of these offsets: the active one, or a new one."""
        active = self._segments.active
        full_at, last_end, too_old = active.headroom
        if (
            active.log.size_bytes + size_bytes <= full_at
            and end_offset <= last_end
            and 0 <= newest <= too_old
        ):
            return active
        if self.disk_failure is not None:
            raise self.disk_failure.refusal()
        if self._is_truncating:
            raise OSError(errno.EBUSY, "a truncation of the log is not finished", str(self.folder))
        if must_roll(active, self.settings, size_bytes, end_offset, Millis(newest), now):
            self._roll_at(first, now)
            return self._segments.active
        active.headroom = headroom_in(active, self.settings)
        return active

    def _write(
        self,
        segment: Segment,
        batches: Buffer,
        first: Offset,
        end_offset: Offset,
        staged: Staged | None,
    ) -> int:
        """Write at the end, all or nothing; returns the position in the segment."""
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
        """Close the active segment and start another, unless it is empty."""
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
