"""Pull routes while the brokers cannot be reached, and after compaction."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from penstock.testing.embedded import EmbeddedBroker, EmbeddedRegistry

pytestmark = pytest.mark.slow

OFFSETS = {"offsets": [{"topic": "orders", "partition": 0, "offset": 1}]}
RECORD = {"value": {"type": "JSON", "data": 1}}
ROUTES = [
    ("GET", "/topics", None),
    ("GET", "/topics/orders", None),
    ("POST", "/topics", {"name": "more"}),
    ("GET", "/cluster", None),
    ("GET", "/topics/orders/partitions/0/events?offset=0", None),
    ("GET", "/consumer-groups/billing/offsets", None),
    ("PUT", "/consumer-groups/billing/offsets", OFFSETS),
    ("GET", "/consumer-groups/billing/lag", None),
    ("GET", "/v3/clusters/-/topics", None),
    ("POST", "/v3/clusters/-/topics/orders/records", RECORD),
]


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings={"log.cleaner.backoff.ms": "20"}) as broker:
        yield broker


@pytest.fixture
def url(broker: EmbeddedBroker) -> Iterator[str]:
    with EmbeddedRegistry(broker.bootstrap) as gateway:
        yield gateway.url


@pytest.mark.parametrize("is_known", [True, False])
def test_a_pull_route_says_when_to_try_again(
    broker: EmbeddedBroker, url: str, *, is_known: bool
) -> None:
    """`is_known`: the gateway has reached the cluster before."""
    with httpx.Client(base_url=url, timeout=60) as http:
        if is_known:
            http.post("/topics", json={"name": "orders"}).raise_for_status()
            http.post("/v3/clusters/-/topics/orders/records", json=RECORD).raise_for_status()
        broker.kill()

        def send(route: tuple[str, str, object]) -> httpx.Response:
            method, path, body = route
            return http.request(method, path, json=body)

        with ThreadPoolExecutor(len(ROUTES)) as threads:
            responses = list(threads.map(send, ROUTES))
        for (method, path, _), response in zip(ROUTES, responses, strict=True):
            assert response.status_code == 503, (method, path, response.text)
            assert int(response.headers["Retry-After"]) >= 1, (method, path)
            is_v3 = path.startswith("/v3")
            document = response.json()
            code = document["error_code"] if is_v3 else document["error"]["code"]
            assert code == (50003 if is_v3 else "kafka_unavailable"), (method, path)


def test_produced_records_are_reported_as_not_written_while_the_brokers_are_away(
    broker: EmbeddedBroker, url: str
) -> None:
    with httpx.Client(base_url=url, timeout=60) as http:
        http.post("/topics", json={"name": "orders"}).raise_for_status()
        http.post("/topics/orders/produce", json={"value": 1}).raise_for_status()
        broker.kill()
        answer = http.post("/topics/orders/produce", json={"value": 2})
        if answer.status_code == 200:
            (row,) = answer.json()["records"]
            assert "error" in row, row
        else:
            assert answer.status_code == 503
            assert answer.headers["Retry-After"]


def test_offsets_that_compaction_removed_are_skipped_by_next_offset(
    broker: EmbeddedBroker, url: str
) -> None:
    fill = "x" * 300_000
    configs = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20)}
    configs["min.cleanable.dirty.ratio"] = "0.01"
    with httpx.Client(base_url=url, timeout=60) as http:
        body = {"name": "latest", "partitions": 1, "configs": configs}
        http.post("/topics", json=body).raise_for_status()
        for number in range(12):
            record = {"key": "k", "value": {"n": number, "fill": fill}}
            http.post("/topics/latest/produce", json=record).raise_for_status()

        def read(offset: int) -> dict[str, Any]:
            path = f"/topics/latest/partitions/0/events?offset={offset}&max_bytes=1"
            answer = http.get(path)
            assert answer.status_code == 200, answer.text
            document: dict[str, Any] = answer.json()
            return document

        deadline_s = time.monotonic() + 60
        while read(0)["events"][0]["offset"] == 0:
            assert time.monotonic() < deadline_s, "nothing was compacted"
            time.sleep(0.1)
        first = read(0)
        offset = first["events"][0]["offset"]
        assert first["next_offset"] == offset + 1
        assert read(1) == first  # an offset in the gap
