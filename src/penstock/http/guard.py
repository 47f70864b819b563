"""Keeps web pages of other sites away from services without logins.

A browser sends requests for any page, so a page of any site can reach a server on this machine.
Three headers show it: `Host`, when a site's own name was made to resolve to this address (DNS
rebinding), `Origin`, and `Sec-Fetch-Site`. Other clients do not send the last two. Links of other
sites work, in a window of their own: a page that is shown inside another one is refused, and so is
a GET that changes something.
"""

import ipaddress
import socket
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from penstock.http.read_only import changes

ANY_HOST: Final = "*"
ALLOWED_HOST_OPTION: Final = "--allowed-host"
_LOCAL: Final = "localhost"
_SAFE_METHODS: Final = frozenset(("GET", "HEAD"))
_OWN_PAGES: Final = frozenset((b"same-origin", b"none"))  # of this server, or no page at all
_SITE: Final = b"sec-fetch-site"
_MODE: Final = b"sec-fetch-mode"
_DESTINATION: Final = b"sec-fetch-dest"
_READ: Final = frozenset((b"host", b"origin", _SITE, _MODE, _DESTINATION))
_SHOWN_CHARACTERS_MAX: Final = 200

Headers = Iterable[tuple[bytes, bytes]]


class Guard:
    """Refuses requests that a page of another site may have sent."""

    def __init__(
        self,
        allowed_hosts: Iterable[str] = (),
        allowed_origins: Iterable[str] = (),
        option: str = ALLOWED_HOST_OPTION,
    ) -> None:
        names = {name.strip("[]").lower() for name in allowed_hosts}
        self._allows_any = ANY_HOST in names
        self._names = frozenset((*names, _LOCAL, socket.gethostname().lower()))
        self._option = option  # which allows more hosts
        self._origins = frozenset(origin.lower().encode() for origin in allowed_origins)

    def allows_origin(self, origin: bytes) -> bool:
        """Whether pages of this origin were allowed by name."""
        return origin.lower() in self._origins

    def refusal(self, method: str, path: str, headers: Headers) -> str | None:
        """Why a request is refused; None if it may pass. `path` is percent-encoded."""
        known = {name: value for name, value in headers if name in _READ}
        host, origin, site = (known.get(name, b"") for name in (b"host", b"origin", _SITE))
        if host and not self._is_own(host.decode("latin-1")):
            return (
                f"this server does not answer to the host {_shown(host)}; if that is a name of its "
                f"own, start it with {self._option} and that name"
            )
        if origin and self.allows_origin(origin):
            return None
        if origin and _authority(origin) != host.lower():
            return f"requests from pages of {_shown(origin)} are not accepted"
        if not site or site in _OWN_PAGES:
            return None
        is_link = known.get(_MODE) == b"navigate" and known.get(_DESTINATION) == b"document"
        if is_link and method in _SAFE_METHODS and not changes(method, path, ""):
            return None
        return "requests from pages of other sites are not accepted"

    def _is_own(self, authority: str) -> bool:
        if self._allows_any:
            return True
        name = _host_of(authority)
        if name in self._names or name.endswith(f".{_LOCAL}"):
            return True
        return _is_address(
            name
        )  # no name was resolved, so none can be made to resolve to this address


def header(headers: Headers, name: bytes) -> bytes:
    """The value of a header, the last one if there are several; empty if there is none."""
    found = b""
    for each, value in headers:
        if each == name:
            found = value
    return found


def _host_of(authority: str) -> str:
    """Without the port, brackets and final dot."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0].lower()
    return authority.partition(":")[0].rstrip(".").lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _authority(origin: bytes) -> bytes:
    """Host and port of an origin; empty for one that has none, such as `null`."""
    try:
        return urlsplit(origin.decode("latin-1")).netloc.lower().encode("latin-1")
    except ValueError:
        return b""


def _shown(value: bytes) -> str:
    return repr(value[:_SHOWN_CHARACTERS_MAX].decode("latin-1"))
