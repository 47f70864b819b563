"""What tests of streams need: topics with numbered events."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import pytest
from confluent_kafka import Producer

from penstock.testing.platform import Platform

Write: TypeAlias = Callable[..., None]


@pytest.fixture(scope="session")
def gateway_url(penstock: Platform) -> str:
    return penstock.registry_url


@pytest.fixture
def websocket_url(gateway_url: str) -> str:
    return gateway_url.replace("http://", "ws://")


@pytest.fixture
def write(penstock: Platform) -> Iterator[Write]:
    with numbered_events(penstock.bootstrap) as write:
        yield write


@contextmanager
def numbered_events(bootstrap: str) -> Iterator[Write]:
    """Append events `{"n": number}` to a topic, with the keys k0 to k4 in turn."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 0})

    def write(topic: str, first: int, end: int, *, size: int = 0, partition: int = -1) -> None:
        if partition >= 0:
            producer.list_topics(topic, 10)  # it may be newer than what librdkafka knows
        for number in range(first, end):
            value = {"n": number, "fill": "x" * size} if size else {"n": number}
            key = b"k%d" % (number % 5)
            producer.produce(topic, json.dumps(value).encode(), key, partition)
            producer.poll(0)
        assert producer.flush(30) == 0

    yield write
    assert producer.flush(10) == 0
