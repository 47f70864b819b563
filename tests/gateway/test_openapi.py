"""The OpenAPI document: the page shows all of it, and requests made from it never end in a 500."""

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

PATHS = "^/(topics|consumer-groups|cluster|v3|console|quarantine|pipelines|search|sql)"


def test_the_page_shows_every_path_with_examples(http: httpx.Client) -> None:
    page = http.get("/docs").text
    paths = http.get("/openapi.json").json()["paths"]
    records = "/v3/clusters/{cluster}/topics/{topic}/records"
    for path in (
        "/topics/{topic}/produce", "/consumer-groups/{group}/offsets", "/cluster",
        "/topics/{topics}/stream", records, f"{records}:batch",
    ):  # fmt: skip
        assert path in paths
        assert f"<code>{path}</code>" in page
    assert "&quot;berlin&quot;" in page


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_schemathesis_finds_no_server_error(gateway_url: str, tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "schemathesis.cli", "run", f"{gateway_url}/openapi.json",
        "--checks", "not_a_server_error", "--max-examples", "25", "--phases", "fuzzing",
        "--include-path-regex", PATHS, "--request-timeout", "30",
        "--suppress-health-check", "all", "--no-color",
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=580, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout[-4000:]
