"""Brokers as processes: started, refused, stopped, killed."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own exports, undeclared
    AdminClient,
    ConfigResource,
)

from penstock.broker.registration_file import save_registration
from penstock.node.broker_process import BrokerOptions, command_line
from penstock.node.supervisor import BrokerProcess, CannotStartError
from penstock.testing.embedded import EmbeddedBroker

IDLE_WAITS_PER_S = 12
UP = [sys.executable, "-m", "penstock.cli.main", "up", "--kafka-port", "0", "--json", "--no-http"]


def start_up(*options: str) -> tuple[subprocess.Popen[bytes], dict[str, Any]]:
    process = subprocess.Popen([*UP, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


def end(process: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> int:
    process.send_signal(number)
    status = process.wait(20)
    for pipe in (process.stdout, process.stderr):
        assert pipe is not None
        pipe.close()
    return status


def produced(bootstrap: str, value: bytes = b"v") -> bool:
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    producer.produce("t", value, on_delivery=lambda error, _: errors.append(error))
    return producer.flush(10) == 0 and errors == [None]


def end_offset(bootstrap: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    _, end = consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=10)
    consumer.close()
    return int(end)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_up_reports_its_address_serves_and_stops_cleanly(tmp_path: Path, number: int) -> None:
    process, report = start_up("--dir", str(tmp_path))
    assert set(report) == {"kafka", "http", "metrics", "pid", "dir", "brokers"}
    assert [(each["id"], each["kafka"]) for each in report["brokers"]] == [(1, report["kafka"])]
    assert (report["http"], report["pid"], report["dir"]) == (None, process.pid, str(tmp_path))
    assert produced(report["kafka"])
    assert end(process, number) == 0
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def children_of(process: subprocess.Popen[bytes]) -> list[int]:
    pids = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(pid) for pid in pids.split()]


def test_ctrl_c_during_a_start_stops_cleanly(tmp_path: Path) -> None:
    command = [word for word in UP if word != "--no-http"]
    process = subprocess.Popen(
        [*command, "--http-port", "0", "--dir", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # as in a terminal
    )
    while len(children_of(process)) < 2:
        continue
    os.killpg(process.pid, signal.SIGINT)
    output = process.communicate(timeout=30)
    assert (process.returncode, *output) == (0, b"", b"")


def test_further_signals_change_nothing(tmp_path: Path) -> None:
    process, _ = start_up("--dir", str(tmp_path))
    while process.poll() is None:
        process.terminate()
    assert end(process) == 0
    assert (tmp_path / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
def test_a_broker_with_closed_standard_streams_stops_cleanly(tmp_path: Path, closed: str) -> None:
    words = [sys.executable, "-m", "penstock.cli.main", "broker", "--kafka-port", "0", "--json"]
    process = subprocess.Popen(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *words, "--dir", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert produced(json.loads(process.stdout.readline())["kafka"])
    assert end(process) == 0
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_up_reports_a_closed_standard_output(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    report = subprocess.run(
        [*UP, "--dir", str(tmp_path)], stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert (report.returncode, report.stderr) == (
        1,
        b"penstock up: stopped, because standard output was closed\n",
    )
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_up_reports_that_its_broker_ended_and_removes_an_ephemeral_folder() -> None:
    process, report = start_up("--ephemeral")
    os.kill(children_of(process)[0], signal.SIGKILL)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, b"the broker ended" in errors) == (1, True)
    assert not Path(report["dir"]).exists()


def test_an_ephemeral_folder_is_removed_at_the_end() -> None:
    process, report = start_up("--ephemeral")
    assert Path(report["dir"]).is_dir()
    assert produced(report["kafka"])
    assert end(process) == 0
    assert not Path(report["dir"]).exists()


def test_a_second_start_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path):
        refused = subprocess.run(
            [*UP, "--dir", str(tmp_path)], capture_output=True, text=True, check=False
        )
    assert refused.returncode == 1
    assert "in use by another broker" in refused.stderr


def test_a_port_in_use_is_reported_and_the_folder_stays_clean(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        assert produced(broker.bootstrap)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = BrokerOptions(folder=str(tmp_path), kafka_port=taken.getsockname()[1])
        with pytest.raises(CannotStartError, match="is in use: stop the process"):
            BrokerProcess(options).wait_ready()
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_port_of_the_properties_that_is_in_use_is_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listeners = {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}
        with pytest.raises(CannotStartError, match=f"port {port} is in use"):
            BrokerProcess(BrokerOptions(folder=str(tmp_path), settings=listeners)).wait_ready()


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_of_another_machine_is_reported(tmp_path: Path, host: str) -> None:
    options = BrokerOptions(folder=str(tmp_path), kafka_port=9092, host=host, insecure=True)
    with pytest.raises(CannotStartError, match=f"cannot listen on {host}:9092: .*another --host"):
        BrokerProcess(options).wait_ready()


def test_a_file_instead_of_the_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    options = BrokerOptions(folder=str(tmp_path / "file"), kafka_port=0)
    with pytest.raises(CannotStartError, match="not a folder"):
        BrokerProcess(options).wait_ready()


def test_python_without_assertions_is_refused(tmp_path: Path) -> None:
    command = command_line(BrokerOptions(folder=str(tmp_path), kafka_port=0))
    command.insert(1, "-O")
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "python -O" in json.loads(refused.stdout)["error"]


def test_an_invalid_setting_is_reported(tmp_path: Path) -> None:
    options = BrokerOptions(folder=str(tmp_path), kafka_port=0, settings={"num.partitions": "x"})
    with pytest.raises(CannotStartError, match=r"num\.partitions"):
        BrokerProcess(options).wait_ready()


def test_nothing_acknowledged_is_lost_by_a_kill(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        for count in range(1, 4):
            assert produced(broker.bootstrap)
            assert end_offset(broker.bootstrap) == count
            broker.kill()
            broker.start()
        assert end_offset(broker.bootstrap) == 3


def run_broker(folder: Path, last: int, *options: str) -> str:
    """Start a broker, write to it and end it with a signal; its log lines."""
    command = [sys.executable, "-m", "penstock.cli.main", "broker", "--kafka-port", "0", "--json"]
    process = subprocess.Popen(
        [*command, "--dir", str(folder), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert produced(json.loads(process.stdout.readline())["kafka"])
    process.send_signal(last)
    process.wait(20)
    lines = process.stderr.read()
    process.stdout.close()
    process.stderr.close()
    return lines


def test_a_start_after_a_kill_reports_the_recovery_and_other_starts_do_not(tmp_path: Path) -> None:
    summary = r"recovered after an unclean stop: 1 partitions, [1-9]\d* bytes checked, 0 bytes cut"
    warnings = ("--log-level", "warning")
    assert run_broker(tmp_path, signal.SIGKILL, *warnings) == ""
    assert re.search(summary, run_broker(tmp_path, signal.SIGKILL, *warnings))
    (log,) = tmp_path.glob("t-0/*.log")
    with log.open("ab") as file:
        file.write(b"torn")
    lines = run_broker(tmp_path, signal.SIGTERM, *warnings)
    assert re.search(r"recovered .*: 1 partitions, [1-9]\d* bytes checked, 4 bytes cut", lines)
    assert run_broker(tmp_path, signal.SIGTERM, *warnings) == ""


def test_a_process_writes_its_log_as_json(tmp_path: Path) -> None:
    options = ("--log-format", "json", "--log-level", "info")
    lines = run_broker(tmp_path, signal.SIGTERM, *options).splitlines()
    rows = [json.loads(line) for line in lines]
    keys = {"time", "level", "logger", "message", "process", "pid"}
    assert all(set(row) == keys for row in rows)
    assert {row["process"] for row in rows} == {"broker"}
    assert {"broker 1 is unfenced", "stopping"} <= {row["message"] for row in rows}
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z", row["time"]) for row in rows)


def test_a_leader_epoch_begins_after_a_power_cut_but_not_after_a_kill_or_a_stop(
    tmp_path: Path,
) -> None:
    def epochs() -> list[str]:
        return (tmp_path / "t-0" / "leader-epoch-checkpoint").read_text().splitlines()[2:]

    with EmbeddedBroker(tmp_path) as broker:
        assert produced(broker.bootstrap)
        broker.restart()
        assert produced(broker.bootstrap)
        broker.kill()
        broker.start()
        assert epochs() == ["0 0"]  # the page cache outlives the process
        broker.kill()
        save_registration(tmp_path, 1, "the machine was started again since")
        broker.start()
        assert produced(broker.bootstrap)
        broker.restart()
        (_, second) = epochs()
        assert second.endswith(" 2")


def test_a_broker_stops_when_its_parent_ends(tmp_path: Path) -> None:
    process, _ = start_up("--dir", str(tmp_path))
    end(process, signal.SIGKILL)
    with EmbeddedBroker(tmp_path / "other") as other:  # while the first one stops
        assert produced(other.bootstrap)
    give_up_at = time.monotonic() + 30
    while not (tmp_path / ".kafka_cleanshutdown").exists() and time.monotonic() < give_up_at:
        time.sleep(0.05)
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_partition_without_a_topic_is_set_aside(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        assert produced(broker.bootstrap)
        broker.kill()
        (tmp_path / "stranger-0").mkdir()
        (tmp_path / "stranger-0" / "note").write_text("mine")
        broker.start()
        assert end_offset(broker.bootstrap) == 1
    assert not (tmp_path / "stranger-0").exists()
    (aside,) = tmp_path.glob("stranger-0.*-stray")
    assert (aside / "note").read_text() == "mine"


@pytest.mark.parametrize("is_created_again", [False, True])
def test_a_partition_of_a_topic_deleted_before_a_crash_does_not_return(
    tmp_path: Path, is_created_again: bool
) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        assert produced(broker.bootstrap)
        (partition,) = tmp_path.glob("t-0")
        shutil.copytree(partition, tmp_path / "copy")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.delete_topics(["t"])["t"].result(10)
        if is_created_again:
            assert produced(broker.bootstrap)
        broker.kill()
        # As if the crash had come before the folder was renamed.
        shutil.rmtree(tmp_path / "t-0", ignore_errors=True)
        (tmp_path / "copy").rename(tmp_path / "t-0")
        broker.start()
        assert produced(broker.bootstrap)
        assert end_offset(broker.bootstrap) == 1
        # Another topic id may be corruption: only a known deletion removes a folder.
        assert len([*tmp_path.glob("t-0.*-stray")]) == is_created_again


def test_a_corrupt_topic_id_loses_no_records(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        assert produced(broker.bootstrap)
        broker.kill()
        (log,) = tmp_path.glob("t-0/*.log")
        content, metadata = log.read_bytes(), log.with_name("partition.metadata")
        metadata.write_bytes(metadata.read_bytes()[:-2] + b"xA")
        broker.start()
        (aside,) = tmp_path.glob("t-0.*-stray")
        assert (aside / log.name).read_bytes() == content


def test_clients_cannot_use_the_metadata_log_as_a_topic(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 2000})
        errors: list[Any] = []
        producer.produce("__cluster_metadata", b"x", on_delivery=lambda e, _: errors.append(e))
        producer.flush(10)
        assert errors[0] is not None
        assert "__cluster_metadata" not in producer.list_topics(timeout=10).topics


def test_a_folder_of_another_node_is_refused(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path):
        pass
    other = BrokerOptions(folder=str(tmp_path), kafka_port=0, settings={"node.id": "2"})
    with pytest.raises(CannotStartError, match="belongs to node 1"):
        BrokerProcess(other).wait_ready()
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_broker_shows_its_listener_and_its_log_folder(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        client = AdminClient({"bootstrap.servers": broker.bootstrap})
        resource = ConfigResource(ConfigResource.Type.BROKER, "1")
        settings = client.describe_configs([resource])[resource].result(10)
    assert settings["log.dirs"].value == str(tmp_path)
    assert settings["listeners"].value == f"PLAINTEXT://{broker.bootstrap}"
    assert settings["node.id"].value == "1"


def waits_of(pid: int) -> int:
    """How often the main thread of a process went to sleep."""
    status = Path(f"/proc/{pid}/task/{pid}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def test_an_idle_broker_hardly_wakes_up(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        waits_per_s, deadline = IDLE_WAITS_PER_S + 1.0, time.monotonic() + 20
        while waits_per_s > IDLE_WAITS_PER_S and time.monotonic() < deadline:
            before, began_at = waits_of(broker.pid), time.monotonic()
            time.sleep(2)
            waits_per_s = (waits_of(broker.pid) - before) / (time.monotonic() - began_at)
    assert waits_per_s <= IDLE_WAITS_PER_S
