"""What a replica must not lose, and what it reads of its log.

The core never writes the log: it returns effects, and reads the result through `RaftLog`.
"""

from typing import Final, NamedTuple, Protocol

from penstock.consensus.raft.voters import ReplicaKey
from penstock.model import LeaderEpoch, NodeId, Offset


class OffsetAndEpoch(NamedTuple):
    """Where a log ends, or a prefix of it: the end offset, and the epoch of the record before it.

    Two logs that both hold such a position are equal up to it.
    """

    offset: Offset
    epoch: LeaderEpoch


EMPTY_LOG: Final = OffsetAndEpoch(Offset(0), LeaderEpoch(0))


class QuorumState(NamedTuple):
    """Stored in the quorum-state file, synced before anything that follows from it is sent."""

    epoch: LeaderEpoch = LeaderEpoch(0)
    leader_id: NodeId | None = None  # of this epoch; never changes within it
    voted: ReplicaKey | None = None  # in this epoch


class RaftLog(Protocol):
    """The replica's log, read only. All of it is in offset order and epochs never fall."""

    @property
    def start_offset(self) -> Offset:
        """The first offset that can be read. Above 0, a snapshot reaches at least up to here."""

    @property
    def end_offset(self) -> Offset:
        """Where the next record will be; what is not synced yet counts."""

    @property
    def last_epoch(self) -> LeaderEpoch:
        """Of the last record, or of the snapshot where the log starts; 0 if there is neither."""

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        """The newest complete snapshot. The log holds its end."""

    def end_offset_for(self, epoch: LeaderEpoch) -> OffsetAndEpoch:
        """The largest epoch of the log that is not above `epoch`, and where it ends.

        If all its epochs are above: NO_EPOCH at the log's start, never `epoch` itself.
        """


class Diverging(NamedTuple):
    """The position is not in this log; the two may agree up to here."""

    end: OffsetAndEpoch


class NeedsSnapshot(NamedTuple):
    """The log no longer reaches back to what follows the position."""

    snapshot: OffsetAndEpoch


def find_position(log: RaftLog, position: OffsetAndEpoch) -> Diverging | NeedsSnapshot | None:
    """None if the log holds the position, so that records from there on can be sent."""
    start_offset, snapshot = log.start_offset, log.latest_snapshot
    if position.offset >= start_offset:
        if position in (EMPTY_LOG, snapshot):
            return None
        known = log.end_offset_for(position.epoch)
        if known.epoch == position.epoch and known.offset >= position.offset:
            return None
        if known.offset > start_offset or start_offset == 0:
            return Diverging(known)
    assert snapshot is not None, "a log that does not start at 0 has a snapshot"
    assert snapshot.offset >= start_offset, "the snapshot reaches the start of the log"
    return NeedsSnapshot(snapshot)
