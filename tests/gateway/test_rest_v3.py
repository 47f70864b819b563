"""Confluent's REST API v3: paths, shapes, codes, the stream of records."""

import json
import re
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.testing.platform import Platform


@pytest.fixture(params=["/v3", "/kafka/v3"])
def cluster(http: httpx.Client, request: pytest.FixtureRequest) -> str:
    answer = http.get(f"{request.param}/clusters").json()
    assert answer["kind"] == "KafkaClusterList"
    (row,) = answer["data"]
    url = httpx.URL(row["metadata"]["self"])
    assert url.path.startswith(f"{request.param}/clusters/")
    assert http.get(url).json()["cluster_id"] == row["cluster_id"]
    return url.path


def reports(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in body.splitlines() if line]


def test_brokers(http: httpx.Client, cluster: str) -> None:
    (broker,) = http.get(f"{cluster}/brokers").json()["data"]
    assert broker["kind"] == "KafkaBroker"
    assert http.get(broker["metadata"]["self"]).json() == broker
    assert http.get(f"{cluster}/brokers/99").status_code == 404


def test_a_topic_from_its_creation_to_its_end(
    http: httpx.Client, cluster: str, penstock: Platform
) -> None:
    name = penstock.name("v3")
    body = {
        "topic_name": name,
        "partitions_count": 2,
        "configs": [{"name": "cleanup.policy", "value": "compact"}],
    }
    checked = http.post(f"{cluster}/topics", json={**body, "validate_only": True})
    assert checked.status_code == 200
    assert http.get(f"{cluster}/topics/{name}").status_code == 404
    created = http.post(f"{cluster}/topics", json=body)
    assert created.status_code == 201
    topic = created.json()
    assert created.headers["location"] == topic["metadata"]["self"]
    assert (topic["kind"], topic["partitions_count"]) == ("KafkaTopic", 2)
    assert topic["metadata"]["resource_name"].endswith(f"/topic={name}")
    assert topic in http.get(f"{cluster}/topics").json()["data"]
    again = http.post(f"{cluster}/topics", json=body)
    assert (again.status_code, again.json()["error_code"]) == (400, 40002)
    more = http.patch(f"{cluster}/topics/{name}", json={"partitions_count": 3})
    assert more.json()["partitions_count"] == 3
    fewer = http.patch(f"{cluster}/topics/{name}", json={"partitions_count": 3})
    assert (fewer.status_code, fewer.json()["error_code"]) == (400, 40002)
    rows = http.get(f"{cluster}/topics/{name}/partitions").json()["data"]
    assert [row["partition_id"] for row in rows] == [0, 1, 2]
    offset = http.get(f"{cluster}/topics/{name}/partitions/1/offset").json()
    assert (offset["earliest_offset"], offset["latest_offset"]) == (0, 0)
    assert http.get(f"{cluster}/topics/{name}/partitions/9").json()["error_code"] == 40403
    assert http.delete(f"{cluster}/topics/{name}").status_code == 204
    gone = http.delete(f"{cluster}/topics/{name}")
    assert (gone.status_code, gone.json()["error_code"]) == (404, 40403)


def test_configs(http: httpx.Client, cluster: str, penstock: Platform) -> None:
    topic = penstock.make_topic()
    url = f"{cluster}/topics/{topic}/configs"

    def value(name: str) -> tuple[str, str]:
        row = http.get(f"{url}/{name}").json()
        return row["value"], row["source"]

    assert http.put(f"{url}/retention.ms", json={"value": "1000"}).status_code == 204
    assert value("retention.ms") == ("1000", "DYNAMIC_TOPIC_CONFIG")
    assert http.delete(f"{url}/retention.ms").status_code == 204
    assert value("retention.ms")[1] != "DYNAMIC_TOPIC_CONFIG"
    rows = [
        {"name": "cleanup.policy", "value": "compact"},
        {"name": "retention.ms", "operation": "DELETE"},
    ]
    assert http.post(f"{url}:alter", json={"data": rows}).status_code == 204
    assert value("cleanup.policy") == ("compact", "DYNAMIC_TOPIC_CONFIG")
    assert {row["kind"] for row in http.get(url).json()["data"]} == {"KafkaTopicConfig"}
    everything = http.get(f"{cluster}/topics/-/configs").json()["data"]
    assert topic in {row["topic_name"] for row in everything}
    assert http.get(f"{url}/no.such").status_code == 404


