"""Streams of consumer groups: members like any other, at least once."""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from websockets.asyncio.client import ClientConnection, connect

from penstock.testing.platform import Platform
from tests.gateway.streams.conftest import Write
from tests.support.platform_fixtures import MakeTopic
from tests.support.sse_client import SseClient, sse


@pytest.fixture
def group(penstock: Platform) -> str:
    return penstock.name("group")


@pytest.fixture
def committed(penstock: Platform) -> Callable[[str, str, int], int]:
    """The committed offset of a group, as Kafka's own client sees it."""
    admin = AdminClient({"bootstrap.servers": penstock.bootstrap, "log_level": 0})

    def read(group: str, topic: str, partition: int) -> int:
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition)])
        (future,) = admin.list_consumer_group_offsets([asked]).values()
        (row,) = future.result(10).topic_partitions
        return int(row.offset)

    return read


def assigned(client: SseClient) -> Any:
    """The next assignment."""
    while (event := client.next()).name != "assigned":
        assert event.name in ("revoked", "message")
    return event.fields


def test_a_stream_of_a_group_commits_what_it_sent(
    gateway_url: str, group: str, make_topic: MakeTopic, write: Write,
    committed: Callable[[str, str, int], int],
) -> None:  # fmt: skip
    topic = make_topic()
    write(topic, 0, 10)
    url = f"{gateway_url}/consumer-groups/{group}/stream?topics={topic}&commit=sent"
    with sse(url) as stream:
        assignment = assigned(stream)
        assert assignment["member"]
        assert assignment["positions"] == [{"topic": topic, "partition": 0, "offset": 0}]
        assert [event.fields["offset"] for event in stream.take(10)] == list(range(10))
        write(topic, 10, 12)
        assert [event.fields["offset"] for event in stream.take(2)] == [10, 11]
    with sse(url) as stream:
        assert assigned(stream)["positions"][0]["offset"] == 12
    assert committed(group, topic, 0) == 12


def test_a_client_of_server_sent_events_commits_as_the_member_of_its_stream(
    gateway_url: str, group: str, make_topic: MakeTopic, write: Write,
    committed: Callable[[str, str, int], int],
) -> None:  # fmt: skip
    topic = make_topic()
    write(topic, 0, 5)
    url = f"{gateway_url}/consumer-groups/{group}/stream?topics={topic}"
    with sse(url) as stream:
        member = assigned(stream)["member"]
        stream.take(5)
        offsets = [{"topic": topic, "partition": 0, "offset": 3}]
        body = {"offsets": offsets, "member": member}
        answer = httpx.put(f"{gateway_url}/consumer-groups/{group}/offsets", json=body)
        assert answer.status_code == 200, answer.text
    assert committed(group, topic, 0) == 3
    with sse(url) as stream:
        assert [event.fields["offset"] for event in stream.take(2)] == [3, 4]


def test_a_stream_shares_a_group_with_a_kafka_client(
    gateway_url: str, group: str, make_topic: MakeTopic, penstock: Platform
) -> None:
    topic = make_topic(4)
    consumer = Consumer(
        {
            "bootstrap.servers": penstock.bootstrap, "group.id": group, "log_level": 0,
            "heartbeat.interval.ms": 300,
        }
    )  # fmt: skip
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    url = f"{gateway_url}/consumer-groups/{group}/stream?topics={topic}&commit=sent"
    with sse(url) as stream:

        def rebalance() -> None:
            while len(consumer.assignment()) != 2:
                consumer.poll(0.1)

        polling = threading.Thread(target=rebalance)
        polling.start()
        positions = assigned(stream)["positions"]
        polling.join(30)
        theirs = {row.partition for row in consumer.assignment()}
        assert len(positions) == 2
        assert {row["partition"] for row in positions} | theirs == {0, 1, 2, 3}
    consumer.close()


