"""The result of a benchmark: Penstock's figure, a peer's figure of the same run, and their ratio.

Every script ends in `report(measure(), __doc__, peer="its name")`. With `--json` it prints one
object per line, which `python -m bench` collects; without it, a table.
"""

import argparse
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Final

from rich.console import Console
from rich.table import Table

LIMIT: Final = "limit"  # as the name of a peer: the figure is compared with a fixed number


@dataclass(frozen=True, slots=True)
class Figure:
    """One comparison. `target` is the required ratio (">= 1.1", "<= 0.6") or empty.

    `floor` belongs to a latency: that of a minimal server with the same client in the same run
    (`bench.floor`, `bench.kafka_floor`), which is the share of machine and client. A
    peer that did not keep up with the load has no latency to compare.
    """

    name: str
    ours: float
    peer: float | None  # None: no peer is available
    unit: str
    target: str = ""
    note: str = ""
    peer_name: str = ""
    floor: float | None = None
    peer_kept_up: bool = True

    @property
    def ratio(self) -> float | None:
        """Penstock's figure divided by the peer's."""
        return self.ours / self.peer if self.peer else None

    @property
    def is_met(self) -> bool | None:
        """Whether the target is met, by the exact ratio; None if there is no target or no peer."""
        if not self.target or self.ratio is None:
            return None
        sign, bound = self.target.split()
        return self.ratio >= float(bound) if sign == ">=" else self.ratio <= float(bound)


def report(figures: Iterable[Figure], title: str | None, *, peer: str) -> None:
    """Print the figures as they come; `peer` is the name of the peer unless a figure has one."""
    named = (figure if figure.peer_name else replace(figure, peer_name=peer) for figure in figures)
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    if parser.parse_args().json:
        for figure in named:
            print(json.dumps({**asdict(figure), "ratio": figure.ratio}), flush=True)
        return
    Console().print(as_table(named, title))


def ratio_text(figure: Figure) -> str:
    """The ratio as text; none if the peer did not keep up, because its latency is unbounded."""
    if figure.ratio is None:
        return "-"
    return f"{figure.ratio:.2f}" if figure.peer_kept_up else "peer did not keep up"


def target_text(figure: Figure) -> str:
    """Whether the target is met, as a word; empty without a target."""
    return {None: "", True: "met", False: "missed"}[figure.is_met]


def remark_text(figure: Figure) -> str:
    """Whether the target is met, and what else is to be said."""
    return "; ".join(filter(None, (target_text(figure), figure.note)))


def as_table(figures: Iterable[Figure], title: str | None) -> Table:
    """The figures as a table for the terminal."""
    table = Table(title=(title or "").strip().splitlines()[0] if title else None)
    for heading in ("figure", "Penstock", "peer", "ratio", "unit", "target", "floor", ""):
        table.add_column(heading, justify="left" if heading in ("figure", "unit", "") else "right")
    for figure in figures:
        table.add_row(
            figure.name,
            f"{figure.ours:,.4g}",
            "-" if figure.peer is None else f"{figure.peer:,.4g}",
            ratio_text(figure),
            figure.unit,
            figure.target,
            "" if figure.floor is None else f"{figure.floor:,.4g}",
            remark_text(figure),
        )
    return table
