"""The coordinator's rules, as case files: one per subject."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

CASES = sorted((Path(__file__).parent / "cases").glob("*.case"))


class Desk(Protocol):
    def say(self, step: str) -> str: ...


@pytest.mark.parametrize("path", CASES, ids=lambda path: str(path.stem))
def test_the_coordinator_says_what_the_case_file_says(
    path: Path, desk: Desk, run_cases: Callable[[Path, Callable[[str], str]], None]
) -> None:
    run_cases(path, desk.say)
