"""How brokers are reached: addresses, TLS, login, timeouts; for `link` and for librdkafka.

`LinkSettings` is small and frozen, so that it can be sent to workers. Properties have librdkafka's
names or the Java client's, so that one file serves all clients; an unknown security property is
refused, because ignoring it could open a hole. All settings of librdkafka are built here. Never
connects.
"""

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from penstock.errors import ErrorCode, Refused
from penstock.link.sasl import Login

KAFKA_PORT: Final = 9092
_PORT_MAX: Final = 65535


class Address(NamedTuple):
    """A broker's host and port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class UnreachableError(ConnectionError):
    """No connection to a broker, or no longer. A request in flight may have taken effect or not."""


def read_bootstrap(text: str) -> tuple[Address, ...]:
    """`host:port,host:port` as Kafka clients take it; the port may be omitted."""
    addresses = tuple(_read_address(part.strip()) for part in text.split(",") if part.strip())
    if not addresses:
        raise Refused(ErrorCode.invalid_request, "no broker is named: use host:port,host:port")
    return addresses


def _read_address(text: str) -> Address:
    host, port = text, str(KAFKA_PORT)
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":") or port
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    if not host or not port.isdecimal() or not 0 < int(port) <= _PORT_MAX:
        raise Refused(ErrorCode.invalid_request, f"{text!r} is not host:port")
    return Address(host, int(port))


@dataclass(frozen=True, slots=True)
class Tls:
    """Which certificates to trust, and the client's own; files in PEM."""

    ca_file: str | None = None  # None: the machine's
    certificate_file: str | None = None  # the client's, where brokers require one
    key_file: str | None = None  # None: in the certificate's file
    key_password: str | None = field(default=None, repr=False)
    checks_hostname: bool = True


@lru_cache(maxsize=8)
def tls_context(tls: Tls) -> ssl.SSLContext:
    """A client's context; cached, because it reads files."""
    context = ssl.create_default_context(cafile=tls.ca_file)
    context.check_hostname = tls.checks_hostname
    if tls.certificate_file is not None:
        context.load_cert_chain(tls.certificate_file, tls.key_file, tls.key_password)
    return context


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """For a connection, and for the cluster behind it."""

    client_id: str = "penstock"
    tls: Tls | None = None  # None: not encrypted
    login: Login | None = None  # None: anonymous
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000  # a response later than this ends the connection
    retry_timeout_ms: int = 120_000  # an operation that keeps failing ends after this
    backoff_min_ms: int = 50
    backoff_max_ms: int = 1_000
    unknown_retry_ms: int = 5_000  # how long to retry a topic that the broker does not know
    metadata_max_age_ms: int = 300_000  # older metadata is requested again
    creates_topics: bool = False  # a request for an unknown topic asks the broker to create it
    in_flight_max: int = 64  # requests without a response on one connection; the next one waits
    response_bytes_max: int = 256 << 20  # a larger size is not Kafka: a TLS alert looks like one


DEFAULTS: Final = LinkSettings()


_PROTOCOLS: Final = {  # (TLS, login)
    "PLAINTEXT": (False, False),
    "SSL": (True, False),
    "SASL_PLAINTEXT": (False, True),
    "SASL_SSL": (True, True),
}
_SECURITY_PROPERTIES: Final = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "sasl.jaas.config",
        "ssl.ca.location",
        "ssl.truststore.location",
        "ssl.truststore.type",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
    }
)
LINK_PROPERTIES: Final = _SECURITY_PROPERTIES | {  # what `link_settings` reads, and the address
    "bootstrap.servers",
    "client.id",
    "request.timeout.ms",
}
# What else a file on how to connect may contain: names that both clients have.
_CONNECTION_PROPERTIES: Final = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "client.rack",
        "client.dns.lookup",
        "connections.max.idle.ms",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "retry.backoff.ms",
        "socket.connection.setup.timeout.ms",
    }
)
_JAAS_USER: Final = re.compile(r'\busername\s*=\s*"((?:[^"\\]|\\.)*)"')
_JAAS_PASSWORD: Final = re.compile(r'\bpassword\s*=\s*"((?:[^"\\]|\\.)*)"')


def link_settings(properties: Mapping[str, str]) -> LinkSettings:
    """What these properties say about a link; properties on other subjects are ignored."""
    for name in properties:
        if name.startswith(("sasl.", "ssl.", "security.")) and name not in _SECURITY_PROPERTIES:
            raise _refused(f"{name} is not supported here")
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise _refused(f"security.protocol {protocol} is not one of {', '.join(_PROTOCOLS)}")
    with_tls, with_login = _PROTOCOLS[protocol]
    return LinkSettings(
        client_id=properties.get("client.id", DEFAULTS.client_id),
        request_timeout_ms=_millis(properties, "request.timeout.ms", DEFAULTS.request_timeout_ms),
        tls=_tls(properties) if with_tls else None,
        login=_login(properties) if with_login else None,
    )


