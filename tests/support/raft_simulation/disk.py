"""The disk of a simulated replica: log, quorum state, snapshots, and what of them a crash leaves.

A process crash keeps what was written. A power crash may lose everything that was not synced: the
tail of the log, a truncation, a quorum state.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from penstock.consensus.raft import OffsetAndEpoch, QuorumState, VoterSet
from penstock.model import NO_EPOCH, NO_OFFSET, LeaderEpoch, Offset

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

Entry: TypeAlias = tuple[LeaderEpoch, object]  # the value: a client's number, a set, a leader


class Snapshot(NamedTuple):
    """All that precedes an offset; its content is what the checker knows to be committed."""

    end: OffsetAndEpoch
    voters: VoterSet


class Disk:
    """One directory. Implements the port `RaftLog`."""

    def __init__(self) -> None:
        self.start_offset = Offset(0)
        self._start_epoch = LeaderEpoch(0)  # of the last record before the start
        self.end_offset = Offset(0)
        self.last_epoch = LeaderEpoch(0)
        self.latest_snapshot: OffsetAndEpoch | None = None
        self.snapshot: Snapshot | None = None
        self.entries: list[Entry] = []
        self.epoch_starts: list[tuple[LeaderEpoch, Offset]] = []
        self.voter_records: list[tuple[Offset, VoterSet]] = []
        self.synced_offset = Offset(0)
        self.cuts = 0
        self.state = self.synced_state = QuorumState()
        self._uncut: tuple[Offset, list[Entry]] | None = None  # what an unsynced cut removed

    def end_offset_for(self, epoch: LeaderEpoch) -> OffsetAndEpoch:
        starts = self.epoch_starts
        index = bisect_right(starts, (epoch, Offset(2**62)))
        if index == 0:
            return OffsetAndEpoch(self.start_offset, NO_EPOCH)
        end = starts[index][1] if index < len(starts) else self.end_offset
        return OffsetAndEpoch(end, starts[index - 1][0])

    def voter_sets(self, configured: VoterSet) -> list[tuple[Offset, VoterSet]]:
        """What a node is started with."""
        if self.snapshot is None:
            return [(NO_OFFSET, configured), *self.voter_records]
        end = self.snapshot.end.offset
        later = [record for record in self.voter_records if record[0] >= end]
        return [(Offset(end - 1), self.snapshot.voters), *later]

    def read(self, offset: Offset, count_max: int) -> list[Entry]:
        index = offset - self.start_offset
        return self.entries[index : index + count_max]

    def append(self, entries: Sequence[Entry]) -> list[tuple[Offset, VoterSet]]:
        """The voter sets among the entries."""
        voter_sets = []
        for epoch, value in entries:
            if not self.epoch_starts or epoch > self.epoch_starts[-1][0]:
                self.epoch_starts.append((epoch, self.end_offset))
                self.last_epoch = epoch
            if isinstance(value, VoterSet):
                voter_sets.append((self.end_offset, value))
            self.end_offset = Offset(self.end_offset + 1)
        self.entries += entries
        self.voter_records += voter_sets
        return voter_sets

    def truncate(self, offset: Offset) -> None:
        assert self.start_offset <= offset <= self.end_offset
        if offset < self.synced_offset:
            before = self._uncut or (self.synced_offset, [])
            removed = self.entries[offset - self.start_offset : before[0] - self.start_offset]
            self._uncut = (offset, removed + before[1])
            self.synced_offset = offset
        self._rebuild(self.entries[: offset - self.start_offset])
        self.cuts += 1

    def on_synced(self, end_offset: Offset, cuts: int) -> None:
        """A sync has ended that started with this end and this number of cuts."""
        if cuts == self.cuts:
            self.synced_offset = max(self.synced_offset, end_offset)
            self._uncut = None

    def take_snapshot(self, snapshot: Snapshot) -> None:
        self.snapshot, self.latest_snapshot = snapshot, snapshot.end

    @property
    def may_clean(self) -> bool:
        """A shell deletes the beginning of a log only when the rest is synced."""
        return self.snapshot is not None and (
            self.start_offset < self.snapshot.end.offset <= self.synced_offset
            and self._uncut is None
        )

    def clean(self) -> None:
        """Start the log where the snapshot ends."""
        assert self.snapshot is not None
        start, epoch = self.snapshot.end
        entries = self.entries[start - self.start_offset :]
        self.start_offset, self._start_epoch = start, epoch
        self._rebuild(entries)

    def install(self, snapshot: Snapshot) -> None:
        """Replace the log by a snapshot; synced with all that belongs to it."""
        self.take_snapshot(snapshot)
        self.start_offset, self._start_epoch = snapshot.end
        self._rebuild([])
        self.synced_offset = self.end_offset
        self._uncut = None
        self.cuts += 1

    def crash_process(self) -> None:
        """All that was written stays, and is synced when the process starts again."""
        self.synced_offset = self.end_offset
        self.synced_state = self.state
        self._uncut = None

    def crash_power(self, rng: Random) -> None:
        """Lose some or all of what was not synced."""
        if self._uncut is not None and rng.random() < 0.5:
            offset, removed = self._uncut
            entries = self.entries[: offset - self.start_offset] + removed
        else:
            left = rng.randint(self.synced_offset, self.end_offset) - self.start_offset
            entries = self.entries[:left]
        self._rebuild(entries)
        if rng.random() < 0.7:
            self.state = self.synced_state
        self.crash_process()

    def _rebuild(self, entries: list[Entry]) -> None:
        """The same log with these entries; what is at its start stays known."""
        self.entries, self.voter_records = [], []
        self.end_offset, self.last_epoch = self.start_offset, self._start_epoch
        self.epoch_starts = [(self._start_epoch, self.start_offset)] if self.start_offset else []
        self.append(entries)
