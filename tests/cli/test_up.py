"""`penstock up`: its output, invalid combinations of options, and an existing cluster as log."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from typer.testing import CliRunner

from penstock.cli.main import build
from penstock.testing.embedded import EmbeddedBroker
from tests.support.apache_kafka import ApacheKafka, PeerUnavailableError

PENSTOCK = [sys.executable, "-m", "penstock.cli.main"]
SCHEMA = {"schema": '{"type": "fixed", "name": "F", "size": 4}'}


@contextmanager
def running(*options: str) -> Iterator["subprocess.Popen[str]"]:
    """`penstock up`, stopped with Ctrl-C."""
    command = [*PENSTOCK, "up", "--http-port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert process.stdout is not None
        process.stdout.close()


def started(process: "subprocess.Popen[str]") -> dict[str, Any]:
    assert process.stdout is not None
    addresses: dict[str, Any] = json.loads(process.stdout.readline())
    return addresses


def lines(process: "subprocess.Popen[str]") -> list[str]:
    """Its output until it is ready."""
    assert process.stdout is not None
    output: list[str] = []
    while not output or output[-1] != "Stop with Ctrl-C.":
        output.append(process.stdout.readline().rstrip("\n"))
    return output


def test_up_prints_addresses_and_three_commands_that_work(tmp_path: Path) -> None:
    with running("--kafka-port", "0", "--dir", str(tmp_path)) as process:
        output = lines(process)
        names = [line.split("  ")[1] for line in output[1:6]]
        assert names == ["Kafka", "Schema registry", "Console", "Metrics", "Data"]
        assert output[3].split()[1].endswith("/console")
        assert output[4].split()[1].endswith("/metrics/targets")
        assert str(tmp_path) in output[5]
        assert "kept" in output[5]
        commands = output[7:10]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        outputs = [
            subprocess.run(
                command, shell=True, capture_output=True, text=True, timeout=60,
                env={**os.environ, "PATH": path}, check=True,
            ).stdout
            for command in commands
        ]  # fmt: skip
    assert json.loads(outputs[1])["value"] == '{"cents": 1250}'
    assert "No schemas." in outputs[2]


@pytest.mark.parametrize(
    "words",
    [
        ["--log", "kafka:127.0.0.1:1", "--dir", "x"],
        ["--log", "kafka:127.0.0.1:1", "--ephemeral"],
        ["--log", "kafka:127.0.0.1:1", "--set", "a=b"],
        ["--log", "kafka:127.0.0.1:1", "--no-http"],
        ["--log", "kafka:"],
        ["--log", "pulsar:127.0.0.1:1"],
        ["--set", "no-equals-sign"],
    ],
)
def test_invalid_combinations_of_options_are_refused(words: list[str]) -> None:
    assert CliRunner().invoke(build(["up"]), words).exit_code == 2


def check_on(kafka: str) -> None:
    """The registry runs on a cluster, and no broker is started."""
    with running("--log", f"kafka:{kafka}", "--json") as process:
        addresses = started(process)
        assert (addresses["kafka"], addresses["dir"]) == (kafka, None)
        children = psutil.Process(process.pid).children()
        assert ["penstock.node.http_process" in child.cmdline() for child in children] == [True]
        url = f"{addresses['http']}/subjects/s/versions"
        assert httpx.post(url, json=SCHEMA, timeout=60).json()["id"] == 1
    with running("--log", f"kafka:{kafka}", "--json") as process:
        url = f"{started(process)['http']}/subjects"
        assert httpx.get(url, timeout=60).json() == ["s"]


def test_up_on_an_existing_cluster_starts_no_broker_and_stores_schemas_there() -> None:
    with EmbeddedBroker() as existing:
        check_on(existing.bootstrap)


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.timeout(300)
def test_up_on_apache_kafka_starts_no_broker_and_stores_schemas_there() -> None:
    try:
        server = ApacheKafka(heap="512m")
    except PeerUnavailableError as reason:
        pytest.skip(str(reason))
    with server:
        check_on(server.bootstrap)


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not _has_ipv6(), reason="this machine has no ::1")
def test_up_serves_ipv6_and_prints_usable_addresses() -> None:
    with running("--ephemeral", "--host", "::1", "--kafka-port", "0", "--json") as process:
        addresses = started(process)
        assert addresses["kafka"].startswith("[::1]:")
        assert httpx.get(f"{addresses['http']}/subjects").json() == []
        listed = CliRunner().invoke(
            build(["topic"]), ["topic", "list", "--internal", "-b", addresses["kafka"]]
        )
        assert (listed.exit_code, "_schemas" in listed.stdout) == (0, True)


def test_up_on_an_unreachable_cluster_fails() -> None:
    command = [*PENSTOCK, "up", "--log", "kafka:127.0.0.1:1", "--http-port", "0"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert refused.returncode == 3
    assert "cannot connect to 127.0.0.1:1" in refused.stderr


def test_the_advertised_address_may_be_another(tmp_path: Path) -> None:
    with running(
        "--kafka-port", "0", "--advertise", "127.0.0.1:4000", "--no-http", "--json",
        "--dir", str(tmp_path),
    ) as process:  # fmt: skip
        assert started(process)["kafka"] == "127.0.0.1:4000"
