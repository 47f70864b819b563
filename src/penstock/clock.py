"""The shells' clock: milliseconds that never go back, from no particular moment."""

import time

from penstock.model import Millis


def monotonic_ms() -> Millis:
    return Millis(time.monotonic_ns() // 1_000_000)
