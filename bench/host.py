"""The calmest rounds: those in which the host of a virtual machine took the least time for others.

A host that runs others lets our processors stand for milliseconds, which no server can help and
every high percentile shows. The kernel counts that time ("steal"), whatever the server does; so a
load is run more often than needed, and the rounds count in which least was taken.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

_STEAL: Final = 8  # the column of /proc/stat's first line


class Round(NamedTuple):
    """What a load measured, and how much of the machine's time was taken meanwhile."""

    measured: dict[str, float]
    stolen_share: float


def timed(load: Callable[[], dict[str, float]]) -> Round:
    """One round of a load."""
    before = _ticks()
    measured = load()
    spent = [after - earlier for earlier, after in zip(before, _ticks(), strict=True)]
    return Round(measured, spent[_STEAL - 1] / max(sum(spent), 1))


def calmest(rounds: Sequence[Round], count: int) -> list[Round]:
    """So many of them, in the order they were run."""
    limit = sorted(each.stolen_share for each in rounds)[count - 1]
    return [each for each in rounds if each.stolen_share <= limit][:count]


def _ticks() -> list[int]:
    """Of all processors: user, nice, system, idle, I/O wait, interrupts, soft ones, stolen."""
    first = Path("/proc/stat").read_text().split("\n", 1)[0]
    return [int(ticks) for ticks in first.split()[1 : _STEAL + 1]]
