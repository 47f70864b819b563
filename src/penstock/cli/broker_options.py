"""The options of a broker, as they cross to its process. Loads no Kafka client."""

from pathlib import Path

from penstock.cli.options import LogLevel, read_pairs
from penstock.node.broker_process import BrokerOptions


def broker_options(
    folder: Path | None,
    *,
    kafka_port: int | None,
    host: str | None,
    advertise: str | None,
    config: Path | None,
    settings: list[str] | None,
    log_level: LogLevel,
    ephemeral: bool = False,
    quick: bool = False,
    insecure: bool = False,
) -> BrokerOptions:
    """As `penstock up` and `penstock broker` take them."""
    return BrokerOptions(
        folder=None if folder is None else str(folder),
        ephemeral=ephemeral,
        kafka_port=kafka_port,
        host=host,
        advertised=advertise,
        properties=None if config is None else str(config),
        settings=read_pairs(settings),
        quick=quick,
        insecure=insecure,
        log_level=log_level.value,
    )
