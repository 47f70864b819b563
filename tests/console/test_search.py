"""Search in real topics: pages at offsets, filters, both directions, cursors."""

import json
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer

from penstock.client.registry import Registry
from penstock.schemas.model import SchemaText, SchemaType
from penstock.serde.contract import Contract
from penstock.serde.serializers import Serializer
from penstock.testing.platform import Platform
from tests.console.conftest import Write

SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "cents", "type": "long"}, {"name": "city", "type": "string"}],
    }
)


def found(http: httpx.Client, topic: str, **body: Any) -> dict[str, Any]:
    if "from_" in body:
        body["from"] = body.pop("from_")
    answer = http.post(f"/topics/{topic}/search", json=body)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def offsets(document: dict[str, Any]) -> list[str]:
    return [row["offset"] for row in document["records"]]


def test_a_page_at_an_offset_forward_and_backward(
    http: httpx.Client, penstock: Platform, write: Write
) -> None:
    topic = penstock.make_topic("pages")
    write(topic, [(f"k{number}", f'{{"n": {number}}}') for number in range(100)])
    page = found(http, topic, partitions=[0], from_={"offset": "40"}, limit=3)
    assert offsets(page) == ["40", "41", "42"]
    assert page["stopped"] == "limit"
    assert page["reached"] == {"partition": 0, "offset": "42", "timestamp": "1700000042000"}
    first = page["records"][0]
    assert first["key"] == {"format": "text", "data": "k40"}
    assert first["value"] == {"format": "json", "data": {"n": 40}}
    assert first["timestamp"] == "1700000040000"
    before = found(http, topic, from_={"offset": "40"}, direction="backward", limit=3)
    assert offsets(before) == ["39", "38", "37"]
    latest = found(http, topic, from_="latest", limit=2)
    assert offsets(latest) == ["99", "98"]
    rest = found(http, topic, from_={"cursor": latest["cursor"]}, limit=500)
    assert offsets(rest) == [str(number) for number in range(97, -1, -1)]
    assert (rest["stopped"], rest["cursor"]) == ("end", None)
    assert (rest["scanned"], rest["total"], rest["matched"]) == ("100", "100", "100")


def test_a_search_counts_honestly_and_resumes(
    http: httpx.Client, penstock: Platform, write: Write
) -> None:
    topic = penstock.make_topic("counted", partitions=3)
    for partition in range(3):
        rows = [("x" if number % 10 == 0 else "y", "v") for number in range(200)]
        write(topic, rows, partition, 1_700_000_000_000 + partition)
    seen: list[tuple[int, str]] = []
    body: dict[str, Any] = {"filter": 'key == "x"', "limit": 7}
    cursor, last_scanned = None, 0
    while True:
        part = found(http, topic, **body, from_={"cursor": cursor} if cursor else "earliest")
        seen += [(row["partition"], row["offset"]) for row in part["records"]]
        assert part["total"] == "600"
        assert int(part["matched"]) == len(seen)
        assert int(part["scanned"]) > last_scanned
        last_scanned, cursor = int(part["scanned"]), part["cursor"]
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == 60
    assert (part["stopped"], last_scanned) == ("end", 600)


def test_only_committed_records_are_shown_in_both_directions(
    http: httpx.Client, penstock: Platform
) -> None:
    topic = penstock.make_topic("transactions")
    name = penstock.name("writer")
    producer = Producer(
        {"bootstrap.servers": penstock.bootstrap, "transactional.id": name, "log_level": 0}
    )
    producer.init_transactions(20)
    for number in range(30):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic, key=str(number), value="v")
        if number % 2:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
    committed = [str(number) for number in range(0, 30, 2) for _ in range(3)]
    for body in ({"limit": 500}, {"limit": 7}):
        forward = _all_keys(http, topic, **body, direction="forward")
        backward = _all_keys(http, topic, **body, direction="backward")
        assert forward == committed
        assert backward == committed[::-1]


def _all_keys(http: httpx.Client, topic: str, **body: Any) -> list[str]:
    """The keys of all pages of a search."""
    keys: list[str] = []
    part = found(http, topic, **body)
    while True:
        keys += [row["key"]["data"] for row in part["records"]]
        if part["cursor"] is None:
            return keys
        part = found(http, topic, limit=body["limit"], from_={"cursor": part["cursor"]})


def test_records_of_several_partitions_are_merged_by_time(
    http: httpx.Client, penstock: Platform, write: Write
) -> None:
    topic = penstock.make_topic("merged", partitions=2)
    write(topic, [("a", "1")] * 5, 0, 1_700_000_000_000, 2_000)
    write(topic, [("b", "2")] * 5, 1, 1_700_000_001_000, 2_000)
    times = [int(row["timestamp"]) for row in found(http, topic)["records"]]
    assert times == sorted(times)
    assert len(times) == 10
    late = found(http, topic, from_={"time": "1700000003000"}, until={"time": "1700000006000"})
    assert [int(row["timestamp"]) - 1_700_000_000_000 for row in late["records"]] == [
        3000, 4000, 5000,
    ]  # fmt: skip


