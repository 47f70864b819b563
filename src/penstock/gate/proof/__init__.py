"""Proof by example: events written with one schema and read with another.

Events are generated from the writer's schema, first for the paths that differ; the same seed gives
the same events. Nothing here decides whether a change is allowed: it shows what the change does.
"""

from penstock.gate.proof.prove import (
    DifferenceLocation,
    Evidence,
    Trial,
    locate,
    missing_fields,
    prove,
    renamed_fields,
)

__all__ = [
    "DifferenceLocation",
    "Evidence",
    "Trial",
    "locate",
    "missing_fields",
    "prove",
    "renamed_fields",
]
