"""Which leader epoch wrote which offsets, as `leader-epoch-checkpoint` keeps it.

An epoch is written down when its first batch is appended. Epochs and start offsets only grow, so a
follower that has seen another history can be told where the two part.
"""

from bisect import bisect_right
from typing import NamedTuple

from penstock.log.checkpoints import read_rows, write_rows
from penstock.model import NO_EPOCH, NO_OFFSET, LeaderEpoch, Offset

FILE_NAME = "leader-epoch-checkpoint"


class EpochStart(NamedTuple):
    """The first offset a leader epoch wrote."""

    epoch: LeaderEpoch
    start_offset: Offset


class EpochEnd(NamedTuple):
    """The largest epoch not above the asked one, and where it ends; -1, -1 when there is none."""

    epoch: LeaderEpoch
    end_offset: Offset


class LeaderEpochs:
    """The epochs of one partition's log; read from its file when first asked."""

    __slots__ = ("_entries", "path")

    def __init__(self, folder: str) -> None:
        self.path = f"{folder}/{FILE_NAME}"
        self._entries: list[EpochStart] | None = None

    @property
    def entries(self) -> list[EpochStart]:
        if self._entries is None:
            try:
                self._entries = [
                    EpochStart(LeaderEpoch(int(epoch)), Offset(int(start)))
                    for epoch, start in read_rows(self.path)
                ]
            except ValueError:
                self._entries = []
        return self._entries

    @property
    def latest(self) -> LeaderEpoch:
        entries = self._entries
        if entries is None:
            entries = self.entries
        return entries[-1].epoch if entries else NO_EPOCH

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """The batch at `start_offset` was written in `epoch`; nothing new most of the time."""
        if epoch <= self.latest:
            return
        # An epoch whose first batch never reached the log has written nothing.
        kept = [entry for entry in self.entries if entry.start_offset < start_offset]
        self._save([*kept, EpochStart(epoch, start_offset)])

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """The epoch that wrote `offset`."""
        place = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[place - 1].epoch if place else NO_EPOCH

    def end_offset_for(self, epoch: LeaderEpoch, log_end_offset: Offset) -> EpochEnd:
        """What OffsetForLeaderEpoch answers."""
        entries = self.entries
        if epoch == NO_EPOCH or not entries:
            return EpochEnd(NO_EPOCH, NO_OFFSET)
        if epoch == entries[-1].epoch:
            return EpochEnd(epoch, log_end_offset)
        place = bisect_right(entries, epoch, key=lambda entry: entry.epoch)
        if place == len(entries):
            return EpochEnd(NO_EPOCH, NO_OFFSET)  # newer than anything here
        if place == 0:
            # Older than all we keep: nothing of it is left below the first start.
            return EpochEnd(epoch, entries[0].start_offset)
        return EpochEnd(entries[place - 1].epoch, entries[place].start_offset)

    def cut_end(self, end_offset: Offset) -> None:
        """Forget epochs that start at or after the log's new end."""
        kept = [entry for entry in self.entries if entry.start_offset < end_offset]
        if len(kept) != len(self.entries):
            self._save(kept)

    def cut_start(self, start_offset: Offset) -> None:
        """Forget epochs that ended before the new start; the one that holds it begins there."""
        entries = self.entries
        place = bisect_right(entries, start_offset, key=lambda entry: entry.start_offset)
        if place == 0 or (place == 1 and entries[0].start_offset == start_offset):
            return
        self._save([EpochStart(entries[place - 1].epoch, start_offset), *entries[place:]])

    def clear(self) -> None:
        self._save([])

    def _save(self, entries: list[EpochStart]) -> None:
        write_rows(self.path, (f"{epoch} {start}" for epoch, start in entries))
        self._entries = entries
