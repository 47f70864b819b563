"""Collects the instructions of a program and what they refer to.

An instruction is a row of integers. Its index is known as soon as it is put, so that others can
refer to it; an operand that is not known yet is patched later.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from penstock.columns.compiled import ConstBytes, Int64s, Int64Table, read_only
from penstock.columns.vm.python_objects import addresses_of

NOTHING: Final = -1  # in the second column: no slot, no input, no object
OPERAND: Final = 1  # the second column: a slot, an input, or an object


class Assembler:
    """A program in the making, with instructions of a number of columns."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._code: list[list[int]] = []
        self._pool = bytearray()
        self._objects: list[object] = []
        self.symbols: list[Sequence[int]] = []
        self.inputs: int = 0
        self.depth: int = 0  # the most containers within each other

    @property
    def here(self) -> int:
        """The index of the next instruction."""
        return len(self._code)

    def put(self, op: int, operand: int = NOTHING, *more: int) -> int:
        """Add an instruction; its index. Columns that are not given are 0."""
        row = [op, operand, *more]
        self._code.append(row + [0] * (self._columns - len(row)))
        return len(self._code) - 1

    def patch(self, index: int, column: int, value: int) -> None:
        """Fill in what was not known when the instruction was put."""
        self._code[index][column] = value

    def instruction(self, index: int) -> tuple[int, ...]:
        """What was put."""
        return tuple(self._code[index])

    def constant(self, content: bytes) -> int:
        """The position of these bytes in the pool."""
        position = len(self._pool)
        self._pool += content
        return position

    def add_symbols(self, names: Sequence[str], *columns: Sequence[int]) -> int:
        """Names of an enum, in the pool, with columns beside them; the index of the first one."""
        first = len(self.symbols)
        for index, name in enumerate(names):
            content = name.encode()
            beside = (column[index] for column in columns)
            self.symbols.append((self.constant(content), len(content), *beside))
        return first

    def add_object(self, item: object) -> int:
        """The index of an object that instructions refer to."""
        self._objects.append(item)
        return len(self._objects) - 1

    def add_input(self) -> int:
        """The index of one more array that instructions read."""
        self.inputs += 1
        return self.inputs - 1

    def deeper(self, depth: int) -> int:
        """One container within `depth` others."""
        self.depth = max(self.depth, depth + 1)
        return depth + 1

    def code(self) -> Int64Table:
        """All instructions."""
        return table_of(self._code, self._columns)

    def pool(self) -> ConstBytes:
        """All constants."""
        return read_only(bytes(self._pool))

    def objects(self) -> tuple[tuple[object, ...], Int64s]:
        """All objects, and their addresses, which are valid as long as the objects live."""
        objects = tuple(self._objects)
        return objects, addresses_of(objects)


def table_of(rows: Sequence[Sequence[int]], columns: int) -> Int64Table:
    """Rows of integers as a table."""
    return np.array(rows, dtype=np.int64).reshape(-1, columns)
