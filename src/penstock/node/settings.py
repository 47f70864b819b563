"""The settings of a node, and the narrow views that its parts get of them.

A value comes from the command line, else from a properties file, else from the default of its row.
All of them are checked here, before anything is opened.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from penstock.broker.settings import BrokerSettings, NetworkSettings
from penstock.config.broker_keys import (
    BROKER_KEYS,
    CLUSTER_DEFAULTS,
    CLUSTER_VOTERS_MIN,
    broker_values,
)
from penstock.config.resolve import Layers, Values, view
from penstock.coordination.controller.settings import ControllerSettings
from penstock.errors import Refused
from penstock.link.settings import Address, read_bootstrap
from penstock.model import NodeId
from penstock.node.addresses import DEFAULT_FOLDER, KAFKA_PORT, LOCALHOST
from penstock.node.listen_address import NotAllowedError, check_exposure

PORT_LAST: Final = 65535
# A single node for one user: groups need not wait for more members. As in Kafka's sample files.
QUICK: Final = {"group.initial.rebalance.delay.ms": "0"}


_VOTER: Final = re.compile(r"(?P<id>\d+)@(?P<host>[^@\s]+):(?P<port>\d+)")
_CLUSTER_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CONTINUED: Final = re.compile(r"\\\n[ \t]*")
_ROW: Final = re.compile(r"(?P<key>[^#!=:\s][^=:\s]*)\s*[=:]?\s*(?P<value>.*)")
_SECURITY: Final = re.compile(
    r"(^|\.)(ssl|sasl|security|authorizer|password|principal|delegation)\.|^super\.users$"
    r"|^allow\.everyone|^early\.start|^listener\.(name|security)\.|oauth|acl"
)


class VoterAddress(NamedTuple):
    """A voter of a new cluster: `1@host:port`."""

    node_id: NodeId
    host: str
    port: int


class InvalidSettingsError(Exception):
    """The node cannot start with these; the message says what to change."""


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """One broker of one cluster."""

    folder: Path
    node_id: NodeId = NodeId(1)
    host: str = LOCALHOST
    kafka_port: int = KAFKA_PORT  # 0: any free port
    advertised_host: str | None = None  # None: the host itself
    advertised_port: int | None = None  # None: the port it listens on
    rack: str | None = None
    voters: tuple[VoterAddress, ...] = ()  # of a new cluster; none: this broker alone
    join: tuple[Address, ...] = ()  # servers of a cluster that this broker joins without a vote
    cluster_id: str | None = None  # of a new cluster; None: the first controller draws one
    metrics_port: int | None = None  # None: the usual one, or any if that is in use
    static: dict[str, str] = field(default_factory=dict)  # broker keys, as given

    @property
    def values(self) -> Values:
        """The effective settings before anything is changed at run time."""
        return broker_values(Layers({}, {}, self.static))

    @property
    def shown_host(self) -> str:
        """The host that clients connect to."""
        return self.host if self.advertised_host is None else self.advertised_host

    def shown_port(self, listening: int) -> int:
        """The port that clients connect to, which may be that of a proxy."""
        return listening if self.advertised_port is None else self.advertised_port


def node_settings(
    *,
    folder: Path | None = None,
    kafka_port: int | None = None,
    host: str | None = None,
    advertised: str | None = None,
    properties: Path | None = None,
    given: Mapping[str, str] | None = None,
    quick: bool = False,
    insecure: bool = False,
    node_id: int | None = None,
    voters: str | None = None,
    join: str | None = None,
    cluster_id: str | None = None,
    rack: str | None = None,
) -> NodeSettings:
    """Merge and check the settings of all sources; InvalidSettingsError says what to change.

    `insecure` allows an address that other machines reach, although there is no authentication.
    """
    quorum, servers = _quorum(voters, join)
    in_file = {} if properties is None else _checked(_read(properties), f"{properties.name}: ")
    defaults = {**(QUICK if quick else {}), **_cluster_defaults(quorum)}
    static = {**defaults, **in_file, **_checked(given or {})}
    static |= {} if node_id is None else _checked({"node.id": str(node_id)})
    static |= {} if rack is None else {"broker.rack": rack}
    own = _own_voter(static, quorum, servers)
    listener_host, listener_port = _listener(static, own)
    port = kafka_port if kafka_port is not None else listener_port
    if own is not None and port == 0:
        raise InvalidSettingsError(
            "--kafka-port 0 does not go with --voters: the others connect to the port in it"
        )
    if not 0 <= port <= PORT_LAST:
        raise InvalidSettingsError(f"{port} is not a port: use 0 (any free port) to {PORT_LAST}")
    shown_host, shown_port = _advertised(static) if advertised is None else _address(advertised)
    if own is not None and shown_host is None:
        shown_host, shown_port = own.host, own.port
    chosen_host = host or listener_host
    try:
        check_exposure("broker", chosen_host, shown_host, insecure=insecure)
    except NotAllowedError as reason:
        raise InvalidSettingsError(str(reason)) from None
    known_id = static.get("node.id", static.get("broker.id", "1"))
    chosen = _folder(folder, static)
    # Wherever they came from, DescribeConfigs shows these as static settings.
    static |= {"node.id": known_id, "broker.id": known_id, "log.dirs": str(chosen)}
    return NodeSettings(
        folder=chosen,
        node_id=NodeId(int(known_id)),
        host=chosen_host,
        kafka_port=port,
        advertised_host=shown_host,
        advertised_port=shown_port,
        rack=static.get("broker.rack"),
        voters=quorum,
        join=servers,
        cluster_id=None if cluster_id is None else _checked_cluster_id(cluster_id),
        static=static,
    )


def _folder(given: Path | None, static: Mapping[str, str]) -> Path:
    folders = [name.strip() for name in static.get("log.dirs", "").split(",") if name.strip()]
    if given is None and len(folders) > 1:
        raise InvalidSettingsError("log.dirs names several folders; one is supported")
    chosen = given or (Path(folders[0]) if folders else DEFAULT_FOLDER)
    return chosen.expanduser().absolute()


def _quorum(
    voters: str | None, join: str | None
) -> tuple[tuple[VoterAddress, ...], tuple[Address, ...]]:
    """The voters of a new cluster, or servers of one to join."""
    if voters is not None and join is not None:
        raise InvalidSettingsError(
            "--voters and --join exclude each other: a new cluster has voters, and a broker that "
            "joins a cluster gets its vote with `penstock cluster voters add`"
        )
    try:
        servers = () if join is None else read_bootstrap(join)
    except Refused as refusal:
        raise InvalidSettingsError(f"--join {join}: {refusal.message}") from None
    return (() if voters is None else _voters(voters)), servers


def _voters(text: str) -> tuple[VoterAddress, ...]:
    voters = []
    for entry in text.split(","):
        match = _VOTER.fullmatch(entry.strip())
        if match is None or not 0 < int(match["port"]) <= PORT_LAST:
            raise InvalidSettingsError(
                f"--voters: {entry.strip()!r} is not ID@HOST:PORT, as in 1@10.0.0.1:9092"
            )
        voters.append(
            VoterAddress(NodeId(int(match["id"])), match["host"].strip("[]"), int(match["port"]))
        )
    if len({voter.node_id for voter in voters}) < len(voters):
        raise InvalidSettingsError(f"--voters {text}: every voter has an id of its own")
    if len({voter[1:] for voter in voters}) < len(voters):
        raise InvalidSettingsError(f"--voters {text}: every voter has an address of its own")
    return tuple(voters)


def _own_voter(
    static: Mapping[str, str], voters: Sequence[VoterAddress], join: Sequence[Address]
) -> VoterAddress | None:
    """This broker's entry among the voters; None without any."""
    node_id = static.get("node.id", static.get("broker.id"))
    if (voters or join) and node_id is None:
        raise InvalidSettingsError("a broker of a cluster needs a number of its own: add --id")
    if not voters:
        return None
    for voter in voters:
        if str(voter.node_id) == node_id:
            return voter
    listed = ", ".join(str(voter.node_id) for voter in voters)
    raise InvalidSettingsError(
        f"broker {node_id} is not among --voters, which lists {listed}: add it, or start this "
        "broker with --join"
    )


