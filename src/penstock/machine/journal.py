"""The port between a machine and its log.

Adapters: a partition that this broker leads, and a Kafka client; later Raft. A journal is bound to
one leader epoch or claim and is never written by two runners. It only grows: what `append` accepted
keeps its offset, and is *committed* once it can no longer be lost.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Literal, NamedTuple, Protocol, TypeAlias

from penstock.errors import Refused
from penstock.machine.deferred import Deferred
from penstock.model import Millis, Offset, ProducerEpoch, ProducerId


class JournalRecord(NamedTuple):
    """One record as the log stores it. A null value is a tombstone: the key is deleted."""

    key: bytes
    value: bytes | None


class TransactionMark(NamedTuple):
    """Marks a batch as part of an open transaction: invisible until its marker is written."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class Applies(Enum):
    """When a runner applies the events that it writes."""

    ON_APPEND = "on append"  # the only writer: what was appended is the next state
    ON_READ_BACK = "on read back"  # others may write, and the outcome of a write may be unknown


# Called with None when committed, else with the reason why it will not be.
OnCommitted: TypeAlias = Callable[[Refused | None], None]


class OwnJournal(Protocol):
    """A log that only this runner writes: events are applied when they are appended."""

    @property
    def applies(self) -> Literal[Applies.ON_APPEND]: ...

    @property
    def end_offset(self) -> Offset:
        """Where the next record would go."""

    @property
    def committed_offset(self) -> Offset:
        """Exclusive: everything below can no longer be lost."""

    def append(
        self, records: Sequence[JournalRecord], now: Millis, mark: TransactionMark | None = None
    ) -> Offset | None:
        """Append all records as one batch, or none. None: committed; else the end to wait for.

        Refused: not the leader of this epoch, too few replicas in sync, or a fenced producer.
        OSError: the disk failed. After either, nothing was written.
        """

    def call_when_committed(self, end_offset: Offset, call: OnCommitted) -> None:
        """Call once everything below `end_offset` is committed, or when it will not be."""


class SharedJournal(Protocol):
    """A log that others may write too: events are applied when they were read back from it."""

    @property
    def applies(self) -> Literal[Applies.ON_READ_BACK]: ...

    def append(
        self, records: Sequence[JournalRecord], now: Millis, mark: TransactionMark | None = None
    ) -> Deferred[Offset]:
        """Write all records or none; resolved with the end offset when that was read back.

        Resolved with an exception when nothing was written, or when the outcome is unknown. Either
        ends the claim that this journal stands for; the next claim finds out what was written.
        """


Journal: TypeAlias = OwnJournal | SharedJournal
