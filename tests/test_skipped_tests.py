"""Tests that need a program are skipped without it; the run says which, and how to get it."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOOKED_FOR = re.compile(r'shutil\.which\("([a-z-]+)"\)')
PACKAGES = {  # of programs whose package has another name
    "java": "openjdk-17-jre-headless",
    "mvn": "maven",
    "promtool": "prometheus",
    "ip": "iproute2",
    "mount": "",  # on every machine
}
SKIPPING = """\
import pytest

@pytest.mark.parametrize("number", [1, 2])
def test_with_a_tool(number):
    pytest.skip("gadget is not installed (make tools)")

def test_without():
    pass
"""


def test_the_last_lines_of_a_run_say_what_was_skipped_and_how_to_get_it(tmp_path: Path) -> None:
    """In several processes, as `make test` runs it."""
    (tmp_path / "test_gadget.py").write_text(SKIPPING)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-n", "1"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "test_gadget.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    heading, *lines = done.stdout[done.stdout.index("not run on this machine") :].splitlines()
    assert lines[0].split(maxsplit=1) == ["2", "gadget is not installed (make tools)"]
    assert lines[1].startswith("`make tools` installs ")
    assert "kcat" in lines[1]
    assert re.search(r"1 passed, 2 skipped", lines[-1]), heading


def test_make_tools_installs_every_program_that_tests_look_for() -> None:
    programs = {
        name
        for path in (ROOT / "tests").rglob("*.py")
        for name in LOOKED_FOR.findall(path.read_text())
    }
    assert {"kcat", "java", "prometheus", "chromium"} <= programs
    installed = (ROOT / "Makefile").read_text()
    missing = {name for name in programs if PACKAGES.get(name, name) not in installed}
    assert missing == set()
