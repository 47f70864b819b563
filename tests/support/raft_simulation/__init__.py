"""Raft cores on one bus with virtual time, from a seed: faults, invariants, recovery."""

from tests.support.raft_simulation.simulation import Simulation, run_seed, trace_of

__all__ = ["Simulation", "run_seed", "trace_of"]
