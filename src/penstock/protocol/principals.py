"""A user as one broker names it to another: Kafka's DefaultPrincipalData with its version."""

from struct import Struct
from typing import Final

from penstock.errors import Malformed
from penstock.protocol.fields import FLEXIBLE

_VERSION: Final = Struct(">h")
_LAST: Final = Struct(
    ">"
    "?"  # token_authenticated
    "x"  # no tagged fields
)


def write_principal(principal: str) -> bytes:
    """`User:alice` as bytes."""
    kind, _, name = principal.partition(":")
    fields = FLEXIBLE.string(kind) + FLEXIBLE.string(name)
    return _VERSION.pack(0) + fields + _LAST.pack(False)


def read_principal(content: bytes) -> str:
    """The principal that `write_principal` wrote."""
    if len(content) < _VERSION.size:
        raise Malformed("a principal is truncated", 0)
    kind, position = FLEXIBLE.read_string(memoryview(content), _VERSION.size)
    name, _ = FLEXIBLE.read_string(memoryview(content), position)
    return f"{kind}:{name}"
