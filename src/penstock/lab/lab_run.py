"""What every experiment gets: where it runs, its seed and scale, and how it shows progress."""

import os
import platform as machine_facts
import re
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
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
        options = {
            "seed": self.seed,
            "scale": str(self.scale),
            "fraction": self.fraction,
            "brokers": self.platform.brokers,
        }
        if not self.platform.is_own:
            config["platform"] = "not started by the run"
        return LabResult(self.name, question, options, config, machine=machine())

    def steps(self, what: str, items: Sequence[_T]) -> Iterable[_T]:
        """The items, with progress."""
        for number, item in enumerate(items):
            self.show(what, number, len(items))
            yield item
        self.show(what, len(items), len(items))


def machine() -> dict[str, Any]:
    """What a result says about the machine."""
    return {
        "commit": _commit(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory": f"{psutil.virtual_memory().total / _GIB:.0f} GiB",
        "python": machine_facts.python_version(),
        "system": machine_facts.system(),
        "load before": round(os.getloadavg()[0], 1),
    }


def _processor() -> str:
    try:
        facts = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return machine_facts.processor() or machine_facts.machine()
    found = re.search(r"^model name\s*: (.+)$", facts, re.MULTILINE)
    return found[1] if found else machine_facts.machine()


def _commit() -> str:
    """Of the code that runs, with a mark if it is changed; its version if it is installed."""
    source = Path(__file__).parents[1]

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(source), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", __file__)
        changed = git("status", "--porcelain", "--", str(source))
        return git("rev-parse", "--short=12", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return f"version {version('penstock')}"


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
