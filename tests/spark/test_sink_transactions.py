"""Batches as transactions, without Spark: the steps of its driver and its tasks, one by one."""

import time
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from penstock.errors import ErrorCode, Refused
from penstock.link.blocking import BlockingCluster
from penstock.link.offsets import committed_offsets
from penstock.link.transactions import (
    TransactionHandle,
    describe_transaction,
    end_transaction,
    init_producer_id,
)
from penstock.model import Offset, TopicPartition
from penstock.spark import batch_transaction
from penstock.spark.batch_transaction import (
    OVERLAP,
    BatchName,
    BatchOutcome,
    OpenTransaction,
    SupersededError,
    TaskWrite,
    complete_markers,
    write_transaction,
)
from penstock.spark.exactly_once_sink import TransactionalBatch, in_transaction
from tests.support.task_sink import TaskSink, batch, rows, visible, written

MakeTopic: TypeAlias = Callable[..., str]
SHORT_MS = 1_000


def test_a_batch_is_visible_as_a_whole_and_written_once(
    cluster: BlockingCluster, sink: TaskSink
) -> None:
    def write(transaction: OpenTransaction) -> None:
        transaction.add_writes(sink.write(transaction, rows(0, 100)))
        assert visible(cluster, sink.topic) == []

    outcomes = [write_transaction(cluster, batch(sink.topic), write) for _ in range(2)]
    assert outcomes == [BatchOutcome.WRITTEN, BatchOutcome.WRITTEN_BEFORE]
    assert visible(cluster, sink.topic) == list(range(100))


def test_the_marker_is_the_offset_after_the_batch(cluster: BlockingCluster, sink: TaskSink) -> None:
    for batch_id in range(3):
        write_transaction(
            cluster,
            batch(sink.topic, batch_id),
            written(sink, rows(0, 1)),
        )
    committed = cluster.run(committed_offsets(f"penstock.sink.{sink.topic}"))
    (marker,) = committed.values()
    assert marker.offset == 3
    assert marker.metadata == f"checkpoint-1 {sink.topic}"


def test_a_failed_batch_is_never_visible_and_can_be_written_again(
    cluster: BlockingCluster, sink: TaskSink
) -> None:
    def fail(transaction: OpenTransaction) -> None:
        transaction.add_writes(sink.write(transaction, rows(0, 50)))
        raise ValueError("the job failed")

    with pytest.raises(ValueError, match="the job failed"):
        write_transaction(cluster, batch(sink.topic), fail)
    assert visible(cluster, sink.topic) == []
    write_transaction(cluster, batch(sink.topic), written(sink, rows(0, 70)))
    assert visible(cluster, sink.topic) == list(range(70))


def test_what_a_dead_driver_left_open_is_aborted_by_the_next(
    cluster: BlockingCluster, sink: TaskSink
) -> None:
    handle = cluster.run(init_producer_id(f"penstock.sink.{sink.topic}"))
    sink.write(OpenTransaction(batch(sink.topic), handle), rows(0, 10))
    write_transaction(cluster, batch(sink.topic), written(sink, rows(0, 20)))
    assert visible(cluster, sink.topic) == list(range(20))
    with pytest.raises(Refused):
        cluster.run(end_transaction(handle, commit=True))
    assert visible(cluster, sink.topic) == list(range(20))


def test_a_driver_that_was_superseded_can_neither_write_nor_commit(
    cluster: BlockingCluster, sink: TaskSink
) -> None:
    def superseded(transaction: OpenTransaction) -> None:
        writes = sink.write(transaction, rows(0, 10))
        again = batch(sink.topic)
        write_transaction(cluster, again, written(sink, rows(0, 10)))
        transaction.add_writes(writes)

    with pytest.raises(Refused):
        write_transaction(cluster, batch(sink.topic), superseded)
    assert visible(cluster, sink.topic) == list(range(10))


