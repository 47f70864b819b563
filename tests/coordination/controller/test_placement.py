"""Where the replicas of new partitions go."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.coordination.controller.placement import PlacementBroker, place
from penstock.errors import ErrorCode, Refused
from penstock.model import NodeId


def brokers(*racks: str | None) -> list[PlacementBroker]:
    return [PlacementBroker(NodeId(number), rack) for number, rack in enumerate(racks, 1)]


@given(
    racks=st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=9),
    partition_count=st.integers(1, 60),
    factor=st.integers(1, 5),
    start=st.integers(0, 1000),
)
def test_replicas_are_distinct_on_as_many_racks_as_there_are_and_leaders_take_turns(
    racks: list[str | None], partition_count: int, factor: int, start: int
) -> None:
    if any(racks) and None in racks:  # either all brokers have a rack or none
        racks = [rack or "d" for rack in racks]
    known = brokers(*racks)
    factor = min(factor, len(known))
    placed = place(known, partition_count, factor, start=start)

    rack_of = {broker.node_id: broker.rack for broker in known}
    assert len(placed) == partition_count
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        used = {rack_of[node] for node in replicas}
        assert len(used) == min(factor, len(set(racks)))
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders.get(b.node_id, 0) for b in known) <= 1


def test_replicas_are_spread_evenly_over_brokers_of_one_rack() -> None:
    placed = place(brokers(None, None, None, None, None), 100, 3, start=7)
    counts = Counter(node for replicas in placed for node in replicas)
    assert max(counts.values()) - min(counts.values()) <= 2


def test_partitions_of_one_leader_do_not_all_share_their_followers() -> None:
    placed = place(brokers(None, None, None, None), 24, 2, start=0)
    followers = {replicas[1] for replicas in placed if replicas[0] == 1}
    assert followers == {2, 3, 4}


def test_a_fenced_broker_leads_nothing_and_is_used_last() -> None:
    known = [*brokers("a", "b", "c"), PlacementBroker(NodeId(4), "d", is_fenced=True)]
    placed = place(known, 12, 4, start=0)
    assert all(replicas[-1] == 4 for replicas in placed)
    placed = place([broker._replace(rack=None) for broker in known], 12, 3, start=0)
    assert all(4 not in replicas for replicas in placed)


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(Refused) as refused:
        place(brokers(None, None), 1, 3, start=0)
    assert refused.value.code == ErrorCode.invalid_replication_factor


def test_without_an_unfenced_broker_nothing_is_placed() -> None:
    with pytest.raises(Refused):
        place([PlacementBroker(NodeId(1), None, is_fenced=True)], 1, 1, start=0)
