"""The options of a broker, as they cross to its process. Loads no Kafka client."""

from pathlib import Path

from penstock.cli.options import LogFormat, LogLevel, read_pairs
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
    log_format: LogFormat,
    metrics_port: int | None,
    ephemeral: bool = False,
    quick: bool = False,
    insecure: bool = False,
    node_id: int | None = None,
    voters: str | None = None,
    join: str | None = None,
    cluster_id: str | None = None,
    rack: str | None = None,
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
        node_id=node_id,
        voters=voters,
        join=join,
        cluster_id=cluster_id,
        rack=rack,
        log_format=log_format.value,
        metrics_port=metrics_port,
    )