def test_groups_and_lag(http: httpx.Client, cluster: str, penstock: Platform) -> None:
    topic, group = penstock.make_topic(), penstock.name("group")
    http.post(f"/topics/{topic}/produce", json={"records": [{"value": n} for n in range(5)]})
    consumer = Consumer({"bootstrap.servers": penstock.bootstrap, "group.id": group})
    consumer.commit(offsets=[KafkaPartition(topic, 0, 2)], asynchronous=False)
    consumer.close()
    url = f"{cluster}/consumer-groups/{group}"
    found = http.get(url).json()
    assert (found["consumer_group_id"], found["state"]) == (group, "EMPTY")
    assert http.get(f"{url}/consumers").json()["data"] == []
    (lag,) = http.get(f"{url}/lags").json()["data"]
    assert (lag["current_offset"], lag["log_end_offset"], lag["lag"]) == (2, 5, 3)
    assert lag["consumer_id"] == ""
    assert http.get(f"{url}/lags/{topic}/partitions/0").json() == lag
    summary = http.get(f"{url}/lag-summary").json()
    assert (summary["max_lag"], summary["total_lag"]) == (3, 3)
    listed = http.get(f"{cluster}/consumer-groups").json()["data"]
    assert group in {row["consumer_group_id"] for row in listed}
    assert http.get(f"{cluster}/consumer-groups/no-such-group").status_code == 404


def test_records_of_every_type(http: httpx.Client, cluster: str, penstock: Platform) -> None:
    topic = penstock.make_topic()
    url = f"{cluster}/topics/{topic}/records"
    order = {"type": "record", "name": "Order", "fields": [{"name": "cents", "type": "long"}]}
    bodies: list[dict[str, Any]] = [
        {"value": {"data": "AAEC"}, "headers": [{"name": "h", "value": "/w=="}]},
        {"key": {"type": "STRING", "data": "k"}, "value": {"type": "JSON", "data": {"a": 1}}},
        {"value": {"type": "AVRO", "schema": json.dumps(order), "data": {"cents": 1}}},
        {"value": {"schema_version": 1, "data": {"cents": 2}}},
        {"value": {"type": "BINARY", "data": None}, "timestamp": "2024-01-01T00:00:00Z"},
    ]
    for number, body in enumerate(bodies):
        answer = http.post(url, json=body)
        assert answer.status_code == 200
        (report,) = reports(answer.content)
        assert (report["error_code"], report["offset"]) == (200, number), report
    events = http.get(f"/topics/{topic}/partitions/0/events").json()["events"]
    assert events[0]["value_base64"] == "AAEC"
    assert (events[1]["key"], events[1]["value"]) == ("k", {"a": 1})
    assert [event["value"] for event in events[2:]] == [{"cents": 1}, {"cents": 2}, None]
    assert events[4]["timestamp"] == 1704067200000


def test_records_stream_in_and_reports_stream_out_in_order(
    http: httpx.Client, cluster: str, penstock: Platform
) -> None:
    topic = penstock.make_topic()

    def body() -> Iterator[bytes]:
        yield b'{"value": {"type": "JSON", "data": 1}}{"value": {"type": "JS'
        yield b'ON", "data": 2}}\n{"value": {"type": "AVRO", "schema_id": 999999, "data": 1}} '
        yield b'{"value": {"type": "JSON", "data": 3}} {"value": nonsense'

    headers = {"Content-Type": "application/json"}
    answer = http.post(f"{cluster}/topics/{topic}/records", content=body(), headers=headers)
    assert answer.status_code == 200
    codes = [report["error_code"] for report in reports(answer.content)]
    assert codes == [200, 200, 42205, 200, 400]
    events = http.get(f"/topics/{topic}/partitions/0/events").json()["events"]
    assert [event["value"] for event in events] == [1, 2, 3]


