"""How strings, arrays and structures end or begin: the protocol's two dialects.

Plain versions have fixed lengths in front; flexible ones have varints of one more than the length
and end each structure in tagged fields. A packer asks once which dialect its version speaks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from struct import Struct
from typing import Final, NamedTuple

from penstock.protocol.headers import is_flexible_version
from penstock.protocol.primitives import unsigned_varint

NO_TOPIC_ID: Final = bytes(16)

_LENGTH_16: Final = Struct(">h")
_LENGTH_32: Final = Struct(">i")
_INTS: Final = tuple(Struct(f">{count}i") for count in range(33))


class Node(NamedTuple):
    """Where a broker is, for clients that must go to another one."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class LeaderAndEpoch(NamedTuple):
    """Who leads a partition, as far as the broker that answers has heard."""

    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Dialect:
    """The parts of an encoding that differ between plain and flexible versions."""

    flexible: bool
    string: Callable[[str | None], bytes]
    count: Callable[[int], bytes]  # of an array
    null_array: bytes
    size: Callable[[int], bytes]  # of bytes or records
    no_tags: bytes  # ends a structure that has no tagged fields to send

    def ints(self, values: Sequence[int]) -> bytes:
        """An array of int32."""
        count = len(values)
        layout = _INTS[count] if count < len(_INTS) else Struct(f">{count}i")
        return self.count(count) + layout.pack(*values)


@cache
def dialect_of(api_key: int, version: int) -> Dialect:
    return FLEXIBLE if is_flexible_version(api_key, version) else PLAIN


def tagged(*fields: tuple[int, bytes]) -> bytes:
    """The tagged fields at the end of a flexible structure, in rising order of their tags."""
    parts = [unsigned_varint(len(fields))]
    for tag, content in fields:
        parts += (unsigned_varint(tag), unsigned_varint(len(content)), content)
    return b"".join(parts)


_NODE: Final = Struct(">i")
_LEADER: Final = Struct(
    ">"
    "i"  # leader_id
    "i"  # leader_epoch
    "x"  # no tagged fields
)


def leader_field(tag: int, leader: LeaderAndEpoch) -> tuple[int, bytes]:
    """`current_leader` as a tagged field."""
    return tag, _LEADER.pack(leader.leader_id, leader.leader_epoch)


def nodes_field(tag: int, nodes: Sequence[Node]) -> tuple[int, bytes]:
    """`node_endpoints` as a tagged field."""
    parts = [unsigned_varint(len(nodes) + 1)]
    for node in nodes:
        parts += (_NODE.pack(node.node_id), _compact_string(node.host), _NODE.pack(node.port))
        parts += (_compact_string(node.rack), b"\0")
    return tag, b"".join(parts)


def _compact_string(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    encoded = text.encode()
    return unsigned_varint(len(encoded) + 1) + encoded


def _plain_string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    encoded = text.encode()
    return _LENGTH_16.pack(len(encoded)) + encoded


def _one_more(count: int) -> bytes:
    return unsigned_varint(count + 1)


PLAIN: Final = Dialect(
    flexible=False,
    string=_plain_string,
    count=_LENGTH_32.pack,
    null_array=_LENGTH_32.pack(-1),
    size=_LENGTH_32.pack,
    no_tags=b"",
)
FLEXIBLE: Final = Dialect(
    flexible=True,
    string=_compact_string,
    count=_one_more,
    null_array=b"\0",
    size=_one_more,
    no_tags=b"\0",
)
