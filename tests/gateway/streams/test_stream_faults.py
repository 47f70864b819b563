"""Streams while processes are killed: a client that resumes gets every event, and each once."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

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


class WebSocketReader(threading.Thread):
    """Reads with credit and acknowledgements, and connects again whenever a stream ends."""

    def __init__(self, url: str, *, resumes: bool) -> None:
        super().__init__(daemon=True)
        self._url = url.replace("http://", "ws://")
        self._resumes = resumes  # with an id; the offsets of a group are committed
        self._id = ""
        self.numbers: list[int] = []
        self.connections = 0

    @property
    def is_done(self) -> bool:
        return len(set(self.numbers)) >= EVENTS

    def run(self) -> None:
        asyncio.run(self._read_all())

    async def _read_all(self) -> None:
        while not self.is_done:
            with suppress(OSError, TimeoutError, WebSocketException):
                url = f"{self._url}&last_event_id={self._id}" if self._id else self._url
                async with connect(url) as connection:
                    self.connections += 1
                    await self._read(connection)
            await asyncio.sleep(0.1)

    async def _read(self, connection: ClientConnection) -> None:
        await connection.send(json.dumps({"type": "credit", "records": 100, "bytes": 1 << 20}))
        while not self.is_done:
            async with asyncio.timeout(30):
                message = json.loads(await connection.recv())
            if message["type"] == "records":
                numbers = [event["value"]["n"] for event in message["events"]]
                self.numbers += numbers
                credit = {"type": "credit", "records": len(numbers), "bytes": 1 << 16}
                await connection.send(json.dumps(credit))
                await connection.send(json.dumps({"type": "ack", "number": message["number"]}))
            if self._resumes:
                self._id = message.get("id", self._id)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(scope="module")
def started(broker: EmbeddedBroker) -> Iterator[EmbeddedRegistry]:
    with EmbeddedRegistry(broker.bootstrap) as gateway:
        yield gateway


@pytest.fixture
def gateway(started: EmbeddedRegistry) -> EmbeddedRegistry:
    """It runs, whatever the test before did to it."""
    return started if started.is_running else started.start()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"orders-{abs(hash(request.node.name))}"


def produce(bootstrap: str, topic: str, first: int, end: int) -> None:
    settings = {"bootstrap.servers": bootstrap, "log_level": 0, "enable.idempotence": True}
    producer = Producer(settings)
    for number in range(first, end):
        producer.produce(topic, json.dumps({"n": number}).encode(), b"k%d" % (number % 7))
        producer.poll(0)
        time.sleep(0.0005)
    assert producer.flush(60) == 0


def start_writer(bootstrap: str, topic: str) -> threading.Thread:
    writer = threading.Thread(target=produce, args=(bootstrap, topic, 1, EVENTS), daemon=True)
    writer.start()
    return writer


@pytest.mark.slow
def test_a_stream_goes_on_when_the_broker_comes_back(
    broker: EmbeddedBroker, gateway: EmbeddedRegistry, topic: str
) -> None:
    produce(broker.bootstrap, topic, 0, 1)
    reader = ResumingReader(f"{gateway.url}/topics/{topic}/stream?offset=earliest")
    reader.start()
    writer = start_writer(broker.bootstrap, topic)
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
    broker: EmbeddedBroker, gateway: EmbeddedRegistry, topic: str
) -> None:
    produce(broker.bootstrap, topic, 0, 1)
    readers = [
        ResumingReader(f"{gateway.url}/topics/{topic}/stream?offset=earliest") for _ in range(3)
    ]
    for reader in readers:
        reader.start()
    writer = start_writer(broker.bootstrap, topic)
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
@pytest.mark.timeout(240)
@pytest.mark.parametrize("victim", ["gateway", "broker"])
def test_a_websocket_client_that_resumes_gets_every_event_once_across_kills(
    broker: EmbeddedBroker, gateway: EmbeddedRegistry, topic: str, victim: str
) -> None:
    produce(broker.bootstrap, topic, 0, 1)
    url = f"{gateway.url}/topics/{topic}/stream?offset=earliest"
    reader = WebSocketReader(url, resumes=True)
    run_with_kills(broker, gateway, topic, reader, victim)
    assert reader.numbers == list(range(EVENTS))
    assert (reader.connections > 1) == (victim == "gateway")


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("victim", ["gateway", "broker"])
def test_a_member_of_a_group_gets_every_event_at_least_once_across_kills(
    broker: EmbeddedBroker, gateway: EmbeddedRegistry, topic: str, victim: str
) -> None:
    produce(broker.bootstrap, topic, 0, 1)
    group = f"{gateway.url}/consumer-groups/{topic}-members"
    url = f"{group}/stream?topics={topic}&session_timeout_ms=6000"
    reader = WebSocketReader(url, resumes=False)
    run_with_kills(broker, gateway, topic, reader, victim)
    assert set(reader.numbers) == set(range(EVENTS))
    (row,) = httpx.get(f"{group}/offsets").json()["offsets"]
    assert 0 < row["offset"] <= EVENTS
    assert row["version"] > 0


def run_with_kills(
    broker: EmbeddedBroker,
    gateway: EmbeddedRegistry,
    topic: str,
    reader: WebSocketReader,
    victim: str,
) -> None:
    """Until the reader has everything, with kills while it reads."""
    reader.start()
    writer = start_writer(broker.bootstrap, topic)
    for _ in range(2):
        time.sleep(0.5)
        if victim == "gateway":
            gateway.kill()
            gateway.start()
        else:
            broker.kill()
            time.sleep(0.3)
            broker.restart()
    writer.join(60)
    reader.join(120)
    assert reader.is_done, f"{len(set(reader.numbers))} of {EVENTS} events"


@pytest.mark.slow
def test_a_client_that_resumes_while_the_broker_is_away_waits_in_the_stream(
    broker: EmbeddedBroker, gateway: EmbeddedRegistry, topic: str
) -> None:
    produce(broker.bootstrap, topic, 0, 3)
    url = f"{gateway.url}/topics/{topic}/stream?offset=earliest"
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


def test_a_clean_stop_closes_streams_with_a_message_and_members_leave(
    broker: EmbeddedBroker, gateway: EmbeddedRegistry, topic: str
) -> None:
    produce(broker.bootstrap, topic, 0, 2)
    groups = f"{gateway.url}/consumer-groups"
    subscribed = httpx.post(f"{groups}/polled/subscribe", json={"topics": [topic]}, timeout=30)
    assert subscribed.status_code == 201
    with (
        httpx.stream("GET", f"{gateway.url}/topics/{topic}/stream?offset=earliest") as response,
        httpx.stream("GET", f"{groups}/streamed/stream?topics={topic}&commit=sent") as pushed,
    ):
        client, member = SseClient(response), SseClient(pushed)
        client.take(2)
        member.take(2)
        assert members_of(broker, "polled", "streamed") == [1, 1]
        assert asyncio.run(close_reason(gateway, topic)) == ("stopping", 1012)
        closing = client.next()
        assert (closing.name, closing.fields["code"]) == ("close", "stopping")
        assert client.retry_ms >= 1000
        with pytest.raises(StopIteration):
            client.next()
        assert member.next().name == "close"
    assert members_of(broker, "polled", "streamed") == [0, 0]  # long before their sessions end
    assert committed_of(broker, "streamed", topic) == 2


async def close_reason(gateway: EmbeddedRegistry, topic: str) -> tuple[str, int]:
    """Stop the gateway; how it closes a WebSocket stream."""
    url = gateway.url.replace("http://", "ws://")
    async with connect(f"{url}/topics/{topic}/stream") as connection:
        await connection.recv()
        stopping = asyncio.create_task(asyncio.to_thread(gateway.stop))
        closing = json.loads(await connection.recv())
        with pytest.raises(ConnectionClosed) as closed:
            await connection.recv()
        await stopping
        assert closed.value.rcvd is not None
        return closing["code"], closed.value.rcvd.code


def members_of(broker: EmbeddedBroker, *groups: str) -> list[int]:
    """How many members each group has, as the broker knows them."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    described = admin.describe_consumer_groups(list(groups))
    return [len(described[group].result(10).members) for group in groups]


def committed_of(broker: EmbeddedBroker, group: str, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    (future,) = admin.list_consumer_group_offsets([asked]).values()
    (row,) = future.result(10).topic_partitions
    return int(row.offset)
