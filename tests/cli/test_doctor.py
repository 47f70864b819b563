"""`penstock doctor`: each finding, and the machine it runs on."""

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from typer import Typer
from typer.testing import CliRunner

from penstock.cli.doctor import (
    Finding,
    Verdict,
    check_disk,
    check_java,
    check_open_files,
    check_port,
    check_python,
    check_upkeep,
    doctor,
)
from penstock.node.upkeep_status import FILE_NAME
from penstock.testing.embedded import EmbeddedBroker

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


def upkeep_status(**changed: Any) -> dict[str, Any]:
    duty = {"rounds": 3, "failed_rounds": 0, "failed_in_a_row": 0, "last_error": ""}
    duties = {"retention": duty, "sweep": duty, "compaction": duty}
    counts = {"deleted_segments": 2, "compactions": 1, "duties": duties}
    status = {
        "pid": os.getpid(),
        "written_at_ms": time.time_ns() // 1_000_000,
        "stats": counts,
        "failing_count": 0,
        "failing": [],
        "damaged_count": 0,
        "damaged": [],
    }
    return status | changed


def test_upkeep_that_works_is_ok_and_trouble_is_a_warning() -> None:
    def found(age_ms: int = 0, **changed: Any) -> Finding:
        finding = check_upkeep(upkeep_status(**changed), is_running=True, age_ms=age_ms)
        assert finding is not None
        return finding

    assert found().found == "2 segments deleted, 1 compactions"
    assert found().verdict is Verdict.OK
    damaged = found(damaged_count=1, damaged=["orders-0: no batch where one should be"])
    assert (damaged.verdict, "orders-0" in damaged.found) == (Verdict.WARNING, True)
    many = found(failing_count=9, failing=[f"sweep of t-{n}: no space" for n in range(9)])
    assert many.found.endswith("and 6 more")
    assert "no report for 400 s" in found(age_ms=400_000).found
    stuck = upkeep_status()["stats"]
    stuck["duties"]["retention"] = {"failed_in_a_row": 4, "last_error": "OSError: no space"}
    assert "retention failed 4 times in a row (OSError: no space)" in found(stats=stuck).found


@pytest.mark.parametrize("content", [None, "", "{}", "[]"])
def test_upkeep_is_not_mentioned_without_a_running_broker(
    tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / FILE_NAME).write_text(content)
    result = CliRunner().invoke(app, ["--json", "--dir", str(tmp_path)])
    assert "upkeep" not in {row["check"] for row in json.loads(result.output)}
    assert check_upkeep(upkeep_status(), is_running=False, age_ms=0) is None


def test_the_doctor_reports_the_upkeep_of_a_running_broker(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        status = broker.folder / FILE_NAME
        while not status.exists():
            time.sleep(0.01)
        result = CliRunner().invoke(app, ["--json", "--dir", str(broker.folder)])
        rows = {row["check"]: row for row in json.loads(result.output)}
        assert rows["upkeep"]["verdict"] == "ok"
    assert not status.exists()


def test_the_table_shows_every_check(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--dir", str(tmp_path)])
    for check in ("python", "java", "port 9092", "disk", "open files"):
        assert check in result.output