def read_properties(path: str) -> dict[str, str]:
    """A properties file, as Kafka's own tools take it: `key=value` lines, `#` before a comment."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise _refused(f"cannot read {path}: {error}") from None
    properties: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith(("#", "!")):
            continue
        name, separator, value = line.partition("=")
        if not separator:
            raise _refused(f"{path}, line {number}: {line!r} is not key=value")
        properties[name.strip()] = value.strip()
    for name in properties:
        if name not in _SECURITY_PROPERTIES | _CONNECTION_PROPERTIES:
            raise _refused(
                f"{path}: {name} is not supported here; the file says how to connect to a cluster,"
                " and nothing else"
            )
    link_settings(properties)  # reports what is invalid
    return properties


def _tls(properties: Mapping[str, str]) -> Tls:
    truststore = properties.get("ssl.truststore.location")
    if truststore is not None and properties.get("ssl.truststore.type", "JKS").upper() != "PEM":
        raise _refused(
            "ssl.truststore.location must be PEM (ssl.truststore.type=PEM): convert it with"
            " keytool -exportcert -rfc"
        )
    algorithm = properties.get("ssl.endpoint.identification.algorithm", "https")
    return Tls(
        ca_file=properties.get("ssl.ca.location", truststore),
        certificate_file=properties.get("ssl.certificate.location"),
        key_file=properties.get("ssl.key.location"),
        key_password=properties.get("ssl.key.password"),
        checks_hostname=algorithm.lower() not in ("", "none"),
    )


def _login(properties: Mapping[str, str]) -> Login:
    mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms"))
    username, password = properties.get("sasl.username"), properties.get("sasl.password")
    jaas = properties.get("sasl.jaas.config")
    if jaas is not None:
        username, password = _quoted(_JAAS_USER, jaas), _quoted(_JAAS_PASSWORD, jaas)
    if mechanism is None or username is None or password is None:
        raise _refused(
            "a login needs sasl.mechanism, and sasl.username with sasl.password or sasl.jaas.config"
        )
    return Login(username, password, mechanism)


def _quoted(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return None if match is None else re.sub(r"\\(.)", r"\1", match[1])


def _millis(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name, str(default))
    if not text.isdecimal() or not int(text):
        raise _refused(f"{name} {text!r} is not a number of milliseconds")
    return int(text)


def _refused(reason: str) -> Refused:
    return Refused(ErrorCode.invalid_config, reason)


# --- librdkafka ---

IDEMPOTENT_PRODUCER: Final[Mapping[str, Any]] = {
    "enable.idempotence": True,
    "partitioner": "murmur2_random",  # the Java client's: a key has one partition
    "linger.ms": 5,
}
_CONNECTION_PREFIXES: Final = (
    "security.", "sasl.", "ssl.", "enable.ssl.", "enable.sasl.", "socket.",
)  # fmt: skip
_CONNECTION_NAMES: Final = (
    "client.id", "client.rack", "client.dns.lookup", "broker.address.family", "oauth_cb",
)  # fmt: skip


class ClientReports(Protocol):
    """Receives what librdkafka reports about a client."""

    def on_error(self, error: Any) -> None:
        """librdkafka's `error_cb`."""

    def log(self, level: int, text: str, facility: str, client: str, line: str) -> None:
        """librdkafka's `logger`."""


def client_settings(
    bootstrap: str,
    settings: Mapping[str, Any] | None = None,
    reports: ClientReports | None = None,
) -> dict[str, Any]:
    """All settings of one client of librdkafka; without `reports` it logs nothing."""
    if reports is None:
        own: dict[str, Any] = {"log_level": 0, "error_cb": _ignore}
    else:
        own = {"error_cb": reports.on_error, "logger": reports}
    return {"bootstrap.servers": bootstrap, **own, **(settings or {})}


def librdkafka_settings(properties: Mapping[str, str]) -> dict[str, str]:
    """Properties of any Kafka client for librdkafka: security by its names, the rest unchanged."""
    link = link_settings(properties)
    rest = {name: value for name, value in properties.items() if name not in _SECURITY_PROPERTIES}
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    security: dict[str, str | None] = {"security.protocol": protocol}
    if link.login is not None:
        security["sasl.mechanism"] = link.login.mechanism
        security["sasl.username"] = link.login.username
        security["sasl.password"] = link.login.password
    if (tls := link.tls) is not None:
        security["ssl.ca.location"] = tls.ca_file
        security["ssl.certificate.location"] = tls.certificate_file
        # librdkafka does not look for the key in the certificate's file.
        security["ssl.key.location"] = tls.key_file or tls.certificate_file
        security["ssl.key.password"] = tls.key_password
        security["ssl.endpoint.identification.algorithm"] = (
            "https" if tls.checks_hostname else "none"
        )
    return rest | {name: value for name, value in security.items() if value is not None}


def connection_settings(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Those of a client's librdkafka settings that another client can use to connect."""
    return {
        name: value
        for name, value in (settings or {}).items()
        if name.startswith(_CONNECTION_PREFIXES) or name in _CONNECTION_NAMES
    }


def _ignore(error: object) -> None:
    """The caller reports errors."""
