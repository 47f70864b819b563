"""Settings through clients: described with their sources, altered, effective immediately."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own exports, undeclared
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from penstock.errors import ErrorCode
from penstock.testing.embedded import EmbeddedBroker

Type = ConfigResource.Type
TOPIC, BROKER, GROUP, LOGGER = 2, 4, 32, 8


@pytest.fixture
def topic(client: AdminClient) -> str:
    name = "configured"
    try:
        client.create_topics([NewTopic(name, 1)])[name].result(10)
    except KafkaException:
        replace_all(client, name, {})
    return name


def replace_all(client: AdminClient, topic: str, settings: dict[str, str]) -> None:
    resource = ConfigResource(Type.TOPIC, topic, set_config=settings)
    with pytest.deprecated_call():  # but older clients have no other way
        client.alter_configs([resource])[resource].result(10)


def described(client: AdminClient, kind: Any, name: str) -> dict[str, Any]:
    resource = ConfigResource(kind, name)
    entries: dict[str, Any] = client.describe_configs([resource])[resource].result(10)
    return entries


def alter(client: AdminClient, kind: Any, name: str, *changes: tuple[str, Any, str]) -> None:
    entries = [
        ConfigEntry(key, value, incremental_operation=operation)
        for key, operation, value in changes
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    client.incremental_alter_configs([resource])[resource].result(10)


def test_a_topic_shows_every_key_with_its_source_and_synonyms(
    client: AdminClient, topic: str
) -> None:
    alter(client, Type.TOPIC, topic, ("retention.ms", AlterConfigOpType.SET, "12345"))
    entries = described(client, Type.TOPIC, topic)
    assert (entries["retention.ms"].value, entries["retention.ms"].source) == ("12345", 1)
    assert (entries["segment.bytes"].value, entries["segment.bytes"].source) == ("1073741824", 5)
    assert list(entries["segment.bytes"].synonyms) == ["log.segment.bytes"]
    assert not entries["segment.bytes"].is_read_only


def test_lists_grow_and_shrink(client: AdminClient, topic: str) -> None:
    append = ("cleanup.policy", AlterConfigOpType.APPEND, "compact")
    subtract = ("cleanup.policy", AlterConfigOpType.SUBTRACT, "delete")
    alter(client, Type.TOPIC, topic, append)
    assert described(client, Type.TOPIC, topic)["cleanup.policy"].value == "delete,compact"
    alter(client, Type.TOPIC, topic, subtract)
    assert described(client, Type.TOPIC, topic)["cleanup.policy"].value == "compact"


def test_alter_replaces_all_that_was_set(client: AdminClient, topic: str) -> None:
    alter(client, Type.TOPIC, topic, ("retention.ms", AlterConfigOpType.SET, "5"))
    replace_all(client, topic, {"segment.bytes": "2000000"})
    entries = described(client, Type.TOPIC, topic)
    assert entries["segment.bytes"].value == "2000000"
    assert entries["retention.ms"].source == 5


def test_a_new_limit_holds_for_the_next_message(
    embedded: EmbeddedBroker, client: AdminClient, topic: str
) -> None:
    def send() -> Any:
        errors: list[Any] = []
        producer = Producer({"bootstrap.servers": embedded.bootstrap})
        producer.produce(topic, b"x" * 5000, on_delivery=lambda error, _: errors.append(error))
        producer.flush(10)
        return errors[0] and errors[0].code()

    assert send() is None
    alter(client, Type.TOPIC, topic, ("max.message.bytes", AlterConfigOpType.SET, "1000"))
    assert send() == ErrorCode.message_too_large
    alter(client, Type.TOPIC, topic, ("max.message.bytes", AlterConfigOpType.DELETE, ""))
    assert send() is None


@pytest.mark.parametrize(
    ("kind", "name", "change", "code"),
    [
        (Type.TOPIC, "nope", ("retention.ms", "1"), 3),
        (Type.TOPIC, "configured", ("nope", "1"), 40),
        (Type.TOPIC, "configured", ("segment.bytes", "5"), 40),
        (Type.BROKER, "1", ("num.partitions", "3"), 42),
        (Type.GROUP, "g", ("consumer.session.timeout.ms", "5"), 40),
        (Type.GROUP, "g", ("nope", "5"), 40),
    ],
)
def test_invalid_settings_are_refused_with_kafkas_code(
    kind: Any,
    name: str,
    change: tuple[str, str],
    code: int,
    client: AdminClient,
    topic: str,
    code_of: Callable[[Callable[[], Any]], int],
) -> None:
    key, value = change
    assert code_of(lambda: alter(client, kind, name, (key, AlterConfigOpType.SET, value))) == code


def test_a_group_has_settings(client: AdminClient) -> None:
    change = ("consumer.session.timeout.ms", AlterConfigOpType.SET, "50000")
    alter(client, Type.GROUP, "g", change)
    entries = described(client, Type.GROUP, "g")
    assert (entries[change[0]].value, entries[change[0]].source) == ("50000", 8)
    assert entries["penstock.offsets.monotonic"].value == "false"


def test_a_broker_shows_what_it_was_started_with(start_broker: Any) -> None:
    broker = start_broker(num_partitions="3", log_retention_hours="2")
    broker.create_topic("t")
    with broker.connect() as wire:
        requested = {"resource_type": BROKER, "resource_name": "1", "configuration_keys": None}
        rows = {row.name: row for row in wire.call(32, 4, resources=[requested]).results[0].configs}
        assert (rows["num.partitions"].value, rows["num.partitions"].config_source) == ("3", 4)
        assert rows["num.partitions"].read_only
        assert not rows["log.retention.ms"].read_only
        requested = {"configuration_keys": ["retention.ms"]}
        requested = {"resource_type": TOPIC, "resource_name": "t", **requested}
        (row,) = wire.call(32, 4, resources=[requested], include_synonyms=True).results[0].configs
        assert (row.value, row.config_source) == ("7200000", 4)
        assert row.synonyms[0].name == "log.retention.hours"


def test_a_default_for_all_brokers_reaches_topics_at_once(wire: Any, broker: Any) -> None:
    broker.create_topic("t")
    change = {"name": "log.segment.bytes", "config_operation": 0, "value": "3000000"}
    requested = {"resource_type": BROKER, "resource_name": "", "configs": [change]}
    (result,) = wire.call(44, 1, resources=[requested]).responses
    assert result.error_code == ErrorCode.none
    settings = broker.call(lambda: broker.partitions.find("t", 0).log.settings)
    assert settings.segment_bytes == 3_000_000
    described = {"resource_type": BROKER, "resource_name": "", "configuration_keys": None}
    rows = wire.call(32, 4, resources=[described]).results[0].configs
    assert {(row.name, row.value, row.config_source) for row in rows} == {
        ("log.segment.bytes", "3000000", 3),
        ("default.replication.factor", "1", 3),  # the cluster stores these two from its start
        ("min.insync.replicas", "1", 3),
    }


def test_documentation_is_sent_only_on_request(wire: Any, broker: Any) -> None:
    broker.create_topic("t")
    requested = {
        "resource_type": TOPIC,
        "resource_name": "t",
        "configuration_keys": ["retention.ms"],
    }
    (without,) = wire.call(32, 3, resources=[requested]).results[0].configs
    (response,) = (
        wire.call(32, 3, resources=[requested], include_documentation=True).results[0].configs
    )
    assert without.documentation is None
    assert "older" in response.documentation


def test_an_invalid_resource_is_refused_on_its_own(wire: Any, broker: Any) -> None:
    broker.create_topic("t")
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": []}
        for kind, name in (
            (TOPIC, "t"),
            (TOPIC, "nope"),
            (BROKER, "7"),
            (BROKER, "x"),
            (99, "x"),
            (16, "x"),
            (GROUP, ""),
        )
    ]
    results = wire.call(32, 4, resources=resources).results
    none, unknown, invalid = (
        ErrorCode.none,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.invalid_request,
    )
    assert [row.error_code for row in results] == [none, unknown, *[invalid] * 5]


def test_log_levels_are_settings_of_a_broker(wire: Any) -> None:
    name = "penstock.broker.client_connection"
    change = {"name": name, "config_operation": 0, "value": "DEBUG"}
    requested = {"resource_type": LOGGER, "resource_name": "1"}
    levels = {"configuration_keys": [name]}
    for value, expected in (("DEBUG", ErrorCode.none), ("LOUD", ErrorCode.invalid_config)):
        entry = {**requested, "configs": [{**change, "value": value}]}
        (result,) = wire.call(44, 1, resources=[entry]).responses
        assert result.error_code == expected
    (row,) = wire.call(32, 4, resources=[{**requested, **levels}]).results[0].configs
    assert (row.value, row.config_source) == ("DEBUG", 6)
    entry = {**requested, "configs": [{"name": name, "config_operation": 1}]}
    wire.call(44, 1, resources=[entry])
    (row,) = wire.call(32, 4, resources=[{**requested, **levels}]).results[0].configs
    assert row.value != "DEBUG"


def test_resources_with_settings_are_listed(wire: Any, broker: Any) -> None:
    broker.create_topic("t")
    change = {"name": "penstock.offsets.monotonic", "config_operation": 0, "value": "true"}
    group = {"resource_type": GROUP, "resource_name": "g", "configs": [change]}
    wire.call(44, 1, resources=[group])
    listed = wire.call(74, 1, resource_types=[TOPIC, GROUP]).config_resources
    assert {(row.resource_type, row.resource_name) for row in listed} == {
        (TOPIC, "t"),
        (GROUP, "g"),
    }
    everything = wire.call(74, 1, resource_types=[]).config_resources
    assert {row.resource_type for row in everything} == {TOPIC, BROKER, LOGGER, GROUP}
    assert not wire.call(74, 0).config_resources


def test_no_names_of_settings_are_all_of_them(wire: Any, broker: Any) -> None:
    broker.create_topic("t")
    named: dict[str, Any] = {"resource_type": TOPIC, "resource_name": "t"}
    requested = [{**named, "configuration_keys": keys} for keys in (None, ())]
    everything, none_named = wire.call(32, 4, resources=requested).results
    assert len(everything.configs) > 20
    assert none_named.configs == everything.configs


@pytest.mark.parametrize("api_key", [33, 44])
def test_settings_of_an_invalid_name_are_refused_for_the_name(api_key: int, wire: Any) -> None:
    resources = [
        {"resource_type": TOPIC, "resource_name": name, "configs": ()} for name in ("a b", "nope")
    ]
    rows = wire.call(api_key, 1, resources=resources).responses
    assert [row.error_code for row in rows] == [
        ErrorCode.invalid_topic_exception,
        ErrorCode.unknown_topic_or_partition,
    ]
