"""The WebSocket client of the examples prints every event."""

import json
import subprocess
import sys
from pathlib import Path

from confluent_kafka import Producer

from penstock.testing.platform import Platform

CLIENT = Path(__file__).parents[2] / "examples" / "websocket_client.py"
EVENTS = 250  # more than the client grants credit for


def test_the_websocket_client_prints_every_event(penstock: Platform) -> None:
    topic = penstock.make_topic(partitions=2)
    producer = Producer({"bootstrap.servers": penstock.bootstrap, "log_level": 0})
    for number in range(EVENTS):
        producer.produce(topic, json.dumps({"n": number}).encode(), b"%d" % number)
    assert producer.flush(30) == 0
    url = penstock.registry_url.replace("http://", "ws://")
    client = subprocess.Popen(
        [sys.executable, str(CLIENT), f"{url}/topics/{topic}/stream?offset=earliest"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert client.stdout is not None
        lines = [client.stdout.readline() for _ in range(EVENTS)]
    finally:
        client.kill()
        client.communicate()
    numbers = [json.loads(line)["value"]["n"] for line in lines]
    assert sorted(numbers) == list(range(EVENTS))


def test_the_clients_have_forty_lines() -> None:
    for name in ("websocket_client.py", "browser_client.html", "browser_websocket.html"):
        lines = (CLIENT.parent / name).read_text().splitlines()
        code = [line for line in lines if line.strip() and not line.strip().startswith("#")]
        assert len(code) <= 40, name
