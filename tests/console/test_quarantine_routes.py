"""Events in quarantine: counted, shown, and sent back once."""

import time
from typing import Any

import httpx
import pytest

from penstock.client.registry import Registry
from penstock.schemas.model import SchemaText, SchemaType
from penstock.serde.errors import Reason
from penstock.serde.frame import write_prefix
from penstock.testing.platform import Platform
from tests.console.conftest import quarantine

READABLE, UNREADABLE = Reason.UNKNOWN_SCHEMA, Reason.UNDECODABLE


@pytest.fixture
def topic(penstock: Platform, registry: Registry) -> str:
    """A topic with three events in quarantine, of which two can be read now."""
    name = penstock.make_topic("poison")
    known = registry.register(f"{name}-value", SchemaText(SchemaType.AVRO, '"string"'))
    payloads = ((READABLE, b"\x02a"), (READABLE, b"\x02b"), (UNREADABLE, b"\xff"))
    events = [(reason, write_prefix(known.id) + payload) for reason, payload in payloads]
    quarantine(penstock.bootstrap, name, events)
    return name


def until_counted(http: httpx.Client, topic: str, total: int) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for row in http.get("/quarantine").json()["topics"]:
            if row["topic"] == topic and row["total"] == total:
                known: dict[str, Any] = row
                return known
        time.sleep(0.3)
    raise AssertionError(f"{topic} does not have {total} events in quarantine")


def test_events_are_counted_shown_and_sent_back_once(http: httpx.Client, topic: str) -> None:
    row = until_counted(http, topic, 3)
    assert row["reasons"] == [
        {"reason": "undecodable", "count": 1},
        {"reason": "unknown_schema", "count": 2},
    ]
    page = http.get(f"/quarantine/{topic}", params={"reason": "unknown_schema"}).json()
    assert [event["origin"]["offset"] for event in page["events"]] == ["1", "0"]
    assert page["events"][0]["value"]["data"] == "b"
    assert page["events"][0]["group"] == "billing"
    path = f"/quarantine/{topic}/redrive"
    body: dict[str, Any] = {"include_superseded": True}
    dry = http.post(path, json=body, params={"dry_run": True}).json()
    assert (dry["would_send"], dry["unreadable"], dry["already_sent"]) == (2, 1, 0)
    assert http.get(f"/topics/{topic}").json()["partitions"][0]["latest"] == 0
    sent = http.post(path, json=body).json()
    assert (sent["sent"], sent["unreadable"]) == (2, 1)
    again = http.post(path, json=body).json()
    assert (again["sent"], again["already_sent"]) == (0, 2)
    until_counted(http, topic, 1)
    records = http.post(f"/topics/{topic}/search", json={}).json()["records"]
    assert [record["value"]["data"] for record in records] == ["a", "b"]


def test_a_topic_without_quarantine_is_not_found(http: httpx.Client, penstock: Platform) -> None:
    clean = penstock.make_topic("clean")
    assert http.get(f"/quarantine/{clean}").status_code == 404
    assert http.post(f"/quarantine/{clean}/redrive", json={}).status_code == 404
    refused = http.post(f"/quarantine/{clean}/redrive", json={"to": "x.quarantine"})
    assert refused.status_code == 400
