"""Members of groups, committed offsets and lag over HTTP."""

import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.testing.platform import Platform


def subscribe(http: httpx.Client, group: str, **body: Any) -> dict[str, Any]:
    answer = http.post(f"/consumer-groups/{group}/subscribe", json=body)
    assert answer.status_code == 201, answer.text
    member: dict[str, Any] = answer.json()
    assert answer.headers["location"] == f"/consumer-groups/{group}/members/{member['member']}"
    return member


def produce(http: httpx.Client, topic: str, *values: Any, **more: Any) -> None:
    records = [{"value": value, **more} for value in values]
    answer = http.post(f"/topics/{topic}/produce", json={"records": records})
    assert all("offset" in row for row in answer.json()["records"]), answer.text


def read(http: httpx.Client, group: str, member: str, **options: Any) -> list[dict[str, Any]]:
    answer = http.get(f"/consumer-groups/{group}/members/{member}/events", params=options)
    assert answer.status_code == 200, answer.text
    events: list[dict[str, Any]] = answer.json()["events"]
    return events


def commit(http: httpx.Client, group: str, *rows: Any, **body: Any) -> httpx.Response:
    options = {"reset": "true"} if body.pop("reset", False) else {}
    names = ("topic", "partition", "offset", "expected_version")
    offsets = [dict(zip(names, row, strict=False)) for row in rows]
    url = f"/consumer-groups/{group}/offsets"
    return http.put(url, json={"offsets": offsets, **body}, params=options)


def until(is_true: Callable[[], bool], within_s: float = 30) -> None:
    deadline = time.monotonic() + within_s
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_member_reads_commits_and_goes_on_after_it_left(
    http: httpx.Client, penstock: Platform
) -> None:
    topic, group = penstock.make_topic(partitions=2), penstock.name("group")
    produce(http, topic, 1, 2, partition=0)
    produce(http, topic, 3, partition=1)
    member = subscribe(http, group, topics=[topic])
    assert [row["partition"] for row in member["assignment"]] == [0, 1]
    name = member["member"]
    events: list[dict[str, Any]] = []
    while len(events) < 3:
        events += read(http, group, name, max_wait_ms=10_000)
    assert sorted(event["value"] for event in events) == [1, 2, 3]
    assert read(http, group, name) == []
    done = commit(http, group, (topic, 0, 2), (topic, 1, 1), member=name)
    assert done.status_code == 200, done.text
    assert {row["version"] for row in done.json()["offsets"]} == {1}
    assert http.delete(f"/consumer-groups/{group}/members/{name}").status_code == 204
    gone = http.get(f"/consumer-groups/{group}/members/{name}")
    assert gone.status_code == 404
    assert gone.json()["error"]["code"] == "member_unknown"
    assert "subscribe" in gone.json()["error"]["message"]
    produce(http, topic, 4, partition=0)
    again = subscribe(http, group, topics=[topic])["member"]
    (event,) = read(http, group, again, max_wait_ms=10_000)
    assert event["value"] == 4
    http.delete(f"/consumer-groups/{group}/members/{again}")


def test_a_member_and_a_kafka_client_share_a_group(http: httpx.Client, penstock: Platform) -> None:
    topic, group = penstock.make_topic(partitions=4), penstock.name("group")
    name = subscribe(http, group, topics=[topic], session_timeout_ms=6_000)["member"]
    settings = {"bootstrap.servers": penstock.bootstrap, "group.id": group}
    consumer = Consumer({**settings, "heartbeat.interval.ms": 300})
    consumer.subscribe([topic])

    def is_shared() -> bool:
        consumer.poll(0.1)
        rows = http.get(f"/consumer-groups/{group}/members/{name}").json()["assignment"] or []
        return len(rows) == len(consumer.assignment()) == 2

    until(is_shared)
    refused = commit(http, group, (topic, 0, 0))
    assert refused.status_code == 409
    assert refused.json()["error"]["code"] == "group_has_members"
    consumer.close()
    until(
        lambda: (
            len(http.get(f"/consumer-groups/{group}/members/{name}").json()["assignment"] or [])
            == 4
        )
    )
    http.delete(f"/consumer-groups/{group}/members/{name}")


