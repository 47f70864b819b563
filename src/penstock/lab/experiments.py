"""The experiments of the lab, as a table."""

from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.lab.change_matrix import run_matrix
from penstock.lab.lab_result import LabResult
from penstock.lab.lab_run import LabRun
from penstock.lab.overhead import run_overhead
from penstock.lab.stampede import run_stampede


class LabExperiment(NamedTuple):
    """One row: how it is called, and what it shows."""

    name: str
    help: str
    run: Callable[[LabRun], LabResult]
    extra: str = "arrow"  # what must be installed


EXPERIMENTS: Final = (
    LabExperiment("overhead", "Time per event and requests to the registry.", run_overhead),
    LabExperiment("stampede", "Cold producers that start at the same time.", run_stampede),
    LabExperiment("matrix", "Changes, levels and languages: verdicts and reads.", run_matrix),
)
