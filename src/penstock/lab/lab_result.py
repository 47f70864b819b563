"""What an experiment found: claims, tables and plots; as JSON and as a Markdown page.

A claim about speed depends on the machine: it can be reported without deciding the outcome.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.lab.svg_plots import Points, bar_plot, line_plot


@dataclass(frozen=True, slots=True)
class LabClaim:
    """A sentence that the run confirmed or not, and what was measured."""

    text: str
    measured: str
    holds: bool
    is_speed: bool = False


@dataclass(frozen=True, slots=True)
class LabTable:
    """A table of the page."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class LabPlot:
    """Lines if there is a label for x, else bars (each line has one point)."""

    title: str
    y_label: str
    lines: Mapping[str, Points]
    x_label: str = ""

    def svg(self) -> str:
        """The plot drawn."""
        if self.x_label:
            return line_plot(self.title, self.x_label, self.y_label, self.lines)
        return bar_plot(
            self.title, self.y_label, {name: points[0][1] for name, points in self.lines.items()}
        )


@dataclass(slots=True)
class LabResult:
    """Everything about one run. `numbers` are what other pages cite, by name."""

    name: str
    question: str
    config: Mapping[str, Any]
    claims: list[LabClaim] = field(default_factory=list)
    tables: list[LabTable] = field(default_factory=list)
    plots: list[LabPlot] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def claim(self, text: str, measured: str, holds: bool, *, is_speed: bool = False) -> None:
        """Add a claim."""
        self.claims.append(LabClaim(text, measured, bool(holds), is_speed))

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Add a table."""
        cells = tuple(tuple(map(str, row)) for row in rows)
        self.tables.append(LabTable(title, tuple(columns), cells))

    def holds(self, *, with_speed: bool = True) -> bool:
        """Whether all claims hold, with or without those about speed."""
        return all(claim.holds for claim in self.claims if with_speed or not claim.is_speed)

    def write(self, folder: Path) -> None:
        """Write `<name>.json`, `<name>.md` and the plots."""
        folder.mkdir(parents=True, exist_ok=True)
        document = asdict(self)
        text = json.dumps(document, indent=1, default=str, ensure_ascii=False)
        (folder / f"{self.name}.json").write_text(text + "\n", encoding="utf-8")
        for old in folder.glob(f"{self.name}-[0-9]*.svg"):
            old.unlink()
        for number, plot in enumerate(self.plots, 1):
            (folder / f"{self.name}-{number}.svg").write_text(plot.svg(), encoding="utf-8")
        (folder / f"{self.name}.md").write_text(self.page(), encoding="utf-8")

    def page(self) -> str:
        """The Markdown page."""
        command = f"penstock lab {self.name} " + " ".join(
            f"--{key} {value}" for key, value in self.config.items() if key in ("seed", "scale")
        )
        machine = ", ".join(f"{key}: {value}" for key, value in self.machine.items())
        config = ", ".join(f"{key} {value}" for key, value in self.config.items())
        lines = [
            f"# Lab: {self.name}", "", self.question, "",
            f"`{command}` took {self.seconds:.0f} s. {machine}.", "", f"Configuration: {config}.",
            "", "| claim | measured | holds |", "|---|---|---|",
        ]  # fmt: skip
        lines += [
            f"| {_cell(one.text)} | {_cell(one.measured)} | {'yes' if one.holds else '**no**'} |"
            for one in self.claims
        ]
        for number, plot in enumerate(self.plots, 1):
            lines += ["", f"![{plot.title}]({self.name}-{number}.svg)"]
        for table in self.tables:
            lines += ["", f"## {table.title}", "", _row(table.columns)]
            lines += [_row(["---"] * len(table.columns)), *map(_row, table.rows)]
        for note in self.notes:
            lines += ["", note]
        return "\n".join([*lines, ""])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
