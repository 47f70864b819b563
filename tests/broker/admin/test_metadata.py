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
    everything = wire.call(METADATA, 12, topics=None)
    assert {topic.name: len(topic.partitions) for topic in everything.topics} == {"a": 1, "b": 3}
    assert not wire.call(METADATA, 12, topics=[]).topics
    assert len(wire.call(METADATA, 0, topics=[]).topics) == 2


def test_a_topic_is_described_by_its_id(wire: Any, broker: Any) -> None:
    broker.create_topic("a")
    topic_id = wire.call(METADATA, 12, topics=[{"name": "a"}]).topics[0].topic_id
    (result,) = wire.call(METADATA, 12, topics=[{"name": None, "topic_id": topic_id}]).topics
    assert (result.name, result.error_code) == ("a", ErrorCode.none)
    (missing,) = wire.call(METADATA, 12, topics=[{"name": None, "topic_id": uuid4()}]).topics
    assert missing.error_code == ErrorCode.unknown_topic_id


def test_a_missing_topic_is_created_only_on_request(wire: Any) -> None:
    requested = {"topics": [{"name": "new"}]}
    (unknown,) = wire.call(METADATA, 9, **requested, allow_auto_topic_creation=False).topics
    assert unknown.error_code == ErrorCode.unknown_topic_or_partition
    (created,) = wire.call(METADATA, 9, **requested, allow_auto_topic_creation=True).topics
    assert created.error_code == ErrorCode.none
    assert [row.leader_id for row in created.partitions] == [1]


def test_a_missing_topic_is_not_created_if_the_broker_forbids_it(start_broker: Any) -> None:
    broker = start_broker(auto_create_topics_enable="false")
    with broker.connect() as wire:
        (unknown,) = wire.call(METADATA, 9, topics=[{"name": "new"}]).topics
    assert unknown.error_code == ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize("name", ["a b", "", "x" * 250, "ünïcode", ".."])
def test_an_invalid_name_is_refused_and_not_created(name: str, wire: Any) -> None:
    (topic,) = wire.call(METADATA, 9, topics=[{"name": name}]).topics
    assert topic.error_code == ErrorCode.invalid_topic_exception


def test_a_colliding_name_is_not_made(wire: Any, broker: Any) -> None:
    broker.create_topic("a.b")
    (topic,) = wire.call(METADATA, 9, topics=[{"name": "a_b"}]).topics
    assert topic.error_code == ErrorCode.unknown_topic_or_partition


def test_the_offsets_topic_is_created_with_its_own_settings(wire: Any) -> None:
    (topic,) = wire.call(METADATA, 9, topics=[{"name": "__consumer_offsets"}]).topics
    assert topic.is_internal
    assert len(topic.partitions) == 50
    resource = {"resource_type": 2, "resource_name": "__consumer_offsets"}
    requested = {**resource, "configuration_keys": ["cleanup.policy"]}
    (described,) = wire.call(32, 4, resources=[requested]).results
    assert [row.value for row in described.configs] == ["compact"]


