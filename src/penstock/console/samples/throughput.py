"""Rates from samples of end offsets and sizes. Pure.

A rate is over the last `SPAN_MS`, so that one late sample does not show as a peak. An end that
moved back is another log: the topic was created again, and has no rate until the next sample.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from penstock.model import Millis

SPAN_MS: Final = 30_000
POINTS_MAX: Final = 720
_SECOND_MS: Final = 1000


class ThroughputPoint(NamedTuple):
    """What came in, per second; None: not known."""

    at: Millis
    records_in: float | None
    bytes_in: float | None


class _Sample(NamedTuple):
    at: Millis
    ends: Mapping[str, int]  # by topic, the sum of its partitions
    size_bytes: int | None


class Throughput:
    """Rates by topic now, and of the whole cluster in the last hour."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()
        self._history: deque[ThroughputPoint] = deque(maxlen=POINTS_MAX)
        self.by_topic: dict[str, float] = {}

    @property
    def history(self) -> Sequence[ThroughputPoint]:
        return tuple(self._history)

    def add(self, at: Millis, ends: Mapping[str, int], size_bytes: int | None) -> None:
        """The sums of the end offsets of all topics, and the bytes of all logs, at a time."""
        samples = self._samples
        while len(samples) > 1 and at - samples[0].at > SPAN_MS:
            samples.popleft()
        if samples and at - samples[-1].at > 2 * SPAN_MS:
            samples.clear()  # an average over a time without samples says nothing
        first = samples[0] if samples and samples[0].at < at else None
        samples.append(_Sample(at, dict(ends), size_bytes))
        if first is None:
            self.by_topic = {}
            return
        seconds = (at - first.at) / _SECOND_MS
        self.by_topic = {
            topic: (end - first.ends[topic]) / seconds
            for topic, end in ends.items()
            if end >= first.ends.get(topic, end + 1)
        }
        bytes_in = None
        if size_bytes is not None and first.size_bytes is not None:
            grown = size_bytes - first.size_bytes  # less than came in where retention removed some
            bytes_in = grown / seconds if grown >= 0 else None
        self._history.append(ThroughputPoint(at, sum(self.by_topic.values()), bytes_in))
