"""The transaction APIs, one by one: what they refuse, and with which error in each version."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock.errors import ErrorCode

Batch = Callable[..., bytearray]
MakeHandle = Callable[[str], Any]

INIT, ADD, ADD_OFFSETS, END, WRITE_MARKERS = 22, 24, 25, 26, 27
DESCRIBE_PRODUCERS, DESCRIBE, LIST = 61, 65, 66


def test_an_idempotent_producer_gets_an_id_of_its_own(connection: Any) -> None:
    responses = [
        connection.call(INIT, version, transactional_id=None, transaction_timeout=0)
        for version in range(6)
    ]
    assert {response.error_code for response in responses} == {ErrorCode.none}
    assert {response.producer_epoch for response in responses} == {0}
    assert len({response.producer_id for response in responses}) == len(responses)


def test_producer_ids_continue_after_a_restart(
    prepared: Any, start_broker: Any, connection: Any
) -> None:
    before = connection.call(INIT, 4, transactional_id=None, transaction_timeout=0).producer_id
    prepared.stop()
    again = start_broker().connect()
    after = again.call(INIT, 4, transactional_id=None, transaction_timeout=0).producer_id
    again.close()
    assert after > before


def test_the_log_says_why_a_transaction_was_aborted(
    handle: MakeHandle, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="penstock.broker")
    abandoned = handle("t")
    assert abandoned.init(timeout_ms=100) == ErrorCode.none
    assert abandoned.add(("a", 0)) == [ErrorCode.none]
    deadline = time.monotonic() + 20
    while not (lines := [line for line in caplog.messages if "transactional id t" in line]):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert lines[0].startswith("transactional id t: timed out: PrepareAbort as producer")
    assert "s before: transaction opened" in lines[0]


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_must_be_within_limits(handle: MakeHandle, timeout_ms: int) -> None:
    assert handle("t").init(timeout_ms) == ErrorCode.invalid_transaction_timeout


def test_an_empty_transactional_id_is_refused(handle: MakeHandle, reader: Any) -> None:
    assert handle("").init() == ErrorCode.invalid_request
    assert reader.state("")[0] == ErrorCode.invalid_request


def test_a_producer_id_comes_with_its_epoch(connection: Any) -> None:
    response = connection.call(
        INIT, 5, transactional_id="t", transaction_timeout=1000, producer_id=4, producer_epoch=-1
    )
    assert response.error_code == ErrorCode.invalid_request


@pytest.mark.parametrize(
    ("init", "add", "end"),
    [(3, 1, 1), (4, 2, 2)],
)
def test_a_fenced_producer_gets_the_error_of_its_version(
    handle: MakeHandle, connection: Any, init: int, add: int, end: int
) -> None:
    writer = handle("t")
    writer.init()
    handle("t").init()
    code = ErrorCode.invalid_producer_epoch if init < 4 else ErrorCode.producer_fenced
    assert writer.add(("a", 0), version=add) == [code]
    assert writer.end(commit=True, version=end) == code
    response = connection.call(
        INIT,
        init,
        transactional_id="t",
        transaction_timeout=1000,
        producer_id=writer.producer_id,
        producer_epoch=writer.producer_epoch,
    )
    assert (response.error_code, response.producer_id, response.producer_epoch) == (code, -1, -1)


def test_no_partition_is_added_if_one_does_not_exist(handle: MakeHandle, connection: Any) -> None:
    writer = handle("t")
    writer.init()
    assert writer.add(("a", 0), ("a", 3), ("b", 0)) == [
        ErrorCode.operation_not_attempted,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_or_partition,
    ]
    (listed,) = connection.call(LIST, 0).transaction_states
    assert listed.transaction_state == "Empty"


def test_an_unknown_transactional_id_maps_to_no_producer(handle: MakeHandle, reader: Any) -> None:
    stranger = handle("unknown")
    stranger.producer_id, stranger.producer_epoch = 9, 0
    assert stranger.add(("a", 0)) == [ErrorCode.invalid_producer_id_mapping]
    assert stranger.end(commit=True) == ErrorCode.invalid_producer_id_mapping
    assert reader.state("unknown")[0] == ErrorCode.transactional_id_not_found


@pytest.mark.parametrize(
    ("version", "missing"),
    [(4, ErrorCode.invalid_txn_state), (5, ErrorCode.transaction_abortable)],
)
def test_brokers_add_partitions_to_many_transactions_in_one_request(
    handle: MakeHandle, connection: Any, version: int, missing: ErrorCode
) -> None:
    one, two = handle("one"), handle("two")
    one.init()
    two.init()

    def ask(verify_only: bool) -> dict[str, list[ErrorCode]]:
        response = connection.call(
            ADD,
            version,
            transactions=[
                {
                    "transactional_id": requested.transactional_id,
                    "producer_id": requested.producer_id,
                    "producer_epoch": epoch,
                    "verify_only": verify_only,
                    "topics": [{"name": "a", "partitions": [0, 1]}],
                }
                for requested, epoch in ((one, one.producer_epoch), (two, two.producer_epoch + 1))
            ],
        )
        return {
            result.transactional_id: [
                ErrorCode(row.partition_error_code)
                for row in result.topic_results[0].results_by_partition
            ]
            for result in response.results_by_transaction
        }

    fenced = [ErrorCode.producer_fenced] * 2
    assert ask(verify_only=True) == {"one": [missing] * 2, "two": fenced}
    assert ask(verify_only=False) == {"one": [ErrorCode.none] * 2, "two": fenced}
    assert ask(verify_only=True) == {"one": [ErrorCode.none] * 2, "two": fenced}


def test_the_offsets_of_a_group_join_through_their_partition(
    handle: MakeHandle, connection: Any
) -> None:
    writer = handle("t")
    writer.init()
    connection.call(10, 4, key_type=0, coordinator_keys=["orders"])  # creates the offsets topic
    response = connection.call(
        ADD_OFFSETS,
        4,
        transactional_id="t",
        producer_id=writer.producer_id,
        producer_epoch=writer.producer_epoch,
        group_id="orders",
    )
    assert response.error_code == ErrorCode.none
    row = connection.call(DESCRIBE, 0, transactional_ids=["t"]).transaction_states[0]
    assert row.transaction_state == "Ongoing"
    # as Java hashes the group's name over fifty partitions
    hashed = 0
    for letter in "orders":
        hashed = (31 * hashed + ord(letter)) & 0xFFFFFFFF
    assert [(topic.topic, topic.partitions) for topic in row.topics] == [
        ("__consumer_offsets", ((hashed & 0x7FFFFFFF) % 50,))
    ]


def test_transactions_are_listed_by_their_filters(
    handle: MakeHandle, connection: Any, make_batch: Batch
) -> None:
    handles = {name: handle(name) for name in ("orders-1", "orders-2", "bills")}
    for each in handles.values():
        each.init()
    handles["orders-1"].produce(make_batch, "x")

    def listed(version: int = 2, **filters: Any) -> list[str]:
        response = connection.call(LIST, version, **filters)
        assert response.error_code == ErrorCode.none
        return sorted(row.transactional_id for row in response.transaction_states)

    assert listed(0) == ["bills", "orders-1", "orders-2"]
    assert listed(state_filters=["Ongoing"]) == ["orders-1"]
    assert listed(state_filters=["Empty"], producer_id_filters=[handles["bills"].producer_id]) == [
        "bills"
    ]
    assert listed(transactional_id_pattern="orders-.*") == ["orders-1", "orders-2"]
    assert listed(transactional_id_pattern="orders") == []
    assert listed(state_filters=["Ongoing"], duration_filter=3_600_000) == []
    unknown = connection.call(LIST, 2, state_filters=["Sleeping"])
    assert unknown.unknown_state_filters == ("Sleeping",)
    assert unknown.transaction_states == ()
    bad = connection.call(LIST, 2, transactional_id_pattern="(")
    assert bad.error_code == ErrorCode.invalid_regular_expression


def test_an_operator_ends_a_transaction_that_its_coordinator_lost(
    handle: MakeHandle, connection: Any, reader: Any, make_batch: Batch
) -> None:
    writer = handle("t")
    writer.init()
    writer.produce(make_batch, "stuck")
    for version in (1, 2):
        response = connection.call(
            WRITE_MARKERS,
            version,
            markers=[
                {
                    "producer_id": writer.producer_id,
                    "producer_epoch": writer.producer_epoch + 1,
                    "transaction_result": False,
                    "topics": [{"name": "a", "partition_indexes": [0, 7]}],
                    "coordinator_epoch": 0,
                    "transaction_version": 2,
                }
            ],
        )
        assert [
            (row.partition_index, row.error_code)
            for row in response.markers[0].topics[0].partitions
        ] == [(0, ErrorCode.none), (7, ErrorCode.unknown_topic_or_partition)]
    assert reader.stable_offset() == 3
    assert reader.committed() == []


def test_a_marker_is_tried_until_it_is_written(
    prepared: Any, handle: MakeHandle, reader: Any, make_batch: Batch
) -> None:
    writer = handle("t")
    writer.init()
    writer.produce(make_batch, "one", partition=0)
    writer.produce(make_batch, "two", partition=1)
    partition = prepared.call(lambda: prepared.partitions.find("a", 1))
    log = partition.log
    refused: list[int] = []

    class FullDisk:
        """The log, without space for markers."""

        def __getattr__(self, name: str) -> Any:
            return getattr(log, name)

        def append(self, batch: Any, header: Any, **fields: Any) -> Any:
            if fields["origin"] == "marker" and len(refused) < 3:
                refused.append(1)
                raise OSError("no space left on device")
            return log.append(batch, header, **fields)

    prepared.call(lambda: setattr(partition, "log", FullDisk()))
    assert writer.end(commit=True) == ErrorCode.none
    assert reader.state("t")[1] == "PrepareCommit", "not complete before every marker is there"
    assert writer.copy().end(commit=True) == ErrorCode.concurrent_transactions
    assert reader.committed("a", 0) == ["one"]
    while reader.state("t")[1] != "CompleteCommit":
        time.sleep(0.02)
    assert len(refused) == 3
    assert reader.committed("a", 1) == ["two"]


def test_a_coordinator_that_loads_its_log_writes_the_missing_markers(
    prepared: Any,
    start_broker: Any,
    handle: MakeHandle,
    reader: Any,
    reader_of: Any,
    make_batch: Batch,
) -> None:
    writer = handle("t")
    writer.init()
    writer.produce(make_batch, "one")
    markers = prepared.broker.transactions._markers  # noqa: SLF001 - the fault is injected there
    prepared.call(lambda: setattr(markers, "write", lambda *requested: None))
    assert writer.end(commit=True) == ErrorCode.none
    assert reader.state("t")[1] == "PrepareCommit"
    assert reader.stable_offset() == 0
    prepared.stop()
    wire = start_broker().connect()
    later = reader_of(wire)
    while later.state("t")[1] != "CompleteCommit":
        time.sleep(0.02)
    assert later.committed() == ["one"]
    assert later.stable_offset() == 2
    wire.close()


def test_a_deleted_topic_does_not_hold_up_the_end(
    prepared: Any, handle: MakeHandle, connection: Any, reader: Any, make_batch: Batch
) -> None:
    prepared.create_topic("short.lived")
    writer = handle("t")
    writer.init()
    writer.produce(make_batch, "one")
    writer.produce(make_batch, "deleted", topic="short.lived")
    deleted = connection.call(20, 6, topics=[{"name": "short.lived"}], timeout=5000)
    assert deleted.responses[0].error_code == ErrorCode.none
    assert writer.end(commit=True) == ErrorCode.none
    assert reader.state("t")[1] == "CompleteCommit"
    assert reader.committed() == ["one"]


def test_a_transaction_spans_many_partitions_of_many_topics(
    prepared: Any, handle: MakeHandle, reader: Any, make_batch: Batch
) -> None:
    topics = [f"wide-{number}" for number in range(8)]
    for topic in topics:
        prepared.create_topic(topic, 6)
    writer = handle("t")
    for commit in (True, False):
        writer.init()
        for topic in topics:
            for partition in range(6):
                code = writer.produce(make_batch, str(commit), topic=topic, partition=partition)
                assert code == ErrorCode.none
        assert writer.end(commit=commit) == ErrorCode.none
    for topic in topics:
        for partition in range(6):
            assert reader.committed(topic, partition) == ["True"]
            assert reader.stable_offset(topic, partition) == 4


def test_the_data_path_verifies_with_the_coordinator_once_per_partition(
    prepared: Any, handle: MakeHandle, make_batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested = []
    verify = prepared.broker.transactions.verify

    def counted(*arguments: Any, **named: Any) -> Any:
        requested.append(arguments)
        return verify(*arguments, **named)

    monkeypatch.setattr(prepared.broker.transactions, "verify", counted)
    writer = handle("t")
    writer.init()
    for number in range(20):
        assert writer.produce(make_batch, str(number)) == ErrorCode.none
    assert len(requested) == 1


def test_a_missing_coordinator_has_an_error_that_producers_retry(wire: Any) -> None:
    """No coordinator was requested yet, so its topic does not exist either."""
    producer = {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0}
    retried = {
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_coordinator,
    }
    assert wire.call(INIT, 5, transactional_id="t").error_code in retried
    assert wire.call(END, 3, committed=True, **producer).error_code in retried
    assert wire.call(ADD_OFFSETS, 3, group_id="g", **producer).error_code in retried
