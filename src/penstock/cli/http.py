"""`penstock http`: the HTTP services in this very process, over any Kafka cluster."""

import json
from typing import Annotated, Any

import typer

from penstock.cli.broker_options import (
    PORT_LAST,
    AllowedHosts,
    Insecure,
    KafkaConfig,
    Level,
    LogLevel,
)
from penstock.cli.error_output import REFUSED, show_server_error
from penstock.node.http_process import HTTP_PORT, LOCALHOST, HttpOptions, run


def http(
    kafka: Annotated[
        str, typer.Option("--kafka", help="The brokers: host:port[,host:port].")
    ] = "127.0.0.1:9092",
    kafka_config: KafkaConfig = None,
    http_port: Annotated[
        int,
        typer.Option("--http-port", min=0, max=PORT_LAST, help="Serve here; 0 is any free one."),
    ] = HTTP_PORT,
    host: Annotated[str, typer.Option(help="Listen here.")] = LOCALHOST,
    advertise: Annotated[
        str | None, typer.Option(help="The host at which the other nodes reach this one.")
    ] = None,
    insecure: Insecure = False,
    allowed_hosts: AllowedHosts = None,
    group: Annotated[
        str, typer.Option(help="Nodes with the same group are one registry.")
    ] = "schema-registry",
    topic: Annotated[str, typer.Option(help="The topic schemas are kept in.")] = "_schemas",
    as_json: Annotated[
        bool, typer.Option("--json", help="When ready, one line of JSON on standard output.")
    ] = False,
    log_level: LogLevel = Level.INFO,
) -> None:
    """Serve the schema registry over a Kafka cluster. It stops on SIGTERM and Ctrl-C."""
    options = HttpOptions(
        kafka,
        kafka_config=None if kafka_config is None else str(kafka_config),
        host=host,
        http_port=http_port,
        advertised_host=advertise,
        group=group,
        topic=topic,
        log_level=log_level.value,
        insecure=insecure,
        allowed_hosts=tuple(allowed_hosts or ()),
    )

    def announce(told: dict[str, Any]) -> None:
        if "error" in told:
            show_server_error("penstock http", told["error"], REFUSED)
        elif as_json:
            typer.echo(json.dumps(told))
        else:
            typer.echo(f"Schema registry on {told['http']}, docs at {told['http']}/docs")

    raise typer.Exit(run(options, announce=announce))
