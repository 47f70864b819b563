"""`penstock broker`: run one broker in this process, for use with another supervisor."""

import json
from typing import Any

import typer

from penstock.cli.broker_options import broker_options
from penstock.cli.error_output import REFUSED, show_server_error
from penstock.cli.options import (
    Advertise,
    BrokerId,
    BrokerSettings,
    ClusterId,
    ConfigFile,
    Folder,
    Host,
    Insecure,
    Join,
    KafkaPort,
    LogFormat,
    LogFormatOption,
    LogLevel,
    LogLevelOption,
    MetricsPort,
    Rack,
    ReadyAsJson,
    Voters,
)
from penstock.node.broker_process import run


def broker(
    node_id: BrokerId = None,
    voters: Voters = None,
    join: Join = None,
    cluster_id: ClusterId = None,
    rack: Rack = None,
    folder: Folder = None,
    kafka_port: KafkaPort = None,
    metrics_port: MetricsPort = None,
    host: Host = None,
    advertise: Advertise = None,
    insecure: Insecure = False,
    config: ConfigFile = None,
    settings: BrokerSettings = None,
    as_json: ReadyAsJson = False,
    log_level: LogLevelOption = LogLevel.INFO,
    log_format: LogFormatOption = LogFormat.TEXT,
) -> None:
    """Run one broker in the foreground until SIGTERM or Ctrl-C.

    Alone, as a voter of a new cluster (--voters), or as a further broker of a cluster (--join).
    """
    options = broker_options(
        folder, kafka_port=kafka_port, host=host, advertise=advertise, config=config,
        settings=settings, insecure=insecure, log_level=log_level, node_id=node_id,
        voters=voters, join=join, cluster_id=cluster_id, rack=rack,
        log_format=log_format, metrics_port=metrics_port,
    )  # fmt: skip

    def announce(started: dict[str, Any]) -> None:
        if "error" in started:
            show_server_error("penstock broker", started["error"], REFUSED)
        elif as_json:
            typer.echo(json.dumps({**started, "http": None}))
        else:
            where = f"metrics at {started['metrics']}, data in {started['dir']}"
            typer.echo(f"Kafka at {started['kafka']}, {where}")

    raise typer.Exit(run(options, announce=announce))
