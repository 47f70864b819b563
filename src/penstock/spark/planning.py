"""Which offsets a micro-batch has and how they are dealt out to tasks: numbers in, numbers out.

Nothing but offsets decides: not the cores, the brokers or the time. A batch that is planned again,
on another cluster or years later, has the same tasks with the same ranges.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import repeat
from typing import Any, Final, NamedTuple
from uuid import UUID

from penstock.errors import ErrorCode, Refused
from penstock.model import Offset, TopicId, TopicPartition

BUNDLE_OFFSETS: Final = 20_000  # ranges shorter than this together are one task's work
TASKS_MAX: Final = 10_000  # about: beyond, Spark is busier with its tasks than they with records
_BEGINNING: Final = Offset(0)
_partition: Any = partial(tuple.__new__, TopicPartition)  # of a pair: a third of the time, in bulk
_NO_ID: Final = UUID(int=0)  # what a broker says that has none


class OffsetRange(NamedTuple):
    """Offsets of one partition, from `start` to before `end`, of one life of its topic."""

    partition: TopicPartition
    start: Offset
    end: Offset
    topic_id: TopicId | None

    def to_spark(self) -> tuple[str, int, int, int, str | None]:
        """As it travels to a worker: plain, because there may be many of them."""
        (topic, index), start, end, topic_id = self
        return topic, index, start, end, None if topic_id is None else _text(topic_id)

    @classmethod
    def from_spark(cls, told: tuple[str, int, int, int, str | None]) -> "OffsetRange":
        """What `to_spark` made."""
        topic, index, start, end, topic_id = told
        known = None if topic_id is None else TopicId(UUID(topic_id))
        return cls(TopicPartition(topic, index), Offset(start), Offset(end), known)


_text = lru_cache(maxsize=1000)(str)  # there are far fewer topics than ranges


@dataclass(frozen=True, slots=True)
class Position:
    """How far a stream is: the next offset of each partition, and which topics those are of."""

    offsets: Mapping[TopicPartition, Offset]
    topic_ids: Mapping[str, TopicId]  # without those of brokers that have none

    def to_spark(self) -> dict[str, Any]:
        """As it goes into the checkpoint."""
        offsets: dict[str, dict[str, int]] = {}
        for (topic, index), offset in sorted(self.offsets.items()):
            offsets.setdefault(topic, {})[str(index)] = offset
        ids = {topic: str(one) for topic, one in sorted(self.topic_ids.items())}
        return {"offsets": offsets, "topic_ids": ids}

    @classmethod
    def from_spark(cls, told: Mapping[str, Any]) -> "Position":
        """From the checkpoint; Refused if another source wrote it."""
        try:
            offsets: dict[TopicPartition, Any] = {}
            for topic, rows in told["offsets"].items():
                places = map(_partition, zip(repeat(topic), map(int, rows)))
                offsets.update(zip(places, map(int, rows.values()), strict=True))
            ids = {topic: TopicId(UUID(one)) for topic, one in told["topic_ids"].items()}
        except (AttributeError, KeyError, TypeError, ValueError):
            raise Refused(
                ErrorCode.invalid_config,
                f"the checkpoint's offsets were not written by this source: {told!r:.200}",
            ) from None
        return cls(offsets, ids)

    def with_offsets(self, offsets: Mapping[TopicPartition, Offset]) -> "Position":
        """The same topics, elsewhere."""
        return Position(offsets, self.topic_ids)


def known_id(topic_id: TopicId | None) -> TopicId | None:
    """None where the broker has no ids."""
    return None if topic_id is None or topic_id == _NO_ID else topic_id


def made_again(start: Position, end: Position) -> list[str]:
    """Topics of both that are not the same topic any longer."""
    return [
        topic
        for topic, topic_id in end.topic_ids.items()
        if start.topic_ids.get(topic, topic_id) != topic_id
    ]


def losses(start: Position, end: Position) -> list[str]:
    """What can no longer be read of what comes after `start`, in words."""
    anew = frozenset(made_again(start, end))
    told = [
        f"topic {topic} was deleted and created again: its offsets belong to the deleted one"
        for topic in sorted(anew)
    ]
    for place, offset in sorted(start.offsets.items()):
        if place.topic in anew:
            continue
        if place not in end.offsets:
            told.append(f"{place} is not there any longer: it was read up to offset {offset}")
        elif end.offsets[place] < offset:
            told.append(f"{place} ends at {end.offsets[place]}: it was read up to offset {offset}")
    return told


def ranges_between(start: Position, end: Position) -> list[OffsetRange]:
    """What lies between two positions; a partition that is new begins at 0."""
    anew = frozenset(made_again(start, end))
    begins, topic_ids = start.offsets, end.topic_ids
    ranges = []
    for place, stop in sorted(end.offsets.items()):
        topic = place[0]
        begin = _BEGINNING if topic in anew else begins.get(place, _BEGINNING)
        if begin < stop:
            ranges.append(OffsetRange(place, begin, stop, topic_ids.get(topic)))
    return ranges


def deal(
    ranges: Sequence[OffsetRange],
    *,
    partitions_min: int | None = None,
    records_per_partition_max: int | None = None,
) -> list[tuple[OffsetRange, ...]]:
    """A tuple of ranges for each task.

    Short ranges share a task: starting one costs more than reading a few thousand records. So do
    longer ones where there are very many. Who asks for a number of tasks or for their size gets a
    range in each.
    """
    total = sum(one.end - one.start for one in ranges)
    if partitions_min is None and records_per_partition_max is None:
        return list(_bundled(ranges, max(BUNDLE_OFFSETS, total // TASKS_MAX)))
    pieces: list[tuple[OffsetRange, ...]] = []
    for one in ranges:
        size = one.end - one.start
        parts = 1
        if records_per_partition_max is not None:
            parts = -(-size // records_per_partition_max)
        if partitions_min is not None and partitions_min > len(ranges):
            parts = max(parts, -(-size * partitions_min // total))
        pieces += [(piece,) for piece in _split(one, min(parts, size))] if parts > 1 else [(one,)]
    return pieces


def _bundled(ranges: Iterable[OffsetRange], most: int) -> Iterator[tuple[OffsetRange, ...]]:
    """Neighbours together, as long as they have at most so many offsets."""
    bundle: list[OffsetRange] = []
    held = 0
    for one in ranges:
        size = one.end - one.start
        if bundle and held + size > most:
            yield tuple(bundle)
            bundle, held = [], 0
        bundle.append(one)
        held += size
    if bundle:
        yield tuple(bundle)


def _split(one: OffsetRange, parts: int) -> Iterator[OffsetRange]:
    size = one.end - one.start
    for part in range(parts):
        start = Offset(one.start + size * part // parts)
        end = Offset(one.start + size * (part + 1) // parts)
        yield one._replace(start=start, end=end)


def admit(start: Position, end: Position, offsets_max: int) -> Position:
    """A position on the way to `end`, at most so many offsets on.

    Every partition moves by its share of what is waiting. What rounding leaves goes to a few, not
    always to the same: to others as the stream goes on.
    """
    waiting = {one.partition: one for one in ranges_between(start, end)}
    total = sum(one.end - one.start for one in waiting.values())
    if total <= offsets_max:
        return end
    steps = {place: (one.end - one.start) * offsets_max // total for place, one in waiting.items()}
    left = offsets_max - sum(steps.values())
    turn = sum(one.start for one in waiting.values()) % len(waiting)
    places = list(waiting)
    rotated = places[turn:] + places[:turn]
    for place in sorted(rotated, key=lambda one: steps[one] > 0):  # those without any first
        if left and steps[place] < waiting[place].end - waiting[place].start:
            steps[place] += 1
            left -= 1
    reached = {place: Offset(one.start + steps[place]) for place, one in waiting.items()}
    return end.with_offsets(
        {place: reached.get(place, stop) for place, stop in end.offsets.items()}
    )


def no_further(position: Position, target: Position) -> Position:
    """The position, but in no partition beyond the target; partitions it lacks are left out."""
    return position.with_offsets(
        {
            place: min(offset, target.offsets[place])
            for place, offset in position.offsets.items()
            if place in target.offsets
        }
    )
