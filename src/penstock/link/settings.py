"""What a link may take and how long it waits; small, frozen, and fit to be sent to workers.

Where brokers are, and what their absence is called.

TLS as settings that can be sent to workers, and the context made of them.

Kafka clients' properties -> link settings, by the names people already have in their files.

Takes librdkafka's names and the Java client's. What concerns security and is not understood is
refused: a setting that is silently dropped there is a hole or a riddle. The same properties can be
had as librdkafka takes them, so that one file serves both clients.
"""

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from penstock.errors import ErrorCode, Refused
from penstock.link.sasl import Login

PORT: Final = 9092
_PORT_LAST: Final = 65535


class Address(NamedTuple):
    """A broker's host and port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Unreachable(ConnectionError):
    """No connection to a broker, or not any longer. What was asked may or may not have happened."""


def read_bootstrap(text: str) -> tuple[Address, ...]:
    """`host:port,host:port` as Kafka clients take it; the port may be left out."""
    addresses = tuple(_read_address(part.strip()) for part in text.split(",") if part.strip())
    if not addresses:
        raise Refused(ErrorCode.invalid_request, "no broker is named: give host:port,host:port")
    return addresses


def _read_address(part: str) -> Address:
    host, port = part, str(PORT)
    if part.startswith("["):
        host, _, rest = part[1:].partition("]")
        port = rest.removeprefix(":") or port
    elif part.count(":") == 1:
        host, _, port = part.partition(":")
    if not host or not port.isdecimal() or not 0 < int(port) <= _PORT_LAST:
        raise Refused(ErrorCode.invalid_request, f"{part!r} is no host:port")
    return Address(host, int(port))


@dataclass(frozen=True, slots=True)
class Tls:
    """Whom to trust and who we are; files in PEM."""

    ca_file: str | None = None  # None: whom the machine trusts
    certificate_file: str | None = None  # ours, where brokers ask for one
    key_file: str | None = None  # None: in the certificate's file
    key_password: str | None = field(default=None, repr=False)
    checks_hostname: bool = True


@lru_cache(maxsize=8)
def tls_context(tls: Tls) -> ssl.SSLContext:
    """A client's context; made once, for it reads files."""
    context = ssl.create_default_context(cafile=tls.ca_file)
    context.check_hostname = tls.checks_hostname
    if tls.certificate_file is not None:
        context.load_cert_chain(tls.certificate_file, tls.key_file, tls.key_password)
    return context


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """For one connection and for the cluster behind it."""

    client_id: str = "penstock"
    tls: Tls | None = None  # None: in the clear
    login: Login | None = None  # None: as nobody in particular
    connect_ms: int = 10_000
    answer_ms: int = 30_000  # an answer later than this costs the broker the connection
    retry_ms: int = 120_000  # what keeps failing is given up after this
    backoff_first_ms: int = 50
    backoff_last_ms: int = 1_000
    unsure_ms: int = 5_000  # a topic just made may be unknown to a broker; after this it is not
    metadata_age_ms: int = 300_000  # older than this, who leads what is asked again
    waiting_max: int = 64  # requests without an answer on one connection; the next one waits
    frame_bytes_max: int = 256 << 20  # a larger answer is rubbish; what TLS says looks like one


USUAL: LinkSettings = LinkSettings()


_PROTOCOLS: Final = {  # whether TLS, whether a login
    "PLAINTEXT": (False, False),
    "SSL": (True, False),
    "SASL_PLAINTEXT": (False, True),
    "SASL_SSL": (True, True),
}
_KNOWN_SECURITY: Final = frozenset(
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
LINK_PROPERTIES: Final = _KNOWN_SECURITY | {  # those that `settings_from` reads, and the address
    "bootstrap.servers",
    "client.id",
    "request.timeout.ms",
}
# What else a file about reaching a cluster may hold: names that both clients have
_REACHING: Final = frozenset(
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


def settings_from(properties: Mapping[str, str]) -> LinkSettings:
    """What these properties say of a link; those that concern something else are left alone."""
    for name in properties:
        if name.startswith(("sasl.", "ssl.", "security.")) and name not in _KNOWN_SECURITY:
            raise _refused(f"{name} is not understood here")
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise _refused(f"security.protocol {protocol} is none of {', '.join(_PROTOCOLS)}")
    with_tls, with_login = _PROTOCOLS[protocol]
    return LinkSettings(
        client_id=properties.get("client.id", USUAL.client_id),
        answer_ms=_millis(properties, "request.timeout.ms", USUAL.answer_ms),
        tls=_tls(properties) if with_tls else None,
        login=_login(properties) if with_login else None,
    )


def librdkafka_settings(properties: Mapping[str, str]) -> dict[str, str]:
    """The same for librdkafka: security by its names, and everything else as it stands."""
    link = settings_from(properties)
    rest = {name: value for name, value in properties.items() if name not in _KNOWN_SECURITY}
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    told: dict[str, str | None] = {"security.protocol": protocol}
    if link.login is not None:
        told["sasl.mechanism"] = link.login.mechanism
        told["sasl.username"] = link.login.username
        told["sasl.password"] = link.login.password
    if (tls := link.tls) is not None:
        told["ssl.ca.location"] = tls.ca_file
        told["ssl.certificate.location"] = tls.certificate_file
        # librdkafka does not look for the key beside the certificate by itself
        told["ssl.key.location"] = tls.key_file or tls.certificate_file
        told["ssl.key.password"] = tls.key_password
        told["ssl.endpoint.identification.algorithm"] = "https" if tls.checks_hostname else "none"
    return {**rest, **{name: value for name, value in told.items() if value is not None}}


def read_properties(path: str) -> dict[str, str]:
    """A properties file, as Kafka's own tools take one: `key=value` lines, `#` before a remark."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise _refused(f"{path} cannot be read: {error}") from None
    properties: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line or line.startswith(("#", "!")):
            continue
        name, found, value = line.partition("=")
        if not found:
            raise _refused(f"{path}, line {number}: {line!r} is not key=value")
        properties[name.strip()] = value.strip()
    for name in properties:
        if name not in _KNOWN_SECURITY | _REACHING:
            raise _refused(
                f"{path}: {name} is not understood here; the file says how a cluster is reached,"
                " and nothing else"
            )
    settings_from(properties)  # so that what is wrong in it is said here
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
    found = pattern.search(text)
    return None if found is None else re.sub(r"\\(.)", r"\1", found[1])


def _millis(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name, str(default))
    if not text.isdecimal() or not int(text):
        raise _refused(f"{name} {text!r} is no number of milliseconds")
    return int(text)


def _refused(why: str) -> Refused:
    return Refused(ErrorCode.invalid_config, why)
