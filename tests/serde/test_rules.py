"""Schemas with rules: this client runs none, so it refuses where ignoring one would do harm."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock.client.consumer import Consumer
from penstock.client.decode_filter import OnDecodeError
from penstock.client.producer import Producer
from penstock.client.registry import Registry
from penstock.serde.batch_serializers import BatchDeserializer, BatchSerializer
from penstock.serde.contract import Contract
from penstock.serde.errors import ClientError, DecodeError, Reason, UnsupportedRuleError
from penstock.serde.frame import SchemaId, write_prefix
from penstock.serde.serializers import Deserializer, Serializer

MakeTopic = Callable[..., str]
PERSON = {
    "type": "record",
    "name": "Person",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "ssn", "type": "string", "confluent:tags": ["PII"]},
    ],
}
VALUE = {"id": 1, "ssn": "123-45-6789"}
PAYLOAD = b"\x02\x16123-45-6789"
ENCRYPT = {
    "name": "enc",
    "kind": "TRANSFORM",
    "type": "ENCRYPT",
    "mode": "WRITEREAD",
    "tags": ["PII"],
    "onFailure": "ERROR,NONE",
}
CONDITION = {
    "name": "positive",
    "kind": "CONDITION",
    "type": "CEL",
    "mode": "WRITE",
    "expr": "message.id > 0",
}
UPGRADE = {
    "name": "rename",
    "kind": "TRANSFORM",
    "type": "JSONATA",
    "mode": "UPGRADE",
    "expr": "$",
}


def register(registry: Registry, topic: str, schema: Any = PERSON, **rule_set: Any) -> int:
    """Register a schema with rules under the topic's subject; the schema's id."""
    body = {"schema": json.dumps(schema), "ruleSet": rule_set}
    answer = registry.api.register(f"{topic}-value", body)
    return int(answer["id"])


def with_rule(registry: Registry, topic: str, **changed: Any) -> int:
    return register(registry, topic, domainRules=[{**ENCRYPT, **changed}])


@pytest.mark.parametrize(
    "contract",
    [Contract(), Contract(json.dumps(PERSON)), Contract(json.dumps(PERSON), auto_register=False)],
    ids=["latest", "registered", "looked up"],
)
@pytest.mark.parametrize("rule", [ENCRYPT, CONDITION], ids=["ENCRYPT", "CEL"])
def test_a_schema_with_a_write_rule_is_not_written_with(
    registry: Registry, topic: str, contract: Contract, rule: dict[str, Any]
) -> None:
    register(registry, topic, domainRules=[rule])
    with pytest.raises(UnsupportedRuleError, match=f"nothing was written.*'{rule['name']}'"):
        Serializer(registry, topic, contract).serialize(VALUE)
    with pytest.raises(UnsupportedRuleError, match=rule["name"]):
        BatchSerializer(registry, topic, contract).serialize_many([VALUE] * 20)


def test_ignoring_failures_does_not_let_a_value_out_without_its_rule(
    registry: Registry, topic: str
) -> None:
    with_rule(registry, topic, onFailure="NONE,NONE")
    with pytest.raises(UnsupportedRuleError, match="enc"):
        Serializer(registry, topic).serialize(VALUE)


def test_a_rule_that_the_settings_of_the_subject_add_is_not_ignored(
    registry: Registry, topic: str
) -> None:
    settings = {"overrideRuleSet": {"domainRules": [ENCRYPT]}}
    registry.api.set_config(f"{topic}-value", settings)
    with pytest.raises(UnsupportedRuleError, match="enc"):
        Serializer(registry, topic, Contract(json.dumps(PERSON))).serialize(VALUE)


def test_an_encoding_rule_is_not_ignored_either(registry: Registry, topic: str) -> None:
    register(registry, topic, encodingRules=[{**ENCRYPT, "type": "ENCRYPT_PAYLOAD"}])
    with pytest.raises(UnsupportedRuleError, match="ENCRYPT_PAYLOAD"):
        Serializer(registry, topic).serialize(VALUE)


@pytest.mark.parametrize(
    "rule_set",
    [
        {"domainRules": [{**ENCRYPT, "disabled": True}]},
        {"domainRules": [{**ENCRYPT, "mode": "READ", "onFailure": "NONE"}]},
        {"domainRules": [ENCRYPT], "enableAt": "GATEWAY"},
        {"migrationRules": [{**ENCRYPT, "mode": "UPDOWN"}]},
        {},
    ],
    ids=["disabled", "for reading, may fail", "not for clients", "for migrations", "none"],
)
def test_rules_that_are_not_active_change_nothing(
    registry: Registry, topic: str, rule_set: dict[str, Any]
) -> None:
    register(registry, topic, **rule_set)
    content = Serializer(registry, topic).serialize(VALUE).content
    assert content is not None
    assert Deserializer(registry, topic).deserialize(content) == VALUE
    assert BatchDeserializer(registry, topic).deserialize_many([content]).errors == []


@pytest.mark.parametrize(
    ("mode", "on_failure", "is_read"),
    [
        ("WRITEREAD", "ERROR,NONE", True),
        ("WRITEREAD", "NONE,ERROR", False),
        ("WRITEREAD", "NONE", True),
        ("WRITEREAD", None, False),
        ("READ", "ERROR", False),
        ("READ", "DLQ", False),
        ("READ", "NONE", True),
        ("WRITE", "ERROR", True),
    ],
)
def test_reading_follows_on_failure(
    registry: Registry, topic: str, mode: str, on_failure: str | None, is_read: bool
) -> None:
    schema_id = with_rule(registry, topic, mode=mode, onFailure=on_failure)
    content = write_prefix(SchemaId(schema_id)) + PAYLOAD
    batch = BatchDeserializer(registry, topic).deserialize_many([content, None])
    for reader in (None, Contract(), Contract(json.dumps(PERSON))):
        one = Deserializer(registry, topic, reader=reader)
        if is_read:
            assert one.deserialize(content) == VALUE
            continue
        with pytest.raises(DecodeError, match="the rule 'enc'") as found:
            one.deserialize(content)
        assert found.value.reason is Reason.UNUSABLE_SCHEMA
    if is_read:
        assert batch.batch.to_pylist()[0] == VALUE
    else:
        (wrong,) = batch.errors
        assert (wrong.row, wrong.reason) == (0, Reason.UNUSABLE_SCHEMA)
        assert "the rule 'enc'" in wrong.detail


def test_events_are_not_read_as_a_version_that_migrates_them(
    registry: Registry, topic: str
) -> None:
    content = Serializer(registry, topic, Contract(json.dumps(PERSON))).serialize(VALUE).content
    assert content is not None
    newer = {
        **PERSON,
        "fields": [*PERSON["fields"], {"name": "x", "type": "int", "default": 0}],
    }
    register(registry, topic, newer, migrationRules=[UPGRADE])
    assert Deserializer(registry, topic).deserialize(content) == VALUE, "as it was written"
    with pytest.raises(DecodeError, match="rename"):
        Deserializer(registry, topic, reader=Contract()).deserialize(content)
    (wrong,) = BatchDeserializer(registry, topic).deserialize_many([content]).errors
    assert "rename" in wrong.detail
    latest = Serializer(registry, topic).serialize({**VALUE, "x": 1}).content
    assert latest is not None
    assert Deserializer(registry, topic, reader=Contract()).deserialize(latest)["x"] == 1


def test_producers_and_consumers_refuse_alike(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    schema_id = with_rule(registry, topic, onFailure="ERROR")
    with Producer(bootstrap, topic, value=Contract(), registry=registry) as producer:
        with pytest.raises(UnsupportedRuleError, match="enc"):
            producer.send(VALUE)
        with pytest.raises(UnsupportedRuleError, match="enc"):
            producer.send_many([VALUE] * 20)
    with Producer(bootstrap, topic) as producer:
        producer.send(write_prefix(SchemaId(schema_id)) + PAYLOAD).result(30)
    kept = OnDecodeError.RAISE
    with (
        Consumer(bootstrap, topic, topic, registry=registry, on_decode_error=kept) as consumer,
        pytest.raises(ClientError, match="the rule 'enc'"),
    ):
        consumer.take(1, wait_s=20)
