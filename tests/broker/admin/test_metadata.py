"""Metadata and DescribeTopicPartitions over the wire."""

from typing import Any
from uuid import uuid4

import pytest

from penstock.errors import ErrorCode

METADATA = 3
DESCRIBE_TOPIC_PARTITIONS = 75


def test_null_is_all_topics_and_an_empty_list_is_none(wire: Any, broker: Any) -> None:
    broker.create_topic("a")
    broker.create_topic("b", 3)
    everything = wire.ask(METADATA, 12, topics=None)
    assert {topic.name: len(topic.partitions) for topic in everything.topics} == {"a": 1, "b": 3}
    assert not wire.ask(METADATA, 12, topics=[]).topics
    assert len(wire.ask(METADATA, 0, topics=[]).topics) == 2


def test_a_topic_is_found_by_its_id(wire: Any, broker: Any) -> None:
    broker.create_topic("a")
    topic_id = wire.ask(METADATA, 12, topics=[{"name": "a"}]).topics[0].topic_id
    (found,) = wire.ask(METADATA, 12, topics=[{"name": None, "topic_id": topic_id}]).topics
    assert (found.name, found.error_code) == ("a", ErrorCode.none)
    (missing,) = wire.ask(METADATA, 12, topics=[{"name": None, "topic_id": uuid4()}]).topics
    assert missing.error_code == ErrorCode.unknown_topic_id


def test_a_missing_topic_is_made_only_when_asked(wire: Any) -> None:
    asked = {"topics": [{"name": "new"}]}
    (unknown,) = wire.ask(METADATA, 9, **asked, allow_auto_topic_creation=False).topics
    assert unknown.error_code == ErrorCode.unknown_topic_or_partition
    (made,) = wire.ask(METADATA, 9, **asked, allow_auto_topic_creation=True).topics
    assert made.error_code == ErrorCode.none
    assert [row.leader_id for row in made.partitions] == [1]


def test_a_missing_topic_is_not_made_when_the_broker_does_not_allow_it(start_broker: Any) -> None:
    broker = start_broker(auto_create_topics_enable="false")
    with broker.connect() as wire:
        (unknown,) = wire.ask(METADATA, 9, topics=[{"name": "new"}]).topics
    assert unknown.error_code == ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize("name", ["a b", "", "x" * 250, "ünïcode", ".."])
def test_a_name_that_cannot_be_is_refused_and_not_made(name: str, wire: Any) -> None:
    (topic,) = wire.ask(METADATA, 9, topics=[{"name": name}]).topics
    assert topic.error_code == ErrorCode.invalid_topic_exception


def test_a_colliding_name_is_not_made(wire: Any, broker: Any) -> None:
    broker.create_topic("a.b")
    (topic,) = wire.ask(METADATA, 9, topics=[{"name": "a_b"}]).topics
    assert topic.error_code == ErrorCode.unknown_topic_or_partition


def test_the_offsets_topic_is_made_with_its_own_settings(wire: Any) -> None:
    (topic,) = wire.ask(METADATA, 9, topics=[{"name": "__consumer_offsets"}]).topics
    assert topic.is_internal
    assert len(topic.partitions) == 50
    resource = {"resource_type": 2, "resource_name": "__consumer_offsets"}
    wanted = {**resource, "configuration_keys": ["cleanup.policy"]}
    (described,) = wire.ask(32, 4, resources=[wanted]).results
    assert [row.value for row in described.configs] == ["compact"]


