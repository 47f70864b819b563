"""Where a reset moves a group, in each partition of a topic. Pure.

Never outside of what a partition has: an offset that retention removed would be reset again by the
consumer itself, to a place that was not chosen.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.model import NO_OFFSET, Offset, TopicPartition


class PartitionBounds(NamedTuple):
    """What a partition has: offsets from `start` to before `end`."""

    start: Offset
    end: Offset


class ResetRow(NamedTuple):
    """Where a group is in a partition (None: nowhere yet), and where it is to be."""

    partition: TopicPartition
    before: Offset | None
    after: Offset

    def document(self) -> dict[str, Any]:
        """As JSON. `records` are read again if positive, and skipped if negative."""
        before = self.before
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "before": None if before is None else str(before),
            "after": str(self.after),
            "records": None if before is None else str(before - self.after),
        }


def within(offset: int, bounds: PartitionBounds) -> Offset:
    """The offset, or the nearest one that the partition has."""
    return Offset(min(max(offset, bounds.start), bounds.end))


def plan_shift(
    committed: Mapping[TopicPartition, Offset],
    bounds: Mapping[TopicPartition, PartitionBounds],
    shift: int,
) -> dict[TopicPartition, Offset]:
    """So many records on, or back if negative; a partition without a commit stays without."""
    return {
        partition: within(offset + shift, bounds[partition])
        for partition, offset in committed.items()
        if partition in bounds
    }


def plan_time(
    found: Mapping[TopicPartition, Offset], bounds: Mapping[TopicPartition, PartitionBounds]
) -> dict[TopicPartition, Offset]:
    """To the first record at a time, or to the end where there is none that late."""
    return {
        partition: bounds[partition].end if offset == NO_OFFSET else offset
        for partition, offset in found.items()
    }
