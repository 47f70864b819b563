"""The routes of the console on Apache Kafka: the same answers, and honest panels."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer

from penstock.testing.platform import APACHE, Platform

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "console.md"
pytestmark = [pytest.mark.slow, pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def apache() -> Iterator[Platform]:
    platform = Platform("console", kafka=APACHE).start()
    yield platform
    platform.stop()


@pytest.fixture(scope="module")
def client(apache: Platform) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=apache.registry_url, timeout=30) as http:
        yield http


def test_every_family_is_served(client: httpx.Client, apache: Platform) -> None:
    topic, group = apache.make_topic("orders", partitions=2), apache.name("billing")
    producer = Producer({"bootstrap.servers": apache.bootstrap})
    for number in range(20):
        producer.produce(topic, key=f"k{number}", value=f'{{"n": {number}}}', partition=number % 2)
    assert producer.flush(20) == 0
    settings = {
        "bootstrap.servers": apache.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }  # fmt: skip
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    message = consumer.poll(60)
    assert message is not None
    consumer.commit(message=message, asynchronous=False)
    consumer.close()
    info = client.get("/console/api/info").json()
    assert info["kind"] == "kafka"
    assert info["panels"] == documented_panels()
    found = client.post(f"/topics/{topic}/search", json={"filter": "value.n >= 15"}).json()
    assert (found["matched"], found["scanned"], found["stopped"]) == ("5", "20", "end")
    backward = client.post(f"/topics/{topic}/search", json={"from": "latest", "limit": 3}).json()
    assert len(backward["records"]) == 3
    assert client.get(f"/topics/{topic}/histogram").json()["buckets"]
    page = client.get(f"/console/api/topics/{topic}").json()
    assert [row["latest"] for row in page["partitions"]] == ["10", "10"]
    assert page["partitions"][0]["bytes"] is not None
    configs = client.get(f"/console/api/topics/{topic}/configs").json()["configs"]
    assert {row["name"] for row in configs} >= {"retention.ms", "cleanup.policy"}
    of_group = client.get(f"/console/api/groups/{group}").json()
    assert sum(int(row["lag"] or 0) for row in of_group["offsets"]) >= 9
    dry = {"dry_run": True, "reset": True}
    body = {"topic": topic, "to": "earliest"}
    plan = client.put(f"/consumer-groups/{group}/offsets", json=body, params=dry).json()
    assert {row["after"] for row in plan["offsets"]} == {"0"}
    assert _listed(client, "/console/api/topics", topic)["records"] == "20"
    assert client.get("/quarantine").json()["topics"] == []
    assert client.get("/pipelines").json() == {"pipelines": []}


def documented_panels() -> dict[str, str]:
    """How each panel is filled, as the page about the console says."""
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\| (\w+)", PAGE.read_text(), re.MULTILINE)
    return dict(rows)


def _listed(client: httpx.Client, path: str, name: str) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        table = client.get(path).json()
        for row in table["rows"]:
            if row[0] == name:
                return dict(zip(table["columns"], row, strict=True))
        time.sleep(0.3)
    raise AssertionError(f"{path} does not list {name}")