def run_batch(
    sink: TaskSink, name: BatchName, write: Callable[[OpenTransaction], object]
) -> BatchOutcome:
    """One batch as `exactly_once` writes it, with `write` for its tasks."""

    def put(batch: TransactionalBatch) -> None:
        write(batch._transaction)  # noqa: SLF001 - there is no Spark to run tasks

    return in_transaction(name, put, bootstrap=sink.request.bootstrap, topics=[sink.topic])


def write_batch(sink: TaskSink, name: BatchName, first: int, end: int) -> BatchOutcome:
    return run_batch(sink, name, written(sink, rows(first, end)))


def test_the_younger_instance_of_a_query_wins_and_the_older_stops(
    cluster: BlockingCluster, sink: TaskSink
) -> None:
    def older(batch_id: int) -> BatchName:
        return BatchName(sink.topic, "checkpoint-1", batch_id, run="older")

    def younger(batch_id: int) -> BatchName:
        return BatchName(sink.topic, "checkpoint-2", batch_id, run="younger")

    write_batch(sink, older(0), 0, 10)
    write_batch(sink, older(1), 10, 20)
    write_batch(sink, younger(0), 20, 30)
    for _ in range(2):  # it does not come back
        with pytest.raises(SupersededError, match="another instance of this query"):
            write_batch(sink, older(2), 90, 99)
    write_batch(sink, younger(1), 30, 40)
    assert visible(cluster, sink.topic) == list(range(40))


def test_an_instance_that_is_superseded_within_a_batch_stops_and_the_younger_continues(
    cluster: BlockingCluster, sink: TaskSink
) -> None:
    younger = BatchName(sink.topic, "checkpoint-2", 0, run="younger")

    def write(transaction: OpenTransaction) -> None:
        transaction.add_writes(sink.write(transaction, rows(90, 95)))
        write_batch(sink, younger, 0, 10)
        sink.write(transaction, rows(95, 99))

    older = BatchName(sink.topic, "checkpoint-1", 0, run="older")
    with pytest.raises(SupersededError, match="the younger one continues"):
        run_batch(sink, older, write)
    write_batch(sink, younger._replace(batch_id=1), 10, 20)
    assert visible(cluster, sink.topic) == list(range(20))


def test_an_instance_continues_after_batches_that_failed_or_were_empty(
    cluster: BlockingCluster, sink: TaskSink
) -> None:
    def of_run(batch_id: int) -> BatchName:
        return BatchName(sink.topic, "checkpoint-1", batch_id, run="only")

    def fail(transaction: OpenTransaction) -> None:
        transaction.add_writes(sink.write(transaction, rows(90, 99)))
        raise ValueError("a task failed")

    for batch_id in range(3):
        with pytest.raises(ValueError, match="a task failed"):
            run_batch(sink, of_run(2 * batch_id), fail)
        assert write_batch(sink, of_run(2 * batch_id), 0, 0) is BatchOutcome.EMPTY
        write_batch(sink, of_run(2 * batch_id + 1), 10 * batch_id, 10 * batch_id + 10)
        again = write_batch(sink, of_run(2 * batch_id + 1), 0, 10)
        assert again is BatchOutcome.WRITTEN_BEFORE
    assert visible(cluster, sink.topic) == list(range(30))


