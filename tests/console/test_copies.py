"""A record as other tools read it: the texts to copy are run, and find the record."""

import json
import shlex
import shutil
import subprocess
import sys
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer

from penstock.testing.platform import Platform
from tests.console.conftest import Write

KEY = 'it\'s a "key" $HOME `id`'
VALUE = '{"n": 7}'


@pytest.fixture
def copies(http: httpx.Client, penstock: Platform, write: Write) -> dict[str, str]:
    topic = penstock.make_topic("copied")
    write(topic, [("before", "0"), (KEY, VALUE), ("after", "2")], headers={"source": b"\xff\x00"})
    page: dict[str, Any] = http.get(f"/topics/{topic}/partitions/0/records/1").json()
    found: dict[str, str] = page["copy"]
    return found


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed: make tools")
def test_the_command_of_curl_prints_the_record(copies: dict[str, str]) -> None:
    done = subprocess.run(shlex.split(copies["curl"]), capture_output=True, timeout=60, check=True)
    (event,) = json.loads(done.stdout)["events"]
    assert (event["key"], event["value"], int(event["offset"])) == (KEY, {"n": 7}, 1)


def test_the_command_of_penstock_prints_the_record(copies: dict[str, str]) -> None:
    program, *arguments = shlex.split(copies["cli"])
    assert program == "penstock"
    command = [sys.executable, "-m", "penstock.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True, text=True)
    assert done.stdout.strip() == VALUE


def test_the_test_writes_the_same_bytes(copies: dict[str, str], penstock: Platform) -> None:
    names: dict[str, Any] = {}
    exec(copies["pytest"], names)
    made: list[str] = []

    class Recorded:
        bootstrap = penstock.bootstrap

        def make_topic(self, stem: str) -> str:
            made.append(penstock.make_topic(stem))
            return made[0]

    names["test_reads_the_record"](Recorded())
    settings = {"bootstrap.servers": penstock.bootstrap, "group.id": penstock.name("copied")}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe(made)
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    assert (message.key(), message.value()) == (KEY.encode(), VALUE.encode())
    assert message.headers() == [("source", b"\xff\x00")]
