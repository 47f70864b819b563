"""The pages about Spark: every program of theirs runs, from top to bottom, and says what it says.

```python    runs in one namespace per page, with the tests' own session
```sh        runs in a shell, in the same folder
```text      what the block before must have said: these lines, in this order, others between
             them; … stands for anything
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.testing.platform import Platform

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
FENCE = re.compile(r"^( *)```(python|sh|text)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def platform() -> Iterator[Platform]:
    """One of its own: pages name their topics plainly."""
    platform = Platform("pages").start()
    yield platform
    platform.stop()


def run_shell(command: str, folder: Path, platform: Platform) -> str:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PENSTOCK_BOOTSTRAP": platform.bootstrap,
        "PENSTOCK_REGISTRY": platform.registry_url,
        "COLUMNS": "200",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command], cwd=folder, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


def check_said(wanted: str, said: str) -> None:
    lines = iter(said.splitlines())
    for line in wanted.splitlines():
        parts = [re.sub(r"(\\ )+", r"\\s+", re.escape(part)) for part in line.split("…")]
        pattern = re.compile(".*".join(parts))
        assert any(pattern.fullmatch(one.rstrip()) for one in lines), (line, said)


@pytest.mark.parametrize(
    ("page", "programs"),
    [("spark-source.md", 5), ("spark-processing.md", 7), ("spark-sink.md", 4)],
)
def test_every_program_of_a_page_about_spark_runs(
    page: str,
    programs: int,
    spark: SparkSession,
    platform: Platform,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    places = {
        "http://127.0.0.1:8081": platform.registry_url,
        "127.0.0.1:9092": platform.bootstrap,
        "/data/": f"{tmp_path}/data/",
    }
    names: dict[str, Any] = {"__name__": "notebook"}
    said, count = "", 0
    try:
        for indent, kind, text in FENCE.findall((PAGES / page).read_text()):
            here = dedent(text) if indent else text
            for named, real in places.items():
                here = here.replace(named, real)
            if kind == "text":
                check_said(here, said)
            elif kind == "sh":
                said = run_shell(here, tmp_path, platform)
            else:
                count += 1
                with redirect_stdout(StringIO()) as out:
                    exec(compile(here, f"{page}, program {count}", "exec"), names)
                said = out.getvalue()
    finally:
        for query in spark.streams.active:
            query.stop()
    assert count >= programs, "is a program no longer marked as python?"
