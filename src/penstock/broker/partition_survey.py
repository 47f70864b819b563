"""Sums over all partitions of a broker for its metrics, made in small steps.

A pass over many partitions costs milliseconds. So it pauses often, and it is repeated only after
200 times as long as the last one took: surveys never take more than half a percent of the time.
"""

from __future__ import annotations

from collections import defaultdict
from time import perf_counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.broker.broker import Broker
    from penstock.broker.partition import Partition

STEP_PARTITIONS: Final = 100  # between two pauses: a fraction of a millisecond
REST_FACTOR: Final = 200
SKEW_S: Final = 10.0  # records of at least so long are compared
NO_LEADER: Final = -1


class AddedRecords:
    """How the new records of a topic are spread over its partitions."""

    __slots__ = ("_most", "_partitions", "_total")

    def __init__(self) -> None:
        self._most = self._partitions = self._total = 0

    def add(self, records: int) -> None:
        self._partitions += 1
        self._total += records
        self._most = max(self._most, records)

    @property
    def ratio(self) -> float:
        """The records of the busiest partition, divided by the average; 0 without records."""
        return round(self._most * self._partitions / self._total, 3) if self._total > 0 else 0.0


class SurveyResult:
    """What one pass has found."""

    __slots__ = (
        "_ends_before", "added", "ends", "followers", "lag", "leaders", "offline", "segments",
        "size_bytes", "under_min_isr", "under_replicated",
    )  # fmt: skip

    def __init__(self, ends_before: dict[Partition, int]) -> None:
        self._ends_before = ends_before
        self.added: defaultdict[str, AddedRecords] = defaultdict(AddedRecords)  # by topic
        self.size_bytes: defaultdict[str, int] = defaultdict(int)  # by topic
        self.lag: defaultdict[str, int] = defaultdict(int)  # by topic
        self.ends: dict[Partition, int] = {}  # of the partitions led here
        self.leaders: int = 0
        self.followers: int = 0
        self.segments: int = 0
        self.under_replicated: int = 0
        self.under_min_isr: int = 0
        self.offline: int = 0

    def add(self, partition: Partition) -> None:
        log, topic = partition.log, partition.topic_partition.topic
        self.size_bytes[topic] += log.size_bytes
        self.segments += len(log.segments)
        if not partition.is_leader:
            self.followers += 1
            return
        self.leaders += 1
        end = self.ends[partition] = log.end_offset
        added = end - self._ends_before.get(partition, end)
        self.added[topic].add(added)
        if partition.in_sync is not None:
            lag = partition.in_sync.most_lag(log.start_offset, end)
            self.lag[topic] = max(self.lag[topic], lag)
        leadership = partition.leadership
        self.under_replicated += len(leadership.isr) < len(leadership.replicas)
        self.under_min_isr += not partition.has_min_insync


class PartitionSurvey:
    """The result of the last complete pass, and when the next is due."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._due_s = 0.0
        self._ends: dict[Partition, int] = {}  # the skew is that of the records since
        self._compare_at_s = 0.0
        self.result: SurveyResult = SurveyResult({})
        self.skew: dict[str, float] = {}  # by topic

    def refresh(self) -> Iterator[None]:
        """Make a pass if one is due; yields at each pause."""
        if perf_counter() < self._due_s:
            return
        result, spent_s, began_s = SurveyResult(self._ends), 0.0, perf_counter()
        for number, partition in enumerate(tuple(self._broker.partitions), 1):
            result.add(partition)
            if number % STEP_PARTITIONS == 0:
                spent_s += perf_counter() - began_s
                yield
                began_s = perf_counter()
        for topic in tuple(self._broker.cluster.topics()):
            result.offline += sum(each.leader == NO_LEADER for each in topic.partitions)
            if perf_counter() - began_s > 0.0005:
                spent_s += perf_counter() - began_s
                yield
                began_s = perf_counter()
        now_s = perf_counter()
        self._due_s = now_s + (spent_s + now_s - began_s) * REST_FACTOR
        self.result = result
        if now_s >= self._compare_at_s:
            self.skew = {topic: added.ratio for topic, added in result.added.items()}
            self._ends, self._compare_at_s = result.ends, now_s + SKEW_S
