"""The clocks of the shells, in milliseconds."""

import time

from penstock.model import Millis


def monotonic_ms() -> Millis:
    """Never goes back; from no particular moment."""
    return Millis(time.monotonic_ns() // 1_000_000)


def wall_ms() -> Millis:
    """The time of day."""
    return Millis(time.time_ns() // 1_000_000)
