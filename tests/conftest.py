"""Shared by all tests: case files, checked, or written again with `pytest --rewrite`.

A case file is a list of steps. A step is one line, then `----`, then what the code says to it:

    append at leader 1, end=10
    ----
    high_watermark=0
    fetch by replica 2 at=10       # replica 3 is in sync too, and still at 0
    ----
    high_watermark=0

The line above a `----` is the step; a comment after ` #` is not part of it. Blank lines and lines
that start with `#` between steps are kept as they are, so no answer may contain such a line.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ("tests.support.platform_fixtures",)

RunCases: TypeAlias = Callable[[Path, Callable[[str], str]], None]

_RULE = "----"

# A loaded machine is no reason to fail. The gate always tries the same examples, so that it says
# the same of the same commit; everywhere else each run tries others.
settings.register_profile(
    "penstock",
    deadline=None,
    derandomize=os.environ.get("CI") == "true",
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("penstock")

# Tests start hundreds of processes: each would compile all of Penstock again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Spark in this process, and in programs that tests start, waits for its Python on a busy machine.
os.environ.setdefault("SPARK_TEST_PYTHON", sys.executable)
os.environ.setdefault(
    "PYSPARK_PYTHON", str(Path(__file__).parent / "support" / "spark_python" / "python")
)


class Step(NamedTuple):
    """One step of a case file: prose before it, the line itself, and the answer it should get."""

    lead: list[str]
    line: str
    answer: list[str]

    @property
    def command(self) -> str:
        """The line without its comment."""
        return self.line.split(" #", 1)[0].strip()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write into the case files what the code says now"
    )
    parser.addoption(
        "--cluster-seeds", type=int, default=25, help="how many simulated clusters to run"
    )
    parser.addoption(
        "--rounds", type=int, default=3, help="how often each failure happens to a real cluster"
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the very end what did not run here, and how to get what it needs."""
    reports: list[pytest.TestReport] = terminalreporter.stats.get("skipped", [])
    reasons = Counter(
        str(report.longrepr[2]) for report in reports if type(report.longrepr) is tuple
    )
    if not reasons:
        return
    terminalreporter.section("not run on this machine")
    for reason, count in reasons.most_common():
        terminalreporter.line(f"{count:4} {reason.removeprefix('Skipped: ')}")
    terminalreporter.line(
        "`make tools` installs kcat, Java, Maven, Prometheus, Chromium … (Debian, as root)."
    )


@pytest.fixture(scope="session")
def penstock_settings() -> dict[str, str]:
    """Short intervals of compaction for the shared broker, so that a test can wait for it.

    It keeps what is old: tests write events of any time, and a run outlasts a round of retention.
    """
    return {"log.cleaner.backoff.ms": "300", "log.retention.ms": "-1"}


@pytest.fixture
def run_cases(request: pytest.FixtureRequest) -> RunCases:
    """Runs one case file: `run_cases(path, say)`, where `say(step)` returns the answer as lines."""
    rewrite = bool(request.config.getoption("--rewrite"))

    def run(path: Path, say: Callable[[str], str]) -> None:
        steps, tail = read_steps(path.read_text())
        said = [step._replace(answer=_lines_of(say(step.command))) for step in steps]
        if rewrite:
            path.write_text(write_steps(said, tail))
        else:
            assert write_steps(said, tail) == write_steps(steps, tail)

    return run


def read_steps(text: str) -> tuple[list[Step], list[str]]:
    """The steps of a case file, and the prose after the last of them."""
    lines = text.splitlines()
    rules = [number for number, line in enumerate(lines) if line == _RULE]
    assert rules, "a case file has at least one step followed by ----"
    steps: list[Step] = []
    position = 0
    for number, rule in enumerate(rules):
        is_last = number + 1 == len(rules)
        end = len(lines) if is_last else rules[number + 1] - 1
        lead, line, answer = lines[position : rule - 1], lines[rule - 1], lines[rule + 1 : end]
        kept = next((i for i, text in enumerate(answer) if _is_prose(text)), len(answer))
        steps.append(Step(lead, line, answer[:kept]))
        position = rule + 1 + kept
    return steps, lines[position:]


def write_steps(steps: list[Step], tail: list[str]) -> str:
    """The text of a case file."""
    lines: list[str] = []
    for step in steps:
        lines += [*step.lead, step.line, _RULE, *step.answer]
    return "\n".join([*lines, *tail]) + "\n"


def _lines_of(answer: str) -> list[str]:
    lines = answer.splitlines()
    assert not any(_is_prose(line) or line == _RULE for line in lines), f"unfit answer: {answer!r}"
    return lines


def _is_prose(line: str) -> bool:
    return not line.strip() or line.startswith("#")
