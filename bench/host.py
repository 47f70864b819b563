"""Undisturbed rounds: those in which the host of a virtual machine took little time.

A host that runs other machines suspends this one for milliseconds. The kernel counts that time
("steal"). If it is more than one per cent, a 99th percentile shows the host alone; so a load runs
more often than needed, and only undisturbed rounds are used, or the least disturbed ones if there
are too few.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

STOLEN_MAX: Final = 0.01
COUNTED_MIN: Final = 3
_STEAL: Final = 8  # the column of /proc/stat's first line


class Round(NamedTuple):
    """The result of a load, and the share of the machine's time that the host took meanwhile."""

    measured: dict[str, float]
    stolen_share: float


def timed(load: Callable[[], dict[str, float]]) -> Round:
    """One round of a load."""
    before = _ticks()
    measured = load()
    spent = [after - earlier for earlier, after in zip(before, _ticks(), strict=True)]
    return Round(measured, spent[_STEAL - 1] / max(sum(spent), 1))


def calm(rounds: Sequence[Round]) -> list[Round]:
    """The rounds to use, in the order of their run."""
    least = sorted(each.stolen_share for each in rounds)[:COUNTED_MIN]
    limit = max(STOLEN_MAX, least[-1])
    return [each for each in rounds if each.stolen_share <= limit]


def _ticks() -> list[int]:
    """Of all processors: user, nice, system, idle, I/O wait, interrupts, soft ones, stolen."""
    first = Path("/proc/stat").read_text().split("\n", 1)[0]
    return [int(ticks) for ticks in first.split()[1 : _STEAL + 1]]
