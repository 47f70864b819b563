"""`penstock broker`: one broker in this very process, for those who bring their own supervisor."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.up import read_pairs
from penstock.node.broker_process import BrokerOptions, run


def broker(
    folder: Annotated[
        Path | None,
        typer.Option("--dir", help="Where the logs live.", show_default="./penstock-data"),
    ] = None,
    kafka_port: Annotated[
        int | None,
        typer.Option(
            "--kafka-port", help="For Kafka clients; 0 is any free one.", show_default="9092"
        ),
    ] = None,
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
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = "INFO",
) -> None:
    """Run one broker in the foreground. It stops on SIGTERM and Ctrl-C."""
    options = BrokerOptions(
        folder=None if folder is None else str(folder),
        kafka_port=kafka_port,
        host=host,
        advertised_host=advertise,
        properties=None if config is None else str(config),
        settings=read_pairs(settings or []),
        log_level=log_level.upper(),
    )

    def announce(told: dict[str, Any]) -> None:
        if "error" in told:
            typer.echo(f"penstock broker: {told['error']}", err=True)
        elif as_json:
            typer.echo(json.dumps({**told, "http": None}))
        else:
            typer.echo(f"Kafka on {told['kafka']}, logs in {told['dir']}")

    raise typer.Exit(run(options, announce=announce))
