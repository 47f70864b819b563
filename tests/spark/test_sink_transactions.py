"""Batches as transactions, without Spark: what its driver and its tasks do, done by hand."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

from penstock.columns.arrow_records import bytes_to_arrow
from penstock.columns.open_batches import open_batches
from penstock.errors import ErrorCode, Refused
from penstock.link.blocking import BlockingCluster
from penstock.link.fetch_range import FetchSettings, fetch_range
from penstock.link.offsets import Isolation, committed_offsets, end_offsets, partitions_of
from penstock.link.transactions import (
    TransactionHandle,
    describe_transaction,
    end_transaction,
    init_producer_id,
)
from penstock.model import Offset, SequenceNumber, TopicPartition
from penstock.spark.batch_transaction import (
    ALREADY_WRITTEN,
    BatchName,
    OpenTransaction,
    Outcome,
    Superseded,
    Written,
    transact,
)
from penstock.spark.connections import cluster as kept_cluster
from penstock.spark.connections import kafka_properties
from penstock.spark.exactly_once_sink import TransactionalBatch, in_transaction
from penstock.spark.pack_rows import Packer
from penstock.spark.write_options import WriteRequest
from penstock.spark.write_task import PartitionWriter, TurnWriter, WriteTarget
from penstock.spark.write_turns import Turns

MakeTopic: TypeAlias = Callable[..., str]
SHORT_MS = 1_000


@pytest.fixture
def properties(bootstrap: str) -> dict[str, str]:
    return kafka_properties({"kafka.bootstrap.servers": bootstrap})


@pytest.fixture
def cluster(properties: dict[str, str]) -> BlockingCluster:
    return kept_cluster(properties)


class Sink:
    """Writes rows as one task of a transaction would."""

    def __init__(self, properties: dict[str, str], topic: str) -> None:
        self.topic = topic
        self.properties = properties

    def write(
        self,
        transaction: OpenTransaction,
        rows: list[tuple[str | None, str]],
        writer: str = "task 0",
    ) -> list[Written]:
        target = WriteTarget(self.properties, transaction.handle, dict(transaction.sequences))
        packed = self._packer().pack(iter([frame_of(rows)]))
        return PartitionWriter(target, writer).write(packed)

    def _packer(self) -> Packer:
        request = WriteRequest(self.properties, topic=self.topic)
        return Packer(request.plan(["key", "value"]), 0)


def frame_of(rows: list[tuple[str | None, str]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([key for key, _ in rows], pa.string()),
            "value": pa.array([value for _, value in rows], pa.string()),
        }
    )


@pytest.fixture
def sink(properties: dict[str, str], make_topic: MakeTopic) -> Sink:
    return Sink(properties, make_topic(2))


def rows(first: int, end: int) -> list[tuple[str | None, str]]:
    return [(f"key-{number % 5}", str(number)) for number in range(first, end)]


def visible(cluster: BlockingCluster, topic: str) -> list[int]:
    """What a read_committed reader sees."""
    isolation = Isolation.READ_COMMITTED
    places = cluster.run(partitions_of([topic]))
    ends = cluster.run(end_offsets(places, isolation=isolation))
    found: list[int] = []
    for place, end in ends.items():
        ranged = fetch_range(place, Offset(0), end, settings=FetchSettings(isolation=isolation))
        for chunk in cluster.stream(ranged):
            columns = open_batches(chunk.records, aborted=chunk.aborted)
            assert columns.values is not None
            values: list[Any] = bytes_to_arrow(columns.values).to_pylist()
            found += [int(value) for value in values]
    return sorted(found)


def name(query: str, batch_id: int = 0, checkpoint: str = "checkpoint-1") -> BatchName:
    return BatchName(query, checkpoint, batch_id)


def test_a_batch_is_seen_whole_and_written_once(cluster: BlockingCluster, sink: Sink) -> None:
    def write(transaction: OpenTransaction) -> None:
        transaction.note(sink.write(transaction, rows(0, 100)))
        assert visible(cluster, sink.topic) == []

    outcomes = [transact(cluster, name(sink.topic), write) for _ in range(2)]
    assert outcomes == [Outcome.WRITTEN, Outcome.WRITTEN_BEFORE]
    assert visible(cluster, sink.topic) == list(range(100))


def test_the_marker_is_the_offset_after_the_batch(cluster: BlockingCluster, sink: Sink) -> None:
    for batch_id in range(3):
        transact(
            cluster,
            name(sink.topic, batch_id),
            lambda transaction: transaction.note(sink.write(transaction, rows(0, 1))),
        )
    committed = cluster.run(committed_offsets(f"penstock.sink.{sink.topic}"))
    (marker,) = committed.values()
    assert marker.offset == 3
    assert marker.metadata == f"checkpoint-1 {sink.topic}"


def test_a_batch_that_fails_is_never_seen_and_may_be_written_again(
    cluster: BlockingCluster, sink: Sink
) -> None:
    def fail(transaction: OpenTransaction) -> None:
        transaction.note(sink.write(transaction, rows(0, 50)))
        raise ValueError("the job failed")

    with pytest.raises(ValueError, match="the job failed"):
        transact(cluster, name(sink.topic), fail)
    assert visible(cluster, sink.topic) == []
    transact(cluster, name(sink.topic), lambda one: one.note(sink.write(one, rows(0, 70))))
    assert visible(cluster, sink.topic) == list(range(70))


def test_what_a_dead_driver_left_open_is_aborted_by_the_next(
    cluster: BlockingCluster, sink: Sink
) -> None:
    handle = cluster.run(init_producer_id(f"penstock.sink.{sink.topic}"))
    sink.write(OpenTransaction(name(sink.topic), handle), rows(0, 10))
    transact(cluster, name(sink.topic), lambda one: one.note(sink.write(one, rows(0, 20))))
    assert visible(cluster, sink.topic) == list(range(20))
    with pytest.raises(Refused):
        cluster.run(end_transaction(handle, commit=True))
    assert visible(cluster, sink.topic) == list(range(20))


def test_a_driver_that_was_overtaken_can_neither_write_nor_commit(
    cluster: BlockingCluster, sink: Sink
) -> None:
    def overtaken(transaction: OpenTransaction) -> None:
        written = sink.write(transaction, rows(0, 10))
        again = name(sink.topic)
        transact(cluster, again, lambda one: one.note(sink.write(one, rows(0, 10))))
        transaction.note(written)

    with pytest.raises(Refused):
        transact(cluster, name(sink.topic), overtaken)
    assert visible(cluster, sink.topic) == list(range(10))


def written_in(sink: Sink, batch: BatchName, first: int, end: int) -> Outcome:
    """One batch, written as `exactly_once` does."""

    def write(one: TransactionalBatch) -> None:
        transaction = one._transaction  # noqa: SLF001 - tasks are done by hand here
        transaction.note(sink.write(transaction, rows(first, end)))

    return in_transaction(batch, sink.properties, write, topics=[sink.topic])


def test_the_younger_instance_of_a_query_wins_and_the_older_stops(
    cluster: BlockingCluster, sink: Sink
) -> None:
    def older(batch_id: int) -> BatchName:
        return BatchName(sink.topic, "checkpoint-1", batch_id, run="older")

    def younger(batch_id: int) -> BatchName:
        return BatchName(sink.topic, "checkpoint-2", batch_id, run="younger")

    written_in(sink, older(0), 0, 10)
    written_in(sink, older(1), 10, 20)
    written_in(sink, younger(0), 20, 30)
    for _ in range(2):  # and does not come back
        with pytest.raises(Superseded, match="another instance of this query has started since"):
            written_in(sink, older(2), 90, 99)
    written_in(sink, younger(1), 30, 40)
    assert visible(cluster, sink.topic) == list(range(40))


def test_an_instance_that_is_overtaken_within_a_batch_stops_and_the_younger_goes_on(
    cluster: BlockingCluster, sink: Sink
) -> None:
    younger = BatchName(sink.topic, "checkpoint-2", 0, run="younger")

    def write(one: TransactionalBatch) -> None:
        transaction = one._transaction  # noqa: SLF001 - tasks are done by hand here
        transaction.note(sink.write(transaction, rows(90, 95)))
        written_in(sink, younger, 0, 10)
        sink.write(transaction, rows(95, 99))

    older = BatchName(sink.topic, "checkpoint-1", 0, run="older")
    with pytest.raises(Superseded, match="the younger one goes on"):
        in_transaction(older, sink.properties, write, topics=[sink.topic])
    written_in(sink, younger._replace(batch_id=1), 10, 20)
    assert visible(cluster, sink.topic) == list(range(20))


def test_an_instance_goes_on_after_batches_that_failed_or_were_empty(
    cluster: BlockingCluster, sink: Sink
) -> None:
    def batch(batch_id: int) -> BatchName:
        return BatchName(sink.topic, "checkpoint-1", batch_id, run="only")

    def fail(one: TransactionalBatch) -> None:
        transaction = one._transaction  # noqa: SLF001 - tasks are done by hand here
        transaction.note(sink.write(transaction, rows(90, 99)))
        raise ValueError("as a task may")

    for batch_id in range(3):
        with pytest.raises(ValueError, match="as a task may"):
            in_transaction(batch(2 * batch_id), sink.properties, fail, topics=[sink.topic])
        assert written_in(sink, batch(2 * batch_id), 0, 0) is Outcome.EMPTY
        written_in(sink, batch(2 * batch_id + 1), 10 * batch_id, 10 * batch_id + 10)
        again = written_in(sink, batch(2 * batch_id + 1), 0, 10)
        assert again is Outcome.WRITTEN_BEFORE
    assert visible(cluster, sink.topic) == list(range(30))


def test_two_tasks_that_write_to_one_partition_are_refused(
    cluster: BlockingCluster, sink: Sink
) -> None:
    def write(transaction: OpenTransaction) -> None:
        first = sink.write(transaction, rows(0, 10), "task 0")
        place = first[0].place
        other = Written(place, 1, first[0].end_sequence, "task 1")
        transaction.note([*first, other])

    with pytest.raises(Refused, match=r"task 0 and task 1 both write to .*record_batches"):
        transact(cluster, name(sink.topic), write)
    assert visible(cluster, sink.topic) == []


def test_a_second_attempt_never_writes_over_its_first(cluster: BlockingCluster, sink: Sink) -> None:
    def write(transaction: OpenTransaction) -> None:
        sink.write(transaction, rows(0, 10), "attempt 0")  # and then its executor is lost
        transaction.note(sink.write(transaction, rows(0, 10), "attempt 1"))

    with pytest.raises(Refused, match=ALREADY_WRITTEN):
        transact(cluster, name(sink.topic), write)
    assert visible(cluster, sink.topic) == []


def test_a_batch_whose_tasks_were_lost_is_written_again_as_a_whole(
    cluster: BlockingCluster, properties: dict[str, str], sink: Sink
) -> None:
    tries: list[TransactionHandle] = []

    def transacted(batch: object) -> None:
        transaction = batch._transaction  # type: ignore[attr-defined]  # noqa: SLF001 - no Spark here
        tries.append(transaction.handle)
        if len(tries) == 1:
            sink.write(transaction, rows(0, 10), "attempt 0")
        transaction.note(sink.write(transaction, rows(0, 10), "attempt 1"))

    assert in_transaction(name(sink.topic), properties, transacted) is Outcome.WRITTEN
    assert len(tries) == 2
    assert visible(cluster, sink.topic) == list(range(10))


def test_a_task_that_was_given_up_and_wrote_more_stops_the_commit(
    cluster: BlockingCluster, sink: Sink
) -> None:
    def write(transaction: OpenTransaction) -> None:
        told = sink.write(transaction, rows(0, 10))
        zombie = OpenTransaction(
            transaction.name, transaction.handle, {one.place: one.end_sequence for one in told}
        )
        sink.write(zombie, rows(90, 99), "a zombie")
        transaction.note(told)

    with pytest.raises(Refused, match="given up"):
        transact(cluster, name(sink.topic), write)
    assert visible(cluster, sink.topic) == []


def test_a_transaction_that_timed_out_fails_and_is_written_again(
    cluster: BlockingCluster, sink: Sink
) -> None:
    states: list[str | None] = []

    def slow(transaction: OpenTransaction) -> None:
        transaction.note(sink.write(transaction, rows(0, 10)))
        while "CompleteAbort" not in states:  # the broker gives it up by itself
            time.sleep(0.05)
            told = cluster.run(describe_transaction(transaction.name.transactional_id))
            states.append(None if told is None else told.state)

    with pytest.raises(Refused) as refused:
        transact(cluster, name(sink.topic), slow, timeout_ms=SHORT_MS)
    assert refused.value.code is not ErrorCode.none
    assert "Ongoing" in states
    assert visible(cluster, sink.topic) == []
    transact(cluster, name(sink.topic), lambda one: one.note(sink.write(one, rows(0, 10))))
    assert visible(cluster, sink.topic) == list(range(10))


def test_a_task_that_writes_after_the_time_has_passed_is_refused(
    cluster: BlockingCluster, sink: Sink
) -> None:
    def slow(transaction: OpenTransaction) -> None:
        transaction.note(sink.write(transaction, rows(0, 10)))
        timed_out = False
        while not timed_out:
            time.sleep(0.05)
            told = cluster.run(describe_transaction(transaction.name.transactional_id))
            timed_out = told is not None and told.state == "CompleteAbort"
        transaction.note(sink.write(transaction, rows(10, 20)))

    with pytest.raises(Refused):
        transact(cluster, name(sink.topic), slow, timeout_ms=SHORT_MS)
    assert visible(cluster, sink.topic) == []


def test_another_checkpoint_counts_its_batches_by_itself(
    cluster: BlockingCluster, sink: Sink
) -> None:
    for checkpoint in ("checkpoint-1", "checkpoint-2"):
        for batch_id in range(2):
            outcome = transact(
                cluster,
                name(sink.topic, batch_id, checkpoint),
                lambda one: one.note(sink.write(one, [("key", "1")])),
            )
            assert outcome is Outcome.WRITTEN
    assert visible(cluster, sink.topic) == [1, 1, 1, 1]


def test_a_checkpoint_that_was_set_back_is_refused(cluster: BlockingCluster, sink: Sink) -> None:
    for batch_id in range(3):
        transact(
            cluster,
            name(sink.topic, batch_id),
            lambda one: one.note(sink.write(one, [("key", "1")])),
        )
    with pytest.raises(Refused, match="set back"):
        transact(cluster, name(sink.topic, 1), lambda one: None)


def test_an_empty_batch_begins_no_transaction(cluster: BlockingCluster, sink: Sink) -> None:
    assert transact(cluster, name(sink.topic), lambda one: None) is Outcome.EMPTY
    assert cluster.run(committed_offsets(f"penstock.sink.{sink.topic}")) == {}


def test_several_frames_and_offsets_are_one_batch(
    cluster: BlockingCluster, sink: Sink, properties: dict[str, str], make_topic: MakeTopic
) -> None:
    other = Sink(properties, make_topic(1))
    source = TopicPartition(other.topic, 0)
    group = f"group-of-{sink.topic}"

    def write(transaction: OpenTransaction) -> None:
        transaction.note(sink.write(transaction, rows(0, 10)))
        transaction.note(sink.write(transaction, rows(10, 20)))
        transaction.note(other.write(transaction, rows(0, 5)))
        transaction.add_offsets(group, {source: Offset(41)})

    transact(cluster, name(sink.topic), write, topics=[sink.topic, other.topic])
    assert visible(cluster, sink.topic) == list(range(20))
    assert visible(cluster, other.topic) == list(range(5))
    assert cluster.run(committed_offsets(group))[source].offset == 41


class TurnSink(Sink):
    """The same by a task that takes turns with others."""

    def write_in_turn(
        self,
        transaction: OpenTransaction,
        turns: Turns,
        rows: list[tuple[str | None, str]],
        writer: str = "task 0",
    ) -> list[Written]:
        target = WriteTarget(self.properties, transaction.handle)
        packed = self._packer().build(iter([frame_of(rows)]))
        return TurnWriter(target, turns, writer).write(packed)


@pytest.fixture
def turn_sink(properties: dict[str, str], make_topic: MakeTopic) -> TurnSink:
    return TurnSink(properties, make_topic(2))


def test_tasks_that_take_turns_write_to_the_same_partitions(
    cluster: BlockingCluster, turn_sink: TurnSink, tmp_path: Path
) -> None:
    def write(transaction: OpenTransaction) -> None:
        transaction.note(turn_sink.write(transaction, rows(0, 50)))  # a frame before, in one task
        turns = Turns.begin(str(tmp_path), transaction.sequences)
        told = turn_sink.write_in_turn(transaction, turns, rows(50, 100), "task 0")
        told += turn_sink.write_in_turn(transaction, turns, rows(100, 200), "task 1")
        assert transaction.note_turns(told, turns.end_sequences()) == 150

    assert transact(cluster, name(turn_sink.topic), write) is Outcome.WRITTEN
    assert visible(cluster, turn_sink.topic) == list(range(200))


def test_what_a_lost_task_wrote_in_its_turn_stops_the_commit(
    cluster: BlockingCluster, turn_sink: TurnSink, tmp_path: Path
) -> None:
    def write(transaction: OpenTransaction) -> None:
        turns = Turns.begin(str(tmp_path), {})
        turn_sink.write_in_turn(transaction, turns, rows(0, 10), "attempt 0")  # and then it is lost
        told = turn_sink.write_in_turn(transaction, turns, rows(0, 10), "attempt 1")
        transaction.note_turns(told, turns.end_sequences())

    with pytest.raises(Refused, match=ALREADY_WRITTEN):
        transact(cluster, name(turn_sink.topic), write)
    assert visible(cluster, turn_sink.topic) == []


def test_sequences_that_a_task_died_with_are_nobody_elses(
    cluster: BlockingCluster, turn_sink: TurnSink, tmp_path: Path
) -> None:
    def write(transaction: OpenTransaction) -> None:
        turns = Turns.begin(str(tmp_path), {})
        with turns.turn() as turn:  # and dies before anything is sent
            turn.take({TopicPartition(turn_sink.topic, index): 3 for index in range(2)})
        told = turn_sink.write_in_turn(transaction, turns, rows(0, 10), "task 1")
        transaction.note_turns(told, turns.end_sequences())

    with pytest.raises(Refused, match=ALREADY_WRITTEN):
        transact(cluster, name(turn_sink.topic), write)
    assert visible(cluster, turn_sink.topic) == []


def test_a_turn_is_waited_for_and_sequences_go_round(tmp_path: Path) -> None:
    place = TopicPartition("orders", 0)
    turns = Turns.begin(str(tmp_path), {place: SequenceNumber(2**31 - 2)})
    taken: list[int] = []

    def take() -> None:
        with turns.turn() as turn:
            taken.append(turn.take({place: 3})[place])

    waiting = threading.Thread(target=take)
    with turns.turn() as turn:
        waiting.start()
        assert turn.take({place: 4}) == {place: 2**31 - 2}
        assert taken == []
    waiting.join()
    assert taken == [2]
    assert turns.end_sequences() == {place: 5}
