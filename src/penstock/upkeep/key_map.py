"""The last offset of each key in the dirty part of a log, in bounded memory.

When it is full the round ends at the last offset it knows, and the next round goes on from there.
"""

from typing import Final

import numpy as np

from penstock.columns import compact
from penstock.columns.compiled import Bools
from penstock.errors import Malformed
from penstock.model import NO_OFFSET, Offset
from penstock.upkeep.stretches import Stretch

ENTRY_BYTES: Final = 24
_LOAD_MAX: Final = 0.75  # fuller than that, linear probing walks far
_SLOTS_MIN: Final = 4


class KeyMap:
    """Key hashes and their last offsets. Filled once, in offset order, then only asked."""

    def __init__(self, *, map_bytes: int, offset_count: int, seed: tuple[int, int]) -> None:
        # Never more slots than the dirty offsets need: a small table stays in the cache.
        slots = min(map_bytes // ENTRY_BYTES, int(offset_count / _LOAD_MAX) + 1)
        self.entries = np.zeros((max(slots, _SLOTS_MIN), 3), dtype=np.uint64)
        self.seed = np.array(seed, dtype=np.uint64)
        self.count = 0
        self.last_offset = NO_OFFSET  # all keys up to here are known
        self._count_max = int(len(self.entries) * _LOAD_MAX)

    def add(self, stretch: Stretch, *, skip: Bools, first_offset: Offset) -> bool:
        """Note the keys of these batches from `first_offset` on; False when the map is full."""
        reached, self.count, last_offset, rot = compact.map_keys(
            stretch.packed,
            stretch.unpacked,
            stretch.table,
            skip,
            first_offset,
            self.entries,
            self.count,
            self._count_max,
            self.seed,
        )
        if rot:
            position = stretch.position + int(stretch.table[reached]["position"])
            raise Malformed(compact.REASONS[rot], position)
        self.last_offset = max(self.last_offset, Offset(last_offset))
        return reached == len(stretch.table)
