"""The commands of a transaction coordinator, its replies, and the messages it sends.

A command carries the producer id that the shell got for it, where one may be needed; see
`needs_producer_id` in `decide_transactions`.
"""

from enum import Enum
from typing import NamedTuple, TypeAlias

from penstock.machine import CallerId
from penstock.model import NO_PRODUCER, Millis, ProducerEpoch, ProducerId, TopicPartition


class ProducerIdentity(NamedTuple):
    """What a producer acts under: fenced as soon as the coordinator knows a newer one."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class InitProducer(NamedTuple):
    """A producer starts, or starts again. Reply: its `ProducerIdentity`."""

    caller: CallerId
    transactional_id: str
    timeout_ms: Millis
    expected: ProducerIdentity | None = None  # what the producer had before (KIP-360)
    new_producer_id: ProducerId = NO_PRODUCER


class IfMissing(Enum):
    """What to do with a partition that is not in the producer's transaction."""

    ADD = "add"
    REFUSE = "refuse"


class AddPartitions(NamedTuple):
    """Add partitions to the transaction, opening one if none is. Reply: `MissingPartitions`."""

    caller: CallerId
    transactional_id: str
    producer: ProducerIdentity
    partitions: frozenset[TopicPartition]
    if_missing: IfMissing = IfMissing.ADD
    client_version: int = 0  # 2: the client lets the broker add partitions on its behalf


class EndTransaction(NamedTuple):
    """Commit or abort. Reply: the `ProducerIdentity` to use from now on."""

    caller: CallerId
    transactional_id: str
    producer: ProducerIdentity
    commit: bool
    raises_epoch: bool  # EndTxn 5 and later: each end raises the producer's epoch
    new_producer_id: ProducerId = NO_PRODUCER


class MarkersWritten(NamedTuple):
    """Report of the shell: these partitions have the marker now, or do not exist any more."""

    transactional_id: str
    producer: ProducerIdentity
    partitions: frozenset[TopicPartition]


class AbortTimedOut(NamedTuple):
    """Report of the shell: the producer id that a time-out waited for."""

    transactional_id: str
    producer: ProducerIdentity
    new_producer_id: ProducerId


class DescribeTransaction(NamedTuple):
    """Reply: the `Transaction` of one transactional id."""

    caller: CallerId
    transactional_id: str


class ListTransactions(NamedTuple):
    """Reply: a tuple of `Transaction`, one for each transactional id."""

    caller: CallerId


Command: TypeAlias = (
    InitProducer
    | AddPartitions
    | EndTransaction
    | MarkersWritten
    | AbortTimedOut
    | DescribeTransaction
    | ListTransactions
)


class MissingPartitions(NamedTuple):
    """Reply to AddPartitions: those that are not in the transaction; none after ADD."""

    partitions: frozenset[TopicPartition]


class WriteMarkers(NamedTuple):
    """To the shell: write this outcome to these partitions, and report with `MarkersWritten`."""

    transactional_id: str
    producer: ProducerIdentity
    commit: bool
    partitions: frozenset[TopicPartition]


class RequestProducerId(NamedTuple):
    """To the shell: a time-out needs a producer id; report with `AbortTimedOut`."""

    transactional_id: str
    producer: ProducerIdentity
