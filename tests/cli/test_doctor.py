"""`penstock doctor`: each check, and the machine it runs on."""

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
    WATCHED,
    Finding,
    Severity,
    check_disk,
    check_java,
    check_open_files,
    check_port,
    check_python,
    check_set_aside,
    check_upkeep,
    doctor,
    examine,
)
from penstock.metrics.metrics_page import ALL_ROWS
from penstock.node.upkeep_status import FILE_NAME
from penstock.testing.embedded import EmbeddedBroker

ROOT = Path(__file__).parents[2]
app = Typer()
app.command()(doctor)


def test_an_old_python_is_a_problem() -> None:
    assert check_python((3, 10), "Python 3.10.1").severity is Severity.PROBLEM
    assert check_python((3, 11), "Python 3.11.0").severity is Severity.OK


@pytest.mark.parametrize(
    ("version_text", "severity"),
    [
        (None, Severity.WARNING),
        ('java version "1.8.0_392"', Severity.WARNING),
        ('openjdk version "17.0.15" 2025-04-15', Severity.OK),
        ('openjdk version "25" 2025-09-16', Severity.OK),
        ("The operation couldn't be completed.", Severity.WARNING),
    ],
)
def test_a_missing_or_old_java_is_a_warning(version_text: str | None, severity: Severity) -> None:
    assert check_java(version_text).severity is severity


def test_a_busy_port_names_the_option_that_moves_it() -> None:
    assert "--kafka-port" in check_port(9092, "Kafka", free=False).remedy
    assert "--http-port" in check_port(8081, "HTTP", free=False).remedy


def test_little_disk_is_a_problem_and_some_a_warning() -> None:
    severities = [check_disk(Path("/x"), size).severity for size in (1 << 20, 5 << 30, 50 << 30)]
    assert severities == [Severity.PROBLEM, Severity.WARNING, Severity.OK]


def test_few_open_files_are_a_problem() -> None:
    severities = [check_open_files(soft, 1 << 20).severity for soft in (256, 1024, 65536)]
    assert severities == [Severity.PROBLEM, Severity.WARNING, Severity.OK]


def test_a_port_in_use_is_a_warning(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        arguments = [
            "--json",
            "--dir",
            str(tmp_path / "does" / "not" / "exist"),
            "--kafka-port",
            str(port),
        ]
        result = CliRunner().invoke(app, arguments)
    rows = {row["check"]: row for row in json.loads(result.output)}
    assert rows[f"port {port}"]["severity"] == "warning"
    assert rows["python"]["severity"] == "ok"


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


def test_working_upkeep_is_ok_and_failures_are_a_warning() -> None:
    def checked(age_ms: int = 0, **changed: Any) -> Finding:
        finding = check_upkeep(upkeep_status(**changed), is_running=True, age_ms=age_ms)
        assert finding is not None
        return finding

    assert checked().result == "2 segments deleted, 1 compaction"
    assert checked().severity is Severity.OK
    damaged = checked(damaged_count=1, damaged=["orders-0: no batch where one should be"])
    assert (damaged.severity, "orders-0" in damaged.result) == (Severity.WARNING, True)
    many = checked(failing_count=9, failing=[f"sweep of t-{n}: no space" for n in range(9)])
    assert many.result.endswith("and 6 more")
    assert "no report for 400 s" in checked(age_ms=400_000).result
    stuck = upkeep_status()["stats"]
    stuck["duties"]["retention"] = {"failed_in_a_row": 4, "last_error": "OSError: no space"}
    assert "retention failed 4 times in a row (OSError: no space)" in checked(stats=stuck).result


@pytest.mark.parametrize("content", [None, "", "{}", "[]"])
def test_upkeep_is_not_checked_without_a_running_broker(
    tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / FILE_NAME).write_text(content)
    result = CliRunner().invoke(app, ["--json", "--dir", str(tmp_path)])
    assert "upkeep" not in {row["check"] for row in json.loads(result.output)}
    assert check_upkeep(upkeep_status(), is_running=False, age_ms=0) is None


def test_the_upkeep_of_a_running_broker_is_checked(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        status = broker.folder / FILE_NAME
        while not status.exists():
            time.sleep(0.01)
        result = CliRunner().invoke(app, ["--json", "--dir", str(broker.folder)])
        rows = {row["check"]: row for row in json.loads(result.output)}
        assert rows["upkeep"]["severity"] == "ok"
    assert not status.exists()


def test_logs_that_were_set_aside_are_listed(tmp_path: Path) -> None:
    assert check_set_aside([]) is None
    (tmp_path / "orders-0.1a-damaged").mkdir()
    (tmp_path / "orders-0").mkdir()
    finding = examine(tmp_path, 1, 2)[-1]
    assert (finding.check, finding.severity) == ("set aside", Severity.WARNING)
    assert finding.result == "orders-0.1a-damaged"
    assert finding.metric == "penstock_broker_replaced_replicas_total"
    several = check_set_aside(["a", "b", "c", "d", "e"])
    assert several is not None
    assert several.result == "a, b, c and 2 more"


def test_each_finding_names_a_page_and_a_metric_that_exist(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--json", "--dir", str(tmp_path)])
    findings = {row["check"]: row for row in json.loads(result.output)}
    ports = {"port 9092", "port 8081"}
    assert findings.keys() == (WATCHED.keys() - {"port", "set aside", "upkeep"}) | ports
    names = {row.name for row in ALL_ROWS}
    for row in findings.values():
        assert (ROOT / row["page"]).is_file()
        assert not row["metric"] or row["metric"] in names
    assert {row["check"] for row in findings.values() if not row["metric"]} == {"python", "java"}


def test_the_table_shows_every_check(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--dir", str(tmp_path)])
    for check in ("python", "java", "port 9092", "disk", "open files"):
        assert check in result.output
