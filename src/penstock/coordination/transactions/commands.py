"""What a transaction coordinator is asked, what it answers, and what it sends.

A command carries the producer id that the shell minted for it, where one may be needed; see
`needs_producer_id` in `rules`.
"""

from enum import Enum
from typing import NamedTuple, TypeAlias

from penstock.machine import CallerId
from penstock.model import NO_PRODUCER, Millis, ProducerEpoch, ProducerId, TopicPartition


class Producer(NamedTuple):
    """The identity a producer acts under: fenced as soon as the coordinator knows a newer one."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class InitProducer(NamedTuple):
    """A producer starts, or starts again: answer with `Producer`."""

    caller: CallerId
    transactional_id: str
    timeout_ms: Millis
    expected: Producer | None = None  # who the producer believes to be (KIP-360)
    minted_producer_id: ProducerId = NO_PRODUCER


class Missing(Enum):
    """What to do with a partition that is not in the producer's transaction."""

    ADD = "add"
    REFUSE = "refuse"


class AddPartitions(NamedTuple):
    """Put partitions into the producer's transaction, opening one if none is: `Missed`."""

    caller: CallerId
    transactional_id: str
    producer: Producer
    partitions: frozenset[TopicPartition]
    missing: Missing = Missing.ADD
    client_version: int = 0  # 2: the client lets the broker add partitions on its behalf


class EndTransaction(NamedTuple):
    """Commit or abort: answer with the `Producer` to go on as."""

    caller: CallerId
    transactional_id: str
    producer: Producer
    commit: bool
    raises_epoch: bool  # EndTxn 5 and later: each end raises the producer's epoch
    minted_producer_id: ProducerId = NO_PRODUCER


class MarkersWritten(NamedTuple):
    """Report of the shell: these partitions hold the marker now, or do not exist any more."""

    transactional_id: str
    producer: Producer
    partitions: frozenset[TopicPartition]


class AbortTimedOut(NamedTuple):
    """Report of the shell: the producer id that a time-out waited for."""

    transactional_id: str
    producer: Producer
    minted_producer_id: ProducerId


class Describe(NamedTuple):
    """Ask for one transactional id: answer with its `Transaction`."""

    caller: CallerId
    transactional_id: str


class ListIds(NamedTuple):
    """Ask for all transactional ids: answer with a tuple of `Transaction`."""

    caller: CallerId


Command: TypeAlias = (
    InitProducer
    | AddPartitions
    | EndTransaction
    | MarkersWritten
    | AbortTimedOut
    | Describe
    | ListIds
)


class Missed(NamedTuple):
    """Answer to AddPartitions with REFUSE: which are not in the transaction."""

    partitions: frozenset[TopicPartition]


class WriteMarkers(NamedTuple):
    """To the shell: write this outcome to these partitions, and report with `MarkersWritten`."""

    transactional_id: str
    producer: Producer
    commit: bool
    partitions: frozenset[TopicPartition]
    raises_epoch: bool  # the marker carries an epoch the producer never wrote under


class WantProducerId(NamedTuple):
    """To the shell: a time-out needs a producer id; report with `AbortTimedOut`."""

    transactional_id: str
    producer: Producer


Send: TypeAlias = WriteMarkers | WantProducerId
