"""Where brokers are, and what their absence is called."""

from typing import Final, NamedTuple

from penstock.errors import ErrorCode, Refused

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
