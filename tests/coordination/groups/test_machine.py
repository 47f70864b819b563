"""The group coordinator's rules, told in case files; `pytest --rewrite` writes what it says now."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

CASES = sorted((Path(__file__).parent / "cases").glob("*.case"))


class Desk(Protocol):
    """What a case file talks to."""

    def say(self, step: str) -> str: ...


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_coordinator_answers_as_the_case_file_says(
    path: Path, run_cases: Callable[[Path, Callable[[str], str]], None], desk: Desk
) -> None:
    run_cases(path, desk.say)
