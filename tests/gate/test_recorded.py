"""A proposed schema tried on the events of a topic."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own exports, undeclared
    AdminClient,
    NewTopic,
)

from penstock.client.registry import Registry
from penstock.client.registry_api import RegistryApi
from penstock.gate.contracts import CannotCheckError
from penstock.gate.proposals import CheckRequest, read_proposal
from penstock.gate.recorded import try_recorded
from penstock.gate.registry_contracts import RegistryContracts
from penstock.gate.results import RecordedResult
from penstock.schemas.model import SchemaType
from penstock.serde.contract import Contract, Form
from penstock.serde.serializers import Serializer

MakeOrder = Callable[..., str]
Written = list[tuple[Contract, list[dict[str, Any]]]]


@pytest.fixture
def topic(bootstrap: str, subject: str) -> str:
    name = subject.removesuffix("-value")
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.create_topics([NewTopic(name, 2)])[name].result(20)
    return name


@pytest.fixture
def fill(bootstrap: str, registry_url: str, topic: str, order: MakeOrder) -> Callable[[], None]:
    """Ten events without `b`, ten with it, one without a frame, and one without a value."""

    def write() -> None:
        producer = Producer({"bootstrap.servers": bootstrap})
        with Registry(registry_url) as registry:
            for text, event in ((order("a:int"), {"a": 1}), (order("a:int", "b:int=0"), {"b": 2})):
                serializer = Serializer(registry, topic, Contract(text))
                for number in range(10):
                    framed = serializer.serialize({"a": 1, **event})
                    producer.produce(topic, framed.content, partition=number % 2)
        producer.produce(topic, b"no frame", partition=0)
        producer.produce(topic, None, key=b"deleted", partition=1)
        assert producer.flush(20) == 0

    return write


def try_file(
    bootstrap: str, registry_url: str, topic: str, path: Path, events_max: int = 1000
) -> RecordedResult:
    with RegistryApi(registry_url) as api, Registry(registry_url) as registry:
        proposal = read_proposal(CheckRequest(path, f"{topic}-value", RegistryContracts(api)))
        return try_recorded(bootstrap, topic, events_max, registry, proposal)


def test_failures_are_counted_by_the_version_that_wrote(
    bootstrap: str,
    registry_url: str,
    topic: str,
    fill: Callable[[], None],
    order: MakeOrder,
    tmp_path: Path,
) -> None:
    fill()
    path = tmp_path / "new.avsc"
    path.write_text(order("a:int", "b:int"))
    result = try_file(bootstrap, registry_url, topic, path)
    assert (result.events, result.failed, result.empty) == (21, 11, 1)
    by_writer = {name.partition(" (id")[0]: one for name, one in result.by_writer.items()}
    assert by_writer["version 1"].failed == 10
    assert by_writer["version 2"].failed == 0
    assert by_writer["(no frame)"].reasons == {"not_framed": 1}
    assert "offset" in by_writer["version 1"].first


def protobuf(fields: str) -> Contract:
    text = f'syntax = "proto3"; package shop; message Order {{ {fields} }}'
    return Contract(text, SchemaType.PROTOBUF)


def json_schema(**properties: str) -> Contract:
    shapes = {name: {"type": kind} for name, kind in properties.items()}
    text = json.dumps({"type": "object", "properties": shapes, "required": ["a"]})
    return Contract(text, SchemaType.JSON)


def send_all(
    bootstrap: str,
    registry_url: str,
    topic: str,
    written: Written,
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    with RegistryApi(registry_url) as api:
        api.set_config(f"{topic}-value", {"compatibility": "NONE"})
    with Registry(registry_url) as registry:
        for contract, events in written:
            serializer = Serializer(registry, topic, contract)
            for event in events:
                framed = serializer.serialize(event)
                producer.produce(topic, framed.content, headers=list(framed.headers) or None)
    assert producer.flush(20) == 0


def test_protobuf_events_that_the_proposed_schema_reads_differently_fail(
    bootstrap: str, registry_url: str, topic: str, tmp_path: Path
) -> None:
    first = protobuf("string a = 1; int64 b = 2;")
    second = replace(protobuf("string a = 1; int64 b = 2; bool c = 3;"), form=Form.HEADER)
    written: Written = [
        (first, [{"a": "x", "b": 1}, {"a": "y"}]),
        (second, [{"a": "x", "b": 7, "c": True}, {"c": True}]),
    ]
    send_all(bootstrap, registry_url, topic, written)
    path = tmp_path / "new.proto"
    path.write_text(str(protobuf("string a = 1; string b = 2;").schema))
    result = try_file(bootstrap, registry_url, topic, path)
    assert (result.events, result.failed) == (4, 2)
    by_writer = {name.partition(" (id")[0]: one for name, one in result.by_writer.items()}
    assert [by_writer[f"version {number}"].failed for number in (1, 2)] == [1, 1]
    assert by_writer["version 1"].reasons == {"value_lost": 1}
    assert "field 2 (b)" in by_writer["version 1"].first
    path.write_text(str(protobuf("bytes a = 1; int64 b = 2; bool c = 3; string d = 4;").schema))
    assert try_file(bootstrap, registry_url, topic, path).failed == 0
    path.write_text('syntax = "proto3"; package shop; message Bill { string a = 1; }')
    result = try_file(bootstrap, registry_url, topic, path)
    assert result.failed == 4
    assert all(one.reasons == {"unresolvable": 2} for one in result.by_writer.values())


def test_events_with_a_renumbered_enum_value_fail(
    bootstrap: str, registry_url: str, topic: str, tmp_path: Path
) -> None:
    text = """syntax = "proto3"; enum S {{ NEW = 0; {} }}
      message Order {{ S s = 1; repeated S all = 2; map<string, S> by = 3; }}"""
    old = Contract(text.format("PAID = 1; SENT = 2;"), SchemaType.PROTOBUF, message="Order")
    events: list[dict[str, Any]] = [
        {"s": "PAID"},
        {"s": "NEW"},
        {"all": ["NEW", "SENT"]},
        {"by": {"x": "PAID"}},
    ]
    send_all(bootstrap, registry_url, topic, [(old, events)])
    path = tmp_path / "new.proto"
    path.write_text(text.format("SENT = 1; PAID = 2;"))
    result = try_file(bootstrap, registry_url, topic, path)
    (by_writer,) = result.by_writer.values()
    assert (result.failed, by_writer.reasons) == (3, {"value_lost": 3})
    assert "read as" in by_writer.first
    path.write_text(text.format("PAID = 1; SENT = 2; LOST = 3;"))
    assert try_file(bootstrap, registry_url, topic, path).failed == 0


def test_a_missing_required_field_of_protobuf_fails(
    bootstrap: str, registry_url: str, topic: str, tmp_path: Path
) -> None:
    old = 'syntax = "proto2"; message Order { optional string a = 1; }'
    send_all(bootstrap, registry_url, topic, [(Contract(old, SchemaType.PROTOBUF), [{"a": "x"}])])
    path = tmp_path / "new.proto"
    path.write_text(
        'syntax = "proto2"; message Order { optional string a = 1; required int32 b = 2; }'
    )
    (by_writer,) = try_file(bootstrap, registry_url, topic, path).by_writer.values()
    assert by_writer.reasons == {"required_missing": 1}


def test_json_events_that_the_proposed_schema_forbids_fail(
    bootstrap: str, registry_url: str, topic: str, tmp_path: Path
) -> None:
    written: Written = [
        (json_schema(a="integer"), [{"a": 1}, {"a": 2, "b": "free"}]),
        (json_schema(a="integer", b="integer"), [{"a": 3, "b": 4}]),
    ]
    send_all(bootstrap, registry_url, topic, written)
    path = tmp_path / "new.json"
    path.write_text(str(json_schema(a="integer", b="integer").schema))
    result = try_file(bootstrap, registry_url, topic, path)
    by_writer = {name.partition(" (id")[0]: one for name, one in result.by_writer.items()}
    assert by_writer["version 1"].reasons == {"rule_violated": 1}
    assert (by_writer["version 2"].events, by_writer["version 2"].failed) == (1, 0)


def test_only_the_last_events_are_read(
    bootstrap: str,
    registry_url: str,
    topic: str,
    fill: Callable[[], None],
    order: MakeOrder,
    tmp_path: Path,
) -> None:
    fill()
    path = tmp_path / "new.avsc"
    path.write_text(order("a:int"))
    result = try_file(bootstrap, registry_url, topic, path, events_max=4)
    assert result.events + result.empty == 4


def test_an_empty_topic_has_no_failures(
    bootstrap: str, registry_url: str, topic: str, order: MakeOrder, tmp_path: Path
) -> None:
    path = tmp_path / "new.avsc"
    path.write_text(order("a:int"))
    assert try_file(bootstrap, registry_url, topic, path) == RecordedResult(topic)


def test_an_unknown_topic_is_refused(
    bootstrap: str, registry_url: str, order: MakeOrder, tmp_path: Path
) -> None:
    path = tmp_path / "new.avsc"
    path.write_text(order("a:int"))
    with pytest.raises(CannotCheckError, match="no topic unknown"):
        try_file(bootstrap, registry_url, "unknown", path)
