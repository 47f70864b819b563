"""`penstock lab …`: run experiments about contracts, and write their results."""

import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli.error_output import fail
from penstock.extras import require
from penstock.lab.experiments import EXPERIMENTS, LabExperiment
from penstock.lab.lab_platform import LabError, LabPlatform, lab_platform
from penstock.lab.lab_result import LabResult
from penstock.lab.lab_run import LabRun, LabScale
from penstock.serde.errors import ClientError

app: Final = typer.Typer(
    no_args_is_help=True, help="Run experiments about contracts; each checks its claims."
)

Seed = Annotated[int, typer.Option("--seed", help="Seed of all generated events and orders.")]
Scale = Annotated[
    LabScale, typer.Option("--scale", help="quick is for tests; full takes hours for some.")
]
Out = Annotated[Path, typer.Option("--out", help="Folder for results: JSON, Markdown, SVG.")]
DataFolder = Annotated[
    Path | None,
    typer.Option("--dir", help="Data folder of the started broker; kept, so runs can continue."),
]
Fraction = Annotated[
    float,
    typer.Option("--fraction", min=0.001, max=1.0, help="Part of the scale, for trials."),
]
Brokers = Annotated[int, typer.Option("--brokers", min=1, help="Brokers to start.")]
RequireSpeed = Annotated[
    bool,
    typer.Option(
        "--require-speed/--report-speed",
        help="Whether claims about speed decide the exit status.",
    ),
]
LabBootstrap = Annotated[
    str | None,
    typer.Option("--bootstrap", "-b", help="Broker to use; default: start one for the run."),
]
LabRegistry = Annotated[
    str | None, typer.Option("--registry", "-r", help="Registry to use, with --bootstrap.")
]


@dataclass(frozen=True, slots=True)
class LabOptions:
    """The options that all experiments have."""

    seed: int
    scale: LabScale
    out: Path
    folder: Path | None
    fraction: float
    brokers: int
    require_speed: bool
    bootstrap: str | None
    registry: str | None


@app.callback()
def _commands() -> None:
    """Run experiments about contracts; each checks its claims."""


def _run(experiments: tuple[LabExperiment, ...], options: LabOptions) -> None:
    for experiment in experiments:
        require(experiment.extra)
    signal.signal(signal.SIGTERM, _exit)  # so that the processes of the run are stopped
    started_s = time.monotonic()
    try:
        with lab_platform(
            options.bootstrap, options.registry, folder=options.folder,
            brokers=options.brokers,
        ) as platform:  # fmt: skip
            results = [_run_one(one, platform, options) for one in experiments]
    except (LabError, ClientError) as failure:
        fail(str(failure))
    typer.echo(f"{len(results)} of {len(experiments)} done in {time.monotonic() - started_s:.0f} s")
    failed = [
        result.name for result in results if not result.holds(with_speed=options.require_speed)
    ]
    if failed:
        fail(f"claims do not hold: {', '.join(failed)}")


def _exit(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def _run_one(experiment: LabExperiment, platform: LabPlatform, options: LabOptions) -> LabResult:
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    started_s = time.monotonic()
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(experiment.name, total=None)

        def show(what: str, done: float, total: float) -> None:
            progress.update(
                task, description=f"{experiment.name}: {what}", completed=done, total=total
            )

        run = LabRun(
            experiment.name, platform, options.seed, options.scale, show, options.folder,
            options.fraction,
        )  # fmt: skip
        result = experiment.run(run)
    result.seconds = time.monotonic() - started_s
    result.write(options.out)
    typer.echo(f"{result.stem} ({result.seconds:.0f} s)")
    for claim in result.claims:
        mark = "ok    " if claim.holds else "FAILED"
        typer.echo(f"  {mark} {claim.text}: {claim.measured}")
    return result


def _command(experiments: tuple[LabExperiment, ...]) -> Callable[..., None]:
    def command(
        seed: Seed = 1,
        scale: Scale = LabScale.DEFAULT,
        out: Out = Path("docs/lab"),
        folder: DataFolder = None,
        fraction: Fraction = 1.0,
        brokers: Brokers = 1,
        require_speed: RequireSpeed = True,
        bootstrap: LabBootstrap = None,
        registry: LabRegistry = None,
    ) -> None:
        _run(
            experiments,
            LabOptions(
                seed, scale, out, folder, fraction, brokers, require_speed, bootstrap, registry
            ),
        )

    return command


@app.command()
def findings(
    results: Annotated[Path, typer.Option("--results", help="Folder with results.")] = Path(
        "docs/lab"
    ),
    page: Annotated[Path, typer.Option("--page", help="Page to write.")] = Path(
        "docs/compatibility.md"
    ),
) -> None:
    """Write the page on compatibility and the pages of the lab from the results of experiments."""
    from penstock.lab.findings import (
        findings_page,
        index_with_runs,
        load_results,
        missing_results,
    )

    found = load_results(results)
    missing = missing_results(found)
    if missing:
        fail(f"{results} has no result of {', '.join(missing)}; run `penstock lab {missing[0]}`")
    page.write_text(findings_page(found), encoding="utf-8")
    for stem in found:
        result = LabResult.read(results / f"{stem}.json")
        (results / f"{stem}.md").write_text(result.page(), encoding="utf-8")
    index = results / "index.md"
    if index.exists():
        text = index_with_runs(index.read_text(encoding="utf-8"), found)
        index.write_text(text, encoding="utf-8")
    typer.echo(f"wrote {page}")


for _experiment in EXPERIMENTS:
    app.command(_experiment.name, help=_experiment.help)(_command((_experiment,)))
app.command("all", help="Run every experiment.")(_command(EXPERIMENTS))
