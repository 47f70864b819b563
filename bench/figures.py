"""How a bench says what it found: a figure of ours, the peer's figure of the same run, the ratio.

Every script ends in `report(measure(), __doc__, peer="its name")`. With `--json` it prints one
object per line, as `python -m bench` gathers them; without, a table for people.
"""

import argparse
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Final

from rich.console import Console
from rich.table import Table

LIMIT: Final = "limit"  # as a peer's name: ours is compared with a fixed number


@dataclass(frozen=True, slots=True)
class Figure:
    """One comparison. `target` is the ratio the claim wants (">= 1.1", "<= 0.6") or empty.

    `floor` belongs to a latency: that of a bare server in the same run (`bench.floor`), which is
    the machine's share. A peer that did not keep up with the load has no latency to compare with.
    """

    name: str
    ours: float
    peer: float | None  # None: there was no peer to be had
    unit: str
    target: str = ""
    note: str = ""
    peer_name: str = ""
    floor: float | None = None
    peer_kept_up: bool = True

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


def report(figures: Iterable[Figure], title: str | None, *, peer: str) -> None:
    """Print the figures as they come; `peer` is the peer's name where a figure has no other."""
    figures = (one if one.peer_name else replace(one, peer_name=peer) for one in figures)
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    if parser.parse_args().json:
        for figure in figures:
            print(json.dumps({**asdict(figure), "ratio": figure.ratio}), flush=True)
        return
    Console().print(as_table(figures, title))


def ratio_text(figure: Figure) -> str:
    """The ratio for people; none where the peer did not keep up, as it has no end."""
    if figure.ratio is None:
        return "-"
    return f"{figure.ratio:.2f}" if figure.peer_kept_up else "peer did not keep up"


def as_table(figures: Iterable[Figure], title: str | None) -> Table:
    """The figures as a table for the terminal."""
    table = Table(title=(title or "").strip().splitlines()[0] if title else None)
    for heading in ("what", "ours", "peer", "ratio", "unit", "target", "floor", ""):
        table.add_column(heading, justify="left" if heading in ("what", "unit", "") else "right")
    for figure in figures:
        verdict = {None: "", True: "ok", False: "missed"}[figure.holds]
        table.add_row(
            figure.name,
            f"{figure.ours:,.4g}",
            "-" if figure.peer is None else f"{figure.peer:,.4g}",
            ratio_text(figure),
            figure.unit,
            figure.target,
            "" if figure.floor is None else f"{figure.floor:,.4g}",
            verdict or figure.note,
        )
    return table
