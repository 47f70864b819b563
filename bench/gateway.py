"""Produce and fetch through the gateway, beside confluent-kafka on the same broker in one run.

Values are JSON of 200 bytes; acks=all on both sides. One record per request is a client that waits
for each answer, and eight such clients; confluent-kafka waits for each delivery report as well. CPU
is that of the HTTP process.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.figures import Figure, report
from bench.peers import cost_of, make_topic
from bench.registry import node
from penstock.testing.embedded import EmbeddedBroker

VALUE = {"n": 1, "fill": "x" * 180}
SINGLE = 2_000  # records, one per request
CLIENTS = 8
BATCHES = 60
BATCH_RECORDS = 1_000
KEYED = 300
FETCH_BYTES = 1 << 20


def measure() -> Iterator[Figure]:
    """One broker, one HTTP process."""
    with EmbeddedBroker() as broker, node(broker.bootstrap) as (url, pid):
        bootstrap = broker.bootstrap
        for name in ("single", "several", "batches", "keyed", "peer"):
            make_topic(bootstrap, name, partitions=1)
        with httpx.Client(base_url=url, timeout=60) as http:
            produce_single(http, 100)  # warm
            yield from single(bootstrap, url, http, pid)
            yield from batches(bootstrap, http, pid)
            yield from keyed(http)
            yield from fetches(bootstrap, http, pid)


def single(bootstrap: str, url: str, http: httpx.Client, pid: int) -> Iterator[Figure]:
    """One record per request."""
    with cost_of(pid) as cost:
        ours = SINGLE / timed(lambda: produce_single(http, SINGLE))
    peer = SINGLE / timed(lambda: deliver_single(bootstrap, SINGLE))
    note = f"CPU {cost.cpu_seconds / SINGLE * 1e6:.0f} us per request; the client is httpx"
    yield Figure("produce, one client, one record per request", ours, peer, "records/s", note=note)
    with cost_of(pid) as cost:
        ours = CLIENTS * SINGLE / timed(lambda: in_threads(lambda: produce_of(url, SINGLE)))
    peer = CLIENTS * SINGLE / timed(lambda: in_threads(lambda: deliver_single(bootstrap, SINGLE)))
    note = f"CPU {cost.cpu_seconds / (CLIENTS * SINGLE) * 1e6:.0f} us per request"
    name = f"produce, {CLIENTS} clients, one record per request"
    yield Figure(name, ours, peer, "records/s", note=note)


def batches(bootstrap: str, http: httpx.Client, pid: int) -> Iterator[Figure]:
    """Many records per request."""
    body = json.dumps({"records": [{"value": VALUE}] * BATCH_RECORDS}).encode()
    total = BATCHES * BATCH_RECORDS

    def produce() -> None:
        for _ in range(BATCHES):
            rows = post(http, "/topics/batches/produce", body)["records"]
            assert all("offset" in row for row in rows)

    with cost_of(pid) as cost:
        ours = total / timed(produce)
    peer = total / timed(lambda: deliver_many(bootstrap, total))
    note = f"CPU {cost.cpu_seconds / total * 1e6:.1f} us per record"
    name = f"produce, one client, {BATCH_RECORDS} records per request"
    yield Figure(name, ours, peer, "records/s", note=note)


def keyed(http: httpx.Client) -> Iterator[Figure]:
    """With idempotency keys, compared with the same requests without."""
    body = json.dumps({"value": VALUE}).encode()

    def produce(with_keys: bool) -> None:
        for number in range(KEYED):
            headers = {"Idempotency-Key": f"k{number}"} if with_keys else {}
            post(http, "/topics/keyed/produce", body, headers)

    produce(False)
    post(http, "/topics/keyed/produce", body, {"Idempotency-Key": "warm"})
    plain = KEYED / timed(lambda: produce(False))
    with_keys = KEYED / timed(lambda: produce(True))
    yield Figure(
        "produce with an Idempotency-Key, one client", with_keys, plain, "records/s",
        peer_name="the same without a key",
    )  # fmt: skip


def fetches(bootstrap: str, http: httpx.Client, pid: int) -> Iterator[Figure]:
    """All that was written in batches."""
    total = BATCHES * BATCH_RECORDS
    with cost_of(pid) as cost:
        ours = total / timed(lambda: fetch_all(http, "batches", total))
    peer = total / timed(lambda: consume(bootstrap, "batches", total))
    note = f"CPU {cost.cpu_seconds / total * 1e6:.1f} us per event"
    yield Figure("fetch by offset, 1 MiB per request", ours, peer, "events/s", note=note)
    group = "/consumer-groups/bench"
    subscribed = http.post(f"{group}/subscribe", json={"topics": ["batches"]}).raise_for_status()
    path = f"{group}/members/{subscribed.json()['member']}"
    ours = total / timed(lambda: poll_all(http, path, total))
    http.delete(path)
    yield Figure("read as a member of a group, 1 MiB per request", ours, peer, "events/s")


def timed(work: Callable[[], object]) -> float:
    """How many seconds it takes."""
    started_s = time.perf_counter()
    work()
    return time.perf_counter() - started_s


def in_threads(work: Callable[[], object]) -> None:
    threads = [threading.Thread(target=work) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def post(
    http: httpx.Client, path: str, body: bytes, headers: dict[str, str] | None = None
) -> dict[str, Any]:
    sent = {"Content-Type": "application/json", **(headers or {})}
    answer = http.post(path, content=body, headers=sent).raise_for_status()
    document: dict[str, Any] = answer.json()
    return document


def produce_of(url: str, records: int) -> None:
    with httpx.Client(base_url=url, timeout=60) as http:
        produce_single(http, records)


def produce_single(http: httpx.Client, records: int) -> None:
    body = json.dumps({"value": VALUE}).encode()
    for _ in range(records):
        (row,) = post(http, "/topics/single/produce", body)["records"]
        assert row["offset"] is not None


def deliver_single(bootstrap: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
    value = json.dumps(VALUE).encode()
    for _ in range(records):
        producer.produce("peer", value)
        assert producer.flush(30) == 0


def deliver_many(bootstrap: str, records: int) -> None:
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0}
    producer = Producer({**settings, "queue.buffering.max.messages": 2 * records})
    value = json.dumps(VALUE).encode()
    for _ in range(records):
        producer.produce("peer", value)
    assert producer.flush(60) == 0


def fetch_all(http: httpx.Client, topic: str, events: int) -> None:
    offset, left = 0, events
    while left > 0:
        options = {"offset": offset, "max_bytes": FETCH_BYTES}
        answer = http.get(f"/topics/{topic}/partitions/0/events", params=options)
        document = json.loads(answer.raise_for_status().content)
        left -= len(document["events"])
        offset = document["next_offset"]


def poll_all(http: httpx.Client, path: str, events: int) -> None:
    left = events
    while left > 0:
        options = {"max_wait_ms": 1000, "max_bytes": FETCH_BYTES}
        answer = http.get(f"{path}/events", params=options).raise_for_status()
        left -= len(json.loads(answer.content)["events"])


def consume(bootstrap: str, topic: str, events: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "peer", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    left = events
    while left > 0:
        for message in consumer.consume(1000, 1.0):
            json.loads(message.value() or b"")
            left -= 1
    consumer.close()


if __name__ == "__main__":
    report(measure(), __doc__, peer="confluent-kafka")
