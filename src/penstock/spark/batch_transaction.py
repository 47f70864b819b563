"""A micro-batch as one Kafka transaction: seen whole or not at all, and never twice.

What is asked for a batch, in this order:

1. Take the transactional id `penstock.sink.<query>`. The first batch of an instance (one start of a
   query) fences the instance before it and aborts what that left open. Later batches go on as the
   same producer and are refused once a younger instance has taken the id: the younger one wins.
   Only then is the marker stable enough to be read.
2. Read the marker, the offset `batch + 1` that the group of the same name has committed. It is
   there: the batch was written before, and nothing is left to do.
3. Write, by any number of processes, each partition by one of them.
4. Check that what the brokers took is what the writers say they sent.
5. Put the marker into the same transaction, and commit.
6. See that every partition has the end of the transaction; write what a broker has forgotten.

Rows and marker are one fact. A commit that is not answered is never aborted: the next to take the
id learns from the marker what became of it.

Numbers of batches mean something within one checkpoint only. The marker names the checkpoint, and
one that names another is not ours: batch 0 of a new checkpoint is never taken for an old one.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from penstock.errors import ErrorCode, Refused
from penstock.link.blocking import BlockingCluster
from penstock.link.offsets import committed_offsets, partitions_of
from penstock.link.transactions import (
    PartitionProducer,
    TransactionHandle,
    add_offsets,
    describe_producers,
    describe_transaction,
    end_transaction,
    init_producer_id,
    unmarked_partitions,
    write_markers,
)
from penstock.model import Offset, SequenceNumber, TopicPartition
from penstock.protocol.java_hash import java_hash

logger = logging.getLogger(__name__)

PREFIX: Final = "penstock.sink."
TIMEOUT_MS: Final = 900_000  # the longest that brokers allow unless told otherwise
SEQUENCE_MASK: Final = 2**31 - 1
ALREADY_WRITTEN: Final = "another task, or an earlier attempt of this one, has written to"
AGAIN: Final = "the batch is to be written again as a whole"
_OFFSETS_TOPIC: Final = "__consumer_offsets"
_FENCED: Final = frozenset({ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch})
_DECIDED: Final = {"CompleteCommit": True, "CompleteAbort": False}  # and by then in every log
_METADATA_BYTES_MAX: Final = 4_000  # brokers take 4096 unless told otherwise
_MARKED_S_MAX: Final = 120.0
_MARKED_SOON_S: Final = 2.0  # brokers write their markers within this, or have forgotten one
_POLL_FIRST_S: Final = 0.002
_POLL_LAST_S: Final = 0.5


class BatchName(NamedTuple):
    """Which batch it is: of whom, by whose count, and its number there."""

    query: str  # one writer at a time goes by this name
    checkpoint: str  # Spark's query id: the same as long as the checkpoint lives
    batch_id: int
    run: str = ""  # which start of the query; "": not known, each batch is a start of its own

    @property
    def transactional_id(self) -> str:
        """Of all batches of the query; also the group that has the marker."""
        return PREFIX + self.query

    def __str__(self) -> str:
        return f"batch {self.batch_id} of {self.query}"


class Superseded(Refused):
    """A younger instance of the query writes under its name: this one must stop."""

    def __init__(self, name: BatchName) -> None:
        super().__init__(
            ErrorCode.producer_fenced,
            f"{name} is not written: another instance of this query has started since and writes"
            f" under the same transactional id, {name.transactional_id}. This instance stops, the"
            " younger one goes on. Run one instance at a time, or give each its own `query`",
        )


@dataclass(slots=True)
class Instance:
    """One start of a query: the handle that its last batch has left. Of one thread at a time."""

    handle: TransactionHandle | None = None


class Written(NamedTuple):
    """What one task has written to one partition."""

    place: TopicPartition
    record_count: int
    end_sequence: SequenceNumber  # the next record's
    writer: str  # names the task, for people


class Outcome(Enum):
    """What became of a batch."""

    WRITTEN = "written"
    WRITTEN_BEFORE = "written before"  # by this or another process; the marker says so
    EMPTY = "empty"  # there was nothing to write, so nothing to mark


@dataclass(slots=True)
class OpenTransaction:
    """What has been put into a transaction so far."""

    name: BatchName
    handle: TransactionHandle
    sequences: dict[TopicPartition, SequenceNumber] = field(
        default_factory=dict
    )  # the next of each
    offsets: dict[str, dict[TopicPartition, Offset]] = field(default_factory=dict)  # by group
    notes: dict[str, str] = field(default_factory=dict)  # that go with a group's offsets
    groups: set[str] = field(default_factory=set)  # whose offsets are in it

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to end: no transaction begins without a record."""
        return not self.sequences and not self.offsets

    def note(self, written: Iterable[Written]) -> int:
        """Count what the tasks of one job wrote; how many records. Refused: two wrote in one place.

        To be called after every job with all that its tasks told.
        """
        writers: dict[TopicPartition, Written] = {}
        for one in written:
            other = writers.setdefault(one.place, one)
            if other is not one:
                raise two_writers(one.place, other.writer, one.writer)
            self.sequences[one.place] = one.end_sequence
        return sum(one.record_count for one in writers.values())

    def note_turns(
        self, written: Iterable[Written], end_sequences: Mapping[TopicPartition, SequenceNumber]
    ) -> int:
        """The same where tasks took turns: together they must have used what was given out.

        Refused if a task was given sequences and did not tell so: one that was lost.
        """
        counts: Counter[TopicPartition] = Counter()
        for one in written:
            counts[one.place] += one.record_count
        for place, end_sequence in end_sequences.items():
            start = self.sequences.get(place, SequenceNumber(0))
            if (start + counts[place]) & SEQUENCE_MASK != end_sequence:
                raise Refused(
                    ErrorCode.out_of_order_sequence_number,
                    f"{self.name}: {ALREADY_WRITTEN} {place}; {AGAIN}",
                )
        self.sequences.update(end_sequences)
        return counts.total()

    def add_offsets(
        self, group: str, offsets: Mapping[TopicPartition, Offset], *, metadata: str = ""
    ) -> None:
        """Have a group's offsets committed with the batch."""
        self.offsets.setdefault(group, {}).update(offsets)
        self.notes[group] = metadata


