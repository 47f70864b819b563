"""Which partition an event goes to, decided before it is sent.

`KEY_HASH` is left to librdkafka and is the one to use: the same key goes to the same partition
from every client with the same hash, Java's default included. The others are asked per event with
the key's bytes and the number of partitions. A plain function will do as one of your own.
"""

import itertools
import random
from collections.abc import Callable
from typing import Final, TypeAlias

Partitioner: TypeAlias = Callable[[bytes | None, int], int]

STICKY_EVENTS: Final = 500
KEY_HASH: Final[Partitioner | None] = None  # keyless events stay together for a while


class RoundRobin:
    """One partition after another, whatever the key: the most even spread."""

    def __init__(self, first: int = 0) -> None:
        self._numbers = itertools.count(first)

    def __call__(self, key: bytes | None, partition_count: int) -> int:
        """The next one."""
        return next(self._numbers) % partition_count


class Sticky:
    """Many events to one partition, then to another, whatever the key: the largest batches."""

    def __init__(self, events: int = STICKY_EVENTS, seed: int | None = None) -> None:
        self._events = events
        self._left = 0
        self._chosen = 0
        self._random = random.Random(seed)

    def __call__(self, key: bytes | None, partition_count: int) -> int:
        """The present one, or another by chance once it had its share."""
        if self._left == 0 or self._chosen >= partition_count:
            self._left = self._events
            others = [one for one in range(partition_count) if one != self._chosen]
            self._chosen = self._random.choice(others or [0])
        self._left -= 1
        return self._chosen
