"""The answer to SyncGroup, versions 0 to 5."""

from struct import Struct
from typing import Final

from penstock.protocol.fields import encoding_of

SYNC_GROUP: Final = 14
_THROTTLE_FROM: Final = 1
_PROTOCOL_FROM: Final = 5

_THROTTLE: Final = Struct(">i")
_ERROR_CODE: Final = Struct(">h")


def pack_sync_group(
    version: int,
    error_code: int,
    assignment: bytes = b"",
    *,
    protocol_type: str | None = None,
    protocol: str | None = None,
    throttle_ms: int = 0,
) -> bytes:
    """The body."""
    encoding = encoding_of(SYNC_GROUP, version)
    parts = [_THROTTLE.pack(throttle_ms)] if version >= _THROTTLE_FROM else []
    parts.append(_ERROR_CODE.pack(error_code))
    if version >= _PROTOCOL_FROM:
        parts += (encoding.string(protocol_type), encoding.string(protocol))
    parts += (encoding.size(len(assignment)), assignment, encoding.no_tags)
    return b"".join(parts)
