"""Where logs begin and end, what was written when, what groups have committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import ErrorCode, Refused
from penstock.link.offsets import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    GroupOffset,
    commit_offsets,
    committed_offsets,
    end_offsets,
    list_offsets,
    partitions_of,
    start_offsets,
)
from penstock.link.send_batches import send_batches
from penstock.model import Millis, Offset, TopicPartition
from penstock.protocol.records import Record, build_batch

if TYPE_CHECKING:
    from collections.abc import Callable

T0 = 1_700_000_000_000


def dated_batch(*ages_ms: int) -> bytes:
    records = [Record(timestamp=Millis(T0 + age), key=None, value=b"v") for age in ages_ms]
    return bytes(build_batch(records))


def test_offsets_are_listed_by_time_and_by_name(shell: Any, make_topic: Callable[..., str]) -> None:
    place = TopicPartition(make_topic(), 0)
    shell.run(send_batches({place: [dated_batch(0, 10), dated_batch(50, 20), dated_batch(30)]}))

    def offset_at(time: int) -> tuple[int, int]:
        row = shell.run(list_offsets({place: Millis(time)}))[place]
        return row.offset, row.timestamp

    assert offset_at(EARLIEST) == (0, -1)
    assert offset_at(LATEST) == (5, -1)
    assert offset_at(MAX_TIMESTAMP) == (2, T0 + 50)
    assert offset_at(T0 + 5) == (1, T0 + 10)
    assert offset_at(T0 + 11) == (2, T0 + 50)
    assert offset_at(T0 + 1_000) == (-1, -1)


def test_the_ends_of_many_partitions_come_from_one_operation(
    shell: Any, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(50)
    places = shell.run(partitions_of([topic]))
    assert places == [TopicPartition(topic, index) for index in range(50)]
    shell.run(send_batches({place: [dated_batch(*range(place.partition + 1))] for place in places}))
    assert shell.run(end_offsets(places)) == {place: place.partition + 1 for place in places}
    assert shell.run(start_offsets(places)) == dict.fromkeys(places, 0)
    assert shell.run(end_offsets([])) == {}


def test_a_partition_that_does_not_exist_is_refused(
    shell: Any, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    with pytest.raises(Refused, match=f"does not exist: topic {topic} has 1 partitions") as refused:
        shell.run(end_offsets([TopicPartition(topic, 1)]))
    assert refused.value.code is ErrorCode.unknown_topic_or_partition


def test_a_group_without_members_has_the_offsets_committed_for_it(
    shell: Any, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    group = f"group of {topic}"
    assert shell.run(committed_offsets(group)) == {}
    shell.run(commit_offsets(group, {first: Offset(3), second: Offset(0)}, metadata="batch 7"))
    assert shell.run(committed_offsets(group, [first])) == {
        first: GroupOffset(Offset(3), "batch 7")
    }
    assert set(shell.run(committed_offsets(group))) == {first, second}
