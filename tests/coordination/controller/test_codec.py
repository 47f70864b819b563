"""How the controller's events are stored."""

import json
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.coordination.controller.codec import read_events, write_event
from penstock.coordination.controller.events import (
    BrokerSet,
    ClusterIdSet,
    ConfigScope,
    ConfigSet,
    Event,
    FeatureSet,
    PartitionSet,
    PartitionState,
    ProducerIdsAllocated,
    QuotaSet,
    TopicDeleted,
    TopicSet,
)
from penstock.machine import JournalRecord
from penstock.model import LeaderEpoch, NodeId, TopicId

names = st.text(min_size=1, max_size=20)
nodes = st.integers(0, 2**31 - 1).map(NodeId)
ids = st.uuids().map(TopicId)
partitions = st.builds(
    PartitionState,
    nodes,
    st.integers(0, 2**31 - 1).map(LeaderEpoch),
    st.integers(0, 2**31 - 1),
    st.lists(nodes, max_size=3).map(tuple),
    st.lists(nodes, max_size=3).map(tuple),
)
texts = st.dictionaries(names, st.text(max_size=10), max_size=3)
rates = st.dictionaries(names, st.floats(0.1, 1e12), max_size=3)
entities = st.lists(st.tuples(names, st.none() | names), min_size=1, max_size=2).map(tuple)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(TopicSet, names, ids, st.lists(partitions, max_size=3).map(tuple)),
    st.builds(TopicDeleted, names),
    st.builds(PartitionSet, names, ids, st.integers(0, 1000), partitions),
    st.builds(ConfigSet, st.sampled_from(ConfigScope), st.text(max_size=20), texts),
    st.builds(QuotaSet, entities, rates),
    st.builds(BrokerSet, nodes, names, st.integers(0, 65535), st.none() | names),
    st.builds(FeatureSet, names, st.integers(0, 100)),
    st.builds(ProducerIdsAllocated, st.integers(0, 2**62)),
    st.builds(ClusterIdSet, names),
)


@settings(deadline=None, max_examples=300)
@given(events)
def test_what_is_written_is_read(event: Event) -> None:
    assert read_events(write_event(event)) == (event,)


@pytest.mark.parametrize(
    "record",
    [
        JournalRecord(b"moon/x", b'{"version":1}'),
        JournalRecord(b"moon/x", None),
        JournalRecord(b"topic/x", b'{"version":2,"anything":[]}'),
        JournalRecord(b"config/planet/x", b'{"version":1,"overrides":{}}'),
        JournalRecord(b"cluster/colour", b'{"version":1}'),
        JournalRecord(b"partition/x/0", None),
    ],
)
def test_what_a_newer_broker_wrote_is_passed_over(record: JournalRecord) -> None:
    assert read_events(record) == ()


def test_a_topic_is_stored_as_a_person_can_read_it() -> None:
    row = PartitionState(NodeId(1), LeaderEpoch(0), 0, (NodeId(1),), (NodeId(1),))
    record = write_event(TopicSet("orders", TopicId(UUID(int=7)), (row,)))
    assert record.key == b"topic/orders"
    assert record.value is not None
    assert json.loads(record.value) == {
        "version": 1,
        "id": "00000000-0000-0000-0000-000000000007",
        "partitions": [[1, 0, 0, [1], [1]]],
    }
