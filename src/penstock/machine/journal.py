"""The port between a machine and its log.

Adapters exist for a local partition, and later for Raft and for a Kafka client. A journal only ever
grows: what `append` accepted keeps its place, and is *committed* once it can no longer be lost.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from penstock.model import Millis, Offset, ProducerEpoch, ProducerId


class JournalRecord(NamedTuple):
    """One record as the log stores it. A null value is a tombstone: the key is gone."""

    key: bytes
    value: bytes | None


class TransactionStamp(NamedTuple):
    """Marks a batch as part of an open transaction: invisible until its marker is written."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class Journal(Protocol):
    """Where a machine's events go. Written by one runner."""

    @property
    def end_offset(self) -> Offset:
        """Where the next record would go."""

    @property
    def committed_offset(self) -> Offset:
        """Exclusive: everything below can no longer be lost."""

    def append(
        self,
        records: Sequence[JournalRecord],
        now: Millis,
        stamp: TransactionStamp | None = None,
    ) -> Offset:
        """Append all records or none, stamped with `now`; return the new end offset.

        OSError: nothing was written.
        """
