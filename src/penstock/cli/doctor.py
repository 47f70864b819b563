"""`penstock doctor`: what on this machine would stand in the way, and how to mend it.

Each check is a function from what was found to a `Finding`; only `examine` looks at the machine.
"""

import json
import platform
import re
import resource
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import psutil
import typer

from penstock.cli.broker_options import PORT_LAST

PYTHON_LEAST: Final = (3, 11)
JAVA_LEAST: Final = 17
OPEN_FILES_LEAST: Final = 1024
OPEN_FILES_COMFORTABLE: Final = 10_000
DISK_LEAST_BYTES: Final = 1 << 30
DISK_COMFORTABLE_BYTES: Final = 10 << 30
UPKEEP_SILENT_MS: Final = 300_000  # it reports after each round, the slowest of which is shorter
UPKEEP_ROWS_MAX: Final = 3


class Verdict(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    WARNING = "warning"  # something works worse, or not at all, without it
    PROBLEM = "problem"  # Penstock does not run


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check saw, and what to do about it."""

    check: str
    verdict: Verdict
    found: str
    remedy: str = ""


def check_python(running: tuple[int, int], name: str) -> Finding:
    """Python itself."""
    if running >= PYTHON_LEAST:
        return Finding("python", Verdict.OK, name)
    least = ".".join(map(str, PYTHON_LEAST))
    return Finding("python", Verdict.PROBLEM, name, f"install Python {least} or newer")


def check_java(version_text: str | None) -> Finding:
    """Only Spark needs Java; `version_text` is what `java -version` says, None without java."""
    remedy = (
        f"only Spark pipelines need it: install a Java {JAVA_LEAST}+ runtime "
        "(Debian: apt-get install openjdk-17-jre-headless)"
    )
    if version_text is None:
        return Finding("java", Verdict.WARNING, "not found", remedy)
    match = re.search(r'version "(?:1\.)?(\d+)', version_text)
    if match is None:
        return Finding("java", Verdict.WARNING, version_text.splitlines()[0], remedy)
    found = f"Java {match[1]}"
    if int(match[1]) < JAVA_LEAST:
        return Finding("java", Verdict.WARNING, found, remedy)
    return Finding("java", Verdict.OK, found)


def check_port(port: int, purpose: str, *, free: bool) -> Finding:
    """A default port of `penstock up`."""
    name = f"port {port}"
    if free:
        return Finding(name, Verdict.OK, f"free for {purpose}")
    option = "--kafka-port" if purpose == "Kafka" else "--http-port"
    return Finding(
        name,
        Verdict.WARNING,
        "somebody listens there",
        f"stop that program, or choose another port for {purpose}: penstock up {option} N",
    )


def check_disk(folder: Path, free_bytes: int) -> Finding:
    """Room for the log."""
    found = f"{free_bytes / (1 << 30):.1f} GiB free at {folder}"
    if free_bytes < DISK_LEAST_BYTES:
        return Finding("disk", Verdict.PROBLEM, found, "free some space, or give another --dir")
    if free_bytes < DISK_COMFORTABLE_BYTES:
        remedy = "enough to try things; for more, free some space or set retention.bytes"
        return Finding("disk", Verdict.WARNING, found, remedy)
    return Finding("disk", Verdict.OK, found)


def check_open_files(soft: int, hard: int) -> Finding:
    """Descriptors: one per connection, and a bounded number for the log."""
    found = f"limit {soft} (hard {hard})"
    if soft < OPEN_FILES_LEAST:
        return Finding("open files", Verdict.PROBLEM, found, f"ulimit -n {OPEN_FILES_COMFORTABLE}")
    if soft < OPEN_FILES_COMFORTABLE:
        remedy = f"enough for a few hundred clients; for more: ulimit -n {OPEN_FILES_COMFORTABLE}"
        return Finding("open files", Verdict.WARNING, found, remedy)
    return Finding("open files", Verdict.OK, found)


def check_upkeep(status: dict[str, Any] | None, *, is_running: bool, age_ms: int) -> Finding | None:
    """Retention and compaction of the broker that runs on the folder; None when none does."""
    if status is None or not is_running:
        return None
    stats = status["stats"]
    troubles = [
        f"{name} failed {duty['failed_in_a_row']} times in a row ({duty['last_error']})"
        for name, duty in stats["duties"].items()
        if duty["failed_in_a_row"]
    ]
    for count, rows in (
        (status["damaged_count"], status["damaged"]),
        (status["failing_count"], status["failing"]),
    ):
        troubles += rows[:UPKEEP_ROWS_MAX]
        if count > UPKEEP_ROWS_MAX:
            troubles.append(f"and {count - UPKEEP_ROWS_MAX} more")
    if age_ms > UPKEEP_SILENT_MS:
        troubles.append(f"no report for {age_ms // 1000} s")
    if troubles:
        remedy = "see the broker's log; old data is not removed until this works again"
        return Finding("upkeep", Verdict.WARNING, "; ".join(troubles), remedy)
    found = f"{stats['deleted_segments']} segments deleted, {stats['compactions']} compactions"
    return Finding("upkeep", Verdict.OK, found)


def examine(folder: Path, kafka_port: int, http_port: int) -> list[Finding]:
    """Look at this machine."""
    from penstock.node.upkeep_status import read_status

    existing = next(path for path in (folder, *folder.parents) if path.exists())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    findings = [
        check_python(sys.version_info[:2], f"Python {platform.python_version()}"),
        check_java(_java_version()),
        check_port(kafka_port, "Kafka", free=_is_free(kafka_port)),
        check_port(http_port, "HTTP", free=_is_free(http_port)),
        check_disk(existing, shutil.disk_usage(existing).free),
        check_open_files(soft, hard),
    ]
    status = read_status(folder)
    upkeep = check_upkeep(
        status,
        is_running=status is not None and psutil.pid_exists(status["pid"]),
        age_ms=0 if status is None else time.time_ns() // 1_000_000 - status["written_at_ms"],
    )
    return findings if upkeep is None else [*findings, upkeep]


def doctor(
    folder: Annotated[
        Path, typer.Option("--dir", help="The data folder that you use or mean to use.")
    ] = Path("penstock-data"),
    kafka_port: Annotated[
        int, typer.Option(min=1, max=PORT_LAST, help="The Kafka port you mean to use.")
    ] = 9092,
    http_port: Annotated[
        int, typer.Option(min=1, max=PORT_LAST, help="The HTTP port you mean to use.")
    ] = 8081,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Check Python, Java, ports, disk, open files and a running broker's upkeep.

    Upkeep (retention and compaction) is checked if a broker runs on the data folder. Exit 1 if
    something must be mended.
    """
    findings = examine(folder.absolute(), kafka_port, http_port)
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings]))
    else:
        _show(findings)
    if any(finding.verdict is Verdict.PROBLEM for finding in findings):
        raise typer.Exit(1)


def _show(findings: Iterable[Finding]) -> None:
    from rich.console import Console
    from rich.table import Table

    colour = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.PROBLEM: "red"}
    table = Table(box=None, show_header=False)
    for finding in findings:
        verdict = f"[{colour[finding.verdict]}]{finding.verdict}[/]"
        table.add_row(verdict, finding.check, finding.found, finding.remedy)
    Console().print(table)


def _java_version() -> str | None:
    java = shutil.which("java")
    if java is None:
        return None
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    return done.stderr or done.stdout


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
