"""The case-file runner itself."""

from collections.abc import Callable
from pathlib import Path

import pytest

_TEXT = """\
# adding up

add 1
----
sum=1
add 2     # a comment stays, and is not part of the step
----
sum=3
seen=2

# the end
"""


class _Adder:
    def __init__(self) -> None:
        self.seen: list[int] = []

    def say(self, step: str) -> str:
        self.seen.append(int(step.removeprefix("add ")))
        lines = [f"sum={sum(self.seen)}"]
        return "\n".join(lines if len(self.seen) == 1 else [*lines, f"seen={len(self.seen)}"])


RunCases = Callable[[Path, Callable[[str], str]], None]


def test_a_case_file_that_says_what_the_code_says_passes(
    tmp_path: Path, run_cases: RunCases
) -> None:
    path = tmp_path / "adding.case"
    path.write_text(_TEXT)
    run_cases(path, _Adder().say)
    assert path.read_text() == _TEXT


def test_a_case_file_that_says_otherwise_fails(
    tmp_path: Path, run_cases: RunCases, request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "adding.case"
    path.write_text(_TEXT.replace("sum=3", "sum=4"))
    if request.config.getoption("--rewrite"):
        run_cases(path, _Adder().say)
        assert path.read_text() == _TEXT
    else:
        with pytest.raises(AssertionError):
            run_cases(path, _Adder().say)
