"""Transactions that several processes take part in, request by request, as in Apache Kafka.

Version 2 of the transaction protocol: Produce 12 and EndTxn 5, no AddPartitions. Version 1:
AddPartitionsToTxn 3, Produce 11, EndTxn 4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.errors import ErrorCode

Batch = Callable[..., bytearray]
MakeHandle = Callable[[str], Any]


def write(handle: Any, batch: Batch, value: str, protocol: int) -> ErrorCode:
    """One record in the given version of the transaction protocol."""
    if protocol == 1:
        assert handle.add(("a", 0)) == [ErrorCode.none]
    code: ErrorCode = handle.produce(batch, value, version=10 + protocol)
    return code


def end(handle: Any, protocol: int, *, commit: bool) -> ErrorCode:
    code: ErrorCode = handle.end(commit=commit, version=3 + protocol)
    return code


both = pytest.mark.parametrize("protocol", [1, 2])


@both
def test_another_process_commits_what_a_dead_one_wrote(
    handle: MakeHandle, reader: Any, make_batch: Batch, protocol: int
) -> None:
    writer = handle("t")
    assert writer.init() == ErrorCode.none
    assert write(writer, make_batch, "one", protocol) == ErrorCode.none
    assert reader.committed() == []
    ender = writer.copy()
    for _ in range(3):  # the same commit again: retry safe
        assert end(ender, protocol, commit=True) == ErrorCode.none
        if protocol == 2:
            assert ender.next_producer == (writer.producer_id, writer.producer_epoch + 1)
    assert reader.committed() == ["one"]
    assert end(ender, protocol, commit=False) == ErrorCode.invalid_txn_state
    next_producer = (ErrorCode.none, "CompleteCommit", writer.producer_id, writer.producer_epoch)
    assert reader.state("t") == (*next_producer[:3], writer.producer_epoch + (protocol == 2))


@both
def test_the_opposite_of_an_abort_is_refused(
    handle: MakeHandle, reader: Any, make_batch: Batch, protocol: int
) -> None:
    writer = handle("t")
    writer.init()
    write(writer, make_batch, "one", protocol)
    assert end(writer, protocol, commit=False) == ErrorCode.none
    assert end(writer, protocol, commit=False) == ErrorCode.none
    assert end(writer, protocol, commit=True) == ErrorCode.invalid_txn_state
    assert reader.committed() == []
    assert reader.stable_offset() == 2


def test_an_end_with_the_next_epoch_aborts_nothing_or_is_refused(
    handle: MakeHandle, make_batch: Batch
) -> None:
    writer = handle("t")
    writer.init()
    write(writer, make_batch, "one", 2)
    assert writer.end(commit=True) == ErrorCode.none
    bogus = writer.copy()
    bogus.producer_epoch += 1
    assert bogus.end(commit=True) == ErrorCode.invalid_txn_state
    assert bogus.end(commit=False) == ErrorCode.none
    assert writer.end(commit=True) == ErrorCode.producer_fenced


def test_a_zombie_writer_is_fenced_by_the_commit(
    handle: MakeHandle, reader: Any, make_batch: Batch
) -> None:
    writer = handle("t")
    writer.init()
    write(writer, make_batch, "one", 2)
    assert writer.copy().end(commit=True) == ErrorCode.none
    assert write(writer, make_batch, "zombie", 2) == ErrorCode.invalid_producer_epoch
    assert reader.committed() == ["one"]


@pytest.mark.parametrize(
    ("version", "code"),
    [(11, ErrorCode.transaction_abortable), (10, ErrorCode.invalid_txn_state)],
)
def test_version_one_writes_only_where_a_partition_was_added(
    handle: MakeHandle, make_batch: Batch, version: int, code: ErrorCode
) -> None:
    writer = handle("t")
    writer.init()
    assert write(writer, make_batch, "one", 1) == ErrorCode.none
    assert end(writer, 1, commit=True) == ErrorCode.none
    assert writer.produce(make_batch, "zombie", version=version) == code
    assert writer.produce(make_batch, "elsewhere", partition=1, version=version) == code


@both
def test_a_successor_aborts_what_was_left_open_and_fences(
    handle: MakeHandle, reader: Any, make_batch: Batch, protocol: int
) -> None:
    writer = handle("t")
    writer.init()
    write(writer, make_batch, "left", protocol)
    successor = handle("t")
    assert successor.init() == ErrorCode.concurrent_transactions
    successor.init_with_retries()
    assert successor.producer_epoch == writer.producer_epoch + 2
    assert end(writer, protocol, commit=True) == ErrorCode.producer_fenced
    assert writer.add(("a", 0)) == [ErrorCode.producer_fenced]
    refused = writer.produce(make_batch, "zombie", version=10 + protocol)
    assert refused == ErrorCode.invalid_producer_epoch
    assert write(successor, make_batch, "right", protocol) == ErrorCode.none
    assert end(successor, protocol, commit=True) == ErrorCode.none
    assert reader.committed() == ["right"]


@both
def test_never_mix_the_versions_of_an_end(
    handle: MakeHandle, make_batch: Batch, protocol: int
) -> None:
    writer = handle("t")
    writer.init()
    write(writer, make_batch, "one", protocol)
    assert end(writer, protocol, commit=True) == ErrorCode.none
    expected = {1: ErrorCode.invalid_txn_state, 2: ErrorCode.producer_fenced}[protocol]
    assert end(writer, 3 - protocol, commit=True) == expected


@both
def test_a_transaction_past_its_time_is_aborted_and_its_commit_refused(
    handle: MakeHandle, reader: Any, make_batch: Batch, protocol: int
) -> None:
    writer = handle("t")
    assert writer.init(timeout_ms=50) == ErrorCode.none
    write(writer, make_batch, "late", protocol)
    while reader.state("t")[1] != "CompleteAbort":
        pass
    assert reader.stable_offset() == 2
    committed = end(writer, protocol, commit=True)
    if protocol == 1:
        assert committed == ErrorCode.producer_fenced
    else:
        assert committed == ErrorCode.invalid_txn_state
        assert end(writer, protocol, commit=False) == ErrorCode.none
    assert reader.committed() == []


def test_one_handle_writes_from_many_processes_to_many_partitions(
    handle: MakeHandle, reader: Any, make_batch: Batch
) -> None:
    first = handle("t")
    first.init()
    for partition in range(3):
        writer = first.copy()
        for number in range(4):
            value = f"{partition}.{number}"
            assert writer.produce(make_batch, value, partition=partition) == ErrorCode.none
    assert first.end(commit=True) == ErrorCode.none
    for partition in range(3):
        assert reader.committed("a", partition) == [f"{partition}.{n}" for n in range(4)]


def test_the_last_stable_offset_waits_for_the_oldest_open_transaction(
    handle: MakeHandle, reader: Any, make_batch: Batch
) -> None:
    slow, quick = handle("slow"), handle("quick")
    slow.init()
    quick.init()
    slow.produce(make_batch, "s")
    quick.produce(make_batch, "q")
    assert quick.end(commit=True) == ErrorCode.none
    assert reader.stable_offset() == 0
    assert reader.committed() == []
    assert slow.end(commit=False) == ErrorCode.none
    assert reader.committed() == ["q"]
    assert reader.stable_offset() == 4


def test_a_transaction_survives_a_restart_of_the_broker(
    prepared: Any,
    start_broker: Any,
    handle: MakeHandle,
    reader_of: Callable[[Any], Any],
    make_batch: Batch,
) -> None:
    writer = handle("t")
    writer.init()
    write(writer, make_batch, "kept", 2)
    prepared.stop()
    again = start_broker()
    writer.wire = again.connect()
    reader = reader_of(writer.wire)
    try:
        assert reader.state("t")[1] == "Ongoing"
        assert writer.end(commit=True) == ErrorCode.none
        assert reader.committed() == ["kept"]
        writer.wire.close()
        again.stop()
        third = start_broker()
        writer.wire = third.connect()
        assert writer.end(commit=True) == ErrorCode.none
        assert writer.next_producer == (writer.producer_id, writer.producer_epoch + 1)
    finally:
        writer.wire.close()
