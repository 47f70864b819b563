"""What every experiment gets: where it runs, its seed and scale, and how it shows progress."""

import os
import platform as machine_facts
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

import psutil

from penstock.lab.lab_platform import LabPlatform
from penstock.lab.lab_result import LabResult

_T = TypeVar("_T")
_GIB: Final = 1 << 30


class LabScale(StrEnum):
    """How much to run: minutes on two cores, or hours."""

    QUICK = "quick"  # for tests: the same steps with little of everything
    DEFAULT = "default"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class LabRun:
    """One run of one experiment."""

    name: str
    platform: LabPlatform
    seed: int
    scale: LabScale
    show: Callable[[str, float, float], None]  # what is done, how much, of how much
    folder: Path | None  # for what a run keeps between restarts; None: nothing is kept
    fraction: float = 1.0  # of the scale, where an experiment supports it

    def sized(self, *, quick: int, default: int, full: int | None = None) -> int:
        """A number for the scale of this run."""
        sizes = {LabScale.QUICK: quick, LabScale.DEFAULT: default, LabScale.FULL: full or default}
        return sizes[self.scale]

    def result(self, question: str, **config: Any) -> LabResult:
        """An empty result of this run."""
        own = {"seed": self.seed, "scale": str(self.scale), **config}
        return LabResult(self.name, question, own, machine=machine())

    def steps(self, what: str, items: Sequence[_T]) -> Iterable[_T]:
        """The items, with progress."""
        for number, item in enumerate(items):
            self.show(what, number, len(items))
            yield item
        self.show(what, len(items), len(items))


def machine() -> dict[str, Any]:
    """What a result says about the machine."""
    return {
        "cores": os.cpu_count(),
        "memory": f"{psutil.virtual_memory().total / _GIB:.0f} GiB",
        "python": machine_facts.python_version(),
        "system": machine_facts.system(),
        "load before": round(os.getloadavg()[0], 1),
    }


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
