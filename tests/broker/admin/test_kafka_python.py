"""kafka-python's admin client, which speaks newer versions than librdkafka's."""

from collections.abc import Iterator
from typing import Any

import pytest
from kafka.admin import (
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    NewPartitions,
    NewTopic,
)
from kafka.errors import InvalidTopicError, TopicAlreadyExistsError, UnknownTopicOrPartitionError

from penstock.testing.embedded import EmbeddedBroker


@pytest.fixture(scope="module")
def admin(embedded: EmbeddedBroker) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=embedded.bootstrap)
    yield client
    client.close()


def test_topics_are_created_listed_described_extended_and_deleted(admin: Any) -> None:
    admin.create_topics([NewTopic("kp", 2, 1, topic_configs={"retention.ms": "99"})])
    assert "kp" in admin.list_topics()
    (described,) = admin.describe_topics(["kp"])
    assert len(described["partitions"]) == 2
    admin.create_partitions({"kp": NewPartitions(4)})
    assert len(admin.describe_topics(["kp"])[0]["partitions"]) == 4
    admin.delete_topics(["kp"])
    assert "kp" not in admin.list_topics()


def test_refusals_are_its_own_exceptions(admin: Any) -> None:
    admin.create_topics([NewTopic("there", 1, 1)])
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic("there", 1, 1)])
    with pytest.raises(InvalidTopicError):
        admin.create_topics([NewTopic("a b", 1, 1)])
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics(["nope"])


def test_settings_are_described_and_altered(admin: Any) -> None:
    admin.create_topics([NewTopic("tuned", 1, 1)])
    resource = ConfigResource(ConfigResourceType.TOPIC, "tuned", configs={"retention.ms": "5"})
    admin.alter_configs([resource])
    response = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "tuned")])
    assert "'5'" in str(response)


def test_the_cluster_and_its_folders_are_described(admin: Any) -> None:
    cluster = admin.describe_cluster()
    assert [broker["broker_id"] for broker in cluster["brokers"]] == [1]
    assert admin.describe_log_dirs()
