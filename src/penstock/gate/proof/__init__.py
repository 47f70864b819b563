"""Proof of what a rule says about two schemas: real events, written with one, read with the other.

Events are made from the writer's schema, aimed at the place that differs, the same for the same
seed. Nothing here decides whether a change is allowed; it shows what the change does.
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
