"""Where two logs part: by epoch, never by offset alone."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.consensus.raft import OffsetAndEpoch, VoterSet
from penstock.consensus.raft.quorum_state import Diverging, NeedsSnapshot, find_position
from penstock.model import LeaderEpoch, Offset
from tests.support.raft_simulation.disk import Disk, Snapshot


def log_of(*epochs: int) -> Disk:
    """A log with one record per epoch given; equal epochs at equal offsets are equal records."""
    disk = Disk()
    disk.append([(LeaderEpoch(epoch), "record") for epoch in epochs])
    disk.crash_process()
    return disk


def at(offset: int, epoch: int) -> OffsetAndEpoch:
    return OffsetAndEpoch(Offset(offset), LeaderEpoch(epoch))


def cleaned(disk: Disk, end_offset: int) -> Disk:
    epoch = disk.entries[end_offset - 1][0]
    disk.take_snapshot(Snapshot(OffsetAndEpoch(Offset(end_offset), epoch), VoterSet()))
    disk.clean()
    return disk


def test_a_position_is_in_the_log_if_its_epoch_reaches_it() -> None:
    log = log_of(1, 1, 3, 3)
    for position in (at(0, 0), at(1, 1), at(2, 1), at(3, 3), at(4, 3)):
        assert find_position(log, position) is None


def test_a_position_beyond_its_epoch_diverges_where_that_ends() -> None:
    log = log_of(1, 1, 3, 3)
    assert find_position(log, at(3, 1)) == Diverging(at(2, 1))
    assert find_position(log, at(5, 3)) == Diverging(at(4, 3))


def test_an_epoch_that_the_log_lacks_diverges_where_the_one_before_ends() -> None:
    log = log_of(1, 1, 3, 3)
    assert find_position(log, at(3, 2)) == Diverging(at(2, 1))
    assert find_position(log, at(9, 7)) == Diverging(at(4, 3))


def test_an_epoch_older_than_the_whole_log_diverges_at_its_start() -> None:
    assert find_position(log_of(2, 2), at(1, 1)) == Diverging(at(0, -1))


def test_a_position_before_the_log_needs_the_snapshot() -> None:
    log = cleaned(log_of(1, 1, 3, 3, 4), 3)
    assert find_position(log, at(2, 1)) == NeedsSnapshot(at(3, 3))
    assert find_position(log, at(0, 0)) == NeedsSnapshot(at(3, 3))
    assert find_position(log, at(3, 3)) is None
    assert find_position(log, at(4, 3)) is None


def test_a_log_that_parts_before_the_start_needs_the_snapshot() -> None:
    log = cleaned(log_of(1, 1, 3, 3, 4), 3)
    assert find_position(log, at(5, 2)) == NeedsSnapshot(at(3, 3))
    assert find_position(log, at(3, 2)) == NeedsSnapshot(at(3, 3))


def test_a_log_that_does_not_know_the_epoch_before_its_start_accepts_its_snapshot_only() -> None:
    log = cleaned(log_of(1, 1, 3, 3), 2)
    log.epoch_starts = [(LeaderEpoch(3), Offset(2))]
    assert log.end_offset_for(LeaderEpoch(1)) == at(2, -1)
    assert find_position(log, at(2, 1)) is None
    assert find_position(log, at(2, 2)) == NeedsSnapshot(at(2, 1))


def test_of_several_snapshots_the_newest_is_offered() -> None:
    log = cleaned(log_of(1, 1, 3, 3, 4), 2)
    log.take_snapshot(Snapshot(at(4, 3), VoterSet()))
    assert find_position(log, at(1, 1)) == NeedsSnapshot(at(4, 3))


epochs = st.lists(st.integers(1, 6), max_size=12).map(sorted)


@given(leader=epochs, follower=epochs, common=epochs)
def test_cutting_back_ends_at_the_last_common_record(
    leader: list[int], follower: list[int], common: list[int]
) -> None:
    """Epochs are counted past the common part, so that no two leaders share one."""
    shift = max(common, default=0)
    leader_log = log_of(*common, *(shift + 2 * epoch for epoch in leader))
    log = log_of(*common, *(shift + 2 * epoch + 1 for epoch in follower))
    for _ in range(20):
        position = OffsetAndEpoch(log.end_offset, log.last_epoch)
        mismatch = find_position(leader_log, position)
        if mismatch is None:
            break
        assert isinstance(mismatch, Diverging)
        end_offset = min(mismatch.end.offset, log.end_offset_for(mismatch.end.epoch).offset)
        assert len(common) <= end_offset < log.end_offset
        log.truncate(end_offset)
    assert log.end_offset == len(common)
