"""What a metric is: one row of the table."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class MetricType(StrEnum):
    """As Prometheus calls it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Source(StrEnum):
    """The kind of process that serves a metric."""

    EVERY = "every process"
    BROKER = "broker"
    HTTP = "HTTP process"
    CLIENT = "client library"


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric: its name without the prefix, its type, labels and help."""

    source: Source
    kind: MetricType
    short_name: str
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()  # upper bounds of a histogram's buckets, without +Inf

    @property
    def name(self) -> str:
        """As Prometheus stores it."""
        return f"{PREFIX}{self.short_name}"


PREFIX: Final = "penstock_"
SECONDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
BYTES: Final = tuple(float(1 << power) for power in range(7, 25, 2))


def rows_in(names: dict[str, object]) -> tuple[MetricRow, ...]:
    """The rows that a module defines."""
    return tuple(value for value in names.values() if isinstance(value, MetricRow))
