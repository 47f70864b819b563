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
from penstock.config.broker_keys import BROKER_KEYS, broker_values
from penstock.config.resolve import Layers, Values, view
from penstock.coordination.controller.settings import ControllerSettings
from penstock.errors import Refused
from penstock.link.settings import Address
from penstock.model import NodeId
from penstock.node.addresses import KAFKA_PORT, LOCALHOST
from penstock.node.listen_address import NotAllowedError, check_exposure

DEFAULT_FOLDER: Final = Path("penstock-data")  # in the working directory
PORT_LAST: Final = 65535
# A single node for one user: groups need not wait for more members. As in Kafka's sample files.
QUICK: Final = {"group.initial.rebalance.delay.ms": "0"}


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
) -> NodeSettings:
    """Merge and check the settings of all sources; InvalidSettingsError says what to change.

    `insecure` allows an address that other machines reach, although there is no authentication.
    """
    in_file = {} if properties is None else _checked(_read(properties), f"{properties.name}: ")
    static = {**(QUICK if quick else {}), **in_file, **_checked(given or {})}
    listener_host, listener_port = _listener(static)
    port = kafka_port if kafka_port is not None else listener_port
    if not 0 <= port <= PORT_LAST:
        raise InvalidSettingsError(f"{port} is not a port: use 0 (any free port) to {PORT_LAST}")
    shown_host, shown_port = _advertised(static) if advertised is None else _address(advertised)
    chosen_host = host or listener_host
    try:
        check_exposure("broker", chosen_host, shown_host, insecure=insecure)
    except NotAllowedError as reason:
        raise InvalidSettingsError(str(reason)) from None
    node_id = static.get("node.id", static.get("broker.id", "1"))
    folders = [name.strip() for name in static.get("log.dirs", "").split(",") if name.strip()]
    if folder is None and len(folders) > 1:
        raise InvalidSettingsError("log.dirs names several folders; one is supported")
    chosen = folder or (Path(folders[0]) if folders else DEFAULT_FOLDER)
    chosen = chosen.expanduser().absolute()
    # Wherever they came from, DescribeConfigs shows these as static settings.
    static |= {"node.id": node_id, "broker.id": node_id, "log.dirs": str(chosen)}
    return NodeSettings(
        folder=chosen,
        node_id=NodeId(int(node_id)),
        host=chosen_host,
        kafka_port=port,
        advertised_host=shown_host,
        advertised_port=shown_port,
        rack=static.get("broker.rack"),
        static=static,
    )


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


def _listener(static: Mapping[str, str]) -> tuple[str, int]:
    """Host and port of the first listener without TLS and SASL."""
    given = static.get("listeners", "").strip()
    if not given:
        return LOCALHOST, KAFKA_PORT
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
