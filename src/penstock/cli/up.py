"""`penstock up`: run a node on this machine until Ctrl-C.

The log is a broker of this node, several with `--brokers`, or with `--log kafka:HOST:PORT` an
existing cluster: then no broker is started, and everything above the log uses that cluster.
"""

import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from penstock.cli.broker_options import broker_options
from penstock.cli.error_output import REFUSED, show_server_error
from penstock.cli.http_options import http_options
from penstock.cli.options import (
    LOCAL_BOOTSTRAP,
    LOCAL_REGISTRY,
    AccessLog,
    Advertise,
    AllowedHosts,
    AllowedOrigins,
    BrokerSettings,
    ConfigFile,
    Folder,
    GatewaySettingList,
    Host,
    HttpPort,
    Insecure,
    KafkaConfig,
    KafkaPort,
    LogFormat,
    LogFormatOption,
    LogLevel,
    LogLevelOption,
    MetricsPort,
    ReadOnly,
    ReadyAsJson,
)
from penstock.node.addresses import DEFAULT_FOLDER
from penstock.node.broker_process import BrokerOptions
from penstock.node.http_process import HttpOptions
from penstock.node.local_cluster import check_folder, local_cluster
from penstock.node.supervisor import CannotStartError, supervise

OWN_LOG: Final = "penstock"
KAFKA_LOG: Final = "kafka:"
BROKERS_MAX: Final = 9
BrokerCount = Annotated[
    int,
    typer.Option(
        min=1,
        max=BROKERS_MAX,
        help="Number of brokers, each a process. They use consecutive ports from --kafka-port "
        "and the folders broker-1, broker-2, ... of --dir.",
    ),
]
Racks = Annotated[
    str | None, typer.Option(help="Racks of the brokers in turn, separated by commas.")
]


class NodeOptions(NamedTuple):
    """What is started."""

    broker: BrokerOptions | None  # what all brokers share; None: an existing cluster is used
    http: HttpOptions | None
    brokers: int = 1
    racks: tuple[str, ...] = ()


Ephemeral = Annotated[
    bool,
    typer.Option(
        "--ephemeral", help="Use a temporary data folder that is deleted when the node stops."
    ),
]
LogOption = Annotated[
    str,
    typer.Option(
        "--log", help="penstock: start a broker. kafka:HOST:PORT: use an existing cluster."
    ),
]
WithHttp = Annotated[
    bool, typer.Option("--http/--no-http", help="Run the schema registry and the gateway.")
]


def up(
    folder: Folder = None,
    ephemeral: Ephemeral = False,
    log: LogOption = OWN_LOG,
    kafka_config: KafkaConfig = None,
    brokers: BrokerCount = 1,
    racks: Racks = None,
    kafka_port: KafkaPort = None,
    http_port: HttpPort = None,
    metrics_port: MetricsPort = None,
    with_http: WithHttp = True,
    host: Host = None,
    advertise: Advertise = None,
    insecure: Insecure = False,
    allowed_hosts: AllowedHosts = None,
    allowed_origins: AllowedOrigins = None,
    access_log: AccessLog = False,
    read_only: ReadOnly = False,
    gateway_settings: GatewaySettingList = None,
    config: ConfigFile = None,
    settings: BrokerSettings = None,
    as_json: ReadyAsJson = False,
    log_level: LogLevelOption = LogLevel.WARNING,
    log_format: LogFormatOption = LogFormat.TEXT,
) -> None:
    """Run a broker, or several, and the schema registry on this machine until Ctrl-C."""
    _check_combination(folder, ephemeral, log, kafka_port, with_http, config, settings)
    rack_names = _check_cluster(brokers, racks, log, advertise)
    broker = broker_options(
        folder, ephemeral=ephemeral, kafka_port=kafka_port, host=host, advertise=advertise,
        config=config, settings=settings, quick=True, insecure=insecure, log_level=log_level,
        log_format=log_format, metrics_port=metrics_port,
    )  # fmt: skip
    http = http_options(
        log.removeprefix(KAFKA_LOG),  # replaced by the broker's address once it is known
        kafka_config=None if log == OWN_LOG else kafka_config, host=host, http_port=http_port,
        advertised_host=None if advertise is None else _host_of(advertise),
        log_level=log_level, log_format=log_format, insecure=insecure, allowed_hosts=allowed_hosts,
        allowed_origins=allowed_origins, access_log=access_log, read_only=read_only,
        gateway_settings=gateway_settings,
    )  # fmt: skip
    if log != OWN_LOG:
        _check_reachable(http.kafka)
    options = NodeOptions(
        broker if log == OWN_LOG else None, http if with_http else None, brokers, rack_names
    )
    raise typer.Exit(_run(options, as_json=as_json))


