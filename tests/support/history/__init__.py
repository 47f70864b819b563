"""What clients did and saw, and whether that can be: one checker for simulated and real runs.

Clients record each operation with its outcome: acknowledged, refused for certain, or unknown (a
time-out or a lost connection: it may have taken effect, now or later). `check` then compares with
what readers saw. Unknown outcomes stay unknown: the checker accepts both.
"""

from tests.support.history.checker import check
from tests.support.history.record import (
    UNKNOWN_OFFSET,
    Changed,
    Committed,
    Fetched,
    History,
    Outcome,
    Owned,
    Produced,
    Read,
    Seen,
    Transaction,
    read_operation,
)

__all__ = [
    "UNKNOWN_OFFSET",
    "Changed",
    "Committed",
    "Fetched",
    "History",
    "Outcome",
    "Owned",
    "Produced",
    "Read",
    "Seen",
    "Transaction",
    "check",
    "read_operation",
]
