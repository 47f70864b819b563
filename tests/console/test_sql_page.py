"""docs/how-to/sql.md: its commands run in their order, with the output that is shown."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.console.sql.sql_request import SqlLimits
from penstock.console.sql.sql_runner import START_S
from penstock.testing.platform import Platform

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "sql.md"
BLOCK = re.compile(r"```(sh|text)\n(.*?)```", re.DOTALL)

pytest.importorskip("duckdb", reason="needs the extra sql")


def run(command: str, folder: Path, platform: Platform) -> str:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PENSTOCK_BOOTSTRAP": platform.bootstrap,
        "PENSTOCK_REGISTRY": platform.registry_url,
    }
    command = command.replace("http://127.0.0.1:8081", platform.registry_url)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command], cwd=folder, env=environment, text=True,
        capture_output=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_commands_of_the_page_have_the_output_that_it_shows(tmp_path: Path) -> None:
    platform = Platform("sql-page").start()
    try:
        output = ""
        for kind, text in BLOCK.findall(PAGE.read_text()):
            if kind == "sh":
                output = run(text, tmp_path, platform)
                continue
            for line in text.splitlines():
                shown = ".*".join(map(re.escape, line.split("…")))
                assert re.search(shown, output), (line, output)
    finally:
        platform.stop()
    assert (tmp_path / "orders.csv").read_text().count("\n") == 4
    assert (tmp_path / "orders.parquet").stat().st_size > 0


def test_the_page_has_the_limits() -> None:
    text = PAGE.read_text()
    limits = SqlLimits()
    for name, value in (
        (f"seconds`, and {START_S:g} for", f"{limits.seconds:g}"),
        ("memory_mb", str(limits.memory_mb)),
        ("rows", f"{limits.rows:,}".replace(",", " ")),
        ("records", f"{limits.records:,}".replace(",", " ")),
        ("scan_bytes", f"{limits.scan_bytes >> 20} MiB"),
    ):
        assert re.search(rf"^\| `{name}[^|]*\| {re.escape(value)} \|", text, re.MULTILINE), name
