"""Fixtures of simulated clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.cluster_simulation.quiet import QUIET, Start
from tests.support.cluster_simulation.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start a cluster without faults, and end it with the test."""
    scenarios: list[Scenario] = []

    def start(**options: Any) -> Scenario:
        scenario = Scenario(1, tmp_path, monkeypatch, {**QUIET, **options})
        scenarios.append(scenario)
        scenario.begin()
        scenario.run_for(2.0)
        return scenario

    yield start
    for scenario in scenarios:
        scenario.close()
