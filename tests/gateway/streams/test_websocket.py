"""WebSocket streams, with the client library `websockets`."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import jsonschema_rs
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from tests.gateway.streams.conftest import Write
from tests.support.platform_fixtures import MakeTopic


class StreamClient:
    """One connection, message by message."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def send(self, kind: str, **fields: Any) -> None:
        await self._connection.send(json.dumps({"type": kind, **fields}))

    async def next(self) -> Any:
        async with asyncio.timeout(10):
            return json.loads(await self._connection.recv())

    async def records(self, count: int) -> list[int]:
        """The numbers of the next events, from as many messages as needed."""
        numbers: list[int] = []
        while len(numbers) < count:
            message = await self.next()
            assert message["type"] == "records", message
            numbers += [event["value"]["n"] for event in message["events"]]
        return numbers

    async def next_or_none(self) -> Any:
        """The next message; None if there is none for a while."""
        try:
            async with asyncio.timeout(0.3):
                return json.loads(await self._connection.recv())
        except TimeoutError:
            return None

    async def is_silent(self) -> bool:
        return await self.next_or_none() is None


@asynccontextmanager
async def stream(url: str) -> AsyncIterator[StreamClient]:
    async with connect(url, max_queue=None) as connection:
        yield StreamClient(connection)


def test_nothing_is_sent_without_credit_and_the_scarcer_credit_stops(
    websocket_url: str, make_topic: MakeTopic, write: Write
) -> None:
    topic = make_topic()
    write(topic, 0, 20)

    async def run() -> None:
        async with stream(f"{websocket_url}/topics/{topic}/stream?offset=earliest") as client:
            opening = await client.next()
            assert opening["type"] == "opened"
            assert opening["positions"] == [{"topic": topic, "partition": 0, "offset": 0}]
            assert await client.is_silent()
            await client.send("credit", records=3, bytes=0)
            assert await client.is_silent()
            await client.send("credit", records=0, bytes=1 << 20)
            assert await client.records(3) == [0, 1, 2]
            assert await client.is_silent()
            await client.send("credit", records=2, bytes=0)
            assert await client.records(2) == [3, 4]

    asyncio.run(run())


def test_one_record_is_sent_for_one_byte_of_credit(
    websocket_url: str, make_topic: MakeTopic, write: Write
) -> None:
    topic = make_topic()
    write(topic, 0, 3)

    async def run() -> None:
        async with stream(f"{websocket_url}/topics/{topic}/stream?offset=earliest") as client:
            await client.next()
            await client.send("credit", records=10, bytes=1)
            assert await client.records(1) == [0]
            assert await client.is_silent()

    asyncio.run(run())


def test_records_are_numbered_and_an_id_resumes_after_them(
    websocket_url: str, make_topic: MakeTopic, write: Write
) -> None:
    topic = make_topic(3)
    write(topic, 0, 30)
    url = f"{websocket_url}/topics/{topic}/stream?offset=earliest"

    async def run() -> list[int]:
        async with stream(url) as client:
            await client.next()
            await client.send("credit", records=10, bytes=1 << 20)
            seen, number = [], 0
            while number < 10:
                message = await client.next()
                number += len(message["events"])
                assert message["number"] == number
                seen += [event["value"]["n"] for event in message["events"]]
        async with stream(f"{url}&last_event_id={message['id']}") as client:
            assert (await client.next())["resumed"] is True
            await client.send("credit", records=20, bytes=1 << 20)
            return seen + await client.records(20)

    assert sorted(asyncio.run(run())) == list(range(30))


def test_what_is_not_acknowledged_stops_at_the_bound(
    websocket_url: str, make_topic: MakeTopic, write: Write
) -> None:
    topic = make_topic()
    write(topic, 0, 1000, size=1000)  # 1 MB

    async def run() -> None:
        async with stream(f"{websocket_url}/topics/{topic}/stream?offset=earliest") as client:
            await client.next()
            await client.send("credit", records=1000, bytes=1 << 30)
            size = number = 0
            while (message := await client.next_or_none()) is not None:
                number = message["number"]
                size += sum(len(json.dumps(event)) for event in message["events"])
            assert number < 1000
            assert size <= 2 * (256 << 10)
            await client.send("ack", number=number)
            assert (await client.next())["number"] > number

    asyncio.run(run())


