"""Transactions by hand, from process to process, as the brokers themselves were seen to do it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.columns.arrow_records import bytes_to_arrow
from penstock.columns.open_batches import open_batches
from penstock.errors import ErrorCode, Refused
from penstock.link.fetch_range import FetchSettings, fetch_range
from penstock.link.offsets import GroupOffset, Isolation, committed_offsets, end_offsets
from penstock.link.operation import request_of
from penstock.link.routing import CoordinatorKind
from penstock.link.send_batches import send_batches
from penstock.link.settings import Address, UnreachableError
from penstock.link.transactions import (
    TransactionHandle,
    add_offsets,
    describe_producers,
    describe_transaction,
    end_transaction,
    init_producer_id,
    unmarked_partitions,
    write_markers,
)
from penstock.model import Offset, ProducerEpoch, TopicPartition
from penstock.protocol.messages.metadata import METADATA, MetadataRequest
from tests.support.apache_kafka import free_port

if TYPE_CHECKING:
    from collections.abc import Callable

COMMITTED = Isolation.READ_COMMITTED
WORKER = Path(__file__).with_name("write_and_die.py")


def committed_values(shell: Any, place: TopicPartition) -> list[Any]:
    """What a read_committed reader sees."""
    end = shell.run(end_offsets([place], isolation=COMMITTED))[place]
    settings = FetchSettings(isolation=COMMITTED)
    values: list[Any] = []
    for chunk in shell.stream(fetch_range(place, Offset(0), end, settings=settings)):
        columns = open_batches(chunk.records, aborted=chunk.aborted)
        assert columns.values is not None
        values += bytes_to_arrow(columns.values).to_pylist()
    return values


def code_of(shell: Any, operation: Any) -> ErrorCode:
    with pytest.raises(Refused) as refused:
        shell.run(operation)
    code: ErrorCode = refused.value.code
    return code


def test_several_processes_write_a_transaction_and_another_ends_it(
    server: Any, shell: Any, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(3)
    handle = shell.run(init_producer_id(topic))
    places = [TopicPartition(topic, index) for index in range(3)]
    workers = [
        subprocess.Popen(
            [sys.executable, str(WORKER), server.bootstrap, topic, str(index), *map(str, handle)]
        )
        for index in range(3)
    ]
    assert [worker.wait(60) for worker in workers] == [-signal.SIGKILL] * 3
    described = shell.run(describe_transaction(topic))
    assert (described.state, described.producer_epoch) == ("Ongoing", handle.producer_epoch)
    assert sorted(described.partitions) == places
    assert [committed_values(shell, place) for place in places] == [[], [], []]
    following = shell.run(end_transaction(handle, commit=True))
    assert following == handle._replace(producer_epoch=handle.producer_epoch + 1)
    for place in places:
        wait_until_marked(shell, handle, place)
        expected = [b"%d:%d" % (place.partition, number) for number in range(20)]
        assert committed_values(shell, place) == expected


def wait_until_marked(shell: Any, handle: TransactionHandle, place: TopicPartition) -> None:
    for _ in range(200):
        if not shell.run(unmarked_partitions(handle, [place])):
            return
        time.sleep(0.02)
    raise AssertionError("the marker was never written")


def test_the_same_end_may_be_repeated_and_the_opposite_is_refused(
    shell: Any, make_topic: Callable[..., str], transactional_batch: Any
) -> None:
    place = TopicPartition(make_topic(), 0)
    handle = shell.run(init_producer_id(place.topic))
    for commit in (True, False):
        batch = transactional_batch(handle, 0, b"row")
        shell.run(send_batches({place: [batch]}, transactional_id=place.topic))
        following = shell.run(end_transaction(handle, commit=commit))
        assert shell.run(end_transaction(handle, commit=commit)) == following
        opposite = end_transaction(handle, commit=not commit)
        assert code_of(shell, opposite) is ErrorCode.invalid_txn_state
        late = send_batches(
            {place: [transactional_batch(handle, 1, b"z")]}, transactional_id=place.topic
        )
        assert code_of(shell, late) is ErrorCode.invalid_producer_epoch
        wait_until_marked(shell, handle, place)
        handle = following
    assert committed_values(shell, place) == [b"row"]


def test_a_new_handle_aborts_the_open_transaction_and_fences_the_old_handle(
    shell: Any, make_topic: Callable[..., str], transactional_batch: Any
) -> None:
    place = TopicPartition(make_topic(), 0)
    old = shell.run(init_producer_id(place.topic))
    left = transactional_batch(old, 0, b"left")
    shell.run(send_batches({place: [left]}, transactional_id=place.topic))
    new = shell.run(init_producer_id(place.topic))
    assert new.producer_epoch > old.producer_epoch
    assert code_of(shell, end_transaction(old, commit=True)) is ErrorCode.producer_fenced
    late = send_batches(
        {place: [transactional_batch(old, 1, b"late")]}, transactional_id=place.topic
    )
    assert code_of(shell, late) is ErrorCode.invalid_producer_epoch
    kept = transactional_batch(new, 0, b"kept")
    shell.run(send_batches({place: [kept]}, transactional_id=place.topic))
    shell.run(end_transaction(new, commit=True))
    wait_until_marked(shell, new, place)
    assert committed_values(shell, place) == [b"kept"]


def test_offsets_in_a_transaction_are_visible_when_it_commits(
    shell: Any, make_topic: Callable[..., str], transactional_batch: Any
) -> None:
    place = TopicPartition(make_topic(), 0)
    group = f"penstock.sink.{place.topic}"
    handle = shell.run(init_producer_id(place.topic))
    for batch_id, commit in ((0, True), (1, False), (2, True)):
        rows = transactional_batch(handle, 0, b"%d" % batch_id)
        shell.run(send_batches({place: [rows]}, transactional_id=place.topic))
        marker = {place: Offset(batch_id + 1)}
        shell.run(add_offsets(handle, group, marker, metadata=f"batch {batch_id}"))
        handle = shell.run(end_transaction(handle, commit=commit))
        committed = shell.run(committed_offsets(group, [place]))[place]
        kept = batch_id if commit else 0
        assert committed == GroupOffset(Offset(kept + 1), f"batch {kept}")
    wait_until_marked(shell, handle, place)
    assert committed_values(shell, place) == [b"0", b"2"]


def test_a_partition_describes_its_producers(
    shell: Any, make_topic: Callable[..., str], transactional_batch: Any
) -> None:
    place = TopicPartition(make_topic(), 0)
    handle = shell.run(init_producer_id(place.topic))
    batches = [transactional_batch(handle, n, b"x") for n in range(4)]
    shell.run(send_batches({place: batches}, transactional_id=place.topic))
    (producer,) = shell.run(describe_producers([place]))[place]
    assert (producer.producer_id, producer.producer_epoch) == handle[1:]
    assert (producer.last_sequence, producer.transaction_start) == (3, 0)
    assert list(shell.run(unmarked_partitions(handle, [place]))) == [place]
    shell.run(end_transaction(handle, commit=False))
    wait_until_marked(shell, handle, place)


def test_a_missing_marker_can_be_written_by_hand(
    shell: Any, make_topic: Callable[..., str], transactional_batch: Any
) -> None:
    """What a broker with KAFKA-20734 leaves behind looks like an open transaction to its log."""
    place = TopicPartition(make_topic(), 0)
    handle = shell.run(init_producer_id(place.topic))
    batch = transactional_batch(handle, 0, b"stuck")
    shell.run(send_batches({place: [batch]}, transactional_id=place.topic))
    unmarked = shell.run(unmarked_partitions(handle, [place]))
    ended = handle._replace(producer_epoch=ProducerEpoch(handle.producer_epoch + 1))
    shell.run(write_markers(ended, unmarked, commit=True))
    assert shell.run(unmarked_partitions(handle, [place])) == {}
    assert committed_values(shell, place) == [b"stuck"]


def test_an_unknown_transactional_id_is_none(shell: Any) -> None:
    assert shell.run(describe_transaction("never seen")) is None


def test_an_id_without_a_transaction_has_no_start(
    shell: Any, make_topic: Callable[..., str]
) -> None:
    name = make_topic()
    handle = shell.run(init_producer_id(name))
    state = shell.run(describe_transaction(name))
    assert (state.state, state.started_at, state.partitions) == ("Empty", None, ())
    assert state.producer_id == handle.producer_id


def test_a_timeout_beyond_the_brokers_limit_is_refused_with_the_setting(shell: Any) -> None:
    with pytest.raises(Refused, match=r"transaction\.max\.timeout\.ms") as refused:
        shell.run(init_producer_id("long", timeout_ms=2**31 - 1))
    assert refused.value.code is ErrorCode.invalid_transaction_timeout


def test_a_lost_coordinator_is_looked_up_again(shell: Any, make_topic: Callable[..., str]) -> None:
    name = make_topic()
    shell.run(init_producer_id(name))
    (known,) = shell.routes.coordinators.values()
    key = (CoordinatorKind.TRANSACTION, name)
    shell.routes.coordinators[key] = known._replace(port=1)
    handle = shell.run(init_producer_id(name))
    assert handle.producer_epoch == 1
    assert shell.routes.coordinators[key] == known
    answer = shell.run(lambda routes: routes.send_to_any(request_of(METADATA, MetadataRequest([]))))
    assert answer.brokers


def test_an_unreachable_address_named_by_the_cluster_points_to_advertised_listeners(
    shell: Any,
) -> None:
    key = (CoordinatorKind.TRANSACTION, "misled")
    unreachable = Address("127.0.0.1", free_port())
    shell.routes.coordinators[key] = unreachable
    with pytest.raises(UnreachableError, match=r"check its advertised\.listeners"):
        shell.run(
            lambda routes: routes.send_to_coordinator(
                *key, request_of(METADATA, MetadataRequest([]))
            )
        )
    assert key not in shell.routes.coordinators
