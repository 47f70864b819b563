"""Options that several commands share, each with its default. Loads no Kafka client."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.node.addresses import HTTP_PORT, KAFKA_PORT, LOCALHOST, METRICS_PORT
from penstock.node.log_output import JSON, TEXT

PORT_MAX: Final = 65535
LOCAL_BOOTSTRAP: Final = f"{LOCALHOST}:{KAFKA_PORT}"
LOCAL_REGISTRY: Final = f"http://{LOCALHOST}:{HTTP_PORT}"
BOOTSTRAP: Final = "PENSTOCK_BOOTSTRAP"  # environment variables
REGISTRY: Final = "PENSTOCK_REGISTRY"
KAFKA_CONFIG: Final = "PENSTOCK_KAFKA_CONFIG"

Bootstrap = Annotated[
    str,
    typer.Option("--bootstrap", "-b", envvar=BOOTSTRAP, help="A broker of the cluster: host:port."),
]
RegistryUrl = Annotated[
    str,
    typer.Option("--registry", "-r", envvar=REGISTRY, help="URL of the schema registry."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
ReadyAsJson = Annotated[
    bool, typer.Option("--json", help="Print one line of JSON when ready to serve.")
]

Folder = Annotated[
    Path | None,
    typer.Option("--dir", help="Data folder.", show_default="./penstock-data"),
]
KafkaPort = Annotated[
    int | None,
    typer.Option(
        "--kafka-port",
        min=0,
        max=PORT_MAX,
        help="Port for Kafka clients; 0: any free port.",
        show_default=str(KAFKA_PORT),
    ),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        min=0,
        max=PORT_MAX,
        help="Port for the broker's metrics and health; 0: any free port.",
        show_default=f"{METRICS_PORT}, or any if that is in use",
    ),
]
HttpPort = Annotated[
    int | None,
    typer.Option(
        "--http-port",
        min=0,
        max=PORT_MAX,
        help="Port for HTTP; 0: any free port.",
        show_default=str(HTTP_PORT),
    ),
]
Host = Annotated[str | None, typer.Option(help="Address to listen on.", show_default=LOCALHOST)]
Advertise = Annotated[
    str | None, typer.Option(help="Address that clients connect to: HOST or HOST:PORT.")
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure", help="Allow listening beyond this machine, although there are no logins."
    ),
]
AllowedHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--allowed-host",
        help="Another name of this machine that HTTP clients may use, beside localhost, --host "
        "and --advertise; may be repeated. * allows any.",
    ),
]
AllowedOrigins = Annotated[
    list[str] | None,
    typer.Option(
        "--allowed-origin",
        help="Origin of web pages that may use the HTTP services, such as https://shop.example; "
        "may be repeated.",
    ),
]
AccessLog = Annotated[bool, typer.Option("--access-log", help="Log a line for each HTTP request.")]
ReadOnly = Annotated[
    bool,
    typer.Option("--read-only", help="Refuse every HTTP request that changes something."),
]
GatewaySettingList = Annotated[
    list[str] | None,
    typer.Option("--gateway-set", help="Gateway setting: name=value; may be repeated."),
]
ConfigFile = Annotated[Path | None, typer.Option(help="Properties file with broker settings.")]
BrokerSettings = Annotated[
    list[str] | None, typer.Option("--set", help="Broker setting: key=value; may be repeated.")
]
KafkaConfig = Annotated[
    Path | None,
    typer.Option(
        envvar=KAFKA_CONFIG,
        help="Properties file with what the cluster requires of clients: TLS, login.",
    ),
]
BrokerId = Annotated[
    int | None, typer.Option("--id", min=0, help="Number of this broker in its cluster.")
]
Voters = Annotated[
    str | None,
    typer.Option(
        help="Voters of a new cluster, this broker among them: 1@HOST:PORT,2@HOST:PORT,... "
        "Its own entry is the default of --host, --kafka-port and --advertise."
    ),
]
Join = Annotated[
    str | None,
    typer.Option(help="Brokers of a cluster that this one joins, without a vote: HOST:PORT,..."),
]
ClusterId = Annotated[
    str | None,
    typer.Option(help="Id of a new cluster, equal on all its brokers.", show_default="random"),
]
Rack = Annotated[str | None, typer.Option(help="Rack of this broker; replicas go to several.")]


class LogLevel(StrEnum):
    """How much is logged."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


LogLevelOption = Annotated[
    LogLevel, typer.Option("--log-level", case_sensitive=False, help="Lowest level that is logged.")
]


class LogFormat(StrEnum):
    """How log lines are written."""

    TEXT = TEXT
    JSON = JSON


LogFormatOption = Annotated[
    LogFormat, typer.Option("--log-format", case_sensitive=False, help="Write log lines as this.")
]


def read_pairs(pairs: list[str] | None) -> dict[str, str]:
    """The values of options of the form `key=value`."""
    settings: dict[str, str] = {}
    for pair in pairs or ():
        key, separator, value = pair.partition("=")
        if not separator:
            raise typer.BadParameter(f"{pair!r} is not key=value")
        settings[key.strip()] = value
    return settings
