"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords and DescribeProducers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import ErrorCode
from penstock.log.time_lookup import CandidateBatch, TimeFinder, TimestampMatch
from penstock.model import LeaderEpoch
from penstock.protocol.compression import Codec
from penstock.protocol.records import Record

if TYPE_CHECKING:
    from tests.broker.conftest import RunningBroker
    from tests.support.wire import Wire

MakeBatch = Callable[..., bytearray]
TIME = 1_700_000_000_000


@pytest.fixture
def topic(broker: RunningBroker, wire: Wire, make_batch: MakeBatch) -> str:
    """Records at TIME + 0, 100, 50, 300 in two compressed batches of two."""
    broker.create_topic("t")
    for times in ((0, 100), (50, 300)):
        records = [Record(timestamp=TIME + delta, value=b"v") for delta in times]
        response = wire.produce("t", make_batch(*records, codec=Codec.ZSTD))
        assert response.error_code == ErrorCode.none
    return "t"


def list_offset(wire: Wire, timestamp: int, *, version: int = 11, **fields: Any) -> Any:
    epoch = fields.pop("current_leader_epoch", -1)
    requested = {"partition_index": 0, "timestamp": timestamp}
    if version >= 4:
        requested["current_leader_epoch"] = epoch
    response = wire.call(
        2,
        version,
        replica_id=-1,
        topics=[{"name": fields.pop("topic", "t"), "partitions": [requested]}],
        **fields,
    )
    return response.topics[0].partitions[0]


@pytest.mark.parametrize("version", range(1, 12))
def test_the_ends_of_the_log_in_every_version(wire: Wire, topic: str, version: int) -> None:
    assert list_offset(wire, -1, version=version).offset == 4
    assert list_offset(wire, -2, version=version).offset == 0


@pytest.mark.parametrize(
    ("timestamp", "offset", "result"),
    [
        (TIME, 0, TIME),
        (TIME + 1, 1, TIME + 100),
        (TIME + 101, 3, TIME + 300),
        (TIME + 300, 3, TIME + 300),
        (TIME + 301, -1, -1),
        (0, 0, TIME),
    ],
)
def test_a_time_gives_the_first_record_not_before_it(
    wire: Wire, topic: str, timestamp: int, offset: int, result: int
) -> None:
    response = list_offset(wire, timestamp)
    assert response.error_code == ErrorCode.none
    assert (response.offset, millis(response.timestamp)) == (offset, result)


@pytest.mark.parametrize(
    ("records", "codec", "on_loop"),
    [(10, Codec.NONE, True), (10, Codec.ZSTD, False), (2000, Codec.NONE, False)],
)
def test_only_small_plain_batches_are_opened_on_the_event_loop(
    broker: RunningBroker,
    wire: Wire,
    make_batch: MakeBatch,
    monkeypatch: pytest.MonkeyPatch,
    records: int,
    codec: Codec,
    on_loop: bool,
) -> None:
    broker.create_topic("t")
    rows = [Record(timestamp=TIME + index, value=b"value") for index in range(records)]
    wire.produce("t", make_batch(*rows, codec=codec))
    openers: list[int] = []
    opened = CandidateBatch.open

    def noted(candidate: CandidateBatch, *finder: TimeFinder) -> TimestampMatch | None:
        openers.append(threading.get_ident())
        return opened(candidate, *finder)

    monkeypatch.setattr(CandidateBatch, "open", noted)
    assert list_offset(wire, TIME + records - 1).offset == records - 1
    assert [opener == broker.call(threading.get_ident) for opener in openers] == [on_loop]


def test_a_batch_below_the_start_offset_is_passed_over_when_a_time_is_sought(
    wire: Wire, topic: str
) -> None:
    """The first batch has the time, but its record was deleted: the next one is opened as well."""
    response = wire.call(
        21,
        2,
        topics=[{"name": "t", "partitions": [{"partition_index": 0, "offset": 2}]}],
        timeout=1000,
    )
    assert response.topics[0].partitions[0].low_watermark == 2
    result = list_offset(wire, TIME)
    assert (result.offset, millis(result.timestamp)) == (2, TIME + 50)


