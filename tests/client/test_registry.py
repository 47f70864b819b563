"""The registry client: which requests it sends, how often, and its errors."""

import json
import threading
from typing import Protocol

import pytest

from penstock.client.registry import Registry
from penstock.schemas.model import Reference, SchemaText, SchemaType
from penstock.serde.errors import RegistryRefusedError, RegistryUnavailableError, UnknownSchemaError
from penstock.serde.frame import SchemaId
from penstock.serde.schema_source import UnusableSchemaError


class Counting(Protocol):
    requests: dict[str, int]
    clients: set[str]
    answers: dict[str, object]
    status: int
    url: str
    gate: threading.Event

    def stop(self) -> None: ...


ORDER = json.dumps(
    {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]},
    separators=(",", ":"),
)
SCHEMA = {"schema": ORDER, "guid": "89791762-2336-186f-9674-299b90a802e2"}


def test_a_new_process_sends_one_request_per_schema_from_all_threads(counting: Counting) -> None:
    for number in range(5):
        counting.answers[f"/schemas/ids/{number}"] = SCHEMA
        counting.answers[f"/subjects/s{number}/versions"] = {"id": number, "guid": SCHEMA["guid"]}
    counting.gate.clear()
    registry = Registry(counting.url, client="order-service 3")
    source = SchemaText(SchemaType.AVRO, ORDER)

    def work() -> None:
        for number in range(5):
            registry.schema(SchemaId(number))
            registry.register(f"s{number}", source)

    threads = [threading.Thread(target=work) for _ in range(24)]
    for thread in threads:
        thread.start()
    counting.gate.set()
    for thread in threads:
        thread.join()
    registry.close()
    assert set(counting.requests.values()) == {1}
    assert sum(counting.requests.values()) == 10
    assert registry.request_stats.requests == 10
    assert registry.cache_stats["schema_by_id"].hit_ratio == 115 / 120
    assert counting.clients == {"order-service 3"}


def test_a_fresh_latest_version_skips_the_cache(counting: Counting) -> None:
    path = "/subjects/orders-value/versions/latest"
    counting.answers[path] = {**SCHEMA, "id": 1, "version": 1}
    with Registry(counting.url) as registry:
        assert registry.latest("orders-value").version == 1
        counting.answers[path] = {**SCHEMA, "id": 2, "version": 2}
        assert registry.latest("orders-value").version == 1
        assert registry.latest("orders-value", fresh=True).version == 2
        assert registry.latest("orders-value").version == 2
    assert counting.requests[f"GET {path}"] == 2


def test_cached_schemas_work_while_the_registry_is_down(counting: Counting) -> None:
    counting.answers["/schemas/ids/1"] = SCHEMA
    with Registry(counting.url, attempts=2) as registry:
        registry.schema(SchemaId(1))
        counting.stop()
        assert registry.schema(SchemaId(1)).parsed.name == "Order"
        with pytest.raises(RegistryUnavailableError) as caught:
            registry.schema(SchemaId(2))
    assert caught.value.retriable
    assert counting.url in str(caught.value)
    assert "schema 2" in str(caught.value)
    assert "Is it running" in str(caught.value)
    assert registry.request_stats.failures == 2


def test_an_overloaded_registry_is_retried_and_then_unavailable(counting: Counting) -> None:
    counting.answers["/schemas/ids/1"] = SCHEMA
    counting.status = 503
    with Registry(counting.url, attempts=3) as registry:
        with pytest.raises(RegistryUnavailableError, match="HTTP 503"):
            registry.schema(SchemaId(1))
        assert counting.requests["GET /schemas/ids/1"] == 3
        counting.status = 200
        assert registry.schema(SchemaId(1)).id == 1


def test_another_node_is_used_when_the_first_is_down(counting: Counting) -> None:
    counting.answers["/schemas/ids/1"] = SCHEMA
    with Registry(f"http://127.0.0.1:1,{counting.url}/") as registry:
        assert registry.schema(SchemaId(1)).id == 1
        assert registry.request_stats.failures == 1


def test_an_unknown_id_is_not_requested_again_for_a_while(counting: Counting) -> None:
    with Registry(counting.url) as registry:
        for _ in range(3):
            with pytest.raises(UnknownSchemaError):
                registry.schema(SchemaId(5))
    assert counting.requests["GET /schemas/ids/5"] == 1


def test_a_response_that_is_not_a_schema_is_unusable(counting: Counting) -> None:
    counting.answers["/schemas/ids/1"] = {"schema": "{", "schemaType": "AVRO"}
    counting.answers["/schemas/ids/2"] = {"schemaType": "AVRO"}
    counting.answers["/schemas/ids/3"] = {"schema": "x", "schemaType": "COBOL"}
    with Registry(counting.url) as registry:
        for number in (1, 2, 3):
            with pytest.raises(UnusableSchemaError):
                registry.schema(SchemaId(number))


def test_references_that_form_a_cycle_are_refused(counting: Counting) -> None:
    circle = {"schema": ORDER, "references": [{"name": "A", "subject": "a", "version": 1}]}
    counting.answers["/schemas/ids/1"] = circle
    counting.answers["/subjects/a/versions/1"] = circle
    with Registry(counting.url) as registry, pytest.raises(UnusableSchemaError, match="cycle"):
        registry.schema(SchemaId(1))


def test_an_invalid_address_is_refused() -> None:
    for url in ("", "localhost:8081", "http://a,b"):
        with pytest.raises(ValueError, match="http://host:port"):
            Registry(url)


def test_schemas_and_ids_are_found_in_a_real_registry(registry: Registry, topic: str) -> None:
    subject, source = f"{topic}-value", SchemaText(SchemaType.AVRO, ORDER)
    with pytest.raises(UnknownSchemaError):
        registry.look_up(subject, source)
    registered = registry.register(subject, source)
    assert registry.look_up(subject, source) == registered
    by_id, by_guid = registry.schema(registered.id), registry.schema(registered.guid)
    assert by_id.guid == by_guid.guid == registered.guid
    assert by_id.source == source
    latest = registry.latest(subject)
    assert (latest.id, latest.version) == (registered.id, 1)


def test_references_are_fetched_with_their_references(registry: Registry, topic: str) -> None:
    money = '{"type":"record","name":"Money","fields":[{"name":"cents","type":"long"}]}'
    line = '{"type":"record","name":"Line","fields":[{"name":"price","type":"Money"}]}'
    order = '{"type":"record","name":"O","fields":[{"name":"l","type":"Line"}]}'
    registry.register(f"{topic}-money", SchemaText(SchemaType.AVRO, money))
    to_money = (Reference("Money", f"{topic}-money", 1),)
    registry.register(f"{topic}-line", SchemaText(SchemaType.AVRO, line, to_money))
    to_line = (Reference("Line", f"{topic}-line", 1),)
    registered = registry.register(topic, SchemaText(SchemaType.AVRO, order, to_line))
    known = registry.schema(registered.id)
    assert list(known.imports) == ["Money", "Line"]
    assert "cents" in known.parsed.formatted("resolved")


def test_an_incompatible_schema_is_refused_with_advice(registry: Registry, topic: str) -> None:
    registry.register(topic, SchemaText(SchemaType.AVRO, ORDER))
    changed = ORDER.replace("long", "string")
    with pytest.raises(RegistryRefusedError, match="compatible") as caught:
        registry.register(topic, SchemaText(SchemaType.AVRO, changed))
    assert caught.value.code in (409, 40901)
