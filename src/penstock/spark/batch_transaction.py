"""A micro-batch as one Kafka transaction: seen whole or not at all, and never twice.

The steps of a batch, in this order:

1. Take the transactional id `penstock.sink.<query>`. The first batch of an instance (one start of a
   query) fences the instance before it and aborts what that left open. Later batches continue as
   the same producer and are refused once a younger instance has taken the id: the younger one wins.
   Only then is the marker stable enough to be read.
2. Read the marker, the offset `batch + 1` that the group of the same name has committed. If it is
   there, the batch was written before, and nothing is left to do.
3. Write, by any number of processes, each partition by one of them at a time.
4. Check that the brokers have exactly what the writers report.
5. Add the marker to the same transaction, and commit.
6. Wait until every partition has the end of the transaction; write it where a broker failed to.

Rows and marker are one fact. A commit that got no response is never aborted: the next to take the
id learns from the marker what became of it.

Batch numbers mean something within one checkpoint only. The marker names the checkpoint, and one
that names another does not count: batch 0 of a new checkpoint is never mistaken for an old one.
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
from penstock.protocol.batch import SEQUENCE_MASK
from penstock.protocol.java_hash import java_hash

logger: Final = logging.getLogger(__name__)

PREFIX: Final = "penstock.sink."
TIMEOUT_MS: Final = 900_000  # the longest that brokers allow by default
REWRITE: Final = "the batch must be written again as a whole"
OVERLAP: Final = ErrorCode.out_of_order_sequence_number  # of writes: the batch is written again
_OFFSETS_TOPIC: Final = "__consumer_offsets"
_FENCED: Final = frozenset({ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch})
_COMPLETED: Final = {"CompleteCommit": True, "CompleteAbort": False}  # state -> is committed
_METADATA_BYTES_MAX: Final = 4_000  # brokers accept 4096 by default
_MARKERS_S_MAX: Final = 120.0
_MARKERS_EXPECTED_S: Final = 2.0  # a broker that takes longer has lost its marker
_POLL_FIRST_S: Final = 0.002
_POLL_LAST_S: Final = 0.5


class BatchName(NamedTuple):
    """Which batch it is: of which query, in which checkpoint, and its number there."""

    query: str  # one writer at a time uses this name
    checkpoint: str  # Spark's query id: the same as long as the checkpoint exists
    batch_id: int
    run: str = ""  # which start of the query; "": not known, each batch counts as a start

    @property
    def transactional_id(self) -> str:
        """Of all batches of the query; also the group that has the marker."""
        return PREFIX + self.query

    def __str__(self) -> str:
        return f"batch {self.batch_id} of {self.query}"


class SupersededError(Refused):
    """A younger instance of the query writes under its name: this one must stop."""

    def __init__(self, name: BatchName) -> None:
        super().__init__(
            ErrorCode.producer_fenced,
            f"{name} is not written: another instance of this query has started since and writes"
            f" under the same transactional id, {name.transactional_id}. This instance stops, the"
            " younger one continues. Run one instance at a time, or give each its own `query`",
        )


@dataclass(slots=True)
class Instance:
    """One start of a query: the handle after its last batch. Used by one thread at a time."""

    handle: TransactionHandle | None = None
    has_markers: bool = False  # the end of its last transaction was seen in every log


class TaskWrite(NamedTuple):
    """What one task has written to one partition."""

    partition: TopicPartition
    record_count: int
    end_sequence: SequenceNumber  # the next record's
    writer: str  # names the task, for people


class BatchOutcome(Enum):
    """What became of a batch."""

    WRITTEN = "written"
    WRITTEN_BEFORE = "written before"  # by this or another process, according to the marker
    EMPTY = "empty"  # no rows and no offsets: no transaction, no marker


@dataclass(slots=True)
class OpenTransaction:
    """What has been put into a transaction so far."""

    name: BatchName
    handle: TransactionHandle
    sequences: dict[TopicPartition, SequenceNumber] = field(default_factory=dict)  # next of each
    offsets: dict[str, dict[TopicPartition, Offset]] = field(default_factory=dict)  # by group
    metadata: dict[str, str] = field(default_factory=dict)  # of a group's offsets
    groups: set[str] = field(default_factory=set)  # whose offsets are in it

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to end: no transaction starts without a record."""
        return not self.sequences and not self.offsets

    def add_writes(
        self,
        writes: Iterable[TaskWrite],
        end_sequences: Mapping[TopicPartition, SequenceNumber] | None = None,
    ) -> int:
        """Count what all tasks of one job report; the number of records. Call after every job.

        `end_sequences` are those that were given out to tasks that took turns; without it, each
        partition must have one writer. Either way the reported records must account for every
        sequence number, or a task that was lost has written too: Refused.
        """
        reported = list(writes)
        if end_sequences is None:
            end_sequences = _sequences_by_writer(reported)
        counts: Counter[TopicPartition] = Counter()
        for write in reported:
            counts[write.partition] += write.record_count
        for partition, end_sequence in end_sequences.items():
            start = self.sequences.get(partition, SequenceNumber(0))
            if (start + counts[partition]) & SEQUENCE_MASK != end_sequence:
                raise overlapping_write(str(self.name), str(partition))
        self.sequences.update(end_sequences)
        return counts.total()

    def add_offsets(
        self, group: str, offsets: Mapping[TopicPartition, Offset], *, metadata: str = ""
    ) -> None:
        """Commit a group's offsets with the batch."""
        self.offsets.setdefault(group, {}).update(offsets)
        self.metadata[group] = metadata


