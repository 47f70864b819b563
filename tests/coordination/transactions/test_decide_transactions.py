"""The rules of transactions as case files, one per subject."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

CASES = sorted((Path(__file__).parent / "cases").glob("*.case"))


class Scenario(Protocol):
    def step(self, line: str) -> str: ...


@pytest.mark.parametrize("path", CASES, ids=lambda path: str(path.stem))
def test_the_coordinator_replies_as_in_the_case_file(
    path: Path, scenario: Scenario, run_cases: Callable[[Path, Callable[[str], str]], None]
) -> None:
    run_cases(path, scenario.step)
