"""Which partition a record goes to, as Java's client places it. Pure."""

from itertools import count
from typing import Final

from penstock.gateway.errors import GatewayError, not_found
from penstock.gateway.produce.encode import EncodedRecord

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_LOW_32: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF


def murmur2(key: bytes) -> int:
    """Kafka's hash of a key, unsigned. For many keys, `columns.partitioner` has it compiled."""
    size = len(key)
    hashed = (_SEED ^ size) & _LOW_32
    for at in range(0, size & ~3, 4):
        word = int.from_bytes(key[at : at + 4], "little") * _MULTIPLIER & _LOW_32
        word = (word ^ word >> 24) * _MULTIPLIER & _LOW_32
        hashed = hashed * _MULTIPLIER & _LOW_32 ^ word
    rest = key[size & ~3 :]
    if rest:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * _MULTIPLIER & _LOW_32
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _LOW_32
    return hashed ^ hashed >> 15


class Placement:
    """Chooses partitions; records without a key go to the partitions in turn, a request to one."""

    def __init__(self) -> None:
        self._turn = count()

    def place(
        self, topic: str, records: list[EncodedRecord | GatewayError], partitions: int
    ) -> list[int | GatewayError]:
        """A partition for each record, or why it has none."""
        unkeyed = next(self._turn) % partitions
        return [_place(topic, record, partitions, unkeyed) for record in records]


def _place(
    topic: str, record: EncodedRecord | GatewayError, partitions: int, unkeyed: int
) -> int | GatewayError:
    if isinstance(record, GatewayError):
        return record
    if record.partition is not None:
        if record.partition < partitions:
            return record.partition
        message = f"topic {topic} has no partition {record.partition}: it has {partitions}"
        return not_found("unknown_topic_or_partition", message)
    if record.key is None:
        return unkeyed
    return (murmur2(record.key) & _POSITIVE) % partitions
