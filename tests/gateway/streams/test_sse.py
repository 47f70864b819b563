"""Server-sent events over HTTP, as clients get them."""

import subprocess
import time
from urllib.parse import quote

import httpx
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from penstock.testing.platform import Platform
from tests.gateway.streams.conftest import Write
from tests.support.platform_fixtures import MakeTopic
from tests.support.sse_client import SseClient, SseEvent, sse


def numbers(events: list[SseEvent]) -> list[int]:
    return [event.fields["value"]["n"] for event in events]


def test_the_first_event_says_from_where_the_stream_goes_on(
    gateway_url: str, make_topic: MakeTopic, write: Write
) -> None:
    topic = make_topic()
    write(topic, 0, 3)
    with sse(f"{gateway_url}/topics/{topic}/stream") as stream:
        opening = stream.next()
        assert opening.name == "opened"
        position = {"topic": topic, "partition": 0, "offset": 3}
        assert opening.fields == {"resumed": False, "positions": [position]}
        assert 1000 <= stream.retry_ms < 5000
        headers = stream.response.headers
        assert headers["content-type"] == "text/event-stream"
        assert headers["cache-control"] == "no-store, no-transform"
        assert headers["x-accel-buffering"] == "no"
        write(topic, 3, 4)
        (event,) = stream.take(1)
        assert event.fields["offset"] == 3
        assert event.fields["key"] == "k3"
        assert event.fields["value"] == {"n": 3}


def test_a_stream_starts_at_an_offset_or_a_time(
    gateway_url: str, make_topic: MakeTopic, write: Write
) -> None:
    topic = make_topic()
    write(topic, 0, 5)
    time.sleep(0.01)
    middle_ms = int(time.time() * 1000)
    time.sleep(0.01)
    write(topic, 5, 8)
    base = f"{gateway_url}/topics/{topic}/stream"
    with sse(f"{base}?offset=earliest") as stream:
        assert numbers(stream.take(8)) == list(range(8))
    with sse(f"{base}?offset=6") as stream:
        assert numbers(stream.take(2)) == [6, 7]
    with sse(f"{base}?timestamp={middle_ms}") as stream:
        assert numbers(stream.take(3)) == [5, 6, 7]


def resumed(base: str, client: SseClient, count: int) -> list[int]:
    with sse(base, Last_Event_ID=client.id) as stream:
        assert stream.next().fields["resumed"] is True
        return numbers(stream.take(count))


def test_a_client_resumes_exactly_after_the_event_that_it_saw_last(
    gateway_url: str, make_topic: MakeTopic, write: Write
) -> None:
    topic = make_topic(3)
    write(topic, 0, 40)
    base = f"{gateway_url}/topics/{topic}/stream?offset=earliest"
    for seen in (0, 1, 7, 39):
        with sse(base) as stream:
            stream.next()
            first = numbers(stream.take(seen))
            rest = resumed(base, stream, 40 - seen)
        assert sorted(first + rest) == list(range(40)), seen
        with sse(f"{base}&last_event_id={quote(stream.id)}") as again:
            assert numbers(again.take(40 - seen)) == rest


def test_a_key_and_partitions_select_events(
    gateway_url: str, make_topic: MakeTopic, write: Write
) -> None:
    topic = make_topic(2)
    write(topic, 0, 10, partition=0)
    write(topic, 10, 20, partition=1)
    base = f"{gateway_url}/topics/{topic}/stream?offset=earliest"
    with sse(f"{base}&partition=1") as stream:
        assert numbers(stream.take(10)) == list(range(10, 20))
    with sse(f"{base}&key=k3") as stream:
        assert sorted(numbers(stream.take(4))) == [3, 8, 13, 18]


def test_the_id_moves_past_events_that_a_key_excludes(
    gateway_url: str, make_topic: MakeTopic, write: Write
) -> None:
    topic = make_topic()
    write(topic, 0, 4)
    base = f"{gateway_url}/topics/{topic}/stream"
    with sse(f"{base}?offset=earliest&key=k9") as stream:
        opened = stream.next()
        moved = stream.next()
        assert moved.name is None
        assert moved.id != opened.id
    write(topic, 9, 10)
    with sse(base, Last_Event_ID=moved.id) as stream:
        assert stream.take(1)[0].fields["offset"] == 4


def test_several_topics_share_one_stream_and_its_id(
    gateway_url: str, make_topic: MakeTopic, write: Write
) -> None:
    first, second = make_topic(), make_topic(2)
    write(first, 0, 5)
    write(second, 100, 105)
    base = f"{gateway_url}/topics/{second},{first}/stream?offset=earliest"
    with sse(base) as stream:
        seen = numbers(stream.take(6))
        rest = resumed(base, stream, 4)
    assert sorted(seen + rest) == [*range(5), *range(100, 105)]


