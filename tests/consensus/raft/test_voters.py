"""Voter sets, and the sets that a log has held."""

from itertools import combinations
from uuid import UUID

import pytest

from penstock.consensus.raft import ReplicaKey, Voter, VoterSet
from penstock.consensus.raft.voters import VoterHistory
from penstock.model import NO_OFFSET, NodeId, Offset


def key(node_id: int, disk: int = 1) -> ReplicaKey:
    return ReplicaKey(NodeId(node_id), UUID(int=disk))


def voters(*node_ids: int) -> VoterSet:
    return VoterSet(Voter(key(node_id)) for node_id in node_ids)


def test_a_voter_is_a_disk_of_a_node() -> None:
    assert key(1) in voters(1, 2)
    assert key(1, disk=2) not in voters(1, 2)
    assert key(3) not in voters(1, 2)


def test_a_set_that_knows_no_disk_accepts_any() -> None:
    unknown = VoterSet([Voter(ReplicaKey(NodeId(1)))])
    assert key(1, disk=7) in unknown


def test_a_node_votes_once() -> None:
    with pytest.raises(AssertionError):
        VoterSet([Voter(key(1)), Voter(key(1, disk=2))])


@pytest.mark.parametrize("count", range(1, 7))
def test_majorities_of_two_sets_that_differ_by_one_voter_have_a_voter_in_common(count: int) -> None:
    before = voters(*range(1, count + 1))
    after = before.with_voter(Voter(key(count + 1)))
    for old in combinations(before.voters, before.majority):
        for new in combinations(after.voters, after.majority):
            assert set(old) & set(new)


def test_sets_are_equal_by_their_voters() -> None:
    assert voters(1, 2) == voters(2, 1)
    assert hash(voters(1, 2)) == hash(voters(2, 1))
    assert voters(1) != voters(1, 2)
    assert voters(1, 2, 3).without_node(NodeId(2)) == voters(1, 3)


def test_the_latest_set_counts_and_truncation_undoes_it() -> None:
    history = VoterHistory([(NO_OFFSET, voters(1))])
    history.append(Offset(4), voters(1, 2))
    history.append(Offset(7), voters(1, 2, 3))
    assert history.latest == voters(1, 2, 3)
    history.truncate_to(Offset(7))
    assert (history.latest, history.latest_offset) == (voters(1, 2), 4)
    history.truncate_to(Offset(0))
    assert (history.latest, history.latest_offset) == (voters(1), NO_OFFSET)


def test_a_snapshot_holds_the_set_at_its_end() -> None:
    history = VoterHistory([(NO_OFFSET, voters(1))])
    history.append(Offset(4), voters(1, 2))
    history.append(Offset(7), voters(1, 2, 3))
    assert history.at(Offset(5)) == voters(1, 2)
    assert history.at(Offset(7)) == voters(1, 2)
    assert history.at(Offset(8)) == voters(1, 2, 3)
    with pytest.raises(AssertionError):
        history.at(Offset(4))


def test_sets_before_the_start_of_the_log_are_dropped_except_the_last() -> None:
    history = VoterHistory([(NO_OFFSET, voters(1))])
    for offset in (4, 7, 9):
        history.append(Offset(offset), voters(1, offset))
    history.drop_before(Offset(8))
    assert history.at(Offset(8)) == voters(1, 7)
    assert history.latest == voters(1, 9)
    with pytest.raises(StopIteration):
        history.at(Offset(7))


def test_a_snapshot_replaces_all_sets() -> None:
    history = VoterHistory([(NO_OFFSET, voters(1))])
    history.append(Offset(4), voters(1, 2))
    history.replace(Offset(9), voters(2, 3))
    assert (history.latest, history.latest_offset) == (voters(2, 3), 8)
