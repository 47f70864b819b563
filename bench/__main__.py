"""Run every bench, one after another, and write what they found: `make bench`.

Leaves `bench/results.json` and `bench/results.md`. Names of single benches may be given.
"""

import json
import os
import platform
import subprocess
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from bench.figures import Figure

HERE = Path(__file__).parent
NOT_BENCHES = {"__init__", "__main__", "figures", "peers", "latency", "load"}
SECONDS_MAX = 1800


def main(wanted: list[str]) -> int:
    """Run the benches; non-zero if one of them broke."""
    names = wanted or sorted(
        path.stem for path in HERE.glob("*.py") if path.stem not in NOT_BENCHES
    )
    results: dict[str, list[Figure]] = {}
    broken = []
    for name in names:
        print(f"== {name}", flush=True)
        figures = run(name)
        if figures is None:
            broken.append(name)
            continue
        results[name] = figures
        for figure in figures:
            ratio = "no peer" if figure.ratio is None else f"{figure.ratio:.2f}x"
            print(f"   {figure.name}: {figure.ours:,.4g} {figure.unit} ({ratio})", flush=True)
    write(results)
    if broken:
        print(f"broken: {', '.join(broken)}", file=sys.stderr)
    return 1 if broken else 0


def run(name: str) -> list[Figure] | None:
    """One bench in a process of its own, so that none warms or burdens the next."""
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


def write(results: dict[str, list[Figure]]) -> None:
    """The JSON for programs, the Markdown for docs."""
    machine: dict[str, object] = {
        "date": datetime.now(UTC).date().isoformat(),  # noqa: TID251 - a report is dated
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "librdkafka through confluent-kafka": version("confluent-kafka"),
    }
    rows = {
        name: [{**asdict(figure), "ratio": figure.ratio} for figure in figures]
        for name, figures in results.items()
    }
    (HERE / "results.json").write_text(json.dumps({"machine": machine, **rows}, indent=1) + "\n")
    (HERE / "results.md").write_text(as_markdown(results, machine))


def as_markdown(results: dict[str, list[Figure]], machine: dict[str, object]) -> str:
    """One table per bench, the machine on top."""
    facts = ", ".join(f"{key} {value}" for key, value in machine.items())
    lines = ["# Bench results", "", f"Made by `make bench`: {facts}.", ""]
    for name, figures in results.items():
        lines += [f"## `python -m bench.{name}`", ""]
        lines += ["| what | ours | peer | ratio | unit | target |", "|---|---|---|---|---|---|"]
        for f in figures:
            peer = "-" if f.peer is None else f"{f.peer:,.4g}"
            ratio = "-" if f.ratio is None else f"{f.ratio:.2f}"
            lines.append(f"| {f.name} | {f.ours:,.4g} | {peer} | {ratio} | {f.unit} | {f.target} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
