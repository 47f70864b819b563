"""What a key's state can consist of: values that are combined piece by piece, in any order.

    orders=count(), cents=total("cents"), first=minimum("at"), last=maximum("at")

Each is computed for a whole batch as a vector; `merge` combines two results. Independent of Spark.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class AggregateKind(StrEnum):
    """How values are combined; the text is Arrow's name."""

    COUNT = "count"
    TOTAL = "sum"
    MINIMUM = "min"
    MAXIMUM = "max"


@dataclass(frozen=True, slots=True)
class StateAggregate:
    """One value of a state, of a column or, without one, of rows."""

    kind: AggregateKind
    column: str | None = None

    @property
    def merge_function(self) -> str:
        """Arrow's name for combining several results."""
        return "sum" if self.kind is AggregateKind.COUNT else str(self.kind)

    def merge(self, first: Any, second: Any) -> Any:
        """Both results as one; None means that there is none yet."""
        if first is None or second is None:
            return first if second is None else second
        return _MERGES[self.kind](first, second)


_MERGES: Final[Mapping[AggregateKind, Callable[[Any, Any], Any]]] = {
    AggregateKind.COUNT: lambda first, second: first + second,
    AggregateKind.TOTAL: lambda first, second: first + second,
    AggregateKind.MINIMUM: min,
    AggregateKind.MAXIMUM: max,
}


def count() -> StateAggregate:
    """The number of rows."""
    return StateAggregate(AggregateKind.COUNT)


def total(column: str) -> StateAggregate:
    """The sum of a column, without nulls."""
    return StateAggregate(AggregateKind.TOTAL, column)


def minimum(column: str) -> StateAggregate:
    """The smallest value of a column."""
    return StateAggregate(AggregateKind.MINIMUM, column)


def maximum(column: str) -> StateAggregate:
    """The largest value of a column."""
    return StateAggregate(AggregateKind.MAXIMUM, column)
