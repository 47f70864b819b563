"""A real Spark query on the page of pipelines: while it runs, and after its driver was killed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.console.pages.conftest import create_topic
from tests.support.reported_query import NAME

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.testing.platform import Platform
    from tests.console.pages.conftest import OpenPage

pytestmark = [pytest.mark.slow, pytest.mark.timeout(800)]
START_MS = 300_000  # for Spark, on a machine that may be busy
STALE_MS = 90_000
READ = "read-by-spark"


@pytest.fixture
def query(console: Platform, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The process of a query over a topic."""
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17 or newer (make java)")
    with httpx.Client(base_url=console.registry_url) as http:
        create_topic(http, READ)
    arguments = (console.bootstrap, READ, str(tmp_path))
    command = [sys.executable, "-m", "tests.support.reported_query", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    yield process
    process.kill()
    process.wait(30)


def test_a_query_is_shown_while_it_runs_and_is_stale_when_it_is_silent(
    open_page: OpenPage, console: Platform, query: subprocess.Popen[bytes]
) -> None:
    page = open_page("/pipelines")
    row = page.locator("tr", has_text=NAME)
    row.get_by_text("running").wait_for(timeout=START_MS)
    shown = until_progressed(console.registry_url)
    assert (shown["state"], shown["lag"], shown["last_error"]) == ("running", "0", None)
    assert shown["processed_rate"] > 0
    day, _, rest = shown["watermark"].partition("T")
    row.get_by_text(f"{day} {rest[:5]}").wait_for()
    query.kill()
    row.get_by_text("stale").wait_for(timeout=STALE_MS)
    assert row.count() == 1


def until_progressed(url: str) -> dict[str, Any]:
    """The query's report once it has read something and has a watermark; writes until then."""
    clicks = {"records": [{"key": f"v{n}", "value": {"page": "/"}} for n in range(50)]}
    deadline_s = time.monotonic() + START_MS / 1000
    while True:
        httpx.post(f"{url}/topics/{READ}/produce", json=clicks).raise_for_status()
        rows = httpx.get(f"{url}/pipelines").json()["pipelines"]
        (shown,) = (row for row in rows if row["name"] == NAME)
        if (shown["watermark"] or "") > "2020" and shown["processed_rate"]:
            report: dict[str, Any] = shown
            return report
        assert time.monotonic() < deadline_s, shown
        time.sleep(1)
