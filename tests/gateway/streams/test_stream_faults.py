"""Streams while processes are killed: a client that resumes gets every event, and each once."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest
from confluent_kafka import Producer
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from penstock.node.http_process import HttpOptions
from penstock.node.supervisor import HttpProcess
from penstock.testing.embedded import EmbeddedBroker, EmbeddedRegistry
from tests.support.sse_client import SseClient

EVENTS = 3000


class ResumingReader(threading.Thread):
    """Reads as a browser does: connects again with the last event id whenever a stream ends."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._id = ""
        self.numbers: list[int] = []
        self.connections = 0
        self.is_stopping = False

    def run(self) -> None:
        while not self.is_stopping and len(set(self.numbers)) < EVENTS:
            with suppress(httpx.HTTPError, StopIteration):
                self._read()
            time.sleep(0.05)

    def _read(self) -> None:
        headers = {"Last-Event-ID": self._id} if self._id else {}
        with httpx.stream("GET", self._url, headers=headers, timeout=20) as response:
            if response.status_code != 200:
                return
            self.connections += 1
            client = SseClient(response)
            while len(set(self.numbers)) < EVENTS:
                event = client.next()
                self._id = event.id
                if event.name == "message":
                    self.numbers.append(event.fields["value"]["n"])


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def gateway(broker: EmbeddedBroker) -> Iterator[EmbeddedRegistry]:
    with EmbeddedRegistry(broker.bootstrap) as gateway:
        yield gateway


def produce(bootstrap: str, first: int, end: int) -> None:
    settings = {"bootstrap.servers": bootstrap, "log_level": 0, "enable.idempotence": True}
    producer = Producer(settings)
    for number in range(first, end):
        producer.produce("orders", json.dumps({"n": number}).encode(), b"k%d" % (number % 7))
        producer.poll(0)
        time.sleep(0.0005)
    assert producer.flush(60) == 0


def test_a_stream_goes_on_when_the_broker_comes_back(
    broker: EmbeddedBroker, gateway: EmbeddedRegistry
) -> None:
    produce(broker.bootstrap, 0, 1)
    reader = ResumingReader(f"{gateway.url}/topics/orders/stream?offset=earliest")
    reader.start()
    writer = threading.Thread(target=produce, args=(broker.bootstrap, 1, EVENTS), daemon=True)
    writer.start()
    for _ in range(2):
        time.sleep(0.5)
        broker.kill()
        time.sleep(0.3)
        broker.restart()
    writer.join(60)
    reader.join(60)
    assert reader.numbers == list(range(EVENTS))
    assert reader.connections == 1


@pytest.mark.slow
def test_a_client_that_resumes_gets_every_event_once_across_kills_of_the_gateway(
    broker: EmbeddedBroker, gateway: EmbeddedRegistry
) -> None:
    produce(broker.bootstrap, 0, 1)
    readers = [
        ResumingReader(f"{gateway.url}/topics/orders/stream?offset=earliest") for _ in range(3)
    ]
    for reader in readers:
        reader.start()
    writer = threading.Thread(target=produce, args=(broker.bootstrap, 1, EVENTS), daemon=True)
    writer.start()
    for _ in range(3):
        time.sleep(0.4)
        gateway.kill()
        gateway.start()
    writer.join(60)
    for reader in readers:
        reader.join(60)
        assert reader.numbers == list(range(EVENTS))
        assert reader.connections > 1


@pytest.mark.slow
def test_a_client_that_resumes_while_the_broker_is_away_waits_in_the_stream(
    broker: EmbeddedBroker, gateway: EmbeddedRegistry
) -> None:
    produce(broker.bootstrap, 0, 3)
    url = f"{gateway.url}/topics/orders/stream?offset=earliest"
    with httpx.stream("GET", url, timeout=20) as response:
        first = SseClient(response)
        first.take(2)
    broker.kill()
    assert httpx.get(url, timeout=20).status_code == 503
    headers = {"Last-Event-ID": first.id}
    with httpx.stream("GET", url, headers=headers, timeout=30) as response:
        assert response.status_code == 200
        broker.restart()
        resumed = SseClient(response)
        assert resumed.take(1)[0].fields["value"] == {"n": 2}


def test_a_clean_stop_sends_a_closing_event(
    broker: EmbeddedBroker, gateway: EmbeddedRegistry
) -> None:
    produce(broker.bootstrap, 0, 2)
    url = f"{gateway.url}/topics/orders/stream?offset=earliest"
    with httpx.stream("GET", url, timeout=20) as response:
        client = SseClient(response)
        client.take(2)
        started_s = time.monotonic()
        gateway.stop()
        assert time.monotonic() - started_s < 15
        closing = client.next()
        assert (closing.name, closing.fields["code"]) == ("close", "stopping")
        assert client.retry_ms >= 1000
        with pytest.raises(StopIteration):
            client.next()


def test_a_clean_stop_closes_websockets_with_a_message(
    broker: EmbeddedBroker, gateway: EmbeddedRegistry
) -> None:
    produce(broker.bootstrap, 0, 2)
    url = gateway.url.replace("http://", "ws://")

    async def run() -> tuple[str, int]:
        async with connect(f"{url}/topics/orders/stream") as connection:
            await connection.recv()
            stopping = asyncio.create_task(asyncio.to_thread(gateway.stop))
            closing = json.loads(await connection.recv())
            with pytest.raises(ConnectionClosed) as closed:
                await connection.recv()
            await stopping
            assert closed.value.rcvd is not None
            return closing["code"], closed.value.rcvd.code

    assert asyncio.run(run()) == ("stopping", 1012)


def test_a_client_with_too_many_streams_gets_429(broker: EmbeddedBroker) -> None:
    produce(broker.bootstrap, 0, 1)
    process = HttpProcess()
    settings = {"streams_per_client_max": 2}
    process.configure(HttpOptions(broker.bootstrap, http_port=0, gateway=settings))
    url = f"{str(process.wait_ready()['http']).rstrip('/')}/topics/orders/stream?offset=earliest"
    try:
        with httpx.stream("GET", url) as first, httpx.stream("GET", url) as second:
            clients = SseClient(first), SseClient(second)  # a collected one ends its stream
            for client in clients:
                client.take(1)
            refused = httpx.get(url)
            assert refused.status_code == 429
            assert refused.json()["error"]["code"] == "too_many_streams"
            assert int(refused.headers["Retry-After"]) >= 1
    finally:
        process.stop()
