"""The rules of the quorum, as case files: one story per subject."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.raft_simulation.scenario import Scenario

CASES = sorted((Path(__file__).parent / "cases").glob("*.case"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: str(path.stem))
def test_the_quorum_behaves_as_the_case_file_says(
    path: Path, run_cases: Callable[[Path, Callable[[str], str]], None]
) -> None:
    run_cases(path, Scenario().say)
