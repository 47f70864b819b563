"""`penstock up`: a whole node on this machine, until Ctrl-C.

The log is a broker of ours, or with `--log kafka:HOST:PORT` a cluster that is there already: then
no broker is started, and everything above the log runs on that cluster.
"""

import json
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from penstock.cli.broker_options import (
    PORT_LAST,
    Advertise,
    AllowedHosts,
    ConfigFile,
    Folder,
    Host,
    Insecure,
    KafkaConfig,
    KafkaPort,
    Level,
    LogLevel,
    ReadyAsJson,
    Settings,
    broker_options,
)
from penstock.cli.error_output import REFUSED, show_server_error
from penstock.node.broker_process import BrokerOptions
from penstock.node.http_process import HTTP_PORT, LOCALHOST, HttpOptions
from penstock.node.supervisor import CannotStart, supervise

OUR_LOG: Final = "penstock"
KAFKA_LOG: Final = "kafka:"
KAFKA: Final = f"{LOCALHOST}:9092"  # what every command asks unless told otherwise
REGISTRY: Final = f"http://{LOCALHOST}:{HTTP_PORT}"


class Choices(NamedTuple):
    """What is started: a broker or somebody else's, the HTTP services or not."""

    broker: BrokerOptions | None
    http: HttpOptions | None


def up(
    folder: Folder = None,
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="A folder of its own, removed at the end.")
    ] = False,
    log: Annotated[
        str,
        typer.Option(
            "--log", help="penstock: a broker of ours. kafka:HOST:PORT: an existing cluster."
        ),
    ] = OUR_LOG,
    kafka_config: KafkaConfig = None,
    kafka_port: KafkaPort = None,
    http_port: Annotated[
        int | None,
        typer.Option(
            "--http-port",
            min=0,
            max=PORT_LAST,
            help="For the HTTP services; 0 is any free one.",
            show_default="8081",
        ),
    ] = None,
    with_http: Annotated[
        bool, typer.Option("--http/--no-http", help="Serve the schema registry over HTTP.")
    ] = True,
    host: Host = None,
    advertise: Advertise = None,
    insecure: Insecure = False,
    allowed_hosts: AllowedHosts = None,
    config: ConfigFile = None,
    settings: Settings = None,
    as_json: ReadyAsJson = False,
    log_level: LogLevel = Level.WARNING,
) -> None:
    """Start a broker and the schema registry on this machine, and watch over them until Ctrl-C."""
    _check_together(folder, ephemeral, log, kafka_port, with_http, config, settings)
    broker = broker_options(
        folder, ephemeral=ephemeral, kafka_port=kafka_port, host=host, advertise=advertise,
        config=config, settings=settings, quick=True, insecure=insecure, log_level=log_level,
    )  # fmt: skip
    http = HttpOptions(
        kafka=log.removeprefix(KAFKA_LOG),  # replaced by the broker's, once that is known
        kafka_config=None if kafka_config is None or log == OUR_LOG else str(kafka_config),
        host=host or LOCALHOST,
        http_port=HTTP_PORT if http_port is None else http_port,
        advertised_host=None if advertise is None else _host_of(advertise),
        log_level=log_level.value,
        insecure=insecure,
        allowed_hosts=tuple(allowed_hosts or ()),
    )
    if log != OUR_LOG:
        _check_reachable(http.kafka)
    choices = Choices(broker if log == OUR_LOG else None, http if with_http else None)
    raise typer.Exit(_watch(choices, as_json=as_json))


def _check_together(
    folder: Path | None,
    ephemeral: bool,
    log: str,
    kafka_port: int | None,
    with_http: bool,
    config: Path | None,
    settings: list[str] | None,
) -> None:
    if ephemeral and folder is not None:
        raise typer.BadParameter("--dir and --ephemeral exclude each other")
    if log == OUR_LOG:
        return
    if not log.startswith(KAFKA_LOG) or ":" not in log.removeprefix(KAFKA_LOG):
        raise typer.BadParameter(f"--log is {OUR_LOG}, or {KAFKA_LOG}HOST:PORT; {log!r} is neither")
    given = (folder, ephemeral or None, kafka_port, config, settings or None)
    names = ("--dir", "--ephemeral", "--kafka-port", "--config", "--set")
    ours = [name for name, value in zip(names, given, strict=True) if value is not None]
    if ours:
        raise typer.BadParameter(
            f"{', '.join(ours)}: for a broker of ours, and --log {KAFKA_LOG}HOST:PORT starts none"
        )
    if not with_http:
        raise typer.BadParameter(f"--no-http with --log {KAFKA_LOG}HOST:PORT leaves nothing to run")


def _check_reachable(kafka: str) -> None:
    from penstock.cli.connect import check_reachable  # loads a Kafka client: not for our own log

    check_reachable(kafka, f"--log {KAFKA_LOG}HOST:PORT")


def _host_of(address: str) -> str:
    host, colon, port = address.rpartition(":")
    return host if colon and port.isdecimal() else address


def _watch(choices: Choices, *, as_json: bool) -> int:
    def on_ready(told: dict[str, Any]) -> None:
        typer.echo(json.dumps(told) if as_json else welcome(told, choices))

    try:
        return supervise(choices.broker, choices.http, on_ready)
    except CannotStart as reason:
        show_server_error("penstock up", str(reason), REFUSED)
        return REFUSED
    except BrokenPipeError:
        typer.echo("penstock up: nobody reads standard output, so it stopped", err=True)
        return 1


def welcome(told: dict[str, Any], choices: Choices) -> str:
    """Where everything is, and what to try next."""
    rows = [("Kafka", told["kafka"], "any Kafka client" if choices.broker else "not ours: yours")]
    if told["http"]:
        rows.append(("Schema registry", told["http"], f"{told['http']}/docs lists every path"))
    if choices.broker is None:
        rows.append(("Data", "in the cluster", "schemas in its topic _schemas"))
    else:
        kept = "removed when it stops" if choices.broker.ephemeral else "kept for the next start"
        rows.append(("Data", told["dir"], kept))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    table = [f"  {name:{widths[0]}}  {where:{widths[1]}}  {more}" for name, where, more in rows]
    tries = [f"  {command}" for command in next_commands(told["kafka"], told["http"])]
    return "\n".join(
        ["Penstock is up.", *table, "Try, in another terminal:", *tries, "Stop with Ctrl-C."]
    )


def next_commands(kafka: str, registry: str | None) -> list[str]:
    """Three commands that work as they stand."""
    there = "" if kafka == KAFKA else f" -b {kafka}"
    asked = "" if registry in (None, REGISTRY) else f" --registry {registry}"
    return [
        f"echo 'berlin:{{\"cents\": 1250}}' | penstock produce orders -K :{there}",
        f"penstock consume orders --exit --json{there}",
        f"penstock schema list{asked}" if registry else f"penstock topic list{there}",
    ]