def test_unreadable_events_of_a_groups_stream_are_quarantined_before_they_are_committed(
    gateway_url: str, group: str, make_topic: MakeTopic, write: Write,
    committed: Callable[[str, str, int], int],
) -> None:  # fmt: skip
    topic = make_topic()
    write(topic, 0, 1)
    unreadable = {"value_base64": "AAD///8C"}  # names a schema that does not exist
    httpx.post(f"{gateway_url}/topics/{topic}/produce", json=unreadable)
    write(topic, 1, 2)
    url = f"{gateway_url}/consumer-groups/{group}/stream?topics={topic}&commit=sent"
    with sse(url) as stream:
        assert [event.fields["offset"] for event in stream.take(2)] == [0, 2]
        deadline = time.monotonic() + 20
        while committed(group, topic, 0) != 3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    quarantine = f"{gateway_url}/topics/{topic}.quarantine/partitions/0/events"
    (event,) = httpx.get(quarantine).json()["events"]
    assert dict(event["headers"])["penstock.quarantine.offset"] == "1"
    other = f"{gateway_url}/consumer-groups/{group}-2/stream?topics={topic}&on_decode_error=return"
    with sse(other) as stream:
        assert [event.fields.get("error", {}).get("code") for event in stream.take(3)] == [
            None, "unknown_schema", None
        ]  # fmt: skip


def version_of(gateway_url: str, group: str, offset: int) -> int:
    """The version of a group's only offset, when it is this one."""
    deadline = time.monotonic() + 20
    while True:
        rows = httpx.get(f"{gateway_url}/consumer-groups/{group}/offsets").json()["offsets"]
        if rows and rows[0]["offset"] == offset:
            return int(rows[0]["version"])
        assert time.monotonic() < deadline, rows
        time.sleep(0.05)


def test_commits_of_a_stream_count_versions_and_never_go_back(
    gateway_url: str, group: str, make_topic: MakeTopic, write: Write
) -> None:
    topic = make_topic()
    offsets = f"{gateway_url}/consumer-groups/{group}/offsets"

    def put(offset: int, **more: object) -> httpx.Response:
        rows = [{"topic": topic, "partition": 0, "offset": offset}]
        return httpx.put(offsets, json={"offsets": rows, **more})

    assert put(0).json()["offsets"][0]["version"] == 1
    write(topic, 0, 3)
    url = f"{gateway_url}/consumer-groups/{group}/stream?topics={topic}&commit=sent"
    with sse(url) as stream:
        member = assigned(stream)["member"]
        stream.take(3)
        sent = version_of(gateway_url, group, 3)
        assert sent > 1
        assert put(8, member=member).json()["offsets"][0]["version"] == sent + 1
        write(topic, 3, 5)
        stream.take(2)
        time.sleep(0.6)  # the stream has committed several times
    assert version_of(gateway_url, group, 8) == sent + 1


async def next_of(connection: ClientConnection, kind: str) -> Any:
    async with asyncio.timeout(20):
        while (message := json.loads(await connection.recv()))["type"] != kind:
            pass
        return message


def test_acknowledged_records_are_committed_and_the_others_come_again(
    gateway_url: str, websocket_url: str, group: str, make_topic: MakeTopic, write: Write
) -> None:
    topic = make_topic()
    write(topic, 0, 5)
    url = f"{websocket_url}/consumer-groups/{group}/stream?topics={topic}"

    async def read(count: int, acknowledged: int) -> list[int]:
        async with connect(url) as connection:
            await next_of(connection, "assigned")
            offsets = []
            for _ in range(count):
                credit = {"type": "credit", "records": 1, "bytes": 1 << 20}
                await connection.send(json.dumps(credit))
                message = await next_of(connection, "records")
                offsets += [event["offset"] for event in message["events"]]
            await connection.send(json.dumps({"type": "ack", "number": acknowledged}))
            await connection.send(json.dumps({"type": "seek", "offset": "earliest"}))
            assert "cannot seek" in (await next_of(connection, "error"))["message"]
            return offsets

    assert asyncio.run(read(3, 2)) == [0, 1, 2]
    first = version_of(gateway_url, group, 2)
    assert first > 0
    assert asyncio.run(read(3, 3)) == [2, 3, 4]
    assert version_of(gateway_url, group, 5) > first


@pytest.mark.parametrize(
    "query",
    ["", "topics=", "commit=sent", "topics=x&commit=soon", "topics=x&commit=sent&colour=red"],
)
def test_an_invalid_request_for_a_group_is_refused(
    gateway_url: str, group: str, query: str
) -> None:
    refused = httpx.get(f"{gateway_url}/consumer-groups/{group}/stream?{query}")
    assert refused.status_code == 400


def test_a_topic_that_does_not_exist_is_refused(gateway_url: str, group: str, topic: str) -> None:
    url = f"{gateway_url}/consumer-groups/{group}/stream?topics={topic}&commit=sent"
    assert httpx.get(url).status_code == 404
