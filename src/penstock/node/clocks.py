"""The clocks of a broker process: brought together, so that a simulation can bring its own."""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.model import Millis, Moment


class Clocks(NamedTuple):
    """How the parts of a broker read the time."""

    wall: Callable[[], Millis]  # the time of day, for what is stored or shown
    steady: Callable[[], Millis]  # for time-outs: it goes on when the time of day is set
    moment: Callable[[], Moment]  # both
    monotonic_s: Callable[[], float]  # the steady clock in seconds


def _wall() -> Millis:
    return Millis(time.time_ns() // 1_000_000)


def _steady() -> Millis:
    return Millis(time.monotonic_ns() // 1_000_000)


def _moment() -> Moment:
    """Without calls in between: every commit needs it."""
    steady_ms, wall_ms = time.monotonic_ns() // 1_000_000, time.time_ns() // 1_000_000
    return Moment(Millis(steady_ms), Millis(wall_ms))


SYSTEM_CLOCKS: Final = Clocks(_wall, _steady, _moment, time.monotonic)
