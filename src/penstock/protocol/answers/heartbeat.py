"""The answer to Heartbeat, versions 0 to 4."""

from struct import Struct
from typing import Final

_THROTTLE_FROM: Final = 1
_FLEXIBLE_FROM: Final = 4

_HEARTBEAT_0: Final = Struct(">h")  # error_code
_HEARTBEAT_1: Final = Struct(
    ">"
    "i"  # throttle_ms
    "h"  # error_code
)
_HEARTBEAT_4: Final = Struct(
    ">"
    "i"  # throttle_ms
    "h"  # error_code
    "x"  # no tagged fields
)


def pack_heartbeat(version: int, error_code: int, *, throttle_ms: int = 0) -> bytes:
    """The body."""
    if version >= _FLEXIBLE_FROM:
        return _HEARTBEAT_4.pack(throttle_ms, error_code)
    if version >= _THROTTLE_FROM:
        return _HEARTBEAT_1.pack(throttle_ms, error_code)
    return _HEARTBEAT_0.pack(error_code)