def _sequences_by_writer(writes: Iterable[TaskWrite]) -> dict[TopicPartition, SequenceNumber]:
    """The end sequence of each partition, where each must have one writer."""
    by_partition: dict[TopicPartition, TaskWrite] = {}
    for write in writes:
        other = by_partition.setdefault(write.partition, write)
        if other is not write:
            raise Refused(
                ErrorCode.invalid_request,
                f"{other.writer} and {write.writer} both write to {write.partition}, and a"
                " transaction needs one writer per partition; nothing was made visible. Pack the"
                " frame first: penstock.spark.record_batches(df, WriteRequest("
                f'"{write.partition.topic}", ...)).write.format("penstock")',
            )
    return {partition: write.end_sequence for partition, write in by_partition.items()}


def overlapping_write(writer: str, where: str, remedy: str = REWRITE) -> Refused:
    """The refusal of a write that meets one by a task or attempt that was given up."""
    return Refused(
        OVERLAP,
        f"{writer}: another task, or an earlier attempt of this one, has written to {where};"
        f" {remedy}",
    )


def write_transaction(
    cluster: BlockingCluster,
    name: BatchName,
    write: Callable[[OpenTransaction], object],
    *,
    topics: Iterable[str] = (),
    timeout_ms: int = TIMEOUT_MS,
    instance: Instance | None = None,
) -> BatchOutcome:
    """Write a batch whole and once. `topics` are those it may write to, as far as they are known.

    When `write` raises, nothing of the batch is ever visible, and it may be written again. When
    this returns, all of it is visible to read_committed readers. Batches of one `instance` are
    refused with SupersededError once another instance has taken the name.
    """
    known_topics = sorted(topics)
    if instance is None:
        instance = Instance()
    with _superseded_if_fenced(name):
        if not instance.has_markers:
            complete_markers(cluster, name.transactional_id, known_topics)
            instance.has_markers = True
        handle = instance.handle = take(
            cluster, name.transactional_id, timeout_ms=timeout_ms, previous=instance.handle
        )
        if is_written(cluster, name):
            return BatchOutcome.WRITTEN_BEFORE
        transaction = OpenTransaction(name, handle)
        instance.has_markers = False
        try:
            write(transaction)
            if transaction.is_empty:
                instance.has_markers = True
                return BatchOutcome.EMPTY
            check_sequences(cluster, transaction)
            add_marker(cluster, transaction, known_topics)
        except BaseException:
            instance.handle = _abort_unless_fenced(cluster, handle)
            raise
        instance.handle = commit(cluster, transaction)
        instance.has_markers = True
    return BatchOutcome.WRITTEN