def test_fields_of_records_with_a_schema_are_compared(
    http: httpx.Client, penstock: Platform, registry: Registry, write: Write
) -> None:
    topic = penstock.make_topic("typed")
    registry.register(f"{topic}-value", SchemaText(SchemaType.AVRO, SCHEMA))
    serializer = Serializer(registry, topic, Contract(SCHEMA, type=SchemaType.AVRO))
    rows = [
        ("k", serializer.serialize({"cents": 2**53 + number, "city": "berlin"}).content)
        for number in range(4)
    ]
    write(topic, [*rows, ("k", b"\x00\x00\x00\x00\x7fbad")])
    matched = found(http, topic, filter=f"value.cents >= {2**53 + 2}")
    assert offsets(matched) == ["2", "3"]
    record = matched["records"][0]
    assert record["value"]["format"] == "avro"
    assert record["value"]["data"] == {"cents": str(2**53 + 2), "city": "berlin"}
    assert isinstance(record["value_schema_id"], int)
    bad = found(http, topic, from_={"offset": 4})["records"][0]
    assert bad["value"]["format"] == "bytes"
    assert "unknown_schema" in bad["value"]["error"]


def test_a_search_stops_after_so_many_records(
    http: httpx.Client, penstock: Platform, write: Write
) -> None:
    topic = penstock.make_topic("bounded")
    write(topic, [("k", "v" * 1000)] * 5_000)
    part = found(http, topic, filter='key == "absent"', scan_max=1)
    assert part["stopped"] == "scan_max"
    assert 0 < int(part["scanned"]) < 5_000
    rest = found(http, topic, filter='key == "absent"', from_={"cursor": part["cursor"]})
    assert (rest["stopped"], rest["scanned"], rest["matched"]) == ("end", "5000", "0")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"filter": "key ="}, "invalid_filter"),
        ({"from": {"cursor": "x"}}, "invalid_cursor"),
        ({"from": {"offset": "-1"}}, "invalid_body"),
        ({"from": {"offset": "9" * 5000}}, "invalid_body"),
        ({"from": "noon"}, "invalid_body"),
        ({"limit": 501}, "invalid_body"),
        ({"partitions": [7]}, "unknown_topic_or_partition"),
    ],
)
def test_an_invalid_search_is_refused_with_a_code(
    http: httpx.Client, penstock: Platform, body: dict[str, Any], code: str
) -> None:
    refused = http.post(f"/topics/{penstock.make_topic('refused')}/search", json=body)
    assert refused.status_code in (400, 404)
    assert refused.json()["error"]["code"] == code


def test_the_histogram_counts_records_by_time(
    http: httpx.Client, penstock: Platform, write: Write
) -> None:
    topic = penstock.make_topic("histogram", partitions=2)
    write(topic, [("a", "1")] * 10, 0, 1_700_000_000_000, 100)
    write(topic, [("b", "1")] * 10, 1, 1_700_000_010_000, 100)
    rows = http.get(f"/topics/{topic}/histogram", params={"buckets": 4}).json()
    assert [int(row["records"]) for row in rows["buckets"]] == [10, 0, 0, 10]
    assert rows["exact"] is False
    span = {"from": 1_700_000_000_000, "until": 1_700_000_000_500, "buckets": 1, "partition": 0}
    (row,) = http.get(f"/topics/{topic}/histogram", params=span).json()["buckets"]
    assert row == {"from": "1700000000000", "until": "1700000000500", "records": "5"}
    empty = http.get(f"/topics/{penstock.make_topic('none')}/histogram").json()
    assert empty == {"buckets": [], "exact": True}


def test_one_record_has_its_bytes_and_texts_to_copy(
    http: httpx.Client, penstock: Platform, registry: Registry, write: Write
) -> None:
    topic = penstock.make_topic("one")
    serializer = Serializer(registry, topic, Contract(SCHEMA, type=SchemaType.AVRO))
    content = serializer.serialize({"cents": 5, "city": "berlin"}).content
    assert content is not None
    write(topic, [("k", content)], headers={"source": b"shop"})
    page = http.get(f"/topics/{topic}/partitions/0/records/0").json()
    assert page["headers"] == [["source", {"format": "text", "data": "shop"}]]
    assert page["value_hex"] == content.hex()
    assert [part["meaning"] for part in page["frame"]] == [
        "magic 0: an id follows", f"schema id {page['value_schema_id']}",
        f"payload, {len(content) - 5} bytes",
    ]  # fmt: skip
    assert page["frame"][-1]["until"] == len(content)
    assert page["timestamp_type"] == "create"
    assert topic in page["copy"]["curl"]
    assert set(page["copy"]) == {"curl", "cli", "pytest", "spark"}
    compile(page["copy"]["pytest"], "copied", "exec")
    compile(page["copy"]["spark"], "copied", "exec")
    missing = http.get(f"/topics/{topic}/partitions/0/records/1")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "no_record"