def transact(
    cluster: BlockingCluster,
    name: BatchName,
    write: Callable[[OpenTransaction], object],
    *,
    topics: Iterable[str] = (),
    timeout_ms: int = TIMEOUT_MS,
    instance: Instance | None = None,
) -> Outcome:
    """Write a batch whole and once. `topics` are those it may write to, as far as they are known.

    When `write` raises, nothing of the batch is ever seen, and it may be written again. When this
    returns, all of it is there for read_committed readers. Batches of one `instance` are refused,
    as Superseded, once another has taken the name.
    """
    known_topics = sorted(topics)
    if instance is None:
        instance = Instance()
    with _stopping_if_fenced(name):
        handle = instance.handle = take(
            cluster,
            name.transactional_id,
            known_topics,
            timeout_ms=timeout_ms,
            previous=instance.handle,
        )
    if is_written(cluster, name):
        return Outcome.WRITTEN_BEFORE
    transaction = OpenTransaction(name, handle)
    try:
        write(transaction)
        if transaction.is_empty:
            return Outcome.EMPTY
        check_sequences(cluster, transaction)
        add_marker(cluster, transaction, known_topics)
    except BaseException:
        try:
            # Tasks tell of a fence in words only; the answer to this tells it by its code.
            with _stopping_if_fenced(name):
                instance.handle = cluster.run(end_transaction(handle, commit=False))
        except Superseded:
            raise
        except (Refused, OSError):
            logger.debug("%s could not be aborted; the next to take its id does it", name)
        raise
    with _stopping_if_fenced(name):
        instance.handle = commit(cluster, transaction)
    return Outcome.WRITTEN


