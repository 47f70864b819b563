"""Addresses to listen on: their format, which are allowed, and the reason when one fails."""

import errno
import ipaddress
import logging
import os
import resource
from typing import Final

logger: Final = logging.getLogger(__name__)

ANY_ADDRESS: Final = frozenset(("0.0.0.0", "::", ""))

OPEN_FILES_MAX: Final = 1 << 16


def raise_file_limit() -> int:
    """Each connection and log file is a descriptor: raise the limit; returns it."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_unlimited = hard_limit == resource.RLIM_INFINITY
    limit = OPEN_FILES_MAX if is_unlimited else min(hard_limit, OPEN_FILES_MAX)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard_limit))
    return limit


def bracketed(host: str) -> str:
    """A host as it is written before a port: an IPv6 address contains colons."""
    return f"[{host}]" if ":" in host else host


class NotAllowedError(Exception):
    """The address would expose the service or be useless; the message says what to do."""


def check_exposure(service: str, host: str, advertised: str | None, *, insecure: bool) -> None:
    """Refuse an address that exposes the service unasked, or that clients cannot connect to."""
    if is_loopback(host):
        return
    shown = host or "all addresses"
    if not insecure:
        raise NotAllowedError(
            f"listening on {shown} would let every machine that can reach this one use the "
            f"{service} without authentication: add --insecure to allow that, or listen on "
            "127.0.0.1"
        )
    if (advertised or host) in ANY_ADDRESS:
        raise NotAllowedError(
            f"clients cannot connect to {shown}: add --advertise with the name or address of this "
            "machine that they can connect to"
        )


def warn_if_exposed(host: str) -> None:
    """Log that other machines can connect."""
    if not is_loopback(host):
        logger.warning(
            "listening on %s without authentication: every client that connects can read and write",
            host,
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to it."""
    name = host.strip("[]").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class CannotListenError(Exception):
    """The message says why, and which option chooses another address."""

    def __init__(self, error: OSError, host: str, port: int, option: str) -> None:
        if error.errno == errno.EADDRINUSE:
            super().__init__(
                f"port {port} is in use: stop the process that listens on it, or choose another "
                f"port with {option} (0: any free port)"
            )
        elif error.errno == errno.EACCES:
            super().__init__(f"port {port} needs root: choose a port from 1024 up with {option}")
        else:
            reason = _reason(error)
            where = f"{bracketed(host)}:{port}"
            super().__init__(f"cannot listen on {where}: {reason}; choose another --host")


def _reason(error: OSError) -> str:
    """The system's error message, without what the event loop adds."""
    known = error.errno is not None and error.errno in errno.errorcode
    return os.strerror(error.errno or 0) if known else str(error.strerror)
