"""`penstock replay`: read a range of a topic again on Spark, with one schema."""

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli.connect import check_reachable, kafka_properties
from penstock.cli.error_output import fail
from penstock.cli.options import LOCAL_BOOTSTRAP, LOCAL_REGISTRY, REGISTRY, AsJson, Bootstrap
from penstock.cli.output import show_json
from penstock.errors import Refused
from penstock.extras import require
from penstock.model import Millis, Offset
from penstock.serde.errors import ClientError

if TYPE_CHECKING:
    from penstock.spark.replay import Replay, ReplayEdge

_NO_REGISTRY: Final = "none"

ReadSchema = Annotated[
    str,
    typer.Option(
        "--schema", "-s", help="Schema to read with: latest, a version number, or a file."
    ),
]
EndOffset = Annotated[
    str, typer.Option("--to", help="End offset, exclusive: end, N, @milliseconds or a time.")
]
OnUnreadable = Annotated[
    str,
    typer.Option("--on-unreadable", help="For unreadable events: fail, skip or quarantine."),
]
JobName = Annotated[
    str | None,
    typer.Option("--job", help="Name of the replay; the same name continues one that was stopped."),
]
RegistryOrNone = Annotated[
    str,
    typer.Option(
        "--registry",
        "-r",
        envvar=REGISTRY,
        help="URL of the schema registry, or none.",
    ),
]


def replay(
    topic: Annotated[str, typer.Argument(help="Topic to read.")],
    to_topic: Annotated[str | None, typer.Option("--to-topic", help="Topic to write.")] = None,
    to_parquet: Annotated[
        str | None, typer.Option("--to-parquet", help="Folder to write Parquet files to.")
    ] = None,
    schema: ReadSchema = "latest",
    start: Annotated[
        str,
        typer.Option("--from", help="First offset: start, N, @milliseconds or 2026-01-31T12:00."),
    ] = "start",
    end: EndOffset = "end",
    on_unreadable: OnUnreadable = "fail",
    job: JobName = None,
    step: Annotated[int, typer.Option("--step", help="Offsets per step.", min=1)] = 250_000,
    master: Annotated[
        str | None, typer.Option("--master", help="URL of the Spark master; default: local.")
    ] = None,
    registry: RegistryOrNone = LOCAL_REGISTRY,
    bootstrap: Bootstrap = LOCAL_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Read a topic again on Spark, into a topic or Parquet. Can be stopped and continued."""
    if (to_topic is None) == (to_parquet is None):
        raise typer.BadParameter("pass one of --to-topic NAME and --to-parquet FOLDER")
    spark_replay, session = _spark()
    if on_unreadable not in set(spark_replay.OnUnreadable):
        choices = ", ".join(spark_replay.OnUnreadable)
        raise typer.BadParameter(f"--on-unreadable is one of {choices}")
    bounds = spark_replay.ReplayBounds(_edge("--from", start), _edge("--to", end))
    options = {f"kafka.{name}": value for name, value in kafka_properties(bootstrap).items()}
    if registry.lower() != _NO_REGISTRY:
        options["registry"] = registry
    source = spark_replay.ReplaySource(
        topic, options, _schema(schema), spark_replay.OnUnreadable(on_unreadable)
    )
    target = spark_replay.TopicTarget(to_topic or "")
    if to_parquet is not None:
        target = spark_replay.ParquetTarget(to_parquet)
    check_reachable(bootstrap)
    spark = session("penstock replay", master=master)
    try:
        spark.sparkContext.setLogLevel("ERROR")
        job_run = spark_replay.Replay(
            spark, source, target, bounds=bounds, job=job, step_offsets=step
        )
        _run(job_run, as_json)
    except (Refused, ClientError) as failure:
        fail(str(failure))
    finally:
        spark.stop()


def _spark() -> tuple[Any, Any]:
    """Loaded here, because no other command needs Spark."""
    require("spark")
    from penstock.spark import replay as spark_replay
    from penstock.spark.spark_session import session

    return spark_replay, session


def _run(replay: "Replay", as_json: bool) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    before = replay.records_done
    if before:
        console.print(
            f"{replay.job}: continues after {before:,} of {replay.records_total:,} offsets"
        )
    by_schema: Counter[int | None] = Counter()
    unreadable = 0
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(replay.job, total=replay.records_total, completed=before)
        for step in replay.run():
            by_schema, unreadable = step.by_schema, step.unreadable
            progress.update(task, completed=step.records_done)
    versions = replay.versions(by_schema)
    if as_json:
        show_json(
            {
                "job": replay.job,
                "offsets": replay.records_total,
                "before": before,
                "unreadable": unreadable,
                "records_by_version": versions,
            }
        )
        return
    for version, count in versions.items():
        typer.echo(f"{version:>12}  {count:,}")
    if unreadable:
        typer.echo(f"{'unreadable':>12}  {unreadable:,}")
    typer.echo(f"{replay.job}: done, {replay.records_total:,} offsets")


def _schema(option: str) -> str:
    """The option, or the text of the file that it names."""
    if option.lower() == "latest" or option.isdecimal():
        return option
    path = Path(option)
    if not path.is_file():
        raise typer.BadParameter(f"--schema {option}: neither a version number nor a file")
    text = path.read_text(encoding="utf-8")
    try:
        json.loads(text)
    except ValueError:
        raise typer.BadParameter(f"--schema {option} is not an Avro or JSON schema") from None
    return text


def _edge(option: str, text: str) -> "ReplayEdge":
    from penstock.spark.read_options import AtTimes, LogEnd

    if text in ("start", "end"):
        return LogEnd.EARLIEST if text == "start" else LogEnd.LATEST
    if text.isdecimal():
        return Offset(int(text))
    if text.startswith("@") and text[1:].isdecimal():
        return AtTimes(Millis(int(text[1:])), latest_if_none=True)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{option} {text}: use start, end, an offset, @milliseconds or a time like 2026-01-31"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return AtTimes(Millis(round(moment.timestamp() * 1000)), latest_if_none=True)
