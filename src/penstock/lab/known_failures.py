"""Claims that do not hold in committed results, each with its cause.

A test compares the results with this table: a claim that fails must be here, and a claim that is
here must fail. Pages of results show the cause; `penstock lab findings` writes them again.
"""

from collections.abc import Mapping
from typing import Final

# By the name of the result's files and the text of the claim.
KNOWN_FAILURES: Final[Mapping[tuple[str, str], str]] = {
    ("rollout", f"{mode}: at least 95 % of the rate"): "other programs used the processors during"
    " this run, as the load before it shows."
    for mode in ("FULL, any", "BACKWARD, consumers first", "FORWARD, producers first")
}
