"""`penstock up`: a whole node on this machine, until Ctrl-C."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.node.broker_process import BrokerOptions
from penstock.node.http_process import HTTP_PORT, LOCALHOST, HttpOptions
from penstock.node.supervisor import CannotStart, supervise


def read_pairs(pairs: list[str]) -> dict[str, str]:
    """`key=value` arguments."""
    for pair in pairs:
        if "=" not in pair:
            raise typer.BadParameter(f"{pair!r} is not key=value")
    return {key.strip(): value for key, _, value in (pair.partition("=") for pair in pairs)}


def up(
    folder: Annotated[
        Path | None,
        typer.Option("--dir", help="Where the logs live.", show_default="./penstock-data"),
    ] = None,
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="A folder of its own, removed at the end.")
    ] = False,
    kafka_port: Annotated[
        int | None,
        typer.Option(
            "--kafka-port", help="For Kafka clients; 0 is any free one.", show_default="9092"
        ),
    ] = None,
    http_port: Annotated[
        int | None,
        typer.Option(
            "--http-port", help="For the HTTP services; 0 is any free one.", show_default="8081"
        ),
    ] = None,
    with_http: Annotated[
        bool, typer.Option("--http/--no-http", help="Serve the schema registry over HTTP.")
    ] = True,
    host: Annotated[str | None, typer.Option(help="Listen here.", show_default="127.0.0.1")] = None,
    advertise: Annotated[
        str | None, typer.Option(help="The host that clients are told to connect to.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A properties file with broker settings.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A broker setting: key=value.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="When ready, one line of JSON on standard output.")
    ] = False,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = "WARNING",
) -> None:
    """Start a broker and the schema registry on this machine, and watch over them until Ctrl-C."""
    if ephemeral and folder is not None:
        raise typer.BadParameter("--dir and --ephemeral exclude each other")
    options = BrokerOptions(
        folder=None if folder is None else str(folder),
        ephemeral=ephemeral,
        kafka_port=kafka_port,
        host=host,
        advertised_host=advertise,
        properties=None if config is None else str(config),
        settings=read_pairs(settings or []),
        quick=True,
        log_level=log_level.upper(),
    )
    http_options = _http_options(host, http_port, advertise, log_level) if with_http else None
    raise typer.Exit(_watch(options, http_options, as_json=as_json))


def _watch(options: BrokerOptions, http_options: HttpOptions | None, *, as_json: bool) -> int:
    def on_ready(told: dict[str, Any]) -> None:
        typer.echo(json.dumps(told) if as_json else _welcome(told, options.ephemeral))

    try:
        return supervise(options, http_options, on_ready)
    except CannotStart as reason:
        typer.echo(f"penstock up: {reason}", err=True)
        return 1


def _http_options(
    host: str | None, port: int | None, advertise: str | None, log_level: str
) -> HttpOptions:
    return HttpOptions(
        kafka="",  # the broker's, once it is known
        host=host or LOCALHOST,
        http_port=HTTP_PORT if port is None else port,
        advertised_host=advertise,
        log_level=log_level.upper(),
    )


def _welcome(told: dict[str, Any], ephemeral: bool) -> str:
    kept = "removed when it stops" if ephemeral else "kept"
    http = f"  HTTP   {told['http']} (schema registry; /docs)\n" if told["http"] else ""
    return (
        f"Penstock is up.\n"
        f"  Kafka  {told['kafka']}\n"
        f"{http}"
        f"  Data   {told['dir']} ({kept})\n"
        f"Try: echo hello | penstock produce greetings -b {told['kafka']}\n"
        "Stop with Ctrl-C."
    )
