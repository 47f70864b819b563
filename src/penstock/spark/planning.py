"""Which offsets a micro-batch has, and how they are split into tasks: numbers in, numbers out.

Only offsets decide, never the number of cores, the brokers or the time. A batch that is planned
again, on another cluster or years later, has the same tasks with the same ranges. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import repeat
from typing import Any, Final, NamedTuple
from uuid import UUID

from penstock.errors import ErrorCode, Refused
from penstock.model import Offset, TopicId, TopicPartition

BUNDLE_OFFSETS: Final = 20_000  # ranges that are shorter than this together share a task
TASKS_MAX: Final = 10_000  # about: with more, Spark spends its time on tasks instead of records
_LOG_START: Final = Offset(0)
_NO_ID: Final = UUID(int=0)  # sent by a broker that has no topic ids
_partition: Any = partial(tuple.__new__, TopicPartition)  # from a pair, in a third of the time
_text: Final = lru_cache(maxsize=1000)(str)  # there are far fewer topics than ranges


class OffsetRange(NamedTuple):
    """Offsets of one partition, from `start` to before `end`, of the topic with this id."""

    partition: TopicPartition
    start: Offset
    end: Offset
    topic_id: TopicId | None

    def to_spark(self) -> tuple[str, int, int, int, str | None]:
        """Built-in types only, for the way to a worker: there may be many of them."""
        (topic, index), start, end, topic_id = self
        return topic, index, start, end, None if topic_id is None else _text(topic_id)

    @classmethod
    def from_spark(cls, values: tuple[str, int, int, int, str | None]) -> "OffsetRange":
        """What `to_spark` returned."""
        topic, index, start, end, id_text = values
        topic_id = None if id_text is None else TopicId(UUID(id_text))
        return cls(TopicPartition(topic, index), Offset(start), Offset(end), topic_id)


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """How far a stream is: the next offset of each partition, and the ids of their topics."""

    offsets: Mapping[TopicPartition, Offset]
    topic_ids: Mapping[str, TopicId]  # without topics of brokers that have no ids

    def to_spark(self) -> dict[str, Any]:
        """As it is stored in the checkpoint."""
        offsets: dict[str, dict[str, int]] = {}
        for (topic, index), offset in sorted(self.offsets.items()):
            offsets.setdefault(topic, {})[str(index)] = offset
        ids = {topic: str(topic_id) for topic, topic_id in sorted(self.topic_ids.items())}
        return {"offsets": offsets, "topic_ids": ids}

    @classmethod
    def from_spark(cls, stored: Mapping[str, Any]) -> "StreamPosition":
        """From the checkpoint; Refused if another source wrote it."""
        try:
            offsets: dict[TopicPartition, Any] = {}
            for topic, rows in stored["offsets"].items():
                partitions = map(_partition, zip(repeat(topic), map(int, rows)))
                offsets.update(zip(partitions, map(int, rows.values()), strict=True))
            ids = {topic: TopicId(UUID(text)) for topic, text in stored["topic_ids"].items()}
        except (AttributeError, KeyError, TypeError, ValueError):
            raise Refused(
                ErrorCode.invalid_config,
                f"the checkpoint's offsets were not written by this source: {stored!r:.200}",
            ) from None
        return cls(offsets, ids)

    def with_offsets(self, offsets: Mapping[TopicPartition, Offset]) -> "StreamPosition":
        """Other offsets of the same topics."""
        return StreamPosition(offsets, self.topic_ids)


def known_id(topic_id: TopicId | None) -> TopicId | None:
    """None where the broker has no topic ids."""
    return None if topic_id is None or topic_id == _NO_ID else topic_id


def recreated_topics(start: StreamPosition, end: StreamPosition) -> list[str]:
    """Topics of both positions whose id has changed."""
    return [
        topic
        for topic, topic_id in end.topic_ids.items()
        if start.topic_ids.get(topic, topic_id) != topic_id
    ]


def losses(start: StreamPosition, end: StreamPosition) -> list[str]:
    """What follows `start` and can no longer be read, as sentences."""
    recreated = frozenset(recreated_topics(start, end))
    sentences = [
        f"topic {topic} was deleted and created again: its offsets belong to the deleted one"
        for topic in sorted(recreated)
    ]
    for partition, offset in sorted(start.offsets.items()):
        if partition.topic in recreated:
            continue
        if partition not in end.offsets:
            sentences.append(f"{partition} no longer exists: it was read up to offset {offset}")
        elif end.offsets[partition] < offset:
            sentences.append(
                f"{partition} ends at {end.offsets[partition]}: it was read up to offset {offset}"
            )
    return sentences


def ranges_between(start: StreamPosition, end: StreamPosition) -> list[OffsetRange]:
    """The offsets between two positions; a new partition starts at 0."""
    recreated = frozenset(recreated_topics(start, end))
    starts, topic_ids = start.offsets, end.topic_ids
    ranges = []
    for partition, end_offset in sorted(end.offsets.items()):
        topic = partition[0]
        first = _LOG_START if topic in recreated else starts.get(partition, _LOG_START)
        if first < end_offset:
            ranges.append(OffsetRange(partition, first, end_offset, topic_ids.get(topic)))
    return ranges


def split_into_tasks(
    ranges: Sequence[OffsetRange],
    *,
    partitions_min: int | None = None,
    records_per_partition_max: int | None = None,
) -> list[tuple[OffsetRange, ...]]:
    """A tuple of ranges for each task.

    Short ranges share a task, because starting one costs more than reading a few thousand records;
    so do longer ones if there are very many. With a requested number or size of tasks, each task
    has one range.
    """
    total = sum(offsets.end - offsets.start for offsets in ranges)
    if partitions_min is None and records_per_partition_max is None:
        return list(_bundled(ranges, max(BUNDLE_OFFSETS, total // TASKS_MAX)))
    tasks: list[tuple[OffsetRange, ...]] = []
    for offsets in ranges:
        size = offsets.end - offsets.start
        count = 1
        if records_per_partition_max is not None:
            count = -(-size // records_per_partition_max)
        if partitions_min is not None and partitions_min > len(ranges):
            count = max(count, -(-size * partitions_min // total))
        tasks += [(piece,) for piece in _split(offsets, min(count, size))]
    return tasks


def _bundled(ranges: Iterable[OffsetRange], offsets_max: int) -> Iterator[tuple[OffsetRange, ...]]:
    """Neighbours together, up to this many offsets."""
    bundle: list[OffsetRange] = []
    bundle_offsets = 0
    for offsets in ranges:
        size = offsets.end - offsets.start
        if bundle and bundle_offsets + size > offsets_max:
            yield tuple(bundle)
            bundle, bundle_offsets = [], 0
        bundle.append(offsets)
        bundle_offsets += size
    if bundle:
        yield tuple(bundle)


def _split(offsets: OffsetRange, count: int) -> Iterator[OffsetRange]:
    size = offsets.end - offsets.start
    for number in range(count):
        start = Offset(offsets.start + size * number // count)
        end = Offset(offsets.start + size * (number + 1) // count)
        yield offsets._replace(start=start, end=end)


def limited(start: StreamPosition, end: StreamPosition, offsets_max: int) -> StreamPosition:
    """A position between `start` and `end`, at most this many offsets after `start`.

    Every partition advances by its share of what is waiting. The remainder of the division goes to
    a few partitions, to others as the stream advances.
    """
    waiting = {offsets.partition: offsets for offsets in ranges_between(start, end)}
    sizes = {partition: offsets.end - offsets.start for partition, offsets in waiting.items()}
    total = sum(sizes.values())
    if total <= offsets_max:
        return end
    steps = {partition: size * offsets_max // total for partition, size in sizes.items()}
    remainder = offsets_max - sum(steps.values())
    first = sum(offsets.start for offsets in waiting.values()) % len(waiting)
    partitions = list(waiting)
    rotated = partitions[first:] + partitions[:first]
    for partition in sorted(rotated, key=lambda each: steps[each] > 0):  # those with no step first
        if remainder and steps[partition] < sizes[partition]:
            steps[partition] += 1
            remainder -= 1
    reached = {
        partition: Offset(offsets.start + steps[partition])
        for partition, offsets in waiting.items()
    }
    return end.with_offsets(
        {partition: reached.get(partition, offset) for partition, offset in end.offsets.items()}
    )
