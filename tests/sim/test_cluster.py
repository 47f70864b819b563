"""Whole clusters from seeds: whatever happens, nothing acknowledged is lost and all recovers.

More seeds: `pytest tests/sim/test_cluster.py --cluster-seeds 500`.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cluster_simulation.scenario import run_seed


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(metafunc.config.getoption("--cluster-seeds")))


def test_a_cluster_loses_nothing_and_recovers(seed: int, tmp_path: Path) -> None:
    run_seed(seed, tmp_path)


PRINT_TRACE = """
import sys
from pathlib import Path
import pytest
from tests.support.cluster_simulation.scenario import run_seed

unused = [object() for _ in range(int(sys.argv[3]))]  # so that nothing is at the same address
print(run_seed(int(sys.argv[1]), Path(sys.argv[2])))
"""


@pytest.mark.parametrize("number", [3, 4])
def test_a_seed_is_one_history_in_every_process(number: int, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PRINT_TRACE, str(number), str(tmp_path / name), objects],
            env=environment, stdout=subprocess.PIPE, text=True,
        )
        for name, objects in (("first", "1"), ("second", "1001"))
    ]  # fmt: skip
    first, second = (process.communicate(timeout=300)[0] for process in running)
    assert first == second
    assert first
