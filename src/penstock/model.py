"""The vocabulary: names for what must not be mixed up. No behaviour, no imports of ours."""

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
    """Now, on two clocks that must not be mixed up."""

    steady: Millis  # since no particular moment; never set, so it counts time-outs; never stored
    wall: Millis  # the time of day, which may step at any time: for what is stored or shown


class TopicPartition(NamedTuple):
    """One partition of one topic, by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
