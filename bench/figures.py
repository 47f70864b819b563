"""How a bench says what it found: a figure of ours, the peer's figure of the same run, the ratio.

Every script ends in `report(measure(), __doc__)`. With `--json` it prints one object per line, as
`python -m bench` gathers them; without, a table for people.
"""

import argparse
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Figure:
    """One comparison. `target` is the ratio the claim wants (">= 1.1", "<= 0.6") or empty."""

    name: str
    ours: float
    peer: float | None  # None: there was no peer to be had
    unit: str
    target: str = ""
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours divided by the peer's."""
        return self.ours / self.peer if self.peer else None

    @property
    def holds(self) -> bool | None:
        """Whether the target is met; None when there is none or nothing to compare with.

        Goes by the ratio as it is shown: no run is exact to a thousandth.
        """
        if not self.target or self.ratio is None:
            return None
        sign, bound = self.target.split()
        ratio = round(self.ratio, 2)
        return ratio >= float(bound) if sign == ">=" else ratio <= float(bound)


def report(figures: Iterable[Figure], title: str | None) -> None:
    """Print the figures as they come, for a program or for people."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    if parser.parse_args().json:
        for figure in figures:
            print(json.dumps({**asdict(figure), "ratio": figure.ratio}), flush=True)
        return
    Console().print(as_table(figures, title))


def as_table(figures: Iterable[Figure], title: str | None) -> Table:
    """The figures as a table for the terminal."""
    table = Table(title=(title or "").strip().splitlines()[0] if title else None)
    for heading in ("what", "ours", "peer", "ratio", "unit", "target", ""):
        table.add_column(heading, justify="left" if heading in ("what", "unit", "") else "right")
    for figure in figures:
        verdict = {None: "", True: "ok", False: "missed"}[figure.holds]
        table.add_row(
            figure.name,
            f"{figure.ours:,.4g}",
            "-" if figure.peer is None else f"{figure.peer:,.4g}",
            "-" if figure.ratio is None else f"{figure.ratio:.2f}",
            figure.unit,
            figure.target,
            verdict or figure.note,
        )
    return table