def test_a_silent_member_leaves(http: httpx.Client, penstock: Platform) -> None:
    topic, group = penstock.make_topic(), penstock.name("group")
    name = subscribe(http, group, topics=[topic], session_timeout_ms=500)["member"]
    time.sleep(1.5)
    gone = http.get(f"/consumer-groups/{group}/members/{name}/events")
    assert gone.status_code == 404
    assert commit(http, group, (topic, 0, 0)).status_code == 200  # the group is empty


def test_naming_a_living_member_takes_it_over(http: httpx.Client, penstock: Platform) -> None:
    topic, group = penstock.make_topic(), penstock.name("group")
    produce(http, topic, 1)
    first = subscribe(http, group, topics=[topic], member="worker-1")
    assert first["member"] == "worker-1"
    second = subscribe(http, group, topics=[topic], member="worker-1")
    assert len(second["assignment"]) == 1
    (event,) = read(http, group, "worker-1", max_wait_ms=10_000)
    assert event["value"] == 1
    assert http.delete(f"/consumer-groups/{group}/members/worker-1").status_code == 204
    assert commit(http, group, (topic, 0, 0)).status_code == 200


def test_a_pattern_names_topics_and_latest_skips_old_events(
    http: httpx.Client, penstock: Platform
) -> None:
    stem = penstock.name("pattern")
    for name in ("a", "b"):
        http.post("/topics", json={"name": f"{stem}-{name}", "partitions": 1})
    produce(http, f"{stem}-a", "old")
    group = penstock.name("group")
    member = subscribe(http, group, pattern=f"{stem}-.*", auto_offset_reset="latest")
    assert [row["topic"] for row in member["assignment"]] == [f"{stem}-a", f"{stem}-b"]
    produce(http, f"{stem}-b", "new")
    (event,) = read(http, group, member["member"], max_wait_ms=10_000)
    assert event["value"] == "new"
    http.delete(f"/consumer-groups/{group}/members/{member['member']}")


def test_a_pattern_follows_topics_and_partitions_that_are_added(
    http: httpx.Client, penstock: Platform
) -> None:
    stem, group = penstock.name("later"), penstock.name("group")
    name = subscribe(http, group, pattern=f"{stem}-.*", session_timeout_ms=6_000)["member"]

    def assigned() -> list[tuple[str, int]]:
        member = http.get(f"/consumer-groups/{group}/members/{name}").json()
        return [(row["topic"], row["partition"]) for row in member["assignment"] or []]

    assert assigned() == []
    http.post("/topics", json={"name": f"{stem}-a", "partitions": 1})
    until(lambda: assigned() == [(f"{stem}-a", 0)])
    http.patch(f"/topics/{stem}-a", json={"partitions": 2})
    until(lambda: assigned() == [(f"{stem}-a", 0), (f"{stem}-a", 1)])
    produce(http, f"{stem}-a", "new", partition=1)
    (event,) = read(http, group, name, max_wait_ms=10_000)
    assert event["value"] == "new"
    http.delete(f"/consumer-groups/{group}/members/{name}")


UNREADABLE = {"value_base64": "AAD///8C"}  # names a schema that does not exist


