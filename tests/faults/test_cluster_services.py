"""Registry and gateway on a cluster whose brokers are killed one after the other.

Clients of both continue without a restart of the process. What was registered keeps its id, and
what was produced under an idempotency key is there once.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from penstock.testing.embedded import EmbeddedRegistry
from penstock.testing.embedded_cluster import EmbeddedCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TOPIC = "keyed"
SCHEMAS = "_schemas"
INTERNAL = ("__transaction_state", "__consumer_offsets")
MORE = 20
WAIT_S = 60.0
RETRY_S = 0.1
RETRIED = {409, 500, 503}  # as a client does; 409: its request is in progress


class HttpClient(ABC):
    """Sends one numbered request after the other; each until it is answered with 200."""

    def __init__(self, url: str) -> None:
        self.answers: dict[int, Any] = {}
        self.failure: BaseException | None = None
        self.longest_s = 0.0
        self._http = httpx.Client(base_url=url, timeout=20)
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    @abstractmethod
    def request(self, http: httpx.Client, number: int) -> httpx.Response:
        """Send a request, perhaps not for the first time."""

    def __enter__(self) -> "HttpClient":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopping.set()
        self._thread.join()
        self._http.close()

    def wait_for(self, more: int = MORE) -> None:
        """Wait until this many more requests are answered."""
        goal, give_up_at = len(self.answers) + more, time.monotonic() + WAIT_S
        while len(self.answers) < goal:
            if self.failure is not None:
                raise self.failure
            assert time.monotonic() < give_up_at, f"{type(self).__name__} has not continued"
            time.sleep(0.05)

    def _run(self) -> None:
        try:
            while not self._is_stopping.is_set():
                number, started_at = len(self.answers), time.monotonic()
                self.answers[number] = self._answer(number)
                self.longest_s = max(self.longest_s, time.monotonic() - started_at)
        except BaseException as failure:  # noqa: BLE001 - raised by the test
            self.failure = failure

    def _answer(self, number: int) -> Any:
        give_up_at = time.monotonic() + WAIT_S
        while True:
            response = self.request(self._http, number)
            if response.status_code == 200:
                return response.json()
            assert response.status_code in RETRIED, response.text
            assert time.monotonic() < give_up_at, f"never answered: {response.text}"
            time.sleep(RETRY_S)


class SchemaClient(HttpClient):
    """Registers schemas, each under its own subject."""

    def request(self, http: httpx.Client, number: int) -> httpx.Response:
        schema = f'{{"type": "record", "name": "R{number}", "fields": []}}'
        return http.post(f"/subjects/s{number}/versions", json={"schema": schema})

    def check(self, url: str) -> None:
        """Every schema has the id that was answered, and no other has it."""
        ids = {number: answer["id"] for number, answer in self.answers.items()}
        assert len(set(ids.values())) == len(ids)
        with httpx.Client(base_url=url, timeout=20) as http:
            for number, schema_id in ids.items():
                found = http.get(f"/subjects/s{number}/versions/1").json()
                assert found["id"] == schema_id


class KeyedClient(HttpClient):
    """Produces numbers through the gateway, each under its own idempotency key."""

    def request(self, http: httpx.Client, number: int) -> httpx.Response:
        headers = {"Idempotency-Key": f"k{number}"}
        return http.post(f"/topics/{TOPIC}/produce", json={"value": number}, headers=headers)

    def check(self, url: str) -> None:
        """Every number is in the topic once."""
        values: list[int] = []
        with httpx.Client(base_url=url, timeout=20) as http:
            offset, where = 0, f"/topics/{TOPIC}/partitions/0/events"
            while True:
                read = http.get(where, params={"offset": offset, "max_wait_ms": 300}).json()
                if not read["events"]:
                    break
                values += [event["value"] for event in read["events"]]
                offset = read["next_offset"]
        assert Counter(values) == Counter(list(self.answers))


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture
def services(cluster: EmbeddedCluster) -> Iterator[EmbeddedRegistry]:
    with EmbeddedRegistry(cluster.bootstrap, log_level="ERROR") as services:
        yield services


def test_registry_and_gateway_continue_while_brokers_die(
    cluster: EmbeddedCluster, services: EmbeddedRegistry
) -> None:
    httpx.post(f"{services.url}/topics", json={"name": TOPIC, "partitions": 1}).raise_for_status()
    schemas, keyed = SchemaClient(services.url), KeyedClient(services.url)
    with schemas, keyed:
        for victim in (*cluster.brokers, cluster.leader(SCHEMAS), cluster.leader(TOPIC)):
            schemas.wait_for()
            keyed.wait_for()
            cluster.kill(victim)
            schemas.wait_for()
            keyed.wait_for()
            cluster.restart(victim)
            for topic in (TOPIC, SCHEMAS, *INTERNAL):
                cluster.wait_in_sync(topic)
    assert [schemas.failure, keyed.failure] == [None, None]
    longest = f"{schemas.longest_s:.1f} and {keyed.longest_s:.1f} s"
    print(f"{len(schemas.answers)} schemas, {len(keyed.answers)} requests, at most {longest}")  # noqa: T201 - the result of the run
    schemas.check(services.url)
    keyed.check(services.url)
    services.stop()
    services.start()  # another process, which reads it all from the cluster
    schemas.check(services.url)
    keyed.check(services.url)
