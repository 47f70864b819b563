"""Addresses: how they are written, which may be listened on, and why one cannot be."""

import errno
import ipaddress
import os
import resource
from typing import Final

ANY_ADDRESS: Final = frozenset(("0.0.0.0", "::", ""))

OPEN_FILES_MAX: Final = 1 << 16


def raise_file_limit() -> int:
    """A connection and a log file are a descriptor each: take as many as the system allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_MAX if most == resource.RLIM_INFINITY else min(most, OPEN_FILES_MAX)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    return wanted


def bracketed(host: str) -> str:
    """A host as it stands before a port: an IPv6 address has colons of its own."""
    return f"[{host}]" if ":" in host else host


class NotAllowedError(Exception):
    """The address would expose the service, or be of no use; the message says what to do."""


def check_exposure(service: str, host: str, advertised: str | None, *, insecure: bool) -> None:
    """Refuse to listen beyond this machine by accident, or where clients could not connect."""
    if is_loopback(host):
        return
    shown = host or "all addresses"
    if not insecure:
        raise NotAllowedError(
            f"listening on {shown} would let everybody who can reach this machine use the "
            f"{service}, which has no logins: add --insecure if that is what you want, or listen "
            "on 127.0.0.1"
        )
    if (advertised or host) in ANY_ADDRESS:
        raise NotAllowedError(
            f"clients cannot connect to {shown}: add --advertise and the name or address at which "
            f"they reach this machine"
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
                f"port {port} is in use: stop who has it, or take another with {option} "
                "(0 is any free one)"
            )
        elif error.errno == errno.EACCES:
            super().__init__(
                f"port {port} is for the system's own services: take one from 1024 with {option}"
            )
        else:
            reason = _reason(error)
            where = f"{bracketed(host)}:{port}"
            super().__init__(f"cannot listen on {where}: {reason}; choose another --host")


def _reason(error: OSError) -> str:
    """In the system's words, without what the event loop puts around them."""
    known = error.errno is not None and error.errno in errno.errorcode
    return os.strerror(error.errno or 0) if known else str(error.strerror)
