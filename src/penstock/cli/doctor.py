"""`penstock doctor`: check this machine for what would prevent Penstock from running.

Each check is a function from a measurement to a `Finding`; only `examine` measures.
"""

import platform
import re
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import psutil
import typer

from penstock.cli.options import PORT_MAX, AsJson
from penstock.cli.output import counted, show_json
from penstock.clock import wall_ms
from penstock.metrics import broker_rows, process_rows
from penstock.node.addresses import HTTP_PORT, KAFKA_PORT, LOCALHOST

PYTHON_MIN: Final = (3, 11)
JAVA_MIN: Final = 17
OPEN_FILES_MIN: Final = 1024
OPEN_FILES_RECOMMENDED: Final = 10_000
DISK_MIN_BYTES: Final = 1 << 30
DISK_RECOMMENDED_BYTES: Final = 10 << 30
UPKEEP_SILENT_MS: Final = 300_000  # it reports after each round, and every round is shorter
UPKEEP_ROWS_MAX: Final = 3


# By check, without what it is about: the metric that shows the same while a broker runs (empty if
# there is none), and the page that says what to do.
WATCHED: Final = {
    "python": ("", "docs/how-to/install.md"),
    "java": ("", "docs/how-to/install.md"),
    "port": (process_rows.HEALTH_READY.name, "docs/operations/process-down.md"),
    "disk": (broker_rows.DISK_FREE_BYTES.name, "docs/operations/disk-full.md"),
    "open files": (broker_rows.CONNECTIONS.name, "docs/operations/sizing.md"),
    "upkeep": (broker_rows.UPKEEP_FAILING.name, "docs/operations/disk-full.md"),
    "set aside": (broker_rows.REPLACED_REPLICAS.name, "docs/failures.md"),
}


