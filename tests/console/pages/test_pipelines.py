"""A real Spark query on the page of pipelines: while it runs, and after its driver was killed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support.reported_query import NAME

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.testing.platform import Platform
    from tests.console.pages.conftest import OpenPage

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
START_MS = 180_000  # for Spark, on a machine that may be busy
STALE_MS = 90_000


@pytest.fixture
def query(console: Platform, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The process of a query over the clicks of the shop."""
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17 or newer (make java)")
    arguments = (console.bootstrap, "clicks", str(tmp_path))
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
    clicks = {"records": [{"key": f"v{n}", "value": {"page": "/"}} for n in range(50)]}
    watermark = row.locator("td", has_text="20")  # a year
    deadline_rounds = 60
    while not watermark.count() and deadline_rounds:
        httpx.post(f"{console.registry_url}/topics/clicks/produce", json=clicks).raise_for_status()
        page.wait_for_timeout(1_000)
        deadline_rounds -= 1
    (shown,) = httpx.get(f"{console.registry_url}/pipelines").json()["pipelines"]
    assert (shown["name"], shown["state"], shown["lag"]) == (NAME, "running", "0")
    assert int(shown["batch"]) >= 1
    assert shown["processed_rate"] > 0
    assert shown["watermark"] > "2020"
    query.kill()
    row.get_by_text("stale").wait_for(timeout=STALE_MS)
    assert page.locator("tr", has_text=NAME).count() == 1
