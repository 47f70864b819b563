"""Why nobody can listen on an address, and what to do about it."""

import errno
import os


class CannotListen(Exception):
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
            super().__init__(f"cannot listen on {host}:{port}: {reason}; choose another --host")


def _reason(error: OSError) -> str:
    """In the system's words, without what the event loop puts around them."""
    known = error.errno is not None and error.errno in errno.errorcode
    return os.strerror(error.errno or 0) if known else str(error.strerror)