def test_an_unknown_topic_is_reported_for_each_record(http: httpx.Client, cluster: str) -> None:
    records = b'{"value": {"data": "AA=="}}' * 2
    headers = {"Content-Type": "application/json"}
    answer = http.post(f"{cluster}/topics/no-such-topic/records", content=records, headers=headers)
    assert answer.status_code == 200
    assert [report["error_code"] for report in reports(answer.content)] == [40403, 40403]


@pytest.mark.parametrize(
    "parts",
    [
        [b'{"value": nonsense}'],
        [b'{"value": nu', b"ll, 55555}"],
        [b'{"value": {"data": "\\u00', b'zz"}}'],
        [b'{"value": null}}'],
        [b'{"value": "\xff'],
        [b"[1, 2]"],
        [b'{"value": NaN}'],
    ],
)
def test_a_body_that_is_not_json_is_reported_before_it_ends(
    http: httpx.Client, cluster: str, penstock: Platform, parts: list[bytes]
) -> None:
    url = http.base_url.copy_with(path=f"{cluster}/topics/{penstock.make_topic()}/records")
    with socket.create_connection((url.host, url.port or 80), timeout=20) as connection:
        head = f"POST {url.path} HTTP/1.1\r\nHost: {url.host}\r\nTransfer-Encoding: chunked\r\n"
        connection.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n")
        for part in (b'{"value": {"type": "JSON", "data": 1}}', *parts):
            connection.sendall(b"%x\r\n%b\r\n" % (len(part), part))
            time.sleep(0.05)
        received = b""
        while not received.endswith(b"\r\n0\r\n\r\n"):  # the response ends, the request does not
            content = connection.recv(65536)
            assert content, received
            received += content
    codes = [int(code) for code in re.findall(rb'"error_code":(\d+)', received)]
    assert codes[0] == 200
    assert codes[-1] == 400


def test_a_body_without_a_record_is_refused(
    http: httpx.Client, cluster: str, penstock: Platform
) -> None:
    url = f"{cluster}/topics/{penstock.make_topic()}/records"
    headers = {"Content-Type": "application/json"}
    for body, code in ((b" ", 400), (b"{", 200)):
        answer = http.post(url, content=body, headers=headers)
        assert answer.status_code == code
        assert answer.json()["error_code"] in (400, 40002)


def test_a_batch_has_a_result_for_each_entry(
    http: httpx.Client, cluster: str, penstock: Platform
) -> None:
    topic = penstock.make_topic()
    url = f"{cluster}/topics/{topic}/records:batch"
    entries = [
        {"id": "a", "value": {"type": "JSON", "data": 1}},
        {"id": "b", "value": {"type": "BINARY", "data": "?"}},
    ]
    answer = http.post(url, json={"entries": entries})
    assert answer.status_code == 207
    assert [row["id"] for row in answer.json()["successes"]] == ["a"]
    assert [row["id"] for row in answer.json()["failures"]] == ["b"]
    many = [{**entries[0], "id": str(n)} for n in range(11)]
    for bad in (many, [], [entries[0], entries[0]], [{**entries[0], "id": "x" * 81}]):
        refused = http.post(url, json={"entries": bad})
        assert (refused.status_code, refused.json()["error_code"]) == (422, 42208), bad
    unknown = http.post(f"{cluster}/topics/no-such-topic/records:batch", json={"entries": entries})
    assert unknown.status_code == 207
    assert [row["error_code"] for row in unknown.json()["failures"]] == [40403, 42206]


def test_unserved_paths_have_errors_in_this_form(http: httpx.Client, cluster: str) -> None:
    for path in (f"{cluster}/acls", "/v3/nothing", "/kafka/v3", f"{cluster}/topics/t/replicas"):
        missing = http.get(path)
        assert missing.status_code == 404, path
        assert missing.json()["error_code"] == 404
    topic = http.post(f"{cluster}/topics", content=b"{}", headers={"Content-Type": "text/plain"})
    assert topic.status_code == 415
