"""What `penstock up` and `penstock broker` have in common: the options of a broker.

Loads no Kafka client: a broker is on its way before anything else is.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.node.broker_process import BrokerOptions

Folder = Annotated[
    Path | None,
    typer.Option("--dir", help="Where the logs live.", show_default="./penstock-data"),
]
PORT_LAST: Final = 65535
KafkaPort = Annotated[
    int | None,
    typer.Option(
        "--kafka-port",
        min=0,
        max=PORT_LAST,
        help="For Kafka clients; 0 is any free one.",
        show_default="9092",
    ),
]
Host = Annotated[str | None, typer.Option(help="Listen here.", show_default="127.0.0.1")]
Advertise = Annotated[
    str | None, typer.Option(help="What clients are told to connect to: HOST or HOST:PORT.")
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure", help="Allow to listen beyond this machine, although there are no logins."
    ),
]
AllowedHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--allowed-host",
        help="A name of this machine that HTTP clients use, beside localhost, --host and "
        "--advertise; may be repeated. * allows any.",
    ),
]
ConfigFile = Annotated[Path | None, typer.Option(help="A properties file with broker settings.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="A broker setting: key=value; may be repeated.")
]
ReadyAsJson = Annotated[
    bool, typer.Option("--json", help="When ready, one line of JSON on standard output.")
]
KAFKA_CONFIG: Final = "PENSTOCK_KAFKA_CONFIG"
KafkaConfig = Annotated[
    Path | None,
    typer.Option(
        envvar=KAFKA_CONFIG,
        help="A properties file with what the cluster asks of clients: TLS, a login.",
    ),
]


class Level(StrEnum):
    """How much is said on standard error."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


LogLevel = Annotated[
    Level, typer.Option(case_sensitive=False, help="The least that is said on standard error.")
]


def broker_options(
    folder: Path | None,
    *,
    kafka_port: int | None,
    host: str | None,
    advertise: str | None,
    config: Path | None,
    settings: list[str] | None,
    log_level: Level,
    ephemeral: bool = False,
    quick: bool = False,
    insecure: bool = False,
) -> BrokerOptions:
    """As they cross to the broker's process."""
    return BrokerOptions(
        folder=None if folder is None else str(folder),
        ephemeral=ephemeral,
        kafka_port=kafka_port,
        host=host,
        advertised=advertise,
        properties=None if config is None else str(config),
        settings=_pairs(settings or []),
        quick=quick,
        insecure=insecure,
        log_level=log_level.value,
    )


def _pairs(pairs: list[str]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            raise typer.BadParameter(f"{pair!r} is not key=value")
    return {key.strip(): value for key, _, value in (pair.partition("=") for pair in pairs)}
