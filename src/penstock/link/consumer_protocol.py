"""Subscriptions and assignments of classic consumers, and the `range` assignor. Pure.

Every Kafka client knows them, so an HTTP member and a Kafka client can share a group.

    subscription  version (2) | topics: count (4), each: length (2), name | user data: length (4)
    assignment    version (2) | topics: count (4), each: length (2), name,
                  partitions: count (4), each (4) | user data: length (4)
"""

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import Final

from penstock.errors import Malformed
from penstock.model import TopicPartition

PROTOCOL_TYPE: Final = "consumer"
ASSIGNOR: Final = "range"
_INT_16: Final = Struct(">h")
_INT_32: Final = Struct(">i")
_NO_USER_DATA: Final = _INT_32.pack(-1)


def write_subscription(topics: Iterable[str]) -> bytes:
    """Version 0: the topics and nothing else."""
    names = sorted(topics)
    return b"".join(
        (_INT_16.pack(0), _INT_32.pack(len(names)), *map(_string, names), _NO_USER_DATA)
    )


def read_subscription(packed: bytes) -> tuple[str, ...]:
    """The topics of a subscription of any version."""
    fields = _Fields(packed)
    fields.integer(_INT_16)
    return tuple(fields.string() for _ in range(fields.integer(_INT_32)))


def write_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Version 0."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    packed = [_INT_16.pack(0), _INT_32.pack(len(topics))]
    for topic, indexes in topics.items():
        packed += (_string(topic), _INT_32.pack(len(indexes)), *map(_INT_32.pack, indexes))
    return b"".join((*packed, _NO_USER_DATA))


def read_assignment(packed: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of an assignment of any version; empty bytes are none."""
    if not packed:
        return ()
    fields = _Fields(packed)
    fields.integer(_INT_16)
    partitions = []
    for _ in range(fields.integer(_INT_32)):
        topic = fields.string()
        count = fields.integer(_INT_32)
        partitions += [TopicPartition(topic, fields.integer(_INT_32)) for _ in range(count)]
    return tuple(partitions)


def assign_ranges(
    members: Mapping[str, Sequence[str]], partitions: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Consecutive partitions of each topic to its members in order, as Kafka's range assignor."""
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in members}
    for topic in sorted({topic for topics in members.values() for topic in topics}):
        readers = sorted(member for member, topics in members.items() if topic in topics)
        share, extra = divmod(partitions.get(topic, 0), len(readers))
        start = 0
        for number, reader in enumerate(readers):
            end = start + share + (number < extra)
            assigned[reader] += [TopicPartition(topic, index) for index in range(start, end)]
            start = end
    return assigned


def _string(text: str) -> bytes:
    encoded = text.encode()
    return _INT_16.pack(len(encoded)) + encoded


class _Fields:
    """Reads fields one after the other; Malformed where the bytes end too early."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed
        self._position = 0

    def integer(self, layout: Struct) -> int:
        end = self._position + layout.size
        if end > len(self._packed):
            raise Malformed("a consumer's metadata is truncated", self._position)
        (number,) = layout.unpack_from(self._packed, self._position)
        self._position = end
        return int(number)

    def string(self) -> str:
        size = self.integer(_INT_16)
        end = self._position + size
        if size < 0 or end > len(self._packed):
            raise Malformed("a consumer's metadata is truncated", self._position)
        encoded, self._position = self._packed[self._position : end], end
        try:
            return encoded.decode()
        except UnicodeDecodeError as error:
            raise Malformed(f"a topic's name is not UTF-8: {error.reason}", end) from None