@contextmanager
def _superseded_if_fenced(name: BatchName) -> Iterator[None]:
    """SupersededError if the block was refused because another has taken the transactional id."""
    try:
        yield
    except Refused as refusal:
        if refusal.code in _FENCED and not isinstance(refusal, SupersededError):
            raise SupersededError(name) from refusal
        raise


def _abort_unless_fenced(cluster: BlockingCluster, handle: TransactionHandle) -> TransactionHandle:
    """The handle for the next transaction; Refused only if another has taken the id.

    A fence shows here even if the failure that led to the abort had another cause.
    """
    try:
        return cluster.run(end_transaction(handle, commit=False))
    except (Refused, OSError) as failure:
        if isinstance(failure, Refused) and failure.code in _FENCED:
            raise
        logger.debug("cannot abort %s now; the next to take the id does it", handle)
        return handle


def take(
    cluster: BlockingCluster,
    transactional_id: str,
    *,
    timeout_ms: int,
    previous: TransactionHandle | None = None,
) -> TransactionHandle:
    """Take an id over for writing; what its previous holder left open is aborted.

    With `previous`, continue as the holder of that handle, unless another has taken the id since.
    `complete_markers` comes first, unless this process has seen the markers.
    """
    return cluster.run(init_producer_id(transactional_id, timeout_ms=timeout_ms, previous=previous))


def commit(cluster: BlockingCluster, transaction: OpenTransaction) -> TransactionHandle:
    """Commit, and wait until readers see it; the handle for the next transaction."""
    ended = cluster.run(end_transaction(transaction.handle, commit=True))
    _wait_for_markers(
        cluster, ended, [*transaction.sequences, *_offsets_partitions(cluster, transaction.groups)]
    )
    return ended


def abort(cluster: BlockingCluster, handle: TransactionHandle) -> None:
    """Abort; if that is not possible now, it happens when the id is taken again."""
    with suppress(Refused, OSError):
        cluster.run(end_transaction(handle, commit=False))


def is_written(cluster: BlockingCluster, name: BatchName) -> bool:
    """Whether the marker says so. For the holder of the id."""
    committed = cluster.run(committed_offsets(name.transactional_id))
    markers = [
        row.offset for row in committed.values() if _checkpoint_of(row.metadata) == name.checkpoint
    ]
    marker = max(markers, default=Offset(0))
    if marker > name.batch_id + 1:
        raise Refused(
            ErrorCode.invalid_request,
            f"{name} was requested, but batch {marker - 1} of the same checkpoint is already"
            " written: the checkpoint was set back, and its next batches may overlap with what is"
            " written. Start with a new checkpoint, at offsets that you choose",
        )
    return marker == name.batch_id + 1


def add_marker(cluster: BlockingCluster, transaction: OpenTransaction, topics: list[str]) -> None:
    """Put the offsets, and the fact that the batch is written, into the transaction."""
    name, handle = transaction.name, transaction.handle
    for group, offsets in transaction.offsets.items():
        metadata = transaction.metadata[group]
        cluster.run(add_offsets(handle, group, offsets, metadata=metadata))
        transaction.groups.add(group)
    written = sorted({partition.topic for partition in transaction.sequences})
    read = {partition.topic for offsets in transaction.offsets.values() for partition in offsets}
    topic = (written or topics or sorted(read))[0]
    marker = {TopicPartition(topic, 0): Offset(name.batch_id + 1)}
    metadata = _marker_metadata(name.checkpoint, written)
    cluster.run(add_offsets(handle, name.transactional_id, marker, metadata=metadata))
    transaction.groups.add(name.transactional_id)


def _marker_metadata(checkpoint: str, topics: list[str]) -> str:
    """The checkpoint that the batch belongs to, and the topics of its rows if they fit."""
    full = f"{checkpoint} {','.join(topics)}"
    return full if len(full.encode()) <= _METADATA_BYTES_MAX else checkpoint


def _checkpoint_of(metadata: str) -> str:
    return metadata.partition(" ")[0]


