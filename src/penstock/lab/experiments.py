"""The experiments of the lab, as a table."""

from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.lab.bakeoff import run_bakeoff
from penstock.lab.change_matrix import run_matrix
from penstock.lab.frame_fuzz import run_fuzz
from penstock.lab.gate_refusals import run_gate
from penstock.lab.lab_result import LabResult
from penstock.lab.lab_run import LabRun
from penstock.lab.overhead import run_overhead
from penstock.lab.renames import run_aliases
from penstock.lab.replay_corpus import run_replay
from penstock.lab.rollout import run_rollout
from penstock.lab.shared_types import run_references
from penstock.lab.stampede import run_stampede
from penstock.lab.upgrade_order import run_order
from penstock.lab.wire_dumps import run_wire


class LabExperiment(NamedTuple):
    """One row: how it is called, and what it shows."""

    name: str
    help: str
    run: Callable[[LabRun], LabResult]
    extra: str = "arrow"  # what must be installed


EXPERIMENTS: Final = (
    LabExperiment("overhead", "Time per event and requests to the registry.", run_overhead),
    LabExperiment("stampede", "Cold producers that start at the same time.", run_stampede),
    LabExperiment("matrix", "Changes, levels and languages: answers and reads.", run_matrix),
    LabExperiment("order", "Upgrades in the right and the wrong order.", run_order),
    LabExperiment("rollout", "Upgrades under load, one process at a time.", run_rollout),
    LabExperiment("bakeoff", "The three languages side by side.", run_bakeoff),
    LabExperiment("replay", "Mixed versions through Spark.", run_replay, "spark"),
    LabExperiment("gate", "Breaking schemas at the gate and the registry.", run_gate),
    LabExperiment("fuzz", "Damaged frames are refused and quarantined.", run_fuzz),
    LabExperiment("wire", "The bytes of a record in each language.", run_wire),
    LabExperiment("references", "A shared type that evolves.", run_references),
    LabExperiment("aliases", "Renames that are safe in both directions.", run_aliases),
)