@contextmanager
def _stopping_if_fenced(name: BatchName) -> Iterator[None]:
    """Superseded, where the block was refused because another has taken the transactional id."""
    try:
        yield
    except Refused as refusal:
        if refusal.code in _FENCED:
            raise Superseded(name) from refusal
        raise


def take(
    cluster: BlockingCluster,
    transactional_id: str,
    topics: list[str],
    *,
    timeout_ms: int,
    previous: TransactionHandle | None = None,
) -> TransactionHandle:
    """Be the one who writes under an id; what its last holder has left is ended and mended.

    With `previous`, go on as who wrote under that handle last, unless somebody else has taken the
    id since.
    """
    _mend(cluster, transactional_id, topics)
    taking = init_producer_id(transactional_id, timeout_ms=timeout_ms, previous=previous)
    return cluster.run(taking)


def commit(cluster: BlockingCluster, transaction: OpenTransaction) -> TransactionHandle:
    """End it for good, and see that readers can see it; the handle for the next transaction."""
    ended = cluster.run(end_transaction(transaction.handle, commit=True))
    _see_marked(
        cluster, ended, [*transaction.sequences, *_offsets_logs(cluster, transaction.groups)]
    )
    return ended


def abort(cluster: BlockingCluster, handle: TransactionHandle) -> None:
    """Give it up; what cannot be aborted now is when the id is taken again."""
    with suppress(Refused, OSError):
        cluster.run(end_transaction(handle, commit=False))


def two_writers(place: TopicPartition, one: str, other: str) -> Refused:
    """The refusal of a layout in which two tasks write to one partition."""
    return Refused(
        ErrorCode.invalid_request,
        f"{one} and {other} both write to {place}, and a transaction needs one writer for each"
        " partition; nothing was made visible. Lay the frame out first:"
        f' penstock.spark.record_batches(df, "{place.topic}", ...).write.format("penstock")',
    )


def is_written(cluster: BlockingCluster, name: BatchName) -> bool:
    """Whether the marker says so; to be asked by who has taken the id."""
    committed = cluster.run(committed_offsets(name.transactional_id))
    checkpoint = name.checkpoint
    ours = [row.offset for row in committed.values() if _checkpoint_of(row.metadata) == checkpoint]
    marker = max(ours, default=Offset(0))
    if marker > name.batch_id + 1:
        raise Refused(
            ErrorCode.invalid_request,
            f"{name} was asked for, but batch {marker - 1} of the same checkpoint is written"
            " already: the checkpoint was set back, and what its next batches hold may overlap"
            " with what is there. Start with a new checkpoint, at offsets that you choose",
        )
    return marker == name.batch_id + 1


def add_marker(cluster: BlockingCluster, transaction: OpenTransaction, topics: list[str]) -> None:
    """Put the offsets, and the fact that the batch is written, into the transaction."""
    name, handle = transaction.name, transaction.handle
    for group, offsets in transaction.offsets.items():
        note = transaction.notes[group]
        cluster.run(add_offsets(handle, group, offsets, metadata=note))
        transaction.groups.add(group)
    touched = sorted({place.topic for place in transaction.sequences})
    offered = {place.topic for offsets in transaction.offsets.values() for place in offsets}
    home = (touched or topics or sorted(offered))[0]
    marker = {TopicPartition(home, 0): Offset(name.batch_id + 1)}
    metadata = _metadata(name.checkpoint, touched)
    cluster.run(add_offsets(handle, name.transactional_id, marker, metadata=metadata))
    transaction.groups.add(name.transactional_id)


def _metadata(checkpoint: str, topics: list[str]) -> str:
    """What the marker says: whose batch it is, and where its rows went if that fits."""
    full = f"{checkpoint} {','.join(topics)}"
    return full if len(full.encode()) <= _METADATA_BYTES_MAX else checkpoint


def _checkpoint_of(metadata: str) -> str:
    return metadata.partition(" ")[0]


