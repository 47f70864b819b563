"""`penstock doctor`: each finding, and the machine it runs on."""

import json
import socket
from pathlib import Path

import pytest
from typer import Typer
from typer.testing import CliRunner

from penstock.cli.doctor import (
    Verdict,
    check_disk,
    check_java,
    check_open_files,
    check_port,
    check_python,
    doctor,
)

app = Typer()
app.command()(doctor)


def test_an_old_python_is_a_problem() -> None:
    assert check_python((3, 10), "Python 3.10.1").verdict is Verdict.PROBLEM
    assert check_python((3, 11), "Python 3.11.0").verdict is Verdict.OK


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        (None, Verdict.WARNING),
        ('java version "1.8.0_392"', Verdict.WARNING),
        ('openjdk version "17.0.15" 2025-04-15', Verdict.OK),
        ('openjdk version "25" 2025-09-16', Verdict.OK),
        ("The operation couldn't be completed.", Verdict.WARNING),
    ],
)
def test_java_is_wanted_for_spark_only(said: str | None, verdict: Verdict) -> None:
    assert check_java(said).verdict is verdict


def test_a_busy_port_names_the_option_that_moves_it() -> None:
    assert "--kafka-port" in check_port(9092, "Kafka", free=False).remedy
    assert "--http-port" in check_port(8081, "HTTP", free=False).remedy


def test_little_disk_is_a_problem_and_some_a_warning() -> None:
    verdicts = [check_disk(Path("/x"), size).verdict for size in (1 << 20, 5 << 30, 50 << 30)]
    assert verdicts == [Verdict.PROBLEM, Verdict.WARNING, Verdict.OK]


def test_few_open_files_are_a_problem() -> None:
    verdicts = [check_open_files(soft, 1 << 20).verdict for soft in (256, 1024, 65536)]
    assert verdicts == [Verdict.PROBLEM, Verdict.WARNING, Verdict.OK]


def test_the_doctor_sees_that_a_port_is_taken(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        arguments = ["--json", "--dir", str(tmp_path / "not" / "there"), "--kafka-port", str(port)]
        result = CliRunner().invoke(app, arguments)
    rows = {row["check"]: row for row in json.loads(result.output)}
    assert rows[f"port {port}"]["verdict"] == "warning"
    assert rows["python"]["verdict"] == "ok"


def test_the_table_shows_every_check(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--dir", str(tmp_path)])
    for check in ("python", "java", "port 9092", "disk", "open files"):
        assert check in result.output
