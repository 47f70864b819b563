"""Fetching events of a partition: offsets, times, limits, gaps, decoding."""

import json
import threading
import time
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer

from penstock.client.registry import Registry
from penstock.serde.contract import Contract
from penstock.serde.serializers import Serializer
from penstock.testing.platform import Platform

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "cents", "type": "long"}]}'


def produce(penstock: Platform, topic: str, *records: dict[str, Any], **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": penstock.bootstrap, **settings})
    for record in records:
        producer.produce(topic, partition=0, **record)
    assert producer.flush(30) == 0


def events(http: httpx.Client, topic: str, **options: Any) -> dict[str, Any]:
    answer = http.get(f"/topics/{topic}/partitions/0/events", params=options)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def test_an_event_has_its_place_key_value_and_headers(
    http: httpx.Client, penstock: Platform
) -> None:
    topic = penstock.make_topic()
    headers = [("text", b"shop"), ("binary", b"\xff"), ("none", None)]
    value = json.dumps({"cents": 1250}, indent=1).encode()
    record = {"key": b"berlin", "value": value, "headers": headers, "timestamp": 1_700_000_000_000}
    produce(penstock, topic, record)
    read = events(http, topic)
    assert read == {
        "events": [
            {
                "topic": topic,
                "partition": 0,
                "offset": 0,
                "timestamp": 1_700_000_000_000,
                "key": "berlin",
                "value": {"cents": 1250},
                "headers": [["text", "shop"], ["binary", {"base64": "/w=="}], ["none", None]],
            }
        ],
        "next_offset": 1,
        "high_watermark": 1,
    }


def test_bytes_that_are_neither_text_nor_json_come_as_base64(
    http: httpx.Client, penstock: Platform
) -> None:
    topic = penstock.make_topic()
    produce(penstock, topic, {"key": b"\xfe", "value": b"{not json"}, {"key": b"k", "value": None})
    first, second = events(http, topic)["events"]
    assert (first["key_base64"], first["value_base64"]) == ("/g==", "e25vdCBqc29u")
    assert "value" not in first
    assert second["value"] is None


def test_a_value_is_decoded_by_its_schema_id(
    http: httpx.Client, penstock: Platform, registry: Registry
) -> None:
    topic = penstock.make_topic()
    serializer = Serializer(registry, topic, Contract(ORDER))
    framed = serializer.serialize({"cents": 5}).content
    produce(penstock, topic, {"value": framed}, {"value": b"\0\0\xff\xff\xff\x02"})
    decoded, unknown = events(http, topic)["events"]
    assert decoded["value"] == {"cents": 5}
    assert decoded["value_schema_id"] == serializer.prepare().registration.id
    assert unknown["value_base64"] == "AAD///8C"
    assert unknown["error"]["code"] == "unknown_schema"


def test_reading_starts_at_an_offset_a_name_or_a_time(
    http: httpx.Client, penstock: Platform
) -> None:
    topic = penstock.make_topic()
    produce(penstock, topic, *({"value": b"%d" % n, "timestamp": 1000 + n} for n in range(10)))

    def values(**options: Any) -> list[int]:
        return [event["value"] for event in events(http, topic, **options)["events"]]

    assert values() == values(offset="earliest") == list(range(10))
    assert values(offset=7) == [7, 8, 9]
    assert values(offset="latest") == values(offset=10) == []
    assert values(timestamp=1004) == [4, 5, 6, 7, 8, 9]
    assert values(timestamp=9999) == []
    assert events(http, topic, timestamp=9999)["next_offset"] == 10


def test_an_offset_out_of_range_says_what_there_is(http: httpx.Client, penstock: Platform) -> None:
    topic = penstock.make_topic()
    produce(penstock, topic, {"value": b"1"})
    refused = http.get(f"/topics/{topic}/partitions/0/events", params={"offset": 99})
    assert refused.status_code == 416
    document = refused.json()
    assert (document["earliest"], document["latest"]) == (0, 1)
    assert document["error"]["code"] == "offset_out_of_range"


@pytest.mark.parametrize(
    "options",
    [
        {"offset": "1", "timestamp": "1"},
        {"offset": "-1"},
        {"offset": "first"},
        {"offset": "9" * 30},
        {"timestamp": "-5"},
        {"max_bytes": "0"},
        {"max_wait_ms": "soon"},
    ],
)
def test_invalid_options_are_refused(
    http: httpx.Client, penstock: Platform, options: dict[str, str]
) -> None:
    topic = penstock.make_topic()
    refused = http.get(f"/topics/{topic}/partitions/0/events", params=options)
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "invalid_request"


def test_a_partition_that_is_not_there_is_not_found(http: httpx.Client, penstock: Platform) -> None:
    topic = penstock.make_topic()
    missing = http.get(f"/topics/{topic}/partitions/5/events")
    assert missing.status_code == 404
    assert "has no partition 5" in missing.json()["error"]["message"]


def test_max_bytes_is_kept_but_one_event_always_comes(
    http: httpx.Client, penstock: Platform
) -> None:
    topic = penstock.make_topic()
    produce(penstock, topic, *({"value": b'"%s"' % (b"x" * 98)} for _ in range(10)))
    first = events(http, topic, max_bytes=1)
    assert [event["offset"] for event in first["events"]] == [0]
    assert first["next_offset"] == 1
    some = events(http, topic, offset=1, max_bytes=350)
    assert [event["offset"] for event in some["events"]] == [1, 2, 3]


def test_gaps_of_transactions_are_skipped_and_aborted_events_never_seen(
    http: httpx.Client, penstock: Platform
) -> None:
    topic = penstock.make_topic()
    producer = Producer(
        {"bootstrap.servers": penstock.bootstrap, "transactional.id": penstock.name("txn")}
    )
    producer.init_transactions()
    for value, is_kept in ((b"1", True), (b"2", False), (b"3", True), (b"4", False)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(30)
        producer.commit_transaction() if is_kept else producer.abort_transaction()
    deadline = time.monotonic() + 20
    while (read := events(http, topic))["next_offset"] < 8 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [event["value"] for event in read["events"]] == [1, 3]
    assert read["next_offset"] == 8
    rest = events(http, topic, offset=5)
    assert (rest["events"], rest["next_offset"]) == ([], 8)


def test_a_fetch_waits_for_an_event_and_no_longer(http: httpx.Client, penstock: Platform) -> None:
    topic = penstock.make_topic()
    assert events(http, topic, max_wait_ms=50)["events"] == []
    later = threading.Timer(0.3, lambda: produce(penstock, topic, {"value": b"7"}))
    later.start()
    started = time.monotonic()
    read = events(http, topic, max_wait_ms=20_000)
    assert [event["value"] for event in read["events"]] == [7]
    assert time.monotonic() - started < 15
    later.join()
