"""The options of the HTTP services, as they cross to their process. Loads no web framework."""

from pathlib import Path

from penstock.cli.options import LogFormat, LogLevel, read_pairs
from penstock.node.addresses import HTTP_PORT, LOCALHOST
from penstock.node.http_process import HttpOptions


def http_options(
    kafka: str,
    *,
    kafka_config: Path | None,
    host: str | None,
    http_port: int | None,
    advertised_host: str | None,
    log_level: LogLevel,
    log_format: LogFormat,
    insecure: bool,
    allowed_hosts: list[str] | None,
    allowed_origins: list[str] | None,
    access_log: bool,
    read_only: bool,
    gateway_settings: list[str] | None,
) -> HttpOptions:
    """As `penstock up` and `penstock http` take them."""
    return HttpOptions(
        kafka,
        kafka_config=None if kafka_config is None else str(kafka_config),
        host=host or LOCALHOST,
        http_port=HTTP_PORT if http_port is None else http_port,
        advertised_host=advertised_host,
        log_level=log_level.value,
        log_format=log_format.value,
        insecure=insecure,
        allowed_hosts=tuple(allowed_hosts or ()),
        allowed_origins=tuple(allowed_origins or ()),
        logs_access=access_log,
        read_only=read_only,
        gateway=read_pairs(gateway_settings),
    )