def test_events_that_are_gone_are_a_gap(
    gateway_url: str, make_topic: MakeTopic, write: Write, penstock: Platform
) -> None:
    topic = make_topic()
    write(topic, 0, 10)
    base = f"{gateway_url}/topics/{topic}/stream?offset=earliest"
    with sse(base) as stream:
        stream.take(2)
    admin = AdminClient({"bootstrap.servers": penstock.bootstrap, "log_level": 0})
    for future in admin.delete_records([TopicPartition(topic, 0, 6)]).values():
        future.result(10)
    with sse(base, Last_Event_ID=stream.id) as again:
        assert again.next().name == "opened"
        gap = again.next()
        assert gap.name == "gap"
        assert (gap.fields["offset"], gap.fields["resumes_at"]) == (2, 6)
        assert numbers(again.take(4)) == [6, 7, 8, 9]


def test_partitions_that_are_added_are_read_from_their_start(
    gateway_url: str, make_topic: MakeTopic, write: Write, penstock: Platform
) -> None:
    topic = make_topic()
    write(topic, 0, 2)
    base = f"{gateway_url}/topics/{topic}/stream?offset=earliest"
    admin = AdminClient({"bootstrap.servers": penstock.bootstrap, "log_level": 0})
    with sse(base) as stream:
        assert numbers(stream.take(2)) == [0, 1]
        for future in admin.create_partitions([NewPartitions(topic, 2)]).values():
            future.result(10)
        write(topic, 2, 4, partition=1)
        assert numbers(stream.take(2)) == [2, 3]


def test_a_topic_that_is_deleted_ends_its_streams(
    gateway_url: str, make_topic: MakeTopic, write: Write, penstock: Platform
) -> None:
    topic = make_topic()
    write(topic, 0, 2)
    admin = AdminClient({"bootstrap.servers": penstock.bootstrap, "log_level": 0})
    with sse(f"{gateway_url}/topics/{topic}/stream?offset=earliest") as stream:
        stream.take(2)
        admin.delete_topics([topic])[topic].result(10)
        closing = stream.next()
        assert closing.name == "close"
        assert closing.fields["code"] == "unknown_topic_or_partition"
        with pytest.raises(StopIteration):
            stream.next()


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("offset=9", 416, "offset_out_of_range"),
        ("offset=soon", 400, "invalid_request"),
        ("offset=1&timestamp=1", 400, "invalid_request"),
        ("offset=1&offset=2", 400, "invalid_request"),
        ("partition=7", 404, "unknown_topic_or_partition"),
        ("partition=x", 400, "invalid_request"),
        ("colour=red", 400, "invalid_request"),
        ("last_event_id=nonsense", 400, "invalid_event_id"),
    ],
)
def test_an_invalid_request_is_refused_before_the_stream_begins(
    gateway_url: str, make_topic: MakeTopic, query: str, status: int, code: str
) -> None:
    refused = httpx.get(f"{gateway_url}/topics/{make_topic()}/stream?{query}")
    assert (refused.status_code, refused.json()["error"]["code"]) == (status, code)


def test_a_topic_that_does_not_exist_is_not_created(gateway_url: str, topic: str) -> None:
    for _ in range(2):
        assert httpx.get(f"{gateway_url}/topics/{topic}/stream").status_code == 404


def test_curl_reads_a_stream(gateway_url: str, make_topic: MakeTopic, write: Write) -> None:
    topic = make_topic()
    write(topic, 0, 3)
    url = f"{gateway_url}/topics/{topic}/stream?offset=earliest"
    curl = subprocess.run(
        ["curl", "--silent", "--no-buffer", "--max-time", "2", url],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert curl.stdout.count("\ndata: ") == 4
    assert '"value":{"n": 2}' in curl.stdout


def test_what_is_in_flight_is_a_metric(
    gateway_url: str, make_topic: MakeTopic, write: Write
) -> None:
    topic = make_topic()
    write(topic, 0, 3)
    with sse(f"{gateway_url}/topics/{topic}/stream?offset=earliest") as stream:
        stream.take(3)
        lines = httpx.get(f"{gateway_url}/metrics").text.splitlines()
    metrics = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert float(metrics["penstock_streams_open"]) >= 1
    assert float(metrics["penstock_streams_in_flight_bytes"]) >= 0
    assert float(metrics["penstock_streams_cached_bytes"]) > 0
