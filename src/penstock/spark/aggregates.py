"""What a key's state can be made of: numbers that add up, piece by piece, in any order.

    orders=count(), cents=total("cents"), first=least("at"), last=greatest("at")

Each is worked out for a whole batch as a vector, and two results of it are one by `merge`. Knows
nothing of Spark.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class Kind(StrEnum):
    """How values become one; the name is Arrow's."""

    COUNT = "count"
    TOTAL = "sum"
    LEAST = "min"
    GREATEST = "max"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One number of a state. Without a column: of rows."""

    kind: Kind
    column: str | None = None

    @property
    def again(self) -> str:
        """Arrow's name for making one of several results."""
        return "sum" if self.kind is Kind.COUNT else str(self.kind)

    def merge(self, one: Any, other: Any) -> Any:
        """Both results as one; None is nothing yet."""
        if one is None or other is None:
            return one if other is None else other
        return _MERGES[self.kind](one, other)


_MERGES: Final[Mapping[Kind, Callable[[Any, Any], Any]]] = {
    Kind.COUNT: lambda one, other: one + other,
    Kind.TOTAL: lambda one, other: one + other,
    Kind.LEAST: min,
    Kind.GREATEST: max,
}


def count() -> Aggregate:
    """How many rows."""
    return Aggregate(Kind.COUNT)


def total(column: str) -> Aggregate:
    """The sum of a column; nulls are left out."""
    return Aggregate(Kind.TOTAL, column)


def least(column: str) -> Aggregate:
    """The smallest value of a column."""
    return Aggregate(Kind.LEAST, column)


def greatest(column: str) -> Aggregate:
    """The largest value of a column."""
    return Aggregate(Kind.GREATEST, column)