class Severity(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    WARNING = "warning"  # something works worse, or not at all
    PROBLEM = "problem"  # Penstock does not run


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, and what to do about it."""

    check: str
    severity: Severity
    result: str
    remedy: str = ""

    @property
    def metric(self) -> str:
        """The metric that shows the same while a broker runs; empty if there is none."""
        return self._watched[0]

    @property
    def page(self) -> str:
        """The page that says what to do."""
        return self._watched[1]

    @property
    def _watched(self) -> tuple[str, str]:
        return WATCHED["port" if self.check.startswith("port ") else self.check]


def check_python(running: tuple[int, int], name: str) -> Finding:
    """The Python version."""
    if running >= PYTHON_MIN:
        return Finding("python", Severity.OK, name)
    required = ".".join(map(str, PYTHON_MIN))
    return Finding("python", Severity.PROBLEM, name, f"install Python {required} or newer")


def check_java(version_text: str | None) -> Finding:
    """Only Spark needs Java; `version_text` is the output of `java -version`, None without java."""
    remedy = (
        f"only Spark pipelines need it: install Java {JAVA_MIN} or newer "
        "(Debian: apt-get install openjdk-17-jre-headless)"
    )
    if version_text is None:
        return Finding("java", Severity.WARNING, "not found", remedy)
    match = re.search(r'version "(?:1\.)?(\d+)', version_text)
    if match is None:
        return Finding("java", Severity.WARNING, version_text.splitlines()[0], remedy)
    version = f"Java {match[1]}"
    if int(match[1]) < JAVA_MIN:
        return Finding("java", Severity.WARNING, version, remedy)
    return Finding("java", Severity.OK, version)


def check_port(port: int, purpose: str, *, free: bool) -> Finding:
    """A default port of `penstock up`."""
    name = f"port {port}"
    if free:
        return Finding(name, Severity.OK, f"free for {purpose}")
    option = "--kafka-port" if purpose == "Kafka" else "--http-port"
    return Finding(
        name,
        Severity.WARNING,
        "already in use",
        f"stop the program that uses it, or use another port for {purpose}: penstock up {option} N",
    )


def check_disk(folder: Path, free_bytes: int) -> Finding:
    """Disk space for the log."""
    space = f"{free_bytes / (1 << 30):.1f} GiB free at {folder}"
    if free_bytes < DISK_MIN_BYTES:
        return Finding("disk", Severity.PROBLEM, space, "free some space, or use another --dir")
    if free_bytes < DISK_RECOMMENDED_BYTES:
        remedy = "enough for experiments; for more, free some space or set retention.bytes"
        return Finding("disk", Severity.WARNING, space, remedy)
    return Finding("disk", Severity.OK, space)


def check_open_files(soft: int, hard: int) -> Finding:
    """File descriptors: one per connection, and a bounded number for the log."""
    limits = f"limit {soft} (hard {hard})"
    if soft < OPEN_FILES_MIN:
        return Finding(
            "open files", Severity.PROBLEM, limits, f"ulimit -n {OPEN_FILES_RECOMMENDED}"
        )
    if soft < OPEN_FILES_RECOMMENDED:
        remedy = f"enough for a few hundred clients; for more: ulimit -n {OPEN_FILES_RECOMMENDED}"
        return Finding("open files", Severity.WARNING, limits, remedy)
    return Finding("open files", Severity.OK, limits)


def check_upkeep(status: dict[str, Any] | None, *, is_running: bool, age_ms: int) -> Finding | None:
    """Retention and compaction of the broker that uses the folder; None if none is running."""
    if status is None or not is_running:
        return None
    stats = status["stats"]
    problems = [
        f"{name} failed {duty['failed_in_a_row']} times in a row ({duty['last_error']})"
        for name, duty in stats["duties"].items()
        if duty["failed_in_a_row"]
    ]
    for count, rows in (
        (status["damaged_count"], status["damaged"]),
        (status["failing_count"], status["failing"]),
    ):
        problems += rows[:UPKEEP_ROWS_MAX]
        if count > UPKEEP_ROWS_MAX:
            problems.append(f"and {count - UPKEEP_ROWS_MAX} more")
    if age_ms > UPKEEP_SILENT_MS:
        problems.append(f"no report for {age_ms // 1000} s")
    if problems:
        remedy = "see the broker's log; old data is not deleted until this is fixed"
        return Finding("upkeep", Severity.WARNING, "; ".join(problems), remedy)
    deleted = counted(stats["deleted_segments"], "segment")
    summary = f"{deleted} deleted, {counted(stats['compactions'], 'compaction')}"
    return Finding("upkeep", Severity.OK, summary)


def check_set_aside(names: Sequence[str]) -> Finding | None:
    """Logs that the broker keeps under other names, because they were damaged or of no topic."""
    if not names:
        return None
    shown = ", ".join(names[:UPKEEP_ROWS_MAX])
    more = f" and {len(names) - UPKEEP_ROWS_MAX} more" if len(names) > UPKEEP_ROWS_MAX else ""
    remedy = "see the broker's log; delete the folders when their records are not needed"
    return Finding("set aside", Severity.WARNING, f"{shown}{more}", remedy)


def examine(folder: Path, kafka_port: int, http_port: int) -> list[Finding]:
    """Check this machine."""
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
        age_ms=0 if status is None else wall_ms() - status["written_at_ms"],
    )
    aside = check_set_aside(sorted(path.name for path in folder.glob("*-*") if _is_aside(path)))
    return [*findings, *(each for each in (upkeep, aside) if each is not None)]


def _is_aside(path: Path) -> bool:
    return path.name.endswith(("-damaged", "-stray")) and path.is_dir()


def doctor(
    folder: Annotated[Path, typer.Option("--dir", help="Data folder to check.")] = Path(
        "penstock-data"
    ),
    kafka_port: Annotated[
        int, typer.Option(min=1, max=PORT_MAX, help="Port for Kafka clients.")
    ] = KAFKA_PORT,
    http_port: Annotated[int, typer.Option(min=1, max=PORT_MAX, help="Port for HTTP.")] = HTTP_PORT,
    as_json: AsJson = False,
) -> None:
    """Check Python, Java, ports, disk, open files and a running broker's upkeep.

    Upkeep (retention and compaction) is checked if a broker uses the data folder. Logs that were
    set aside in it, because they were damaged, are listed. Exit status 1 if there is a problem.
    """
    findings = examine(folder.absolute(), kafka_port, http_port)
    if as_json:
        show_json([{**asdict(each), "metric": each.metric, "page": each.page} for each in findings])
    else:
        _show(findings)
    if any(finding.severity is Severity.PROBLEM for finding in findings):
        raise typer.Exit(1)


def _show(findings: Iterable[Finding]) -> None:
    from rich.console import Console
    from rich.table import Table

    colour = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.PROBLEM: "red"}
    table = Table(box=None, show_header=False)
    for finding in findings:
        severity = f"[{colour[finding.severity]}]{finding.severity}[/]"
        is_fine = finding.severity is Severity.OK
        where = "" if is_fine else " ".join(filter(None, (finding.metric, finding.page)))
        table.add_row(severity, finding.check, finding.result, finding.remedy, where)
    Console().print(table)


def _java_version() -> str | None:
    java = shutil.which("java")
    if java is None:
        return None
    process = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    return process.stderr or process.stdout


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOCALHOST, port))
        except OSError:
            return False
    return True