def test_operations_are_returned_only_on_request(wire: Any, broker: Any) -> None:
    broker.create_topic("a")
    requested = {"topics": [{"name": "a"}]}
    without = wire.call(METADATA, 9, **requested)
    response = wire.call(
        METADATA,
        9,
        **requested,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    assert without.topics[0].topic_authorized_operations == -(1 << 31)
    assert without.cluster_authorized_operations == -(1 << 31)
    assert response.topics[0].topic_authorized_operations == 0b110111111000
    assert response.cluster_authorized_operations > 0
    assert wire.call(METADATA, 9, **requested) == without


def test_responses_follow_every_change_of_a_topic(wire: Any, broker: Any) -> None:
    broker.create_topic("a")
    assert len(wire.call(METADATA, 12, topics=[{"name": "a"}]).topics[0].partitions) == 1
    wire.call(37, 3, topics=[{"name": "a", "count": 4, "assignments": None}])
    assert len(wire.call(METADATA, 12, topics=[{"name": "a"}]).topics[0].partitions) == 4
    wire.call(20, 6, topics=[{"name": "a"}])
    requested = {"topics": [{"name": "a"}], "allow_auto_topic_creation": False}
    (deleted,) = wire.call(METADATA, 12, **requested).topics
    assert deleted.error_code == ErrorCode.unknown_topic_or_partition


def test_partitions_are_described_a_page_at_a_time(wire: Any, broker: Any) -> None:
    for name, count in (("a", 3), ("b", 5), ("c", 1)):
        broker.create_topic(name, count)
    seen: list[tuple[str, int]] = []
    cursor = None
    pages = 0
    while True:
        response = wire.call(
            DESCRIBE_TOPIC_PARTITIONS, 0, topics=[], response_partition_limit=2, cursor=cursor
        )
        rows = [
            (topic.name, row.partition_index)
            for topic in response.topics
            for row in topic.partitions
        ]
        assert len(rows) <= 2
        seen += rows
        pages += 1
        if response.next_cursor is None:
            break
        cursor = {
            "topic_name": response.next_cursor.topic_name,
            "partition_index": response.next_cursor.partition_index,
        }
    assert seen == [("a", n) for n in range(3)] + [("b", n) for n in range(5)] + [("c", 0)]
    assert pages == 5


def test_missing_topics_are_described_with_an_error(wire: Any) -> None:
    response = wire.call(DESCRIBE_TOPIC_PARTITIONS, 0, topics=[{"name": "nope"}, {"name": "a b"}])
    codes = {topic.name: topic.error_code for topic in response.topics}
    assert codes == {
        "nope": ErrorCode.unknown_topic_or_partition,
        "a b": ErrorCode.invalid_topic_exception,
    }


@pytest.mark.parametrize("version", [10, 11])
def test_a_version_without_lookup_by_id_refuses_ids(version: int, wire: Any, broker: Any) -> None:
    broker.create_topic("a")
    topic_id = wire.call(METADATA, 12, topics=[{"name": "a"}]).topics[0].topic_id
    requested = [
        {"name": None, "topic_id": topic_id},
        {"name": None, "topic_id": None},
        {"name": "a", "topic_id": None},
    ]
    rows = wire.call(METADATA, version, topics=requested).topics
    invalid = ErrorCode.invalid_request
    assert [(row.name, row.error_code) for row in rows] == [("", invalid), ("", invalid), ("a", 0)]


def test_an_id_takes_precedence_over_a_name(wire: Any, broker: Any) -> None:
    broker.create_topic("a")
    topic_id = wire.call(METADATA, 12, topics=[{"name": "a"}]).topics[0].topic_id
    requested = [{"name": "b", "topic_id": topic_id}, {"name": "a", "topic_id": uuid4()}]
    rows = wire.call(METADATA, 12, topics=requested).topics
    missing = ErrorCode.unknown_topic_id
    assert [(row.name, row.error_code) for row in rows] == [("a", 0), (None, missing)]
    (unmade,) = wire.call(
        METADATA, 12, topics=[{"name": "b"}], allow_auto_topic_creation=False
    ).topics
    assert unmade.error_code == ErrorCode.unknown_topic_or_partition


def test_a_missing_topic_is_described_by_its_name(wire: Any) -> None:
    requested = [
        {"name": "nope"},
        {"name": "__consumer_offsets"},
        {"name": None, "topic_id": uuid4()},
    ]
    fields = {"topics": requested, "allow_auto_topic_creation": False}
    response = wire.call(METADATA, 12, **fields, include_topic_authorized_operations=True).topics
    assert [row.is_internal for row in response] == [False, True, False]
    everything, unasked = 0b110111111000, -(1 << 31)
    operations = [row.topic_authorized_operations for row in response]
    assert operations == [everything, everything, unasked]
    (described,) = wire.call(DESCRIBE_TOPIC_PARTITIONS, 0, topics=[requested[1]]).topics
    assert described.is_internal


@pytest.mark.parametrize("cursor", [("a", -1), ("b", 0), ("", 0)])
def test_a_cursor_that_no_page_ended_in_is_refused(
    cursor: tuple[str, int], wire: Any, broker: Any
) -> None:
    broker.create_topic("a")
    name, index = cursor
    response = wire.call(
        DESCRIBE_TOPIC_PARTITIONS,
        0,
        topics=[{"name": "a"}, {"name": "c"}],
        cursor={"topic_name": name, "partition_index": index},
    )
    invalid = ErrorCode.invalid_request
    assert [(row.name, row.error_code) for row in response.topics] == [
        ("a", invalid),
        ("c", invalid),
    ]
    assert response.next_cursor is None