def test_a_seek_starts_an_epoch(websocket_url: str, make_topic: MakeTopic, write: Write) -> None:
    topic = make_topic()
    write(topic, 0, 10)

    async def run() -> None:
        async with stream(f"{websocket_url}/topics/{topic}/stream?offset=earliest") as client:
            opening = await client.next()
            await client.send("credit", records=4, bytes=1 << 20)
            assert await client.records(4) == [0, 1, 2, 3]
            for target in (
                {"offset": "earliest"},
                {"offset": 0},
                {"id": opening["id"]},
                {"timestamp": 0},
                {"positions": [{"topic": topic, "partition": 0, "offset": 0}]},
            ):
                await client.send("seek", **target)
                seeked = await client.next()
                assert seeked["type"] == "seeked", target
                assert seeked["positions"][0]["offset"] == 0
                await client.send("credit", records=1, bytes=0)
                message = await client.next()
                assert message["epoch"] == seeked["epoch"]
                assert message["events"][0]["offset"] == 0

    asyncio.run(run())


def test_a_paused_stream_sends_nothing_until_it_is_resumed(
    websocket_url: str, make_topic: MakeTopic, write: Write
) -> None:
    topic = make_topic()

    async def run() -> None:
        async with stream(f"{websocket_url}/topics/{topic}/stream") as client:
            await client.next()
            await client.send("pause")
            await client.send("credit", records=10, bytes=1 << 20)
            await asyncio.to_thread(write, topic, 0, 2)
            assert await client.is_silent()
            await client.send("resume")
            assert await client.records(2) == [0, 1]

    asyncio.run(run())


@pytest.mark.parametrize(
    "message",
    [
        '{"type": "credit", "records": -1, "bytes": 1}',
        '{"type": "credit"}',
        '{"type": "wish"}',
        '{"type": "ack", "number": 7}',
        '{"type": "seek"}',
        '{"type": "seek", "offset": 99}',
        '{"type": "seek", "positions": [{"topic": "other", "partition": 0, "offset": 0}]}',
        '{"type": "seek", "id": "nonsense"}',
        "[",
        "\x00",
    ],
)
def test_a_message_that_is_refused_is_reported_and_the_stream_goes_on(
    websocket_url: str, make_topic: MakeTopic, write: Write, message: str
) -> None:
    topic = make_topic()
    write(topic, 0, 1)

    async def run() -> None:
        async with connect(f"{websocket_url}/topics/{topic}/stream?offset=earliest") as connection:
            client = StreamClient(connection)
            await client.next()
            await connection.send(message)
            assert (await client.next())["type"] == "error"
            await client.send("credit", records=1, bytes=1)
            assert await client.records(1) == [0]

    asyncio.run(run())


def test_a_connection_that_is_refused_gets_an_http_error(
    websocket_url: str, topic: str, make_topic: MakeTopic
) -> None:
    async def refused(url: str, **options: Any) -> InvalidStatus:
        with pytest.raises(InvalidStatus) as refusal:
            async with connect(url, **options):
                pass
        return refusal.value

    missing = asyncio.run(refused(f"{websocket_url}/topics/{topic}/stream"))
    assert missing.response.status_code == 404
    assert json.loads(missing.response.body)["error"]["code"] == "unknown_topic_or_partition"
    url = f"{websocket_url}/topics/{make_topic()}/stream"
    foreign = asyncio.run(refused(url, origin="http://other.example"))
    assert foreign.response.status_code == 403


def test_all_messages_match_the_published_schema(
    gateway_url: str, websocket_url: str, make_topic: MakeTopic, write: Write
) -> None:
    topic = make_topic()
    write(topic, 0, 3)
    published = httpx.get(f"{gateway_url}/docs/websocket.json").json()
    schema = jsonschema_rs.validator_for(published)

    async def run() -> list[Any]:
        messages = []
        url = f"{websocket_url}/topics/{topic}/stream?offset=earliest"
        async with connect(url) as connection:
            client = StreamClient(connection)
            messages.append(await client.next())
            for sent in (
                {"type": "credit", "records": 1, "bytes": 1},
                {"type": "seek", "offset": "earliest"},
                {"type": "ack", "number": 99},
            ):
                schema.validate(sent)
                await connection.send(json.dumps(sent))
                messages.append(await client.next())
        return messages

    messages = asyncio.run(run())
    assert [each["type"] for each in messages] == ["opened", "records", "seeked", "error"]
    for message in messages:
        schema.validate(message)
    assert not schema.is_valid({"type": "credit", "records": "many"})


def test_messages_are_not_compressed(websocket_url: str, make_topic: MakeTopic) -> None:
    async def run() -> Any:
        async with connect(f"{websocket_url}/topics/{make_topic()}/stream") as connection:
            assert connection.response is not None
            return connection.response.headers.get("Sec-WebSocket-Extensions")

    assert asyncio.run(run()) is None
