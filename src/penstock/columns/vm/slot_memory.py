"""The arena of one decoding call: how much of each slot is in use, and capacity for more.

The first rows show how much each scope and slot takes; the arena is laid out for all rows from
that, and again, larger, when the estimate was too low. Memory is zero where nothing was written.
"""

from typing import Final

import numpy as np

from penstock.columns.compiled import Int64s, Int64Table
from penstock.columns.vm.payloads import OutputTooLargeError, PayloadLimits
from penstock.columns.vm.slots import SCRATCH_BYTES, SlotLayout, Slots

TRIAL_ROWS: Final = 64
_SPARE: Final = 1.125  # of what the rows so far say that all rows will take
_FIRST_CAPACITY: Final = 1024  # values of a scope, and bytes of a slot, at least
_TRIAL_BYTES: Final = 4 << 20  # of all slots together at first, scopes with a value per row aside
_COUNT_MAX: Final = 2**31 - 2  # what Arrow's offsets can count


class SlotMemory:
    """Grows while rows are decoded. `row_scopes` have a value per row."""

    def __init__(
        self,
        layout: SlotLayout,
        row_scopes: Int64s,
        *,
        scope_count: int,
        rows: int,
        trial_bytes: int,
        limits: PayloadLimits,
    ) -> None:
        self._layout = layout
        self._row_scopes = row_scopes
        self._rows = rows
        self._limits = limits
        slot_count = len(layout.plans)
        self._counts = np.zeros(scope_count, dtype=np.int64)
        self._sizes = np.zeros(slot_count, dtype=np.int64)
        self._full = np.zeros(2, dtype=np.int64)
        self._scratch = np.empty(SCRATCH_BYTES, dtype=np.uint8)
        # Nearly every value and byte of the first rows takes a byte of their payloads.
        share = max(_FIRST_CAPACITY, min(trial_bytes, _TRIAL_BYTES // max(slot_count, 1)))
        self._reserve(share)
        if self._table()[1] > limits.output_bytes_max:
            self._reserve(_FIRST_CAPACITY)
        self.slots: Slots = self._allocate(*self._checked(0), None)

    def _reserve(self, capacity: int) -> None:
        self._capacities = np.full(len(self._counts), capacity, dtype=np.int64)
        self._size_capacities = np.full(len(self._sizes), capacity, dtype=np.int64)
        # So that any row can become null, whatever else is full:
        self._capacities[self._row_scopes] = self._rows

    def grow(self, done: int) -> None:
        """Make capacity for what was full, and for what all rows take going by those done."""
        which, size = map(int, self._full)
        # Twice the capacity, not what is in use: the row that needed more was taken back.
        if size:
            self._size_capacities[which] = 2 * self._size_capacities[which] + size
        elif self._capacities[which] < _COUNT_MAX:
            self._capacities[which] = min(2 * self._capacities[which], _COUNT_MAX)
        else:
            raise OutputTooLargeError(done, self._rows, self._limits.output_bytes_max)
        table = self._checked(done)
        if done >= TRIAL_ROWS:
            self.foresee(done)
        else:
            self.slots = self._allocate(*table, self.slots)

    def foresee(self, done: int) -> None:
        """Make capacity for all rows, going by those done."""
        share = self._rows / done * _SPARE
        modest = (self._capacities, self._size_capacities)
        counts = (self._counts * share).astype(np.int64) + _FIRST_CAPACITY
        sizes = (self._sizes * share).astype(np.int64) + _FIRST_CAPACITY
        self._capacities = np.minimum(np.maximum(self._capacities, counts), _COUNT_MAX)
        self._capacities[self._row_scopes] = self._rows
        self._size_capacities = np.maximum(self._size_capacities, sizes)
        table, size_bytes = self._table()
        if size_bytes > self._limits.output_bytes_max:
            # The first rows may have been the large ones.
            self._capacities, self._size_capacities = modest
            table, size_bytes = self._table()
        self.slots = self._allocate(table, size_bytes, self.slots)

    def _table(self) -> tuple[Int64Table, int]:
        return self._layout.table(self._capacities, self._size_capacities)

    def _checked(self, done: int) -> tuple[Int64Table, int]:
        table, size_bytes = self._table()
        if size_bytes > self._limits.output_bytes_max:
            raise OutputTooLargeError(done, self._rows, self._limits.output_bytes_max)
        return table, size_bytes

    def _allocate(self, table: Int64Table, size_bytes: int, old: Slots | None) -> Slots:
        arena = np.zeros(size_bytes, dtype=np.uint8)
        slots = Slots(
            table=table,
            counts=self._counts,
            capacities=self._capacities,
            sizes=self._sizes,
            full=self._full,
            bytes=arena,
            ints=arena.view(np.int32),
            longs=arena.view(np.int64),
            floats=arena.view(np.float32),
            doubles=arena.view(np.float64),
            limbs=arena.view(np.uint64),
            scratch=self._scratch,
        )
        if old is not None:
            self._layout.copy_used(self._counts, self._sizes, old, slots)
        return slots
