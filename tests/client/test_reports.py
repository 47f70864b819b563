"""What the client logs and raises when nothing can be read: reasons, rate limited."""

import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from penstock.client import (
    ArgumentError,
    ClientError,
    Consumer,
    Contract,
    FlowLimits,
    OnDecodeError,
    Producer,
    Registry,
    WaitTimeoutError,
)
from penstock.client.kafka_errors import KafkaReports
from penstock.client.rate_limited_log import KEYS_MAX, RateLimitedLog

MakeTopic = Callable[..., str]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


@pytest.fixture
def closed_address() -> str:
    """An address of this machine that refuses connections."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{unused.getsockname()[1]}"


def test_an_unreachable_broker_is_reported_once_with_the_reason(
    closed_address: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with Consumer(closed_address, "orders", "g") as consumer:
        assert consumer.take(1, wait_s=3) == []
    (line,) = warnings(caplog)
    assert f"cannot connect to {closed_address}" in line
    assert "Connection refused" in line
    assert len(caplog.records) <= 3, "librdkafka repeats itself about 19 times a second"


def test_a_topic_that_does_not_exist_is_reported(
    bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Consumer(bootstrap, topic, "g") as consumer:
        assert consumer.take(1, wait_s=2) == []
    (line,) = warnings(caplog)
    assert f"topic {topic!r} does not exist at {bootstrap}" in line


def test_a_server_that_never_responds_is_reported(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.client.poll_thread.ASSIGNMENT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with Consumer(address, "orders", "g") as consumer:
            assert consumer.take(1, wait_s=2) == []
    (line,) = warnings(caplog)
    assert f"cannot read from {address} yet" in line


def test_a_consumer_that_reads_logs_no_warning(
    bootstrap: str, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic()
    with Producer(bootstrap, topic) as producer:
        producer.send(b"x").result(30)
    with Consumer(bootstrap, topic, topic) as consumer:
        assert [event.value for event in consumer.take(1, wait_s=30)] == [b"x"]
    assert warnings(caplog) == []


@pytest.mark.parametrize("policy", [OnDecodeError.QUARANTINE, OnDecodeError.SKIP])
def test_unreadable_events_are_logged_once_per_reason(
    bootstrap: str,
    registry: Registry,
    make_topic: MakeTopic,
    caplog: pytest.LogCaptureFixture,
    policy: OnDecodeError,
) -> None:
    topic = make_topic()
    with Producer(bootstrap, topic) as producer:
        producer.send_many([b"unreadable"] * 50 + [b"\0\0", b"\0\1", b"\0\2"]).wait(30)
    reader = Consumer(bootstrap, topic, topic, registry=registry, on_decode_error=policy)
    with reader as consumer:
        while consumer.flow_stats.taken < 53:
            assert consumer.take(wait_s=0.2) == []
    lines = [one for one in warnings(caplog) if topic in one]
    assert len(lines) == 2, lines
    assert f"{topic}-0 at offset 0: cannot read the value" in lines[0]
    assert "not_framed" in lines[0]
    assert "truncated_frame" in lines[1]
    is_quarantined = policy is OnDecodeError.QUARANTINE
    assert (f"sent to {topic}.quarantine" in lines[0]) is is_quarantined


def test_waiting_for_the_registry_is_reported(
    bootstrap: str, make_topic: MakeTopic, closed_address: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic()
    with Producer(bootstrap, topic) as producer:
        producer.send(b"\0\0\0\0\1x").result(30)
    with (
        Registry(f"http://{closed_address}", attempts=1) as registry,
        Consumer(bootstrap, topic, topic, registry=registry, registry_wait_s=1) as consumer,
        pytest.raises(ClientError, match="cannot reach the schema registry"),
    ):
        consumer.take(1, wait_s=30)
    (line,) = warnings(caplog)
    assert line.startswith("waiting for schemas: cannot reach the schema registry at")


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_repeated_line_comes_once_per_interval_with_the_number_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    lines = RateLimitedLog(logging.getLogger("test"), interval_s=60, clock=clock)
    for _ in range(5):
        lines.log("a", logging.WARNING, "%s", "first")
    lines.log("b", logging.WARNING, "second")
    clock.now_s = 60.0
    lines.log("a", logging.WARNING, "%s", "first")
    assert warnings(caplog) == ["first", "second", "first (4 more like this were not logged)"]


def test_a_rate_limited_log_keeps_a_bounded_number_of_keys(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines = RateLimitedLog(logging.getLogger("test"), clock=Clock())
    for key in range(KEYS_MAX + 1):
        lines.log(key, logging.DEBUG, "line")
    lines.log(0, logging.WARNING, "dropped, so logged again")
    assert warnings(caplog) == ["dropped, so logged again"]


def test_a_failed_login_is_a_warning_with_advice(caplog: pytest.LogCaptureFixture) -> None:
    reports = KafkaReports("127.0.0.1:9092")
    reports.on_error(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    (line,) = warnings(caplog)
    assert "this user has no access to the group" in line


def refusing_calls(bootstrap: str, folder: Path) -> dict[str, Callable[[], Any]]:
    def contract_of(schema: Any) -> None:
        with (
            Registry("http://127.0.0.1:1", attempts=1) as registry,
            Producer(bootstrap, "t", registry=registry, value=Contract(schema)) as producer,
        ):
            producer.send({})

    def send(**arguments: Any) -> None:
        with Producer(bootstrap, "t") as producer:
            producer.send(b"x", **arguments)

    def send_many(**arguments: Any) -> None:
        with Producer(bootstrap, "t") as producer:
            producer.send_many(**arguments)

    nothing: Any = None
    number: Any = 5

    return {
        "unknown producer setting": lambda: Producer(bootstrap, "t", settings={"acks.typo": 1}),
        "invalid producer setting": lambda: Producer(bootstrap, "t", settings={"acks": "many"}),
        "unknown consumer setting": lambda: Consumer(bootstrap, "t", "g", settings={"typo": 1}),
        "unknown start": lambda: Consumer(bootstrap, "t", "g", start="begin"),
        "no group": lambda: Consumer(bootstrap, "t", ""),
        "group is None": lambda: Consumer(bootstrap, "t", nothing),
        "no topics": lambda: Consumer(bootstrap, [], "g"),
        "topic is a number": lambda: Consumer(bootstrap, number, "g"),
        "dict headers": lambda: send(headers={"a": b"1"}),
        "header is a number": lambda: send(headers=[("a", 1)]),
        "partition is text": lambda: send(partition="first"),
        "timestamp is text": lambda: send(timestamp="now"),
        "many is a number": lambda: send_many(values=5),
        "keys are a number": lambda: send_many(values=[b"x"], keys=5),
        "registry without a scheme": lambda: Registry("localhost:8081"),
        "schema file is missing": lambda: contract_of(folder / "missing.avsc"),
        "schema is a file's name": lambda: contract_of("order.avsc"),
        "schema of unknown language": lambda: contract_of(folder / "order.txt"),
        "schema is an object": lambda: contract_of(number),
        "flow limits crossed": lambda: FlowLimits(high_records=1, low_records=5),
    }


@pytest.mark.parametrize("call", sorted(refusing_calls("", Path())))
def test_an_invalid_argument_is_a_client_error(bootstrap: str, tmp_path: Path, call: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        refusing_calls(bootstrap, tmp_path)[call]()
    assert isinstance(refused.value, ClientError)
    assert not refused.value.retriable


def test_a_timeout_of_deliveries_is_a_client_error(closed_address: str) -> None:
    settings = {"message.timeout.ms": 500}
    with Producer(closed_address, "t", partitioner=None, settings=settings) as producer:
        deliveries = producer.send_many([b"x"])
        with pytest.raises(WaitTimeoutError, match="0 of 1") as failed:
            deliveries.wait(0)
    assert isinstance(failed.value, TimeoutError)
    assert failed.value.retriable
