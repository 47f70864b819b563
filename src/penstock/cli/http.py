"""`penstock http`: run the schema registry in this process, on any Kafka cluster."""

import json
from dataclasses import replace
from typing import Annotated, Any

import typer

from penstock.cli.error_output import REFUSED, show_server_error
from penstock.cli.http_options import http_options
from penstock.cli.options import (
    LOCAL_BOOTSTRAP,
    AccessLog,
    AllowedHosts,
    AllowedOrigins,
    GatewaySettingList,
    Host,
    HttpPort,
    Insecure,
    KafkaConfig,
    LogFormat,
    LogFormatOption,
    LogLevel,
    LogLevelOption,
    ReadOnly,
    ReadyAsJson,
)
from penstock.node.http_process import run


def http(
    kafka: Annotated[
        str, typer.Option("--kafka", help="Brokers of the cluster: host:port[,host:port].")
    ] = LOCAL_BOOTSTRAP,
    kafka_config: KafkaConfig = None,
    http_port: HttpPort = None,
    host: Host = None,
    advertise: Annotated[
        str | None, typer.Option(help="Host name that the registry's other nodes connect to.")
    ] = None,
    insecure: Insecure = False,
    allowed_hosts: AllowedHosts = None,
    allowed_origins: AllowedOrigins = None,
    access_log: AccessLog = False,
    read_only: ReadOnly = False,
    gateway_settings: GatewaySettingList = None,
    group: Annotated[
        str, typer.Option(help="Group of the nodes that form one registry.")
    ] = "schema-registry",
    topic: Annotated[str, typer.Option(help="Topic that stores the schemas.")] = "_schemas",
    as_json: ReadyAsJson = False,
    log_level: LogLevelOption = LogLevel.INFO,
    log_format: LogFormatOption = LogFormat.TEXT,
) -> None:
    """Run the schema registry on a Kafka cluster until SIGTERM or Ctrl-C."""
    options = http_options(
        kafka, kafka_config=kafka_config, host=host, http_port=http_port, advertised_host=advertise,
        log_level=log_level, log_format=log_format, insecure=insecure, allowed_hosts=allowed_hosts,
        allowed_origins=allowed_origins, access_log=access_log, read_only=read_only,
        gateway_settings=gateway_settings,
    )  # fmt: skip
    options = replace(options, group=group, topic=topic)

    def announce(started: dict[str, Any]) -> None:
        if "error" in started:
            show_server_error("penstock http", started["error"], REFUSED)
        elif as_json:
            typer.echo(json.dumps(started))
        else:
            typer.echo(
                f"Schema registry at {started['http']}, API reference at {started['http']}/docs"
            )

    raise typer.Exit(run(options, announce=announce))