def millis(timestamp: Any) -> int:
    return -1 if timestamp is None else int(timestamp)


def test_special_timestamps(wire: Wire, topic: str) -> None:
    newest = list_offset(wire, -3)
    assert (newest.offset, millis(newest.timestamp)) == (3, TIME + 300)
    assert list_offset(wire, -4).offset == 0
    assert list_offset(wire, -5).offset == -1
    assert list_offset(wire, -6).offset == -1
    for timestamp, version in ((-3, 6), (-4, 7), (-6, 10), (-7, 11)):
        response = list_offset(wire, timestamp, version=version)
        assert response.error_code == ErrorCode.unsupported_version


def test_errors_are_per_partition(wire: Wire, topic: str) -> None:
    unknown = list_offset(wire, -1, topic="nowhere")
    assert unknown.error_code == ErrorCode.unknown_topic_or_partition
    newer = list_offset(wire, -1, current_leader_epoch=99)
    assert newer.error_code == ErrorCode.unknown_leader_epoch


def test_the_end_of_a_leader_epoch(
    broker: RunningBroker, wire: Wire, topic: str, make_batch: MakeBatch
) -> None:
    partition = broker.partitions.find(topic, 0)
    assert partition is not None
    first = partition.leader_epoch
    raised = partition.leadership._replace(leader_epoch=LeaderEpoch(first + 3))
    broker.call(lambda: partition.lead(raised))
    wire.produce(topic, make_batch())

    def end_of(epoch: int, version: int = 4) -> tuple[int, int]:
        requested = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}
        response = wire.call(
            23, version, replica_id=-1, topics=[{"topic": topic, "partitions": [requested]}]
        )
        result = response.topics[0].partitions[0]
        assert result.error_code == ErrorCode.none
        return result.leader_epoch, result.end_offset

    for version in (2, 3, 4):
        assert end_of(first, version) == (first, 4)
    assert end_of(first + 2) == (first, 4)
    assert end_of(first + 3) == (first + 3, 5)
    assert end_of(first + 9) == (-1, -1)


def delete_to(wire: Wire, topic: str, offset: int, version: int = 2) -> tuple[ErrorCode, int]:
    response = wire.call(
        21,
        version,
        topics=[{"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}],
        timeout=1000,
    )
    result = response.topics[0].partitions[0]
    return result.error_code, result.low_watermark


def test_records_are_deleted_up_to_an_offset_or_to_the_end(wire: Wire, topic: str) -> None:
    assert delete_to(wire, topic, 1) == (ErrorCode.none, 1)
    assert wire.fetch(topic, 0).error_code == ErrorCode.offset_out_of_range
    assert delete_to(wire, topic, 0, 0) == (ErrorCode.none, 1)
    assert delete_to(wire, topic, 5) == (ErrorCode.offset_out_of_range, -1)
    assert delete_to(wire, topic, -2) == (ErrorCode.offset_out_of_range, -1)
    assert delete_to(wire, topic, -1, 1) == (ErrorCode.none, 4)
    assert list_offset(wire, -2).offset == 4


def test_a_topic_that_is_only_compacted_deletes_no_records(
    broker: RunningBroker, wire: Wire
) -> None:
    broker.create_topic("compacted", cleanup_policy="compact")
    assert delete_to(wire, "compacted", 0)[0] == ErrorCode.policy_violation


def test_producers_are_described(wire: Wire, topic: str, make_batch: MakeBatch) -> None:
    wire.produce(topic, make_batch(producer_id=9, producer_epoch=2, base_sequence=0))
    requested = [{"name": topic, "partition_indexes": [0, 1]}]
    held, unknown = wire.call(61, 0, topics=requested).topics[0].partitions
    (row,) = held.active_producers
    assert (row.producer_id, row.producer_epoch, row.last_sequence) == (9, 2, 0)
    assert row.current_txn_start_offset == -1
    assert unknown.error_code == ErrorCode.unknown_topic_or_partition
