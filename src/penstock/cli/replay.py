"""`penstock replay`: a topic read again between two bounds, as one schema sees it."""

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli.connect import (
    LOCAL,
    Bootstrap,
    check_reachable,
    fail,
    kafka_properties,
)
from penstock.cli.output import AsJson, show_json
from penstock.cli.registry_connect import LOCAL_REGISTRY
from penstock.errors import Refused
from penstock.extras import require
from penstock.model import Millis, Offset
from penstock.serde.errors import ClientError

if TYPE_CHECKING:
    from penstock.spark.replay import Replay, ReplayEdge

_NO_REGISTRY: Final = "none"


def replay(
    topic: Annotated[str, typer.Argument(help="What is read again.")],
    to_topic: Annotated[str | None, typer.Option("--to-topic", help="Where events go.")] = None,
    to_parquet: Annotated[
        str | None, typer.Option("--to-parquet", help="A folder for Parquet files instead.")
    ] = None,
    schema: Annotated[
        str, typer.Option("--schema", "-s", help="Seen through: latest, a version, or a file.")
    ] = "latest",
    start: Annotated[
        str, typer.Option("--from", help="start, N, @milliseconds or 2026-01-31T12:00.")
    ] = "start",
    end: Annotated[str, typer.Option("--to", help="end, N, @milliseconds or a time.")] = "end",
    on_bad: Annotated[
        str, typer.Option("--on-bad", help="Of what cannot be read: fail, skip or quarantine.")
    ] = "fail",
    job: Annotated[
        str | None, typer.Option("--job", help="Its name; the same goes on where it was stopped.")
    ] = None,
    part: Annotated[
        int, typer.Option("--part", help="So many offsets at a time.", min=1)
    ] = 250_000,
    master: Annotated[str | None, typer.Option("--master", help="Spark's, if not local.")] = None,
    registry: Annotated[
        str,
        typer.Option("--registry", "-r", envvar="PENSTOCK_REGISTRY", help="Its URL, or none."),
    ] = LOCAL_REGISTRY,
    bootstrap: Bootstrap = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Read a topic again, on Spark, into a topic or Parquet. Stopped, it can be started again."""
    if (to_topic is None) == (to_parquet is None):
        raise typer.BadParameter("say where to: --to-topic NAME or --to-parquet FOLDER")
    replaying, session = _spark_parts()
    if on_bad not in set(replaying.OnUnreadable):
        raise typer.BadParameter(f"--on-bad is one of {', '.join(replaying.OnUnreadable)}")
    bounds = replaying.ReplayBounds(_edge("--from", start), _edge("--to", end))
    options = {f"kafka.{name}": value for name, value in kafka_properties(bootstrap).items()}
    if registry.lower() != _NO_REGISTRY:
        options["registry"] = registry
    source = replaying.ReplaySource(topic, options, _schema(schema), replaying.OnUnreadable(on_bad))
    target = replaying.TopicTarget(to_topic or "")
    if to_parquet is not None:
        target = replaying.ParquetTarget(to_parquet)
    check_reachable(bootstrap)
    spark = session("penstock replay", master=master)
    try:
        spark.sparkContext.setLogLevel("ERROR")
        doing = replaying.Replay(spark, source, target, bounds=bounds, job=job, step_offsets=part)
        _run(doing, as_json)
    except (Refused, ClientError) as refused:
        fail(str(refused))
    finally:
        spark.stop()


def _spark_parts() -> tuple[Any, Any]:
    """What runs it: loaded here, because no other command needs Spark."""
    require("spark")
    from penstock.spark import replay as replaying
    from penstock.spark.spark_session import session

    return replaying, session


def _run(doing: "Replay", as_json: bool) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    before = doing.records_done
    if before:
        console.print(f"{doing.job}: goes on after {before:,} of {doing.records_total:,} offsets")
    by_schema: Counter[int | None] = Counter()
    bad = 0
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(doing.job, total=doing.records_total, completed=before)
        for part in doing.run():
            by_schema, bad = part.by_schema, part.unreadable
            progress.update(task, completed=part.records_done)
    versions = doing.versions(by_schema)
    if as_json:
        told = {"job": doing.job, "offsets": doing.records_total, "before": before, "bad": bad}
        show_json({**told, "records_by_version": versions})
        return
    for version, count in versions.items():
        typer.echo(f"{version:>12}  {count:,}")
    if bad:
        typer.echo(f"{'unreadable':>12}  {bad:,}")
    typer.echo(f"{doing.job}: done, {doing.records_total:,} offsets")


def _schema(told: str) -> str:
    """The option, or the text of the file that it names."""
    if told.lower() == "latest" or told.isdecimal():
        return told
    path = Path(told)
    if not path.is_file():
        raise typer.BadParameter(f"--schema {told}: no version's number, and there is no such file")
    text = path.read_text(encoding="utf-8")
    try:
        json.loads(text)
    except ValueError:
        raise typer.BadParameter(f"--schema {told} is no Avro or JSON schema") from None
    return text


def _edge(option: str, told: str) -> "ReplayEdge":
    from penstock.spark.read_options import AtTimes, LogEnd

    if told in ("start", "end"):
        return LogEnd.EARLIEST if told == "start" else LogEnd.LATEST
    if told.isdecimal():
        return Offset(int(told))
    if told.startswith("@") and told[1:].isdecimal():
        return AtTimes(Millis(int(told[1:])), latest_if_none=True)
    try:
        moment = datetime.fromisoformat(told)
    except ValueError:
        raise typer.BadParameter(
            f"{option} {told}: say start, end, an offset, @milliseconds or a time like 2026-01-31"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return AtTimes(Millis(round(moment.timestamp() * 1000)), latest_if_none=True)