def test_markers_are_completed_before_the_first_batch_and_after_a_failed_one(
    sink: TaskSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[int] = []
    batch_id = 0

    def complete(*arguments: Any) -> None:
        checked.append(batch_id)
        complete_markers(*arguments)

    def fail(transaction: OpenTransaction) -> None:
        transaction.add_writes(sink.write(transaction, rows(90, 99)))
        raise ValueError("a task failed")

    monkeypatch.setattr(batch_transaction, "complete_markers", complete)
    for batch_id in range(6):
        name = BatchName(sink.topic, "checkpoint-1", batch_id, run="only")
        if batch_id == 3:
            with pytest.raises(ValueError, match="a task failed"):
                run_batch(sink, name, fail)
        else:
            write_batch(sink, name, 10 * batch_id, 10 * batch_id + 10)
    assert checked == [0, 4]


def test_two_tasks_that_write_to_one_partition_are_refused(
    cluster: BlockingCluster, sink: TaskSink
) -> None:
    def write(transaction: OpenTransaction) -> None:
        first = sink.write(transaction, rows(0, 10), "task 0")
        other = TaskWrite(first[0].partition, 1, first[0].end_sequence, "task 1")
        transaction.add_writes([*first, other])

    with pytest.raises(Refused, match=r"task 0 and task 1 both write to .*record_batches"):
        write_transaction(cluster, batch(sink.topic), write)
    assert visible(cluster, sink.topic) == []


def test_a_second_attempt_never_overwrites_the_first(
    cluster: BlockingCluster, sink: TaskSink
) -> None:
    def write(transaction: OpenTransaction) -> None:
        sink.write(transaction, rows(0, 10), "attempt 0")  # then its executor is lost
        transaction.add_writes(sink.write(transaction, rows(0, 10), "attempt 1"))

    with pytest.raises(Refused) as refused:
        write_transaction(cluster, batch(sink.topic), write)
    assert refused.value.code is OVERLAP
    assert visible(cluster, sink.topic) == []


def test_a_batch_whose_tasks_were_lost_is_written_again_as_a_whole(
    cluster: BlockingCluster, sink: TaskSink
) -> None:
    attempts: list[TransactionHandle] = []

    def write(transaction: OpenTransaction) -> None:
        attempts.append(transaction.handle)
        if len(attempts) == 1:
            sink.write(transaction, rows(0, 10), "attempt 0")
        transaction.add_writes(sink.write(transaction, rows(0, 10), "attempt 1"))

    assert run_batch(sink, batch(sink.topic), write) is BatchOutcome.WRITTEN
    assert len(attempts) == 2
    assert visible(cluster, sink.topic) == list(range(10))


def test_a_batch_that_a_lost_task_added_to_is_written_again_as_a_whole(
    cluster: BlockingCluster, sink: TaskSink
) -> None:
    attempts: list[TransactionHandle] = []

    def write(transaction: OpenTransaction) -> None:
        attempts.append(transaction.handle)
        writes = sink.write(transaction, rows(0, 10))
        if len(attempts) == 1:
            add_as_lost_task(sink, transaction, writes)
        transaction.add_writes(writes)

    assert run_batch(sink, batch(sink.topic), write) is BatchOutcome.WRITTEN
    assert len(attempts) == 2
    assert visible(cluster, sink.topic) == list(range(10))


def test_a_batch_is_attempted_three_times_at_most(cluster: BlockingCluster, sink: TaskSink) -> None:
    attempts: list[TransactionHandle] = []

    def write(transaction: OpenTransaction) -> None:
        attempts.append(transaction.handle)
        sink.write(transaction, rows(0, 10), "attempt 0")
        transaction.add_writes(sink.write(transaction, rows(0, 10), "attempt 1"))

    with pytest.raises(Refused) as refused:
        run_batch(sink, batch(sink.topic), write)
    assert refused.value.code is OVERLAP
    assert len(attempts) == 3
    assert visible(cluster, sink.topic) == []


def add_as_lost_task(sink: TaskSink, transaction: OpenTransaction, writes: list[TaskWrite]) -> None:
    """Write more after what these tasks report, as one that Spark has given up."""
    ends = {write.partition: write.end_sequence for write in writes}
    lost = OpenTransaction(transaction.name, transaction.handle, ends)
    sink.write(lost, rows(90, 99), "a lost task")


def test_records_of_a_lost_task_prevent_the_commit(
    cluster: BlockingCluster, sink: TaskSink
) -> None:
    def write(transaction: OpenTransaction) -> None:
        writes = sink.write(transaction, rows(0, 10))
        add_as_lost_task(sink, transaction, writes)
        transaction.add_writes(writes)

    with pytest.raises(Refused, match="given up"):
        write_transaction(cluster, batch(sink.topic), write)
    assert visible(cluster, sink.topic) == []


def test_a_transaction_that_timed_out_fails_and_is_written_again(
    cluster: BlockingCluster, sink: TaskSink
) -> None:
    states: list[str | None] = []

    def slow(transaction: OpenTransaction) -> None:
        transaction.add_writes(sink.write(transaction, rows(0, 10)))
        while "CompleteAbort" not in states:  # the broker aborts it
            time.sleep(0.05)
            row = cluster.run(describe_transaction(transaction.name.transactional_id))
            states.append(None if row is None else row.state)

    with pytest.raises(Refused) as refused:
        write_transaction(cluster, batch(sink.topic), slow, timeout_ms=SHORT_MS)
    assert refused.value.code is not ErrorCode.none
    assert "Ongoing" in states
    assert visible(cluster, sink.topic) == []
    write_transaction(cluster, batch(sink.topic), written(sink, rows(0, 10)))
    assert visible(cluster, sink.topic) == list(range(10))


def test_a_task_that_writes_after_the_time_out_is_refused(
    cluster: BlockingCluster, sink: TaskSink
) -> None:
    def slow(transaction: OpenTransaction) -> None:
        transaction.add_writes(sink.write(transaction, rows(0, 10)))
        timed_out = False
        while not timed_out:
            time.sleep(0.05)
            row = cluster.run(describe_transaction(transaction.name.transactional_id))
            timed_out = row is not None and row.state == "CompleteAbort"
        transaction.add_writes(sink.write(transaction, rows(10, 20)))

    with pytest.raises(Refused):
        write_transaction(cluster, batch(sink.topic), slow, timeout_ms=SHORT_MS)
    assert visible(cluster, sink.topic) == []


def test_each_checkpoint_counts_its_own_batches(cluster: BlockingCluster, sink: TaskSink) -> None:
    for checkpoint in ("checkpoint-1", "checkpoint-2"):
        for batch_id in range(2):
            outcome = write_transaction(
                cluster,
                batch(sink.topic, batch_id, checkpoint),
                written(sink, [("key", "1")]),
            )
            assert outcome is BatchOutcome.WRITTEN
    assert visible(cluster, sink.topic) == [1, 1, 1, 1]


def test_a_checkpoint_that_was_set_back_is_refused(
    cluster: BlockingCluster, sink: TaskSink
) -> None:
    for batch_id in range(3):
        write_transaction(
            cluster,
            batch(sink.topic, batch_id),
            written(sink, [("key", "1")]),
        )
    with pytest.raises(Refused, match="set back"):
        write_transaction(cluster, batch(sink.topic, 1), lambda _: None)


def test_an_empty_batch_starts_no_transaction(cluster: BlockingCluster, sink: TaskSink) -> None:
    assert write_transaction(cluster, batch(sink.topic), lambda _: None) is BatchOutcome.EMPTY
    assert cluster.run(committed_offsets(f"penstock.sink.{sink.topic}")) == {}


def test_several_frames_and_offsets_are_one_batch(
    cluster: BlockingCluster, sink: TaskSink, bootstrap: str, make_topic: MakeTopic
) -> None:
    other = TaskSink(bootstrap, make_topic(1))
    source = TopicPartition(other.topic, 0)
    group = f"group-of-{sink.topic}"

    def write(transaction: OpenTransaction) -> None:
        transaction.add_writes(sink.write(transaction, rows(0, 10)))
        transaction.add_writes(sink.write(transaction, rows(10, 20)))
        transaction.add_writes(other.write(transaction, rows(0, 5)))
        transaction.add_offsets(group, {source: Offset(41)})

    write_transaction(cluster, batch(sink.topic), write, topics=[sink.topic, other.topic])
    assert visible(cluster, sink.topic) == list(range(20))
    assert visible(cluster, other.topic) == list(range(5))
    assert cluster.run(committed_offsets(group))[source].offset == 41
