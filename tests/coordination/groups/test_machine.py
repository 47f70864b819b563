"""The rules of groups as case files, one per subject."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

CASES = sorted((Path(__file__).parent / "cases").glob("*.case"))


class Scenario(Protocol):
    """What runs the steps of a case file."""

    def step(self, line: str) -> str: ...


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_coordinator_replies_as_in_the_case_file(
    path: Path, run_cases: Callable[[Path, Callable[[str], str]], None], scenario: Scenario
) -> None:
    run_cases(path, scenario.step)
