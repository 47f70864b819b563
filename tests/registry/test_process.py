"""The HTTP process: as part of `penstock up`, alone, refused, left behind."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.node.http_process import HttpOptions, command_line

UP = [
    sys.executable, "-m", "penstock.cli.main", "up", "--kafka-port", "0", "--http-port", "0",
    "--json",
]  # fmt: skip


def started(command: list[str]) -> tuple[subprocess.Popen[bytes], dict[str, Any]]:
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline() or b"{}")


def end(process: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> tuple[int, str]:
    if process.poll() is None:
        process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    return process.returncode, errors.decode()


def test_up_serves_the_registry_and_keeps_schemas(tmp_path: Path) -> None:
    for expected, number in (([], signal.SIGTERM), (["s"], signal.SIGINT)):
        process, announced = started([*UP, "--dir", str(tmp_path)])
        with httpx.Client(base_url=announced["http"], timeout=30) as http:
            assert http.get("/subjects").json() == expected
            assert http.post("/subjects/s/versions", json={"schema": '"int"'}).json()["id"] == 1
        status, errors = end(process, number)
        assert (status, errors) == (0, "")


def test_up_says_that_the_http_port_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = [*UP, "--dir", str(tmp_path), "--http-port", str(taken.getsockname()[1])]
        refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "is in use" in refused.stderr
    assert "--http-port" in refused.stderr
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def end_by_itself(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    _, errors = process.communicate(timeout=30)
    return process.returncode, errors.decode()


@pytest.mark.slow
def test_it_says_when_no_kafka_is_there() -> None:
    options = HttpOptions("127.0.0.1:9", http_port=0, log_level="ERROR")
    process, announced = started(command_line(options))
    assert "cannot connect to 127.0.0.1:9" in announced["error"]
    assert end_by_itself(process)[0] == 1


def test_it_ends_with_its_supervisor(broker: Any) -> None:
    options = HttpOptions(broker.bootstrap, http_port=0, topic="_schemas-left", group="left")
    process, announced = started(command_line(options))
    assert httpx.get(announced["http"], timeout=20).json() == {}
    status, _ = end_by_itself(process)  # closes its standard input
    assert status == 0


def test_it_ends_without_options() -> None:
    process = subprocess.Popen(
        command_line(None), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert end_by_itself(process) == (0, "")


def test_python_without_its_checks_is_refused(broker: Any) -> None:
    command = command_line(HttpOptions(broker.bootstrap, http_port=0))
    command.insert(1, "-O")
    process, announced = started(command)
    assert "python -O" in announced["error"]
    assert end_by_itself(process)[0] == 1


def refused(command: list[str]) -> str:
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 1, run.stdout
    return run.stderr


def test_nothing_listens_beyond_this_machine_without_being_asked_to(
    broker: Any, tmp_path: Path
) -> None:
    up = [*UP, "--dir", str(tmp_path), "--host", "0.0.0.0", "--advertise", "localhost"]
    assert "add --insecure" in refused(up)
    http = [sys.executable, "-m", "penstock.cli.main", "http", "--kafka", broker.bootstrap]
    http += ["--http-port", "0", "--host", "0.0.0.0"]
    assert "add --insecure" in refused([*http, "--advertise", "localhost"])
    assert "add --advertise" in refused([*http, "--insecure"])


def test_up_beyond_this_machine_shows_the_address_that_was_advertised(tmp_path: Path) -> None:
    open_to_all = ["--host", "0.0.0.0", "--advertise", "localhost", "--insecure"]
    process, announced = started([*UP, "--dir", str(tmp_path), *open_to_all])
    assert announced["kafka"].startswith("localhost:")
    assert httpx.get(f"{announced['http']}/subjects", timeout=20).json() == []
    status, errors = end(process)
    assert status == 0
    assert errors.count("without authentication") == 2
