"""Tasks that take turns at writing to the same partitions, without Spark."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from penstock.errors import Refused
from penstock.link.blocking import BlockingCluster
from penstock.model import SequenceNumber, TopicPartition
from penstock.spark.batch_transaction import (
    OVERLAP,
    BatchOutcome,
    OpenTransaction,
    write_transaction,
)
from penstock.spark.write_turns import WriteTurns
from tests.support.task_sink import TaskSink, batch, rows, visible

MakeTopic: TypeAlias = Callable[..., str]


def test_tasks_that_take_turns_write_to_the_same_partitions(
    cluster: BlockingCluster, sink: TaskSink, tmp_path: Path
) -> None:
    def write(transaction: OpenTransaction) -> None:
        transaction.add_writes(sink.write(transaction, rows(0, 50)))  # a frame before, in one task
        turns = WriteTurns.create(tmp_path / "turns", transaction.sequences)
        writes = sink.write_in_turn(transaction, turns, rows(50, 100), "task 0")
        writes += sink.write_in_turn(transaction, turns, rows(100, 200), "task 1")
        assert transaction.add_writes(writes, turns.end_sequences()) == 150

    assert write_transaction(cluster, batch(sink.topic), write) is BatchOutcome.WRITTEN
    assert visible(cluster, sink.topic) == list(range(200))


def test_records_that_a_lost_task_wrote_in_its_turn_prevent_the_commit(
    cluster: BlockingCluster, sink: TaskSink, tmp_path: Path
) -> None:
    def write(transaction: OpenTransaction) -> None:
        turns = WriteTurns.create(tmp_path / "turns", {})
        sink.write_in_turn(transaction, turns, rows(0, 10), "attempt 0")  # then it is lost
        writes = sink.write_in_turn(transaction, turns, rows(0, 10), "attempt 1")
        transaction.add_writes(writes, turns.end_sequences())

    with pytest.raises(Refused) as refused:
        write_transaction(cluster, batch(sink.topic), write)
    assert refused.value.code is OVERLAP
    assert visible(cluster, sink.topic) == []


def test_sequence_numbers_of_a_task_that_died_are_not_given_out_again(
    cluster: BlockingCluster, sink: TaskSink, tmp_path: Path
) -> None:
    def write(transaction: OpenTransaction) -> None:
        turns = WriteTurns.create(tmp_path / "turns", {})
        with turns.turn() as turn:  # dies before it sends
            turn.take({TopicPartition(sink.topic, index): 3 for index in range(2)})
        writes = sink.write_in_turn(transaction, turns, rows(0, 10), "task 1")
        transaction.add_writes(writes, turns.end_sequences())

    with pytest.raises(Refused) as refused:
        write_transaction(cluster, batch(sink.topic), write)
    assert refused.value.code is OVERLAP
    assert visible(cluster, sink.topic) == []


def test_a_turn_is_waited_for_and_sequence_numbers_wrap_around(tmp_path: Path) -> None:
    partition = TopicPartition("orders", 0)
    turns = WriteTurns.create(tmp_path / "turns", {partition: SequenceNumber(2**31 - 2)})
    taken: list[int] = []

    def take() -> None:
        with turns.turn() as turn:
            taken.append(turn.take({partition: 3})[partition])

    waiting = threading.Thread(target=take)
    with turns.turn() as turn:
        waiting.start()
        assert turn.take({partition: 4}) == {partition: 2**31 - 2}
        assert taken == []
    waiting.join()
    assert taken == [2]
    assert turns.end_sequences() == {partition: 5}