def check_sequences(cluster: BlockingCluster, transaction: OpenTransaction) -> None:
    """The brokers must have exactly what the successful tasks report.

    A task that was given up may still have written: then there is more than was reported, or less
    if two tasks used the same numbers and the broker took one for a retry of the other.
    """
    handle = transaction.handle
    producers = cluster.run(describe_producers(transaction.sequences))
    for partition, end_sequence in transaction.sequences.items():
        stored = sequence_of(producers.get(partition, ()), handle)
        if stored != end_sequence:
            raise Refused(
                OVERLAP,
                f"{transaction.name}: {partition} was sent up to record {end_sequence} and has"
                f" {stored}: a task that was given up wrote there too; {REWRITE}",
            )


def sequence_of(
    producers: Iterable[PartitionProducer], handle: TransactionHandle
) -> SequenceNumber:
    """The next sequence number of a handle in a partition that has these producers."""
    for row in producers:
        if row.producer_id == handle.producer_id and row.producer_epoch == handle.producer_epoch:
            return SequenceNumber((row.last_sequence + 1) & SEQUENCE_MASK)
    return SequenceNumber(0)


def _wait_for_markers(
    cluster: BlockingCluster, ended: TransactionHandle, partitions: Iterable[TopicPartition]
) -> None:
    """Wait until the end of the transaction is in every log; write it where it was lost."""
    started, pause_s = time.monotonic(), _POLL_FIRST_S
    while unmarked := cluster.run(unmarked_partitions(ended, partitions)):
        waited_s = time.monotonic() - started
        if waited_s > _MARKERS_S_MAX:
            raise Refused(
                ErrorCode.request_timed_out,
                f"{ended.transactional_id}: committed, but not yet visible to readers in"
                f" {', '.join(map(str, unmarked))}; the next start checks again",
            )
        if waited_s > _MARKERS_EXPECTED_S:
            _write_lost_markers(cluster, ended, list(unmarked))
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _POLL_LAST_S)


def complete_markers(cluster: BlockingCluster, transactional_id: str, topics: list[str]) -> None:
    """Before an id is taken: the end of its last transaction must be in every log.

    Afterwards its outcome could not be learned any more (KAFKA-20734).
    """
    state = cluster.run(describe_transaction(transactional_id))
    if state is None or state.state not in _COMPLETED:
        return
    ended = TransactionHandle(transactional_id, state.producer_id, state.producer_epoch)
    partitions = list(cluster.run(partitions_of(topics))) if topics else []
    offsets_partitions = _offsets_partitions(cluster, [transactional_id])
    _write_lost_markers(cluster, ended, [*partitions, *offsets_partitions])


def _write_lost_markers(
    cluster: BlockingCluster, ended: TransactionHandle, partitions: list[TopicPartition]
) -> None:
    assert ended.transactional_id is not None, "a transaction has an id"
    state = cluster.run(describe_transaction(ended.transactional_id))
    if state is None or state.state not in _COMPLETED or state.producer_id != ended.producer_id:
        return
    unmarked = cluster.run(unmarked_partitions(ended, partitions))
    if unmarked:
        logger.warning(
            "%s has ended but its marker is missing in %s: writing it",
            ended.transactional_id,
            ", ".join(map(str, unmarked)),
        )
        handle = TransactionHandle(ended.transactional_id, state.producer_id, state.producer_epoch)
        cluster.run(write_markers(handle, unmarked, commit=_COMPLETED[state.state]))


def _offsets_partitions(cluster: BlockingCluster, groups: Iterable[str]) -> set[TopicPartition]:
    """The partitions that store these groups' offsets."""
    names = list(groups)
    if not names:
        return set()
    try:
        count = len(cluster.run(partitions_of([_OFFSETS_TOPIC])))
    except Refused as refusal:
        if refusal.code is not ErrorCode.unknown_topic_or_partition:
            raise
        return set()  # no group has committed anything yet
    return {TopicPartition(_OFFSETS_TOPIC, java_hash(name) % count) for name in names}
