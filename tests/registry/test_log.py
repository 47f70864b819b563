"""The log behind the registry: restarts, compaction, and topics that another registry wrote."""

import base64
import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own exports, undeclared
    AdminClient,
    ConfigResource,
    NewTopic,
)

from penstock.node.http_process import HttpOptions
from penstock.testing.embedded import EmbeddedBroker

StartNode = Callable[..., Any]
COMPACT_SOON = {
    "cleanup.policy": "compact",
    "segment.ms": "200",
    "min.cleanable.dirty.ratio": "0.0",
    "delete.retention.ms": "0",
}


def make_topic(bootstrap: str, topic: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {"cleanup.policy": "compact", **config}
    admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result(20)


def write(
    bootstrap: str, topic: str, *records: tuple[dict[str, Any], dict[str, Any] | None]
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for key, value in records:
        raw = None if value is None else json.dumps(value, separators=(",", ":")).encode()
        producer.produce(topic, raw, json.dumps(key, separators=(",", ":")).encode())
    assert producer.flush(20) == 0


def read_all(bootstrap: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found = []
    while (message := consumer.poll(20)) is not None:
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001 - so named
            break
        key, value = message.key(), message.value()
        assert not isinstance(key, str)
        assert not isinstance(value, str)
        found.append((key, value))
    consumer.close()
    return found


def everything(http: httpx.Client) -> object:
    paths = ("/schemas?deleted=true", "/subjects?deleted=true", "/config", "/mode", "/contexts")
    return [http.get(path).json() for path in paths]


@pytest.mark.parametrize("kill", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_restart_keeps_all(start_node: StartNode, kill: bool) -> None:
    topic = f"_schemas-restart-{kill}"
    node = start_node(topic)
    with httpx.Client(base_url=node.url) as http:
        for name, kind in (("a", "int"), ("b", "long"), (":.eu:c", "string")):
            http.post(f"/subjects/{name}/versions", json={"schema": f'"{kind}"'})
        http.put("/config/b", json={"compatibility": "FULL"})
        http.put("/mode/a", json={"mode": "READONLY"})
        http.delete("/subjects/b")
        before = everything(http)
    node.end(kill=kill)
    node = start_node(topic)
    with httpx.Client(base_url=node.url, timeout=30) as http:
        assert everything(http) == before
        assert http.get("/config/b").json() == {"compatibilityLevel": "FULL"}
        assert http.post("/subjects/d/versions", json={"schema": '"bytes"'}).json()["id"] == 3
    node.end()


def test_the_topic_is_compacted_and_has_one_partition(broker: Any, node: Any) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert len(admin.list_topics(timeout=20).topics["_schemas-tests"].partitions) == 1
    resource = ConfigResource(ConfigResource.Type.TOPIC, "_schemas-tests")
    found = admin.describe_configs([resource])[resource].result(20)
    assert found["cleanup.policy"].value == "compact"


@pytest.mark.slow
def test_a_softly_deleted_schema_is_found_by_id_after_compaction_and_restart(
    broker: Any, start_node: StartNode
) -> None:
    topic = "_schemas-compacted"
    make_topic(broker.bootstrap, topic, **COMPACT_SOON)
    node = start_node(topic)
    with httpx.Client(base_url=node.url, timeout=30) as http:
        for kind in ("int", "long"):
            http.post(f"/subjects/{kind}/versions", json={"schema": f'"{kind}"'})
        http.delete("/subjects/int/versions/1")
        http.delete("/subjects/long")
        give_up_at = time.monotonic() + 60
        while time.monotonic() < give_up_at:
            http.put("/config/x", json={"compatibility": "FULL"})
            keys = [key for key, _ in read_all(broker.bootstrap, topic)]
            schemas = [key for key in keys if key is not None and b'"SCHEMA"' in key]
            if len(schemas) == len(set(schemas)) and len(keys) < 20:
                break
            time.sleep(0.2)
        assert len(schemas) == len(set(schemas)) == 2
    node.end()
    node = start_node(topic)
    with httpx.Client(base_url=node.url, timeout=30) as http:
        assert http.get("/subjects").json() == []
        assert [http.get(f"/schemas/ids/{schema_id}").json()["schema"] for schema_id in (1, 2)] == [
            '"int"',
            '"long"',
        ]
        assert http.post("/subjects/new/versions", json={"schema": '"bytes"'}).json()["id"] == 3
    node.end()


def schema(subject: str, version: int, schema_id: int, text: str, **more: Any) -> Any:
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    return key, {"subject": subject, "version": version, "id": schema_id, "schema": text, **more}


def test_a_topic_in_confluents_form_loads_with_every_id(broker: Any, start_node: StartNode) -> None:
    topic = "_schemas-confluent"
    make_topic(broker.bootstrap, topic)
    md5 = base64.b64encode(b"0123456789abcdef").decode()
    place = {"tenant": "default", "context": ".eu"}
    swept = {"subject": "swept", "version": 1}
    write(
        broker.bootstrap,
        topic,
        ({"keytype": "NOOP", "magic": 0}, None),
        schema("old", 1, 3, '"int"'),  # as before types and hashes
        schema("gone", 1, 9, '"long"', md5=md5, deleted=True, schemaType="AVRO"),
        schema("twice", 2, 12, '"string"', deleted=False),
        schema("twice", 1, 11, '"bytes"', deleted=False),
        schema("hard", 1, 13, '"double"', deleted=True),
        ({"keytype": "SCHEMA", "subject": "hard", "version": 1, "magic": 1}, None),
        ({"keytype": "CONFIG", "magic": 0}, {"compatibilityLevel": "FULL_TRANSITIVE"}),
        ({"keytype": "CONFIG", "subject": "old", "magic": 0}, {"compatibilityLevel": "NONE"}),
        ({"keytype": "MODE", "subject": "old", "magic": 0}, {"subject": "old", "mode": "READONLY"}),
        ({"keytype": "CONTEXT", **place, "magic": 0}, place),
        schema(":.eu:abroad", 1, 3, '"boolean"', schemaType="AVRO"),
        schema("swept", 1, 20, '"float"'),
        ({"keytype": "DELETE_SUBJECT", "subject": "swept", "magic": 0}, swept),
        schema("clash", 1, 3, '"null"'),  # id 3 is taken: the peer leaves it out as well
        ({"keytype": "ASSOC", "magic": 0}, {"x": 1}),
        schema("broken", 1, 21, "x", schemaType="XSD"),
    )  # fmt: skip
    node = start_node(topic)
    with httpx.Client(base_url=node.url, timeout=30) as http:
        ids = {
            schema_id: http.get(f"/schemas/ids/{schema_id}")
            for schema_id in (3, 9, 11, 12, 13, 20, 21)
        }
        texts = {schema_id: answer.json().get("schema") for schema_id, answer in ids.items()}
        assert texts == {
            3: '"int"', 9: '"long"', 11: '"bytes"', 12: '"string"', 13: None, 20: '"float"',
            21: None,
        }  # fmt: skip
        assert http.get("/subjects").json() == [":.eu:abroad", "old", "twice"]
        assert http.get("/subjects/twice/versions").json() == [1, 2]
        assert http.get("/subjects/twice/versions/latest").json()["id"] == 12
        assert http.get("/config").json() == {"compatibilityLevel": "FULL_TRANSITIVE"}
        assert http.get("/config/old").json() == {"compatibilityLevel": "NONE"}
        assert http.get("/mode/old").json() == {"mode": "READONLY"}
        assert http.get("/schemas/ids/3?subject=:.eu:").json()["schema"] == '"boolean"'
        again = http.post("/subjects/fresh/versions", json={"schema": '"long"'}).json()
        assert again["id"] == 9
        made = http.post(
            "/subjects/fresh-2/versions", json={"schema": '{"type":"fixed","name":"F","size":2}'}
        )
        assert made.json()["id"] == 21
    node.end()
    keys = [key for key, _ in read_all(broker.bootstrap, topic)]
    assert keys[-1] == b'{"keytype":"SCHEMA","subject":"fresh-2","version":1,"magic":1}'


@pytest.mark.slow
def test_a_registry_outlives_its_broker(node_class: Any) -> None:
    with EmbeddedBroker() as broker:
        node = node_class(
            HttpOptions(broker.bootstrap, http_port=0, log_level="ERROR")
        ).wait_ready()
        with httpx.Client(base_url=node.url, timeout=60) as http:

            def register(number: int) -> httpx.Response:
                schema = f'{{"type":"fixed","name":"F{number}","size":1}}'
                return http.post(f"/subjects/s{number}/versions", json={"schema": schema})

            assert register(1).json()["id"] == 1
            broker.restart()
            assert register(2).json()["id"] == 2
            broker.kill()
            assert register(3).json()["error_code"] in (50001, 50002)
            assert http.get("/schemas/ids/2").is_success
            broker.start()
            assert register(4).json()["id"] == 3
            assert register(3).json()["id"] == 4
            assert http.get("/subjects").json() == ["s1", "s2", "s3", "s4"]
        node.end()
