"""The pages about Spark: every program runs, from top to bottom, with the output that is shown.

```python    runs in one namespace per page, with the session of the tests
```sh        runs in a shell, in the same folder
```text      the output of the block before: these lines, in this order, with others between them;
             … stands for anything
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
    """A platform for each page: the pages share topic names."""
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


def check_output(expected: str, output: str) -> None:
    lines = iter(output.splitlines())
    for line in expected.splitlines():
        texts = [re.sub(r"(\\ )+", r"\\s+", re.escape(text)) for text in line.split("…")]
        pattern = re.compile(".*".join(texts))
        assert any(pattern.fullmatch(other.rstrip()) for other in lines), (line, output)


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
    addresses = {
        "http://127.0.0.1:8081": platform.registry_url,
        "127.0.0.1:9092": platform.bootstrap,
        "/data/": f"{tmp_path}/data/",
    }
    names: dict[str, Any] = {"__name__": "notebook"}
    output, count = "", 0
    try:
        for indent, kind, text in FENCE.findall((PAGES / page).read_text()):
            block = dedent(text) if indent else text
            for shown, real in addresses.items():
                block = block.replace(shown, real)
            if kind == "text":
                check_output(block, output)
            elif kind == "sh":
                output = run_shell(block, tmp_path, platform)
            else:
                count += 1
                with redirect_stdout(StringIO()) as out:
                    exec(compile(block, f"{page}, program {count}", "exec"), names)
                output = out.getvalue()
    finally:
        for query in spark.streams.active:
            query.stop()
    assert count >= programs, "is a program no longer marked as python?"
