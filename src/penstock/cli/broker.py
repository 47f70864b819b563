"""`penstock broker`: one broker in this very process, for those who bring their own supervisor."""

import json
from typing import Any

import typer

from penstock.cli.broker_options import (
    Advertise,
    ConfigFile,
    Folder,
    Host,
    Insecure,
    KafkaPort,
    Level,
    LogLevel,
    ReadyAsJson,
    Settings,
    broker_options,
)
from penstock.cli.error_output import REFUSED, show_server_error
from penstock.node.broker_process import run


def broker(
    folder: Folder = None,
    kafka_port: KafkaPort = None,
    host: Host = None,
    advertise: Advertise = None,
    insecure: Insecure = False,
    config: ConfigFile = None,
    settings: Settings = None,
    as_json: ReadyAsJson = False,
    log_level: LogLevel = Level.INFO,
) -> None:
    """Run one broker in the foreground. It stops on SIGTERM and Ctrl-C."""
    options = broker_options(
        folder, kafka_port=kafka_port, host=host, advertise=advertise, config=config,
        settings=settings, insecure=insecure, log_level=log_level,
    )  # fmt: skip

    def announce(told: dict[str, Any]) -> None:
        if "error" in told:
            show_server_error("penstock broker", told["error"], REFUSED)
        elif as_json:
            typer.echo(json.dumps({**told, "http": None}))
        else:
            typer.echo(f"Kafka on {told['kafka']}, logs in {told['dir']}")

    raise typer.Exit(run(options, announce=announce))