def _check_combination(
    folder: Path | None,
    ephemeral: bool,
    log: str,
    kafka_port: int | None,
    with_http: bool,
    config: Path | None,
    settings: list[str] | None,
) -> None:
    if ephemeral and folder is not None:
        raise typer.BadParameter("--dir and --ephemeral exclude each other")
    if log == OWN_LOG:
        return
    if not log.startswith(KAFKA_LOG) or ":" not in log.removeprefix(KAFKA_LOG):
        raise typer.BadParameter(f"--log {log!r} is neither {OWN_LOG} nor {KAFKA_LOG}HOST:PORT")
    given = (folder, ephemeral or None, kafka_port, config, settings or None)
    names = ("--dir", "--ephemeral", "--kafka-port", "--config", "--set")
    unused = [name for name, value in zip(names, given, strict=True) if value is not None]
    if unused:
        raise typer.BadParameter(
            f"--log {KAFKA_LOG}HOST:PORT starts no broker: remove {', '.join(unused)}"
        )
    if not with_http:
        raise typer.BadParameter(f"--no-http with --log {KAFKA_LOG}HOST:PORT leaves nothing to run")


def _check_cluster(
    brokers: int, racks: str | None, log: str, advertise: str | None
) -> tuple[str, ...]:
    """The racks."""
    if brokers > 1 and log != OWN_LOG:
        raise typer.BadParameter(f"--log {log} starts no broker: remove --brokers")
    if brokers > 1 and advertise is not None and _host_of(advertise) != advertise:
        raise typer.BadParameter("--advertise with several brokers is a HOST: each has its port")
    names = tuple(name.strip() for name in (racks or "").split(",") if name.strip())
    if racks is not None and (brokers == 1 or not names):
        raise typer.BadParameter("--racks names the racks of several --brokers: a,b,c")
    return names


def _check_reachable(kafka: str) -> None:
    from penstock.cli.connect import check_reachable  # loads a Kafka client

    check_reachable(kafka, f"--log {KAFKA_LOG}HOST:PORT")


def _host_of(address: str) -> str:
    host, colon, port = address.rpartition(":")
    return host if colon and port.isdecimal() else address


def _run(options: NodeOptions, *, as_json: bool) -> int:
    def on_ready(started: dict[str, Any]) -> None:
        typer.echo(json.dumps(started) if as_json else welcome(started, options))

    try:
        with ExitStack() as temporary:
            return supervise(_brokers(options, temporary), options.http, on_ready)
    except CannotStartError as reason:
        show_server_error("penstock up", str(reason), REFUSED)
        return REFUSED
    except BrokenPipeError:
        typer.echo("penstock up: stopped, because standard output was closed", err=True)
        return 1


def _brokers(options: NodeOptions, temporary: ExitStack) -> list[BrokerOptions]:
    """The options of each broker that is started."""
    shared, count = options.broker, options.brokers
    if shared is None:
        return []
    folder = Path(shared.folder or DEFAULT_FOLDER)
    if shared.ephemeral and count > 1:
        made = tempfile.TemporaryDirectory(prefix="penstock-", ignore_cleanup_errors=True)
        folder = Path(temporary.enter_context(made))
    elif not shared.ephemeral:
        check_folder(folder, count)
    return [shared] if count == 1 else local_cluster(shared, folder, count, options.racks)


def welcome(started: dict[str, Any], options: NodeOptions) -> str:
    """The addresses, and commands to try next."""
    kafka, http = started["kafka"], started["http"]
    rows = [("Kafka", kafka, "any Kafka client" if options.broker else "existing cluster")]
    if http:
        rows.append(("Schema registry", http, f"API reference: {http}/docs"))
        rows.append(("Console", f"{http}/console", "web pages"))
    if started["metrics"]:
        note = "Prometheus: a target" if http is None else "Prometheus: http_sd_configs"
        rows.append(("Metrics", started["metrics"], note))
    if options.broker is None:
        rows.append(("Data", "in the cluster", "schemas in its topic _schemas"))
    else:
        end = "deleted at the end" if options.broker.ephemeral else "kept for the next start"
        rows.append(("Data", started["dir"], end))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    table = [f"  {name:{widths[0]}}  {where:{widths[1]}}  {note}" for name, where, note in rows]
    commands = [f"  {command}" for command in next_commands(kafka, http)]
    return "\n".join(
        ["Penstock is up.", *table, "Try in another terminal:", *commands, "Stop with Ctrl-C."]
    )


def next_commands(kafka: str, registry: str | None) -> list[str]:
    """Three commands that can be run unchanged."""
    bootstrap = "" if kafka == LOCAL_BOOTSTRAP else f" -b {kafka}"
    at = "" if registry in (None, LOCAL_REGISTRY) else f" --registry {registry}"
    return [
        f"echo 'berlin:{{\"cents\": 1250}}' | penstock produce orders -K :{bootstrap}",
        f"penstock consume orders --exit --json{bootstrap}",
        f"penstock schema list{at}" if registry else f"penstock topic list{bootstrap}",
    ]
