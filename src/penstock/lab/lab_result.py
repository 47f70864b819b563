"""What an experiment found: claims, tables and plots; as JSON and as a Markdown page.

A claim about speed depends on the machine: it can be reported without deciding the outcome.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.lab.known_failures import KNOWN_FAILURES
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
    options: Mapping[str, Any]  # of the command, by name
    config: Mapping[str, Any] = field(default_factory=dict)  # what the options mean here
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

    @property
    def stem(self) -> str:
        """The name of its files: runs of another scale, fraction or cluster have their own."""
        parts = [self.name]
        if (scale := self.options.get("scale", "default")) != "default":
            parts.append(str(scale))
        if (fraction := self.options.get("fraction", 1.0)) != 1.0:
            parts.append(f"fraction-{fraction:g}")
        if (brokers := self.options.get("brokers", 1)) != 1:
            parts.append(f"{brokers}-brokers")
        return "-".join(parts)

    @classmethod
    def read(cls, path: Path) -> "LabResult":
        """The result in a JSON file that `write` made."""
        document = json.loads(path.read_text(encoding="utf-8"))
        document["claims"] = [LabClaim(**row) for row in document["claims"]]
        document["plots"] = [LabPlot(**row) for row in document["plots"]]
        document["tables"] = [
            LabTable(row["title"], tuple(row["columns"]), tuple(map(tuple, row["rows"])))
            for row in document["tables"]
        ]
        return cls(**document)

    def write(self, folder: Path) -> None:
        """Write `<stem>.json`, `<stem>.md` and the plots."""
        folder.mkdir(parents=True, exist_ok=True)
        document = asdict(self)
        text = json.dumps(document, indent=1, default=str, ensure_ascii=False)
        (folder / f"{self.stem}.json").write_text(text + "\n", encoding="utf-8")
        for old in folder.glob(f"{self.stem}-[0-9]*.svg"):
            if old.stem.removeprefix(f"{self.stem}-").isdigit():
                old.unlink()
        for number, plot in enumerate(self.plots, 1):
            (folder / f"{self.stem}-{number}.svg").write_text(plot.svg(), encoding="utf-8")
        (folder / f"{self.stem}.md").write_text(self.page(), encoding="utf-8")

    def cause(self, claim: LabClaim) -> str:
        """Why a claim does not hold, if that is known."""
        return KNOWN_FAILURES.get((self.stem, claim.text), "")

    def page(self) -> str:
        """The Markdown page."""
        options = (f"--{key} {value}" for key, value in self.options.items())
        command = " ".join(("penstock lab", self.name, *options))
        machine = ", ".join(f"{key}: {value}" for key, value in self.machine.items())
        config = ", ".join(f"{key} {value}" for key, value in self.config.items())
        lines = [
            f"# Lab: {self.stem}", "", self.question, "",
            f"`{command}` took {self.seconds:.0f} s.", "", f"Machine: {machine}.", "",
            f"Configuration: {config or 'as the options say'}.", "",
            "| claim | measured | holds |", "|---|---|---|",
        ]  # fmt: skip
        lines += [
            f"| {_cell(one.text)} | {_cell(one.measured)} | {'yes' if one.holds else '**no**'} |"
            for one in self.claims
        ]
        for one in self.claims:
            if not one.holds and (cause := self.cause(one)):
                lines += ["", f"Why *{one.text}* does not hold: {cause}"]
        for number, plot in enumerate(self.plots, 1):
            lines += ["", f"![{plot.title}]({self.stem}-{number}.svg)"]
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
