"""The clocks of a broker process: brought together, so that a simulation can bring its own."""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.clock import monotonic_ms, wall_ms
from penstock.model import Millis, Moment


class Clocks(NamedTuple):
    """How the parts of a broker read the time."""

    wall: Callable[[], Millis]  # the time of day, for what is stored or shown
    steady: Callable[[], Millis]  # for time-outs: it goes on when the time of day is set
    moment: Callable[[], Moment]  # both
    monotonic_s: Callable[[], float]  # the steady clock in seconds


def _moment() -> Moment:
    """Without calls in between: every commit needs it."""
    steady_ns, wall_ns = time.monotonic_ns(), time.time_ns()
    return Moment(Millis(steady_ns // 1_000_000), Millis(wall_ns // 1_000_000))


SYSTEM_CLOCKS: Final = Clocks(wall_ms, monotonic_ms, _moment, time.monotonic)