def _cluster_defaults(voters: Sequence[VoterAddress]) -> dict[str, str]:
    return CLUSTER_DEFAULTS if len(voters) >= CLUSTER_VOTERS_MIN else {}


def _checked_cluster_id(cluster_id: str) -> str:
    if _CLUSTER_ID.fullmatch(cluster_id) is None:
        raise InvalidSettingsError(
            f"--cluster-id {cluster_id!r}: use 1 to 64 ASCII letters, digits, '_' and '-'"
        )
    return cluster_id


def _read(properties: Path) -> dict[str, str]:
    """All settings of a properties file, as Java reads it but for escapes."""
    try:
        text = properties.read_text()
    except OSError as error:
        raise InvalidSettingsError(f"{properties} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidSettingsError(f"{properties} is not in UTF-8") from None
    rows: dict[str, str] = {}
    for line in _CONTINUED.sub("", text).splitlines():
        row = _ROW.fullmatch(line.strip())
        if row is not None:
            rows[row["key"]] = row["value"]
    return rows


def _checked(given: Mapping[str, str], where: str = "") -> dict[str, str]:
    """The settings, if all are known and valid; InvalidSettingsError names the others."""
    unknown = [name for name in given if name not in BROKER_KEYS]
    invalid = []
    if unknown:
        invalid.append(_unknown(unknown))
    for name, text in given.items():
        if name not in unknown:
            try:
                BROKER_KEYS[name].parse(text)
            except Refused as refusal:
                invalid.append(refusal.message)
    if invalid:
        raise InvalidSettingsError(where + "; ".join(invalid))
    return dict(given)


def _unknown(names: Sequence[str]) -> str:
    message = f"unknown setting {', '.join(names)}"
    security = [name for name in names if _SECURITY.search(name)]
    if security:
        message += (
            f". {', '.join(security)} would have no effect: this broker has no TLS, "
            "authentication or ACLs"
        )
    them = "it" if len(names) == 1 else "them"
    return f"{message}. Remove {them}; docs/configuration.md lists all settings"


def _listener(static: Mapping[str, str], own: VoterAddress | None) -> tuple[str, int]:
    """Host and port of the first listener without TLS and SASL; else of its entry as a voter."""
    given = static.get("listeners", "").strip()
    if not given:
        return (LOCALHOST, KAFKA_PORT) if own is None else (own.host, own.port)
    addresses = []
    for entry in given.split(","):
        name, separator, address = entry.strip().partition("://")
        host, _, port = address.rpartition(":")
        if name.upper().startswith(("SSL", "SASL")):
            raise InvalidSettingsError(
                f"listeners={given}: TLS and SASL are not supported, so {entry.strip()} cannot be "
                "served; use PLAINTEXT://HOST:PORT"
            )
        if separator and "CONTROLLER" not in name.upper() and port.isdecimal():
            addresses.append((host.strip("[]") or "0.0.0.0", int(port)))
    if not addresses:
        raise InvalidSettingsError(f"listeners={given}: use PLAINTEXT://HOST:PORT")
    return addresses[0]


def _advertised(static: Mapping[str, str]) -> tuple[str | None, int | None]:
    entry = static.get("advertised.listeners", "").split(",")[0].strip()
    return _address(entry.partition("://")[2])


def _address(text: str) -> tuple[str | None, int | None]:
    """`host`, `host:port` or `[::1]:port`; missing parts are None."""
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        return text.strip("[]") or None, None
    if not port.isdecimal() or not 0 < int(port) <= PORT_LAST:
        raise InvalidSettingsError(f"{text!r} is not an address: use HOST or HOST:PORT")
    return host.strip("[]") or None, int(port)


def broker_view(settings: NodeSettings) -> BrokerSettings:
    values = settings.values
    network = view(NetworkSettings, values)
    return view(BrokerSettings, values, node_id=settings.node_id, network=network)


def controller_view(settings: NodeSettings) -> ControllerSettings:
    values = settings.values
    return view(ControllerSettings, values, node_id=settings.node_id, static=settings.static)
