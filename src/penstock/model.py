"""The vocabulary: types for values that must not be confused. No behaviour, no imports of ours."""

from typing import Final, NamedTuple, NewType
from uuid import UUID

Offset = NewType("Offset", int)  # in a partition's log; `end_*` is exclusive, `last_*` inclusive
LeaderEpoch = NewType("LeaderEpoch", int)  # counts the leaders a partition has had
NodeId = NewType("NodeId", int)  # a broker; numbered from 1
Millis = NewType("Millis", int)  # milliseconds: a time since the Unix epoch, or a span
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
SequenceNumber = NewType("SequenceNumber", int)  # a producer's count of records; wraps at 2**31
TopicId = NewType("TopicId", UUID)

NO_OFFSET: Final = Offset(-1)
NO_EPOCH: Final = LeaderEpoch(-1)
NO_TIMESTAMP: Final = Millis(-1)
NO_PRODUCER: Final = ProducerId(-1)
NO_PRODUCER_EPOCH: Final = ProducerEpoch(-1)
NO_SEQUENCE: Final = SequenceNumber(-1)


class Moment(NamedTuple):
    """The current time on two clocks."""

    steady: Millis  # monotonic, from an arbitrary start: for time-outs; never stored
    wall: Millis  # the time of day, which may be set at any time: for what is stored or shown


class EpochEnd(NamedTuple):
    """A leader epoch of a log, and where it ends; -1, -1: undefined."""

    epoch: LeaderEpoch
    end_offset: Offset


class TopicPartition(NamedTuple):
    """One partition of one topic, by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
