"""Lists and pages of topics and groups, the overview, and the forms that only check."""

import time
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer

from penstock.testing.platform import Platform
from tests.console.conftest import Write


def rows_of(answer: httpx.Response) -> dict[str, dict[str, Any]]:
    document = answer.json()
    columns = document["columns"]
    return {row[0]: dict(zip(columns, row, strict=True)) for row in document["rows"]}


def until_listed(http: httpx.Client, path: str, name: str) -> dict[str, Any]:
    """The row of a name, once a sample has it."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        rows = rows_of(http.get(path))
        if name in rows:
            return rows[name]
        time.sleep(0.2)
    raise AssertionError(f"{path} does not list {name}")


@pytest.fixture
def group(penstock: Platform, write: Write) -> tuple[str, str]:
    """A group without members that has read 2 of 10 records of a topic."""
    topic, name = penstock.make_topic("read"), penstock.name("group")
    write(topic, [("k", "v")] * 10)
    settings = {
        "bootstrap.servers": penstock.bootstrap, "group.id": name, "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "log_level": 0,
    }  # fmt: skip
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    try:
        for _ in range(2):
            message = consumer.poll(20)
            assert message is not None
            consumer.commit(message=message, asynchronous=False)
    finally:
        consumer.close()
    return name, topic


def test_the_cluster_is_described(http: httpx.Client) -> None:
    info = http.get("/console/api/info").json()
    assert info["kind"] == "penstock"
    assert info["read_only"] is False
    assert info["panels"]["throughput"] == "derived"
    overview = http.get("/console/api/overview").json()
    assert overview["offline"] == overview["under_replicated"] == 0
    (broker,) = overview["brokers"]
    assert broker["id"] == overview["controller"]
    assert broker["leaders"] == overview["partitions"]


def test_topics_are_listed_with_records_and_bytes(
    http: httpx.Client, penstock: Platform, write: Write
) -> None:
    topic = penstock.make_topic("listed", partitions=2)
    write(topic, [("k", "v")] * 5)
    row = until_listed(http, "/console/api/topics", topic)
    assert (row["partitions"], row["replication_factor"], row["internal"]) == (2, 1, False)
    page = http.get(f"/console/api/topics/{topic}").json()
    assert [each["latest"] for each in page["partitions"]] == ["5", "0"]
    assert page["skew"] == 2.0
    assert page["subjects"] == {"key": None, "value": None}
    assert http.get(f"/console/api/topics/{topic}-absent").status_code == 404


def test_settings_have_a_source_a_default_and_a_meaning(
    http: httpx.Client, penstock: Platform
) -> None:
    topic = penstock.make_topic("configs", settings={"retention.ms": "60000"})
    configs = http.get(f"/console/api/topics/{topic}/configs").json()["configs"]
    rows = {row["name"]: row for row in configs}
    assert rows["retention.ms"]["value"] == "60000"
    assert rows["retention.ms"]["source"] == "topic"
    assert rows["retention.ms"]["default"] == "604800000"
    assert rows["retention.ms"]["type"] == "long"
    assert rows["cleanup.policy"]["source"] == "default"
    assert all(row["doc"] for row in configs)


def test_a_group_has_lag_and_offsets(http: httpx.Client, group: tuple[str, str]) -> None:
    name, topic = group
    row = until_listed(http, "/console/api/groups", name)
    assert (row["state"], row["members"]) == ("Empty", 0)
    page = http.get(f"/console/api/groups/{name}").json()
    (offset,) = page["offsets"]
    assert (offset["topic"], offset["committed"], offset["latest"]) == (topic, "2", "10")
    assert offset["lag"] == "8"
    assert http.get(f"/console/api/groups/{name}-absent").status_code == 404


def test_a_reset_shows_before_and_after_and_then_does_it(
    http: httpx.Client, group: tuple[str, str]
) -> None:
    name, topic = group
    path = f"/consumer-groups/{name}/offsets"
    for to, after in (
        ("earliest", "0"),
        ("latest", "10"),
        ({"time": "1700000004500"}, "5"),
        ({"time": "1800000000000"}, "10"),
        ({"shift": 3}, "5"),
        ({"shift": "-9"}, "0"),
    ):
        body = {"topic": topic, "to": to}
        answer = http.put(path, json=body, params={"dry_run": True, "reset": True})
        (row,) = answer.json()["offsets"]
        assert (row["before"], row["after"]) == ("2", after)
        assert int(row["records"]) == 2 - int(after)
    assert http.get(path).json()["offsets"][0]["offset"] == 2
    back = {"topic": topic, "to": "earliest"}
    assert http.put(path, json=back, params={"dry_run": True}).status_code == 409
    assert http.put(path, json=back, params={"reset": True}).status_code == 200
    assert http.get(path).json()["offsets"][0]["offset"] == 0


@pytest.mark.parametrize("to", [{"time": "x"}, {"shift": 1, "time": 2}, {}, {"time": -5}])
def test_an_invalid_place_is_refused(
    http: httpx.Client, group: tuple[str, str], to: dict[str, Any]
) -> None:
    name, topic = group
    body = {"topic": topic, "to": to}
    assert http.put(f"/consumer-groups/{name}/offsets", json=body).status_code == 400


def test_dry_runs_have_the_verdict_and_change_nothing(
    http: httpx.Client, penstock: Platform
) -> None:
    topic, dry = penstock.make_topic("dry"), {"dry_run": True}
    change = {"configs": {"retention.ms": "1000"}, "partitions": 4}
    kept = http.patch(f"/topics/{topic}", json=change, params=dry)
    assert kept.status_code == 200
    assert len(kept.json()["partitions"]) == 1
    assert kept.json()["configs"]["retention.ms"] != "1000"
    wrong = {"configs": {"retention.ms": "soon"}}
    refused = http.patch(f"/topics/{topic}", json=wrong, params=dry)
    assert refused.json() == http.patch(f"/topics/{topic}", json=wrong).json()
    assert refused.status_code == 400
    name = penstock.name("unborn")
    assert http.post("/topics", json={"name": name}, params=dry).status_code == 200
    assert http.get(f"/topics/{name}").status_code == 404


def test_a_dry_run_of_produce_encodes_and_writes_nothing(
    http: httpx.Client, penstock: Platform
) -> None:
    topic = penstock.make_topic("dry-produce")
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    body = {
        "value_schema": schema,
        "records": [{"key": "k", "value": {"n": 1}}, {"value": {"n": "one"}}, {"value": None}],
    }
    rows = http.post(f"/topics/{topic}/produce", json=body, params={"dry_run": True}).json()
    first, second, third = rows["records"]
    assert first == {"partition": 0, "bytes": 7}
    assert second["error"]["code"] == "invalid_value"
    assert third == {"partition": None, "bytes": 0}
    assert http.get(f"/topics/{topic}").json()["partitions"][0]["latest"] == 0
    assert f"{topic}-value" not in http.get("/subjects").json()
