"""`penstock up --brokers 3`: a cluster on this machine."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from penstock.cli.main import build
from penstock.node.broker_process import BrokerOptions
from penstock.node.local_cluster import check_folder, local_cluster
from penstock.node.supervisor import CannotStartError
from penstock.testing.embedded import EmbeddedBroker

PENSTOCK = [sys.executable, "-m", "penstock.cli.main"]
UP = [*PENSTOCK, "up", "--brokers", "3", "--racks", "a,b,c", "--kafka-port", "0", "--no-http"]
WAIT_S = 60.0


def acknowledged(bootstrap: str) -> bool:
    """Whether a message reaches the replicas that are required."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    producer.produce("orders", b"v", on_delivery=lambda error, _: errors.append(error))
    return producer.flush(WAIT_S) == 0 and errors == [None]


@pytest.mark.timeout(180)
def test_a_broker_that_is_killed_is_started_again_while_the_others_serve(tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            [*UP, "--dir", str(tmp_path / "data"), "--json"], stdout=subprocess.PIPE, stderr=stderr
        )
    assert process.stdout is not None
    report: dict[str, Any] = json.loads(process.stdout.readline())
    brokers = report["brokers"]
    assert [(each["id"], each["rack"]) for each in brokers] == [(1, "a"), (2, "b"), (3, "c")]
    assert report["kafka"] == ",".join(each["kafka"] for each in brokers)
    assert report["dir"] == str(tmp_path / "data")
    assert acknowledged(report["kafka"])
    os.kill(brokers[1]["pid"], signal.SIGKILL)
    assert acknowledged(report["kafka"])
    give_up_at = time.monotonic() + WAIT_S
    while "broker 2 serves again" not in errors.read_text() and time.monotonic() < give_up_at:
        time.sleep(0.1)
    assert "broker 2 ended with status -9; starting it again in 0.5 s" in errors.read_text()
    assert "broker 2 serves again" in errors.read_text()
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT_S) == 0
    process.stdout.close()
    clean = tmp_path.glob("data/broker-*/.kafka_cleanshutdown")
    assert sorted(path.parent.name for path in clean) == ["broker-1", "broker-2", "broker-3"]


@pytest.mark.timeout(180)
def test_the_brokers_of_an_ephemeral_cluster_leave_nothing_behind() -> None:
    process = subprocess.Popen([*UP, "--ephemeral", "--json"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    report = json.loads(process.stdout.readline())
    assert Path(report["dir"], "broker-3").is_dir()
    process.terminate()
    assert process.wait(WAIT_S) == 0
    process.stdout.close()
    assert not Path(report["dir"]).exists()


def test_the_brokers_of_a_cluster_have_consecutive_ports_and_folders(tmp_path: Path) -> None:
    shared = BrokerOptions(kafka_port=19000, quick=True)
    brokers = local_cluster(shared, tmp_path, 3, ["a", "b"])
    voters = "1@127.0.0.1:19000,2@127.0.0.1:19001,3@127.0.0.1:19002"
    assert [each.kafka_port for each in brokers] == [19000, 19001, 19002]
    assert [each.folder for each in brokers] == [str(tmp_path / f"broker-{n}") for n in (1, 2, 3)]
    assert [(each.node_id, each.rack) for each in brokers] == [(1, "a"), (2, "b"), (3, "a")]
    assert {each.voters for each in brokers} == {voters}
    free = local_cluster(BrokerOptions(kafka_port=0), tmp_path, 3)
    assert len({each.kafka_port for each in free}) == 3


def test_a_folder_keeps_its_number_of_brokers(tmp_path: Path) -> None:
    single, cluster = tmp_path / "single", tmp_path / "cluster"
    with EmbeddedBroker(single):
        pass
    check_folder(single, 1)
    with pytest.raises(CannotStartError, match="has the data of a single broker"):
        check_folder(single, 3)
    for number in (1, 2, 3):
        (cluster / f"broker-{number}").mkdir(parents=True)
    check_folder(cluster, 3)
    for count in (1, 5):
        with pytest.raises(CannotStartError, match="has the data of 3 brokers"):
            check_folder(cluster, count)


@pytest.mark.parametrize(
    "words",
    [
        ["--brokers", "3", "--log", "kafka:127.0.0.1:1"],
        ["--brokers", "3", "--advertise", "broker.example:9092"],
        ["--brokers", "0"],
        ["--racks", "a,b"],
        ["--brokers", "3", "--racks", ","],
    ],
)
def test_invalid_options_of_a_cluster_are_refused(words: list[str]) -> None:
    assert CliRunner().invoke(build(["up"]), words).exit_code == 2
