"""The leader epochs of a partition's log and their first offsets: `leader-epoch-checkpoint`.

An epoch is noted when a broker becomes leader, before it writes anything, so that a follower with
a different history learns where the two diverge. Epochs and start offsets only grow. Changes are
made in memory; `save` writes them, always before a batch of a new epoch is appended. The batches
are the truth: where the file contradicts them or is missing, it is made from their headers.
"""

from bisect import bisect_left, bisect_right
from itertools import pairwise
from operator import attrgetter
from typing import Final, NamedTuple

from penstock.log.checkpoints import read_rows, write_rows
from penstock.model import NO_EPOCH, NO_OFFSET, EpochEnd, LeaderEpoch, Offset

FILE_NAME: Final = "leader-epoch-checkpoint"


class EpochStart(NamedTuple):
    """The first offset of a leader epoch."""

    epoch: LeaderEpoch
    start_offset: Offset


UNSAVED: Final = LeaderEpoch(-2)  # below every epoch, so that the next append writes the file
UNDEFINED: Final = EpochEnd(NO_EPOCH, NO_OFFSET)
_epoch: Final = attrgetter("epoch")
_start_offset: Final = attrgetter("start_offset")


class LeaderEpochs:
    """The epochs of one log, oldest first."""

    __slots__ = ("entries", "must_sync", "path", "saved_epoch")

    def __init__(self, folder: str, entries: list[EpochStart] | None = None) -> None:
        self.path: str = f"{folder}/{FILE_NAME}"
        self.entries: list[EpochStart] = entries or []
        self.saved_epoch: LeaderEpoch = self.latest  # the newest one in the file, or UNSAVED
        self.must_sync: bool = False  # a new leader's entry is in the file, maybe not on disk yet

    @classmethod
    def load(cls, folder: str) -> "LeaderEpochs | None":
        """None when the file is missing or damaged."""
        rows = read_rows(f"{folder}/{FILE_NAME}")
        try:
            entries = [
                EpochStart(LeaderEpoch(int(epoch)), Offset(int(start)))
                for epoch, start in rows or ()
            ]
        except ValueError:
            return None
        grows = all(
            before.epoch < after.epoch and before.start_offset < after.start_offset
            for before, after in pairwise(entries)
        )
        return cls(folder, entries) if rows is not None and grows else None

    @property
    def latest(self) -> LeaderEpoch:
        return self.entries[-1].epoch if self.entries else NO_EPOCH

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """The batches from `start_offset` on are of `epoch`. Noted epochs without a batch go."""
        if self.entries and self.entries[-1].epoch == epoch:
            return
        before = self.entries[: bisect_left(self.entries, start_offset, key=_start_offset)]
        if not before or before[-1].epoch < epoch:
            before.append(EpochStart(epoch, start_offset))
        self._replace(before)

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """The epoch in which `offset` was written."""
        count = bisect_right(self.entries, offset, key=_start_offset)
        return self.entries[count - 1].epoch if count else NO_EPOCH

    def end_offset_for(self, epoch: LeaderEpoch, log_end_offset: Offset) -> EpochEnd:
        """The largest epoch not above the requested one, and its end: as OffsetForLeaderEpoch."""
        entries = self.entries
        if epoch == NO_EPOCH or not entries:
            return UNDEFINED
        if epoch == entries[-1].epoch:
            return EpochEnd(epoch, log_end_offset)
        count = bisect_right(entries, epoch, key=_epoch)
        if count == len(entries):
            return UNDEFINED  # newer than all epochs here
        if count == 0:
            return EpochEnd(epoch, entries[0].start_offset)  # older than all: nothing of it is left
        return EpochEnd(entries[count - 1].epoch, entries[count].start_offset)

    def cut_end(self, end_offset: Offset) -> None:
        """Remove epochs that start at or after the log's new end."""
        self._replace(self.entries[: bisect_left(self.entries, end_offset, key=_start_offset)])

    def cut_start(self, start_offset: Offset) -> None:
        """Remove epochs that end before the new start; the one that contains it begins there."""
        count = bisect_right(self.entries, start_offset, key=_start_offset)
        if count:
            first = EpochStart(self.entries[count - 1].epoch, start_offset)
            self._replace([first, *self.entries[count:]])

    def _replace(self, entries: list[EpochStart]) -> None:
        if entries != self.entries:
            self.entries = entries
            self.saved_epoch = UNSAVED

    def save(self) -> None:
        """Write the file unless it is up to date. A start applies `cut_start` to an old one."""
        if self.saved_epoch == UNSAVED:
            write_rows(self.path, (f"{epoch} {start}" for epoch, start in self.entries))
            self.saved_epoch = self.latest
