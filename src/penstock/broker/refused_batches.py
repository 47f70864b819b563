"""The batches of a connection that were refused and that their producers will send again.

An idempotent producer sends up to five batches of a partition before it has the response to the
first. If the first is refused because of the cluster's state (this broker does not lead yet, too
few replicas are in sync), that state may have changed when the second arrives. The second is then
refused for the same reason:

- Out of order would be an error of the producer. librdkafka continues after it with a new epoch,
  under which it sends everything again that has no response, in all partitions: what is stored by
  then is stored twice.
- If the partition does not know the producer, any sequence number is the first one. The second
  batch would be stored without the first, and librdkafka takes its response for that of both.

A producer that has the response sends the first batch again before any other, so this rule is
limited to the batches that can be on their way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from penstock.errors import Malformed, Refused
from penstock.log.producer_state import WINDOW_BATCHES, is_later_sequence
from penstock.protocol.batch import read_header

if TYPE_CHECKING:
    from penstock.errors import ErrorCode
    from penstock.log.producer_state import ProducerState
    from penstock.protocol.batch import BatchHeader
    from penstock.protocol.fields import TopicKey

Place: TypeAlias = tuple["TopicKey", int]  # topic and partition index, as the client names them

REFUSED_MAX: Final = 10_000  # of one connection; then the oldest is dropped


def header_of_refused(records: memoryview | None) -> BatchHeader | None:
    """The header of records that were refused, perhaps before they were looked at."""
    try:
        return None if records is None else read_header(records)
    except Malformed:
        return None


class _RefusedBatch(NamedTuple):
    producer_epoch: int
    base_sequence: int
    code: ErrorCode
    followers_left: int  # how many later batches may have been sent before the response was read


class RefusedBatches:
    """The first refused batch of each producer and partition, until it is sent again."""

    __slots__ = ("_refused",)

    def __init__(self) -> None:
        self._refused: dict[tuple[Place, int], _RefusedBatch] = {}

    def __len__(self) -> int:
        return len(self._refused)

    def add(self, place: Place, header: BatchHeader, code: ErrorCode) -> None:
        """A batch was refused, with a code after which its producer sends it again."""
        if header.producer_id < 0 or not code.retriable:
            return
        key = place, header.producer_id
        first = self._refused.pop(key, None)
        if first is None or not _is_later(header, first):
            first = _RefusedBatch(
                header.producer_epoch, header.base_sequence, code, WINDOW_BATCHES - 1
            )
        elif first.followers_left > 1:
            first = first._replace(followers_left=first.followers_left - 1)
        else:
            return
        self._refused[key] = first
        if len(self._refused) > REFUSED_MAX:
            del self._refused[next(iter(self._refused))]

    def check(self, place: Place, header: BatchHeader, producer: ProducerState | None) -> None:
        """Refuse a batch if one before it was refused and `producer`, its entry, lacks that."""
        key = place, header.producer_id
        first = self._refused.get(key)
        if first is None:
            return
        if _is_later(header, first) and not _is_next(header, producer):
            raise Refused(first.code, "the batch before this one was refused; send both again")
        del self._refused[key]


def _is_next(header: BatchHeader, producer: ProducerState | None) -> bool:
    """Whether the partition has everything before this batch, perhaps from an earlier leader."""
    if producer is None:
        return False
    return header.base_sequence == producer.next_sequence(header.producer_epoch)


def _is_later(header: BatchHeader, first: _RefusedBatch) -> bool:
    return header.producer_epoch == first.producer_epoch and is_later_sequence(
        header.base_sequence, first.base_sequence
    )
