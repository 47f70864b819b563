"""Whole clusters from seeds: whatever happens, nothing acknowledged is lost and all recovers.

More seeds: `pytest tests/sim/test_cluster.py --cluster-seeds 500`.
"""

from pathlib import Path

import pytest

from tests.support.cluster_simulation.scenario import run_seed


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(metafunc.config.getoption("--cluster-seeds")))


def test_a_cluster_loses_nothing_and_recovers(seed: int, tmp_path: Path) -> None:
    run_seed(seed, tmp_path)


def test_a_seed_is_one_history(tmp_path: Path) -> None:
    assert run_seed(3, tmp_path / "first") == run_seed(3, tmp_path / "second")
