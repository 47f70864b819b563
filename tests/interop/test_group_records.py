"""Apache Kafka's own tool reads what our coordinator writes into `__consumer_offsets`."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.testing.embedded import EmbeddedBroker

pytestmark = pytest.mark.interop


def live(bootstrap: str, group: str, **settings: Any) -> None:
    """Join, read, commit, leave."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
    )
    consumer.subscribe(["t"])
    while consumer.poll(0.2) is None:
        continue
    consumer.commit(asynchronous=False)
    consumer.close()


def dumped(libs: Path, segment: Path) -> Iterator[tuple[dict[str, Any], Any]]:
    """Keys and values as DumpLogSegments decodes them; a deleted value is None."""
    said = subprocess.run(
        [
            *("java", "-cp", f"{libs}/*", "org.apache.kafka.tools.DumpLogSegments"),
            *("--offsets-decoder", "--files", str(segment)),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    for key, value in re.findall(r" key: (\{.*?\}) payload: (.*)$", said.stdout, re.MULTILINE):
        yield json.loads(key), None if value == "<DELETE>" else json.loads(value)


def test_the_dump_tool_decodes_groups_and_offsets(kafka_libs: Path, tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, settings={"offsets.topic.num.partitions": "1"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(10)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("t", b"v")
        assert producer.flush(10) == 0
        live(broker.bootstrap, "classic")
        live(broker.bootstrap, "modern", **{"group.protocol": "consumer"})
    segment = tmp_path / "__consumer_offsets-0" / "00000000000000000000.log"
    rows = list(dumped(kafka_libs, segment))
    assert {key["type"] for key, _ in rows} == {"1", "2", "3", "5", "6", "7", "8"}
    offsets = [value["data"] for key, value in rows if key["type"] == "1" and value]
    assert [value["offset"] for value in offsets] == [1, 1]
    assert all(value["topicId"] != "AAAAAAAAAAAAAAAAAAAAAA" for value in offsets)
    groups = [value["data"] for key, value in rows if key["type"] == "2" and value]
    assert [len(group["members"]) for group in groups] == [1, 0]
    currents = [value["data"] for key, value in rows if key["type"] == "8" and value]
    assert currents[0]["assignedPartitions"][0]["partitions"] == [0]
