"""Counts by upper bound: a list of integers that costs one bisection per observation."""

from bisect import bisect_left
from collections.abc import Iterable


class Histogram:
    """Observed values, counted by bucket. `counts` has one more entry than there are bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds: tuple[float, ...] = bounds
        self.counts: list[int] = [0] * (len(bounds) + 1)
        self.total: float = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def add(self, other: "Histogram") -> None:
        """Add what another one of the same bounds has counted."""
        for number, count in enumerate(other.counts):
            self.counts[number] += count
        self.total += other.total


def sum_of(histograms: Iterable[Histogram], bounds: tuple[float, ...]) -> Histogram:
    """All of them as one."""
    result = Histogram(bounds)
    for histogram in histograms:
        result.add(histogram)
    return result
