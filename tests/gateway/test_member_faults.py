"""Members of groups while the gateway is killed: what to do is said, and no event is lost."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer

from penstock.testing.embedded import EmbeddedBroker, EmbeddedRegistry

EVENTS = 600
KILLS = 3
SESSION_MS = 6_000
LEFT_S = 20  # long before the end of a session of the default length, 45 s

RETRIABLE = (429, 503)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def gateway(broker: EmbeddedBroker) -> Iterator[EmbeddedRegistry]:
    with EmbeddedRegistry(broker.bootstrap) as gateway:
        yield gateway


class Worker(threading.Thread):
    """A client that reads, commits, and subscribes again after a 404."""

    def __init__(self, url: str, name: str | None) -> None:
        super().__init__(daemon=True)
        self._group = f"{url}/consumer-groups/workers"
        self._named = {} if name is None else {"member": name}
        self._member = ""
        self.values: list[int] = []
        self.committed: dict[int, int] = {}
        self.unknown: list[str] = []  # the messages of 404
        self.failure = ""
        self.is_stopping = False

    def run(self) -> None:
        while not self.is_stopping:
            try:
                self._step()
            except httpx.TransportError:
                time.sleep(0.1)  # killed: it comes back
            except AssertionError as failure:
                self.failure = str(failure)
                return

    def _step(self) -> None:
        if not self._member:
            body = {"topics": ["jobs"], "session_timeout_ms": SESSION_MS, **self._named}
            answer = httpx.post(f"{self._group}/subscribe", json=body, timeout=30)
            if answer.status_code != 201:
                assert answer.status_code in RETRIABLE, answer.text
                time.sleep(0.2)
                return
            self._member = answer.json()["member"]
        path = f"{self._group}/members/{self._member}/events"
        answer = httpx.get(path, params={"max_wait_ms": 300, "max_bytes": 300}, timeout=30)
        if answer.status_code == 404:
            assert answer.json()["error"]["code"] == "member_unknown"
            self.unknown.append(answer.json()["error"]["message"])
            self._member = ""
        elif answer.status_code == 200:
            self._process(answer.json()["events"])
        else:
            assert answer.status_code in RETRIABLE, answer.text

    def _process(self, events: list[dict[str, Any]]) -> None:
        if not events:
            return
        self.values += [event["value"] for event in events]
        ends = {event["partition"]: event["offset"] + 1 for event in events}
        rows = [
            {"topic": "jobs", "partition": partition, "offset": end}
            for partition, end in ends.items()
        ]
        body = {"offsets": rows, "member": self._member}
        if httpx.put(f"{self._group}/offsets", json=body, timeout=30).status_code == 200:
            self.committed |= ends


@pytest.mark.parametrize("name", [None, "worker-1"])
def test_every_event_is_read_at_least_once_across_kills_of_the_gateway(
    broker: EmbeddedBroker, gateway: EmbeddedRegistry, name: str | None
) -> None:
    assert httpx.post(f"{gateway.url}/topics", json={"name": "jobs", "partitions": 2}).is_success
    worker = Worker(gateway.url, name)
    worker.start()
    for kill in range(KILLS):
        values = range(kill * EVENTS // KILLS, (kill + 1) * EVENTS // KILLS)
        records = [{"value": value, "key": str(value)} for value in values]
        httpx.post(f"{gateway.url}/topics/jobs/produce", json={"records": records})
        until(lambda kill=kill: len(set(worker.values)) > kill * EVENTS // KILLS + 20)
        gateway.kill()
        gateway.start()
    until(lambda: set(worker.values) == set(range(EVENTS)))
    worker.is_stopping = True
    worker.join(30)
    assert not worker.failure
    assert len(worker.unknown) >= KILLS
    assert all("Subscribe again" in message for message in worker.unknown)
    assert sum(worker.committed.values()) == EVENTS


def test_a_member_of_a_killed_gateway_leaves_by_its_session(
    broker: EmbeddedBroker, gateway: EmbeddedRegistry
) -> None:
    assert httpx.post(f"{gateway.url}/topics", json={"name": "jobs", "partitions": 1}).is_success
    body = {"topics": ["jobs"], "session_timeout_ms": SESSION_MS}
    subscribed = httpx.post(
        f"{gateway.url}/consumer-groups/workers/subscribe", json=body, timeout=30
    )
    assert len(subscribed.json()["assignment"]) == 1
    gateway.kill()
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "workers", "log_level": 0}
    consumer = Consumer(settings)
    consumer.subscribe(["jobs"])
    started_s = time.monotonic()
    while not consumer.assignment():
        consumer.poll(0.1)
        assert time.monotonic() < started_s + LEFT_S, "its session is longer"
    consumer.close()


def until(is_true: Any, within_s: float = 90) -> None:
    deadline = time.monotonic() + within_s
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.05)
