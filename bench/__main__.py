"""Run all benchmarks, one after another, and write their results: `make bench`.

    python -m bench                 all benchmarks
    python -m bench serde log       these
    python -m bench --quick         those that start no Java
    python -m bench --draw          none: write the pages and charts of earlier results again

Writes `bench/results.json` and `bench/results.md`, `docs/benchmarks.md`, and the charts in
`docs/charts`. A run of some benchmarks replaces their results and keeps the others, each with the
date, machine and versions of its measurement.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, TypeAlias

from bench.charts import bench_chart, overview_chart, shown
from bench.figures import LIMIT, Figure, ratio_text, remark_text
from bench.remarks import REMARKS

HERE: Final = Path(__file__).parent
CHARTS: Final = Path("docs/charts")
IS_BENCH: Final = ("from bench.figures import", "report(measure(), __doc__, peer=")
NEEDS_JAVA: Final = ("apache_kafka", "both_servers", "apicurio", "pyspark", "penstock.spark")
SECONDS_MAX: Final = 3600
PACKAGES: Final = ("confluent-kafka", "fastavro", "pyarrow", "numba", "pyspark")

# by benchmark: its figures, and where they were measured
Results: TypeAlias = dict[str, dict[str, Any]]


def main(arguments: Sequence[str], *, root: Path = HERE.parent) -> int:
    """Run the benchmarks; non-zero if one of them failed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", help="benchmarks to run; by default all")
    parser.add_argument("--quick", action="store_true", help="run only those that start no Java")
    parser.add_argument("--draw", action="store_true", help="only write pages and charts again")
    options = parser.parse_args(arguments)
    if options.draw:
        write(read_results(root), root)
        return 0
    known = benches()
    names = options.names or [name for name, java in known.items() if not (options.quick and java)]
    if unknown := [name for name in names if name not in known]:
        parser.error(f"unknown benchmark {', '.join(unknown)}; known: {', '.join(known)}")
    results = read_results(root)
    failed = []
    for name in names:
        print(f"== {name}", flush=True)
        figures = run(name)
        if figures is None:
            failed.append(name)
            continue
        results[name] = {"measured": measured(), "figures": [asdict(figure) for figure in figures]}
        for figure in figures:
            text = f"{figure.name}: {shown(figure.ours)} {figure.unit}"
            print(f"   {text} (ratio {ratio_text(figure)})", flush=True)
        write(results, root)  # after each: an interrupted run keeps its results
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def benches() -> dict[str, bool]:
    """The benchmarks by name, and whether each starts Java."""
    texts = {path.stem: path.read_text() for path in sorted(HERE.glob("*.py"))}
    return {
        name: any(word in text for word in NEEDS_JAVA)
        for name, text in texts.items()
        if all(words in text for words in IS_BENCH) and name != "__main__"
    }


