"""Which partition a record goes to: Kafka's murmur2 over a column of keys, bit for bit Java's.

The same key goes to the same partition from every client that uses the same hash (Java's default;
librdkafka's `murmur2_random`) and the same number of partitions.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.columns.compiled import (
    ConstBytes,
    Int64s,
    inlined,
    kernel,
)
from penstock.columns.record_kernels_write import BytesLayout

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_LOW_32: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Unkeyed:
    """Where rows without a key go: the n-th of them to first + n * step, around the last one."""

    first: int
    step: int

    @classmethod
    def sticky(cls, partition: int) -> "Unkeyed":
        """All to one partition: the fewest and largest batches. Change it from call to call."""
        return cls(partition, 0)

    @classmethod
    def round_robin(cls, first: int = 0) -> "Unkeyed":
        """One after another."""
        return cls(first, 1)


@inlined
def _byte(content: ConstBytes, position: int) -> int:
    return np.int64(content[position])  # type: ignore[return-value]  # an int once compiled


@inlined
def murmur2(content: ConstBytes, start: int, size: int) -> int:
    """Java's Utils.murmur2 of size bytes, as an unsigned number; products wrap."""
    hashed = (_SEED ^ size) & _LOW_32
    end = start + (size & ~3)
    for at in range(start, end, 4):
        word = _byte(content, at) | _byte(content, at + 1) << 8
        word |= _byte(content, at + 2) << 16 | _byte(content, at + 3) << 24
        word = (word * _MULTIPLIER) & _LOW_32
        word ^= word >> 24
        word = (word * _MULTIPLIER) & _LOW_32
        hashed = ((hashed * _MULTIPLIER) & _LOW_32) ^ word
    rest = size & 3
    if rest == 3:
        hashed ^= _byte(content, end + 2) << 16
    if rest >= 2:
        hashed ^= _byte(content, end + 1) << 8
    if rest >= 1:
        hashed ^= _byte(content, end)
        hashed = (hashed * _MULTIPLIER) & _LOW_32
    hashed ^= hashed >> 13
    hashed = (hashed * _MULTIPLIER) & _LOW_32
    return hashed ^ (hashed >> 15)


@kernel
def _assign(keys: BytesLayout, count: int, first: int, step: int, partitions: Int64s) -> None:
    """Fill in the partition of each row that has none yet (-1)."""
    following = first % count
    for row in range(partitions.shape[0]):
        if partitions[row] >= 0:
            continue
        if keys.valid.shape[0] and not keys.valid[row]:
            partitions[row] = following
            following = (following + step) % count
        else:
            hashed = murmur2(keys.content, keys.ends[row], keys.ends[row + 1] - keys.ends[row])
            partitions[row] = (hashed & 0x7FFFFFFF) % count


def assign_partitions(
    keys: BytesLayout, partition_count: int, unkeyed: Unkeyed, chosen: Int64s | None = None
) -> Int64s:
    """A partition for each row: the one chosen for it, or by its key where that is -1."""
    rows = len(keys.ends) - 1
    partitions = np.full(rows, -1, dtype=np.int64) if chosen is None else chosen.copy()
    if rows and not -1 <= partitions.min() <= partitions.max() < partition_count:
        raise ValueError(f"a chosen partition is not among the topic's {partition_count}")
    _assign(keys, partition_count, unkeyed.first, unkeyed.step, partitions)
    return partitions