def test_operations_are_answered_only_when_asked_for(wire: Any, broker: Any) -> None:
    broker.create_topic("a")
    asked = {"topics": [{"name": "a"}]}
    silent = wire.ask(METADATA, 9, **asked)
    told = wire.ask(
        METADATA,
        9,
        **asked,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    assert silent.topics[0].topic_authorized_operations == -(1 << 31)
    assert silent.cluster_authorized_operations == -(1 << 31)
    assert told.topics[0].topic_authorized_operations == 0b110111111000
    assert told.cluster_authorized_operations > 0
    assert wire.ask(METADATA, 9, **asked) == silent


def test_answers_follow_every_change_of_a_topic(wire: Any, broker: Any) -> None:
    broker.create_topic("a")
    assert len(wire.ask(METADATA, 12, topics=[{"name": "a"}]).topics[0].partitions) == 1
    wire.ask(37, 3, topics=[{"name": "a", "count": 4, "assignments": None}])
    assert len(wire.ask(METADATA, 12, topics=[{"name": "a"}]).topics[0].partitions) == 4
    wire.ask(20, 6, topics=[{"name": "a"}])
    asked = {"topics": [{"name": "a"}], "allow_auto_topic_creation": False}
    (gone,) = wire.ask(METADATA, 12, **asked).topics
    assert gone.error_code == ErrorCode.unknown_topic_or_partition


def test_partitions_are_described_a_page_at_a_time(wire: Any, broker: Any) -> None:
    for name, count in (("a", 3), ("b", 5), ("c", 1)):
        broker.create_topic(name, count)
    seen: list[tuple[str, int]] = []
    cursor = None
    pages = 0
    while True:
        answer = wire.ask(
            DESCRIBE_TOPIC_PARTITIONS, 0, topics=[], response_partition_limit=2, cursor=cursor
        )
        rows = [
            (topic.name, row.partition_index) for topic in answer.topics for row in topic.partitions
        ]
        assert len(rows) <= 2
        seen += rows
        pages += 1
        if answer.next_cursor is None:
            break
        cursor = {
            "topic_name": answer.next_cursor.topic_name,
            "partition_index": answer.next_cursor.partition_index,
        }
    assert seen == [("a", n) for n in range(3)] + [("b", n) for n in range(5)] + [("c", 0)]
    assert pages == 5


def test_described_topics_that_are_not_there_say_so(wire: Any) -> None:
    answer = wire.ask(DESCRIBE_TOPIC_PARTITIONS, 0, topics=[{"name": "nope"}, {"name": "a b"}])
    codes = {topic.name: topic.error_code for topic in answer.topics}
    assert codes == {
        "nope": ErrorCode.unknown_topic_or_partition,
        "a b": ErrorCode.invalid_topic_exception,
    }


@pytest.mark.parametrize("version", [10, 11])
def test_a_version_that_only_tells_ids_is_not_asked_by_them(
    version: int, wire: Any, broker: Any
) -> None:
    broker.create_topic("a")
    topic_id = wire.ask(METADATA, 12, topics=[{"name": "a"}]).topics[0].topic_id
    asked = [
        {"name": None, "topic_id": topic_id},
        {"name": None, "topic_id": None},
        {"name": "a", "topic_id": None},
    ]
    rows = wire.ask(METADATA, version, topics=asked).topics
    wrong = ErrorCode.invalid_request
    assert [(row.name, row.error_code) for row in rows] == [("", wrong), ("", wrong), ("a", 0)]


def test_an_id_says_more_than_a_name(wire: Any, broker: Any) -> None:
    broker.create_topic("a")
    topic_id = wire.ask(METADATA, 12, topics=[{"name": "a"}]).topics[0].topic_id
    asked = [{"name": "b", "topic_id": topic_id}, {"name": "a", "topic_id": uuid4()}]
    rows = wire.ask(METADATA, 12, topics=asked).topics
    missing = ErrorCode.unknown_topic_id
    assert [(row.name, row.error_code) for row in rows] == [("a", 0), (None, missing)]
    (unmade,) = wire.ask(
        METADATA, 12, topics=[{"name": "b"}], allow_auto_topic_creation=False
    ).topics
    assert unmade.error_code == ErrorCode.unknown_topic_or_partition


def test_of_a_missing_topic_is_told_what_its_name_tells(wire: Any) -> None:
    asked = [{"name": "nope"}, {"name": "__consumer_offsets"}, {"name": None, "topic_id": uuid4()}]
    fields = {"topics": asked, "allow_auto_topic_creation": False}
    told = wire.ask(METADATA, 12, **fields, include_topic_authorized_operations=True).topics
    assert [row.is_internal for row in told] == [False, True, False]
    everything, unasked = 0b110111111000, -(1 << 31)
    operations = [row.topic_authorized_operations for row in told]
    assert operations == [everything, everything, unasked]
    (described,) = wire.ask(DESCRIBE_TOPIC_PARTITIONS, 0, topics=[asked[1]]).topics
    assert described.is_internal


@pytest.mark.parametrize("cursor", [("a", -1), ("b", 0), ("", 0)])
def test_a_cursor_that_no_page_ended_in_is_refused(
    cursor: tuple[str, int], wire: Any, broker: Any
) -> None:
    broker.create_topic("a")
    name, index = cursor
    answer = wire.ask(
        DESCRIBE_TOPIC_PARTITIONS,
        0,
        topics=[{"name": "a"}, {"name": "c"}],
        cursor={"topic_name": name, "partition_index": index},
    )
    wrong = ErrorCode.invalid_request
    assert [(row.name, row.error_code) for row in answer.topics] == [("a", wrong), ("c", wrong)]
    assert answer.next_cursor is None