def run(name: str) -> list[Figure] | None:
    """Run one benchmark in its own process, so that none affects the next."""
    done = subprocess.run(
        [sys.executable, "-m", f"bench.{name}", "--json"],
        cwd=HERE.parent,
        stdout=subprocess.PIPE,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    if done.returncode != 0:
        return None
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for row in rows:
        row.pop("ratio", None)
    return [Figure(**row) for row in rows]


def measured() -> dict[str, object]:
    """The date, the machine and the versions."""
    now = datetime.now(UTC)  # noqa: TID251 - a report is dated
    facts: dict[str, object] = {
        "date": now.date().isoformat(),
        "commit": _output_of("git", "rev-parse", "--short", "HEAD"),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": _java(),
    }
    for package in PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            continue
    return {name: fact for name, fact in facts.items() if fact}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _java() -> str:
    output = _output_of("java", "--version")
    return output.splitlines()[0] if output else ""


def _output_of(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def read_results(root: Path) -> Results:
    """The results of earlier runs, of benchmarks that still exist."""
    path = root / "bench" / "results.json"
    if not path.exists():
        return {}
    results: Results = json.loads(path.read_text())
    known = benches()
    return {name: bench for name, bench in results.items() if name in known}


def write(results: Results, root: Path) -> None:
    """Write JSON for programs, Markdown and charts for people."""
    ordered = {name: results[name] for name in sorted(results)}
    figures = {name: figures_of(bench) for name, bench in ordered.items()}
    (root / "bench").mkdir(exist_ok=True)
    (root / "bench" / "results.json").write_text(json.dumps(ordered, indent=1) + "\n")
    charts = root / CHARTS
    charts.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, rows in figures.items():
        if chart := bench_chart(f"python -m bench.{name}", rows):
            (charts / f"{name}.svg").write_text(chart)
            drawn.append(name)
    (charts / "overview.svg").write_text(overview_chart(figures))
    (root / "bench" / "results.md").write_text(as_markdown(ordered, drawn, f"../{CHARTS}"))
    (root / "docs" / "benchmarks.md").write_text(as_markdown(ordered, drawn, CHARTS.name))


def figures_of(bench: Mapping[str, Any]) -> list[Figure]:
    """The figures of one benchmark as they were stored."""
    return [Figure(**row) for row in bench["figures"]]


def as_markdown(results: Results, drawn: Sequence[str], charts: str) -> str:
    """One table per benchmark, with where it was measured."""
    lines = [
        "# Benchmarks",
        "",
        "Generated by `make bench`. Each benchmark measures Penstock and a peer in the same run.",
        "The ratio is Penstock's figure divided by the peer's; the target says whether it should",
        "be large or small. Absolute numbers are valid for one machine; ratios carry over better.",
        "On a virtual machine whose host is shared, latencies and commits use the rounds in which",
        "the host took the least time (`bench/host.py`). The floor of a latency is that of a",
        "minimal server that sends fixed bytes to the same client, in the same run: the share of",
        "machine and client (`bench/floor.py` for HTTP, `bench/kafka_floor.py` for Kafka). Where",
        "other work runs beside a load, the floor is the same load without that work. The floor of",
        "a micro-batch of Spark is the peer: both run in one session. A peer did not keep up if",
        "messages for more than 100 ms waited, in the median or at the end of a run: its latency",
        "is unbounded, and there is no ratio. A figure that is compared with a fixed limit has",
        '"limit" in the column of the peer.',
        "",
        f"![Ten claims compared with their peers]({charts}/overview.svg)",
        "",
    ]
    for name, bench in results.items():
        facts = ", ".join(f"{key} {value}" for key, value in bench["measured"].items())
        lines += [f"## `python -m bench.{name}`", "", facts, ""]
        if name in drawn:
            lines += [f"![{name}]({charts}/{name}.svg)", ""]
        lines += _table(figures_of(bench))
        lines.append("")
        if name in REMARKS:
            lines += [REMARKS[name], ""]
    return "\n".join(lines)


def _table(figures: Sequence[Figure]) -> list[str]:
    """The peers are named above the table; it has a column of floors if there are any."""
    names = {figure.peer_name: None for figure in figures if figure.peer is not None}
    peers = [name for name in names if name and name != LIMIT]
    floor = " floor |" if any(figure.floor is not None for figure in figures) else ""
    return [
        *([f"Peer: {'; '.join(peers)}.", ""] if peers else []),
        f"| figure | Penstock | peer | ratio | unit | target |{floor} |",
        f"|---|---|---|---|---|---|{'---|' if floor else ''}---|",
        *(_row(figure, peers, bool(floor)) for figure in figures),
    ]


def _row(figure: Figure, peers: Sequence[str], with_floor: bool) -> str:
    peer = "-" if figure.peer is None else shown(figure.peer)
    if figure.peer is not None and figure.peer_name not in ("", *peers[:1]):
        peer += f" ({figure.peer_name})"
    floor = "" if figure.floor is None else shown(figure.floor)
    cells = [figure.name, shown(figure.ours), peer, ratio_text(figure), figure.unit, figure.target]
    cells += [floor] if with_floor else []
    cells.append(remark_text(figure))
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