def check_sequences(cluster: BlockingCluster, transaction: OpenTransaction) -> None:
    """The brokers must have taken exactly what the tasks that ended well have sent.

    A task that was given up may still have written: then there is more than was told, or less
    where two tasks used the same numbers and the broker took one for the other's retry.
    """
    handle = transaction.handle
    known = cluster.run(describe_producers(transaction.sequences))
    for place, end_sequence in transaction.sequences.items():
        found = sequence_of(known.get(place, ()), handle)
        if found != end_sequence:
            raise Refused(
                ErrorCode.out_of_order_sequence_number,
                f"{transaction.name}: {place} was sent up to record {end_sequence} and has"
                f" {found}: a task that was given up wrote there too. Nothing is committed",
            )


def sequence_of(
    producers: Iterable[PartitionProducer], handle: TransactionHandle
) -> SequenceNumber:
    """The next sequence of a handle in a partition, by what the partition tells; 0 at first."""
    for row in producers:
        if row.producer_id == handle.producer_id and row.producer_epoch == handle.producer_epoch:
            return SequenceNumber((row.last_sequence + 1) & SEQUENCE_MASK)
    return SequenceNumber(0)


def _see_marked(
    cluster: BlockingCluster, ended: TransactionHandle, places: Iterable[TopicPartition]
) -> None:
    """Wait until the end of the transaction is in every log; write it where it was forgotten."""
    started, pause_s = time.monotonic(), _POLL_FIRST_S
    while unmarked := cluster.run(unmarked_partitions(ended, places)):
        waited_s = time.monotonic() - started
        if waited_s > _MARKED_S_MAX:
            raise Refused(
                ErrorCode.request_timed_out,
                f"{ended.transactional_id}: committed, but readers do not see it yet in"
                f" {', '.join(map(str, unmarked))}; the next start looks again",
            )
        if waited_s > _MARKED_SOON_S:
            _mend_places(cluster, ended, list(unmarked))
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _POLL_LAST_S)


def _mend(cluster: BlockingCluster, transactional_id: str, topics: list[str]) -> None:
    """Before an id is taken: see that the end of its last transaction is in every log.

    Afterwards nobody could tell any longer how it ended (KAFKA-20734).
    """
    state = cluster.run(describe_transaction(transactional_id))
    if state is None or state.state not in _DECIDED:
        return
    ended = TransactionHandle(transactional_id, state.producer_id, state.producer_epoch)
    places = list(cluster.run(partitions_of(topics))) if topics else []
    _mend_places(cluster, ended, [*places, *_offsets_logs(cluster, [transactional_id])])


def _mend_places(
    cluster: BlockingCluster, ended: TransactionHandle, places: list[TopicPartition]
) -> None:
    assert ended.transactional_id is not None, "a transaction has an id"
    state = cluster.run(describe_transaction(ended.transactional_id))
    if state is None or state.state not in _DECIDED or state.producer_id != ended.producer_id:
        return
    unmarked = cluster.run(unmarked_partitions(ended, places))
    if unmarked:
        logger.warning(
            "%s has ended and %s do not say so: written by hand",
            ended.transactional_id,
            ", ".join(map(str, unmarked)),
        )
        decided = TransactionHandle(ended.transactional_id, state.producer_id, state.producer_epoch)
        cluster.run(write_markers(decided, unmarked, commit=_DECIDED[state.state]))


def _offsets_logs(cluster: BlockingCluster, groups: Iterable[str]) -> set[TopicPartition]:
    """The partitions that keep these groups' offsets."""
    wanted = list(groups)
    if not wanted:
        return set()
    try:
        count = len(cluster.run(partitions_of([_OFFSETS_TOPIC])))
    except Refused as refusal:
        if refusal.code is not ErrorCode.unknown_topic_or_partition:
            raise
        return set()  # no group has ever committed anything
    return {TopicPartition(_OFFSETS_TOPIC, java_hash(group) % count) for group in wanted}
