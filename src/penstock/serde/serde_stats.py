"""How many events were serialized or deserialized, how long that took, and what failed."""

import math
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from penstock.serde.errors import Reason

ERROR_LABELS_MAX: Final = 1000
LATENCY_BOUNDS_S: Final = (  # of one event, or of one of a batch on average
    *(1e-6, 2e-6, 4e-6, 8e-6, 15e-6, 30e-6, 60e-6),
    *(125e-6, 250e-6, 500e-6, 1e-3, 4e-3, 16e-3, 64e-3, 0.25, 1.0, 4.0),
)


@dataclass(slots=True)
class SerdeStats:
    """Plain counts; errors are by subject and reason."""

    events: int = 0
    seconds: float = 0.0
    errors: Counter[tuple[str, Reason]] = field(default_factory=Counter)
    by_latency: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS_S) + 1))

    def note(self, events: int, seconds: float) -> None:
        """Events that took these seconds together."""
        if events:
            self.events += events
            self.by_latency[bisect_left(LATENCY_BOUNDS_S, seconds / events)] += events
        self.seconds += seconds

    def latency_s(self, quantile: float) -> float:
        """The bound that this share of all events did not exceed; 0 without events."""
        left = quantile * sum(self.by_latency)
        for bound, count in zip((*LATENCY_BOUNDS_S, math.inf), self.by_latency, strict=True):
            left -= count
            if count and left <= 0:
                return bound
        return 0.0

    def note_error(self, subject: str, reason: Reason) -> None:
        """One more event that could not be decoded."""
        if (subject, reason) not in self.errors and len(self.errors) >= ERROR_LABELS_MAX:
            subject = "(others)"
        self.errors[subject, reason] += 1
