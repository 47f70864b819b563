"""Metadata is taken in without holding the event loop, however much it is."""

from uuid import UUID

import pytest

from bench.cluster_scale import longest_turn_s
from penstock.coordination.controller import codec
from penstock.coordination.controller.codec import ROWS_PER_STEP, read_events, write_event
from penstock.coordination.controller.events import PartitionState, TopicSet
from penstock.model import LeaderEpoch, NodeId, TopicId

TURN_S_MAX = 0.1


def topic(partitions: int) -> TopicSet:
    nodes = NodeId(1), NodeId(2), NodeId(3)
    rows = (
        PartitionState(nodes[index % 3], LeaderEpoch(index), index, nodes, nodes)
        for index in range(partitions)
    )
    return TopicSet("large", TopicId(UUID(int=1)), tuple(rows))


@pytest.mark.parametrize("partitions", [1, ROWS_PER_STEP, ROWS_PER_STEP + 1, 10_000])
def test_a_topic_is_read_a_thousand_partitions_at_a_time(
    partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = topic(partitions)
    record = write_event(event)
    read_partition, read = codec._read_partition, [0]  # noqa: SLF001 - counts the work

    def counted(row: list[object]) -> PartitionState:
        read[-1] += 1
        return read_partition(row)

    monkeypatch.setattr(codec, "_read_partition", counted)
    steps = codec.read_in_steps(record)
    read.extend(0 for _ in steps)
    assert sum(read) == partitions
    assert max(read) <= ROWS_PER_STEP
    assert (len(read) == 1) == (partitions <= ROWS_PER_STEP)
    assert read_events(record) == (event,)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_100_000_topics_are_loaded_without_holding_the_event_loop() -> None:
    assert longest_turn_s() < TURN_S_MAX
