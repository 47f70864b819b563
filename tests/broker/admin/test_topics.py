"""Topics through confluent-kafka's admin client: what it creates, and what is refused."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own exports, undeclared
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from penstock.errors import ErrorCode
from penstock.testing.embedded import EmbeddedBroker

CodeOf = Callable[[Callable[[], Any]], int]


def create(client: AdminClient, name: str, *args: Any, **options: Any) -> None:
    validate_only = options.pop("validate_only", False)
    client.create_topics([NewTopic(name, *args, **options)], validate_only=validate_only)[
        name
    ].result(10)


def test_a_topic_is_created_described_extended_and_deleted(
    client: AdminClient, code_of: CodeOf
) -> None:
    create(client, "life", 2, 1, config={"retention.ms": "5000"})
    described = client.describe_topics(TopicCollection(["life"]))["life"].result(10)
    assert [row.leader.id for row in described.partitions] == [1, 1]
    assert str(described.topic_id) != "AAAAAAAAAAAAAAAAAAAAAA"
    client.create_partitions([NewPartitions("life", 5)])["life"].result(10)
    assert len(client.list_topics(timeout=10).topics["life"].partitions) == 5
    client.delete_topics(["life"])["life"].result(10)
    assert "life" not in client.list_topics(timeout=10).topics
    assert code_of(lambda: client.delete_topics(["life"])["life"].result(10)) == 3


@pytest.mark.parametrize(
    ("name", "args", "options", "code"),
    [
        ("taken", (1,), {}, 36),
        ("a b", (1,), {}, 17),
        ("", (1,), {}, 17),
        (".", (1,), {}, 17),
        ("x" * 250, (1,), {}, 17),
        ("ta.ken", (1,), {}, 17),
        ("__cluster_metadata", (1,), {}, 42),
        ("none", (0,), {}, 37),
        ("many", (1, 2), {}, 38),
        ("zero", (1, 0), {}, 38),
        ("bad", (1,), {"config": {"nope": "1"}}, 40),
        ("bad", (1,), {"config": {"retention.ms": "x"}}, 40),
        ("bad", (1,), {"config": {"segment.bytes": "1"}}, 40),
        ("bad", (1,), {"config": {"cleanup.policy": "foo"}}, 40),
        ("bad", (1,), {"config": {"remote.storage.enable": "true"}}, 40),
        ("hand", (1,), {"replica_assignment": [[2]]}, 39),
        ("too-wide", (10_001,), {}, 44),
    ],
)
def test_invalid_topics_are_refused_with_kafkas_code(
    name: str,
    args: tuple[int, ...],
    options: dict[str, Any],
    code: int,
    client: AdminClient,
    code_of: CodeOf,
) -> None:
    code_of(lambda: create(client, "taken", 1))
    code_of(lambda: create(client, "ta_ken", 1))
    assert code_of(lambda: create(client, name, *args, **options)) == code


def test_a_validated_topic_is_not_created(client: AdminClient, code_of: CodeOf) -> None:
    create(client, "validated", 3, 1, validate_only=True)
    assert "validated" not in client.list_topics(timeout=10).topics
    assert code_of(lambda: create(client, "validated", 0, 1, validate_only=True)) == 37


def test_replicas_may_be_assigned_by_hand(client: AdminClient) -> None:
    create(client, "by-hand", 2, replica_assignment=[[1], [1]])
    result = client.list_topics(timeout=10).topics["by-hand"].partitions
    assert [result[index].replicas for index in range(2)] == [[1], [1]]


@pytest.mark.parametrize(
    ("count", "assignment", "code"),
    [(1, None, 37), (2, None, 37), (4, [[1], [2]], 39), (4, [[1]], 39)],
)
def test_invalid_numbers_of_partitions_are_refused(
    count: int,
    assignment: list[list[int]] | None,
    code: int,
    client: AdminClient,
    code_of: CodeOf,
) -> None:
    code_of(lambda: create(client, "wide", 2))
    more = (
        NewPartitions("wide", count)
        if assignment is None
        else NewPartitions("wide", count, assignment)
    )
    assert code_of(lambda: client.create_partitions([more])["wide"].result(10)) == code


def test_a_name_used_again_is_an_empty_topic(embedded: EmbeddedBroker, client: AdminClient) -> None:
    for round_number in range(3):
        create(client, "again", 1)
        producer = Producer({"bootstrap.servers": embedded.bootstrap})
        producer.produce("again", str(round_number).encode())
        assert producer.flush(10) == 0
        consumer = Consumer({"bootstrap.servers": embedded.bootstrap, "group.id": "again"})
        ends = consumer.get_watermark_offsets(TopicPartition("again", 0), timeout=10)
        consumer.close()
        assert ends == (0, 1)
        client.delete_topics(["again"])["again"].result(10)


def test_everything_is_kept_through_a_restart_and_a_kill(fresh: EmbeddedBroker) -> None:
    def picture() -> Any:
        client = AdminClient({"bootstrap.servers": fresh.bootstrap})
        known = client.list_topics(timeout=10)
        described = client.describe_topics(TopicCollection(["kept"]))["kept"].result(10)
        resource = ConfigResource(ConfigResource.Type.TOPIC, "kept")
        settings = client.describe_configs([resource])[resource].result(10)
        return (
            known.cluster_id,
            sorted(known.topics),
            str(described.topic_id),
            len(described.partitions),
            {key: entry.value for key, entry in settings.items()},
        )

    client = AdminClient({"bootstrap.servers": fresh.bootstrap})
    create(client, "kept", 3, config={"retention.ms": "77", "cleanup.policy": "compact"})
    create(client, "deleted", 1)
    client.delete_topics(["deleted"])["deleted"].result(10)
    before = picture()
    fresh.restart()
    assert picture() == before
    fresh.kill()
    fresh.start()
    assert picture() == before


@pytest.mark.slow
def test_two_thousand_topics_are_created_reloaded_and_described(fresh: EmbeddedBroker) -> None:
    client = AdminClient({"bootstrap.servers": fresh.bootstrap})
    names = [f"topic-{number}" for number in range(2000)]
    for first in range(0, 2000, 100):
        created = client.create_topics(
            [NewTopic(name, 1, 1) for name in names[first : first + 100]]
        )
        for future in created.values():
            future.result(60)
    for again in (fresh.restart, fresh.kill):
        again()
        if again == fresh.kill:
            fresh.start()
        client = AdminClient({"bootstrap.servers": fresh.bootstrap})
        assert set(client.list_topics(timeout=30).topics) == set(names)
    described = client.describe_topics(TopicCollection(names), request_timeout=60)
    assert all(len(future.result(60).partitions) == 1 for future in described.values())


def test_a_topic_to_delete_is_named_in_one_way(wire: Any, broker: Any) -> None:
    broker.create_topic("a")
    topic_id = wire.call(3, 12, topics=[{"name": "a"}]).topics[0].topic_id
    rows = [
        {"name": "a", "topic_id": topic_id},
        {"name": None, "topic_id": None},
        {"name": "b"},
    ]
    responses = wire.call(20, 6, topics=rows).responses
    codes = [(row.name, row.error_code) for row in responses]
    unclear, unknown = ErrorCode.invalid_request, ErrorCode.unknown_topic_or_partition
    assert codes == [("a", unclear), (None, unclear), ("b", unknown)]
    assert wire.call(3, 12, topics=[{"name": "a"}]).topics[0].error_code == ErrorCode.none


def test_names_given_twice_have_one_row(wire: Any, broker: Any) -> None:
    broker.create_topic("a")
    deleted = wire.call(20, 6, topics=[{"name": "a"}, {"name": "a"}]).responses
    assert [(row.name, row.error_code) for row in deleted] == [("a", ErrorCode.invalid_request)]
    more = {"name": "a", "count": 3, "assignments": None}
    widened = wire.call(37, 3, topics=[more, more]).results
    assert [(row.name, row.error_code) for row in widened] == [("a", ErrorCode.invalid_request)]


def test_a_topic_named_by_its_name_and_by_its_id_stays(wire: Any, broker: Any) -> None:
    broker.create_topic("a")
    topic_id = wire.call(3, 12, topics=[{"name": "a"}]).topics[0].topic_id
    requested = [{"name": "a"}, {"name": None, "topic_id": topic_id}]
    codes = {row.error_code for row in wire.call(20, 6, topics=requested).responses}
    assert codes == {ErrorCode.invalid_request}
    assert wire.call(3, 12, topics=[{"name": "a"}]).topics[0].error_code == ErrorCode.none