@pytest.mark.parametrize(
    ("on_decode_error", "returned", "quarantined"),
    [("quarantine", 2, 1), ("skip", 2, 0), ("return", 3, 0)],
)
def test_an_event_that_cannot_be_decoded_is_quarantined_as_the_client_does(
    http: httpx.Client, penstock: Platform, on_decode_error: str, returned: int, quarantined: int
) -> None:
    topic, group = penstock.make_topic(), penstock.name("group")
    records = [{"value": 1}, {"key": "k", **UNREADABLE}, {"value": 3}]
    http.post(f"/topics/{topic}/produce", json={"records": records})
    name = subscribe(http, group, topics=[topic], on_decode_error=on_decode_error)["member"]
    events = read(http, group, name, max_wait_ms=10_000)
    assert len(events) == returned
    assert [event["value"] for event in events if "error" not in event] == [1, 3]
    (row,) = http.get(f"/consumer-groups/{group}/members/{name}").json()["assignment"]
    assert row["position"] == 3
    http.delete(f"/consumer-groups/{group}/members/{name}")
    answer = http.get(f"/topics/{topic}.quarantine/partitions/0/events")
    assert answer.status_code == (200 if quarantined else 404)
    for event in answer.json().get("events", []):
        headers = dict(event["headers"])
        assert event["value_base64"] == UNREADABLE["value_base64"]
        assert headers["penstock.quarantine.topic"] == topic
        assert headers["penstock.quarantine.offset"] == "1"
        assert headers["penstock.quarantine.client"] == group
        assert headers["penstock.quarantine.reason"] == "unknown_schema"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"topics": []},
        {"topics": ["a"], "pattern": "a"},
        {"pattern": "("},
        {"topics": ["a"], "session_timeout_ms": 1},
        {"topics": ["a"], "auto_offset_reset": "none"},
        {"topics": ["a"], "on_decode_error": "ignore"},
        {"pattern": "(a)\\1"},  # what RE2 does not have
    ],
)
def test_an_invalid_subscription_is_refused(http: httpx.Client, body: dict[str, Any]) -> None:
    assert http.post("/consumer-groups/g/subscribe", json=body).status_code == 400


def test_commits_are_monotonic_and_versioned(http: httpx.Client, penstock: Platform) -> None:
    topic, group = penstock.make_topic(partitions=2), penstock.name("group")
    produce(http, topic, *range(10), partition=0)
    assert http.get(f"/consumer-groups/{group}/offsets").json() == {"offsets": []}
    assert commit(http, group, (topic, 0, 5, 0)).json()["offsets"] == [
        {"topic": topic, "partition": 0, "offset": 5, "version": 1}
    ]
    stale = commit(http, group, (topic, 0, 7, 0), (topic, 1, 0))
    assert stale.status_code == 409
    (conflict,) = stale.json()["conflicts"]
    assert (conflict["offset"], conflict["version"], conflict["reason"]) == (5, 1, "version")
    back = commit(http, group, (topic, 0, 4))
    assert back.json()["conflicts"][0]["reason"] == "backwards"
    assert commit(http, group, (topic, 0, 4), reset=True).json()["offsets"][0]["version"] == 2
    assert http.get(f"/consumer-groups/{group}/offsets").json()["offsets"] == [
        {"topic": topic, "partition": 0, "offset": 4, "version": 2}
    ]
    lag = http.get(f"/consumer-groups/{group}/lag").json()
    assert lag["lag"] == 6
    assert lag["partitions"][0]["end_offset"] == 10


def test_a_kafka_clients_commit_changes_the_version(http: httpx.Client, penstock: Platform) -> None:
    topic, group = penstock.make_topic(), penstock.name("group")
    assert commit(http, group, (topic, 0, 1)).json()["offsets"][0]["version"] == 1
    consumer = Consumer({"bootstrap.servers": penstock.bootstrap, "group.id": group})
    consumer.commit(offsets=[KafkaPartition(topic, 0, 3)], asynchronous=False)
    consumer.close()
    (row,) = http.get(f"/consumer-groups/{group}/offsets").json()["offsets"]
    assert (row["offset"], row["version"]) == (3, 0)
    assert commit(http, group, (topic, 0, 4, 1)).status_code == 409
    assert commit(http, group, (topic, 0, 4, 0)).json()["offsets"][0]["version"] > 1


def test_a_commit_with_an_unknown_partition_commits_nothing(
    http: httpx.Client, penstock: Platform
) -> None:
    topic, group = penstock.make_topic(), penstock.name("group")
    for unknown in ((topic, 9, 1), (penstock.name("no-such"), 0, 1)):
        refused = commit(http, group, (topic, 0, 1), unknown)
        assert refused.status_code == 404
        assert refused.json()["error"]["code"] == "unknown_topic_or_partition"
        assert unknown[0] in refused.json()["error"]["message"]
        assert http.get(f"/consumer-groups/{group}/offsets").json()["offsets"] == []
