"""Produce, from the bytes of a request to its response: one way for every request.

A request for one partition is read by a shorter codec than others, so the same batch in either must
have the same result.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from penstock.broker.leadership import Leadership
from penstock.coordination.controller.events import PartitionSet
from penstock.errors import ErrorCode
from penstock.log.files import OpenFiles
from penstock.model import LeaderEpoch, NodeId, Offset
from penstock.protocol.batch import CONTROL, TRANSACTIONAL, read_header, seal, write_header

if TYPE_CHECKING:
    from penstock.broker.partition import Partition
    from tests.broker.conftest import RunningBroker
    from tests.support.wire import Wire

MakeBatch = Callable[..., bytearray]


def alone_and_among_others(wire: Wire, batch: bytes | bytearray) -> tuple[Any, Any]:
    """The response to the batch alone for partition 0, and among others for partition 1."""
    alone = wire.produce("t", batch)
    partitions = [{"index": index, "records": bytes(batch)} for index in (1, 2)]
    among = wire.call(
        0,
        9,
        acks=-1,
        timeout=1000,
        topic_data=[{"name": "t", "partition_data": partitions}],
    )
    return alone, among.responses[0].partition_responses[0]


def changed(batch: bytearray, **fields: int) -> bytearray:
    """With other fields in its header, and a valid checksum."""
    write_header(batch, 0, read_header(batch)._replace(**fields))
    seal(batch)
    return batch


def corrupted(batch: bytearray) -> bytearray:
    batch[-1] ^= 1
    return batch


def now_ms() -> int:
    return int(time.time() * 1000)


ODD: dict[str, Callable[[MakeBatch], bytes | bytearray]] = {
    "nothing": lambda make: b"",
    "half a header": lambda make: make()[:30],
    "truncated": lambda make: make()[:-1],
    "two batches": lambda make: make() + make(),
    "an invalid checksum": lambda make: corrupted(make()),
    "an old format": lambda make: make()[:16] + b"\1" * 60,
    "records missing": lambda make: changed(make(), record_count=2),
    "no records": lambda make: changed(make(), record_count=0, last_offset_delta=-1),
    "an offset": lambda make: changed(make(), base_offset=5),
    "a control batch": lambda make: changed(make(), attributes=CONTROL, producer_id=7),
    "a codec unheard of": lambda make: changed(make(), attributes=6),
    "a negative attribute": lambda make: changed(make(), attributes=-1),
    "no sequence": lambda make: changed(make(), producer_id=7, producer_epoch=0),
    "a transaction's": lambda make: changed(
        make(), attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0, base_sequence=0
    ),
    "from the future": lambda make: make(timestamp=now_ms() + (48 << 22)),
    "too large": lambda make: make((b"k", bytes(2 << 20))),
}


@pytest.mark.parametrize("what", ODD)
def test_an_invalid_batch_is_refused_with_the_same_reason_alone_and_among_others(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch, what: str
) -> None:
    broker.create_topic("t", 3)
    alone, among = alone_and_among_others(wire, ODD[what](make_batch))
    assert alone.error_code == among.error_code != ErrorCode.none
    assert alone.error_message == among.error_message
    assert alone.record_errors == among.record_errors
    assert wire.produce("t", make_batch()).base_offset == 0


@pytest.mark.parametrize("sequence", [0, 3])
def test_idempotent_batches_have_the_same_result_alone_and_among_others(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch, sequence: int
) -> None:
    broker.create_topic("t", 3)
    for base_sequence in (0, 1, sequence):  # a repeat, and one that leaves a gap
        batch = make_batch(producer_id=7, producer_epoch=0, base_sequence=base_sequence)
        alone, among = alone_and_among_others(wire, batch)
        assert (alone.error_code, alone.base_offset) == (among.error_code, among.base_offset)


def test_a_batch_is_appended_alike_alone_and_among_others(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch
) -> None:
    broker.create_topic("t", 3)
    alone, among = alone_and_among_others(wire, make_batch())
    assert alone == dataclasses.replace(among, index=0)
    assert read_header(wire.fetch("t", 0).records).leader_epoch == 0


@pytest.mark.parametrize(
    "config",
    [
        {"message_timestamp_type": "LogAppendTime"},
        {"compression_type": "zstd"},
        {"cleanup_policy": "compact"},
        {"message_timestamp_before_max_ms": "100000"},
        {"flush_messages": "1"},
        {"flush_ms": "1000"},
    ],
)
def test_topics_with_their_own_rules_accept_batches(
    broker: RunningBroker,
    wire: Wire,
    make_batch: MakeBatch,
    config: dict[str, str],
) -> None:
    broker.create_topic("t", 1, **config)
    assert wire.produce("t", make_batch()).error_code == ErrorCode.none


def test_a_failed_write_is_a_storage_error_and_leaves_the_log_as_it_was(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("t")

    def fail(*_: object) -> int:
        raise OSError(28, "No space left on device")

    assert wire.produce("t", make_batch()).base_offset == 0
    with monkeypatch.context() as failing:
        failing.setattr(OpenFiles, "write", staticmethod(fail))
        response = wire.produce("t", make_batch())
    assert (response.error_code, response.base_offset) == (ErrorCode.kafka_storage_error, -1)
    assert response.error_message == "the log: No space left on device"
    assert wire.produce("t", make_batch()).base_offset == 1


def test_an_append_wakes_a_waiting_fetch(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch
) -> None:
    broker.create_topic("t")
    with broker.connect() as writer:
        wire.send(
            1,
            12,
            max_wait=20_000,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=1,
            session_epoch=-1,
            topics=[
                {
                    "topic": "t",
                    "partitions": [
                        {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
                    ],
                }
            ],
        )
        writer.produce("t", make_batch())
        result = wire.receive().responses[0].partitions[0]
    assert read_header(result.records).record_count == 1


def list_offset(wire: Wire, timestamp: int) -> tuple[int, int]:
    """The result of ListOffsets for a time: timestamp and offset."""
    response = wire.call(
        2,
        7,
        replica_id=-1,
        isolation_level=0,
        topics=[
            {
                "name": "t",
                "partitions": [
                    {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
                ],
            }
        ],
    )
    row = response.topics[0].partitions[0]
    assert row.error_code == ErrorCode.none
    return row.timestamp, row.offset


def test_under_log_append_time_the_time_index_has_the_append_time(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch
) -> None:
    """The header was read before the time was set: the index must not get the client's time."""
    broker.create_topic(
        "t", message_timestamp_type="LogAppendTime", index_interval_bytes="1", segment_ms="100000"
    )
    began = now_ms()
    client_time = began - 50_000_000
    for _ in range(5):
        assert wire.produce("t", make_batch(timestamp=client_time)).error_code == ErrorCode.none
    partition = broker.partitions.find("t", 0)
    assert partition is not None
    largest = broker.call(lambda: partition.log.active.largest)
    assert largest.timestamp >= began
    assert len(broker.call(lambda: partition.log.segments)) == 1  # nor does it roll by that time
    timestamp, offset = list_offset(wire, began)
    assert (timestamp >= began, offset) == (True, 0)
    assert list_offset(wire, now_ms() + 1_000)[1] == -1


FOLLOWER = NodeId(2)


def with_a_follower(broker: RunningBroker, isr: tuple[NodeId, ...]) -> Partition:
    """The topic's partition with a second replica, which is in sync if it is in `isr`."""
    broker.create_topic("t", min_insync_replicas="2")
    partition = broker.partitions.find("t", 0)
    assert partition is not None
    leader = partition.node_id
    leadership = Leadership(leader, LeaderEpoch(0), (leader, FOLLOWER), (leader, *isr))
    broker.call(lambda: partition.lead(leadership))
    return partition


def send_produce(wire: Wire, batch: bytes | bytearray, *, acks: int, timeout_ms: int) -> None:
    rows = [{"index": 0, "records": bytes(batch)}]
    topics = [{"name": "t", "partition_data": rows}]
    wire.send(0, 9, acks=acks, timeout=timeout_ms, topic_data=topics)


def received_row(wire: Wire) -> Any:
    return wire.receive().responses[0].partition_responses[0]


def fetch_as_follower(broker: RunningBroker, partition: Partition, end_offset: int) -> None:
    broker.call(lambda: partition.on_replica_fetch(FOLLOWER, Offset(end_offset)))


def test_acks_all_waits_until_the_follower_has_the_batch(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch
) -> None:
    partition = with_a_follower(broker, (FOLLOWER,))
    send_produce(wire, make_batch((b"k", b"v")), acks=-1, timeout_ms=20_000)
    with broker.connect() as other:
        assert other.produce("t", make_batch(), acks=1).base_offset == 1  # appended after it
        assert broker.call(lambda: partition.log.high_watermark) == 0
        fetch_as_follower(broker, partition, 1)
        assert (received_row(wire).error_code, broker.call(lambda: partition.log.end_offset)) == (
            ErrorCode.none,
            2,
        )
        assert broker.call(lambda: partition.log.high_watermark) == 1


def test_acks_all_times_out_while_the_follower_lags(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch
) -> None:
    partition = with_a_follower(broker, (FOLLOWER,))
    send_produce(wire, make_batch(), acks=-1, timeout_ms=50)
    assert received_row(wire).error_code == ErrorCode.request_timed_out
    fetch_as_follower(broker, partition, 1)  # too late for the response, not for the record
    assert broker.call(lambda: partition.log.high_watermark) == 1
    send_produce(wire, make_batch(), acks=-1, timeout_ms=20_000)
    fetch_as_follower(broker, partition, 2)
    assert received_row(wire).base_offset == 1


def test_responses_of_a_connection_are_sent_in_order_while_the_first_waits(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch
) -> None:
    partition = with_a_follower(broker, (FOLLOWER,))
    send_produce(wire, make_batch(), acks=-1, timeout_ms=20_000)
    send_produce(wire, make_batch(), acks=1, timeout_ms=20_000)
    while broker.call(lambda: partition.log.end_offset) < 2:
        time.sleep(0.01)
    fetch_as_follower(broker, partition, 2)
    assert [received_row(wire).base_offset, received_row(wire).base_offset] == [0, 1]


def test_a_lost_leadership_refuses_what_waits_and_what_comes(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch
) -> None:
    partition = with_a_follower(broker, (FOLLOWER,))
    send_produce(wire, make_batch(), acks=-1, timeout_ms=20_000)
    while broker.call(lambda: partition.log.end_offset) < 1:
        time.sleep(0.01)
    lost = partition.leadership._replace(leader=FOLLOWER, leader_epoch=LeaderEpoch(1))
    broker.call(lambda: partition.lead(lost))
    assert received_row(wire).error_code == ErrorCode.not_leader_or_follower
    send_produce(wire, make_batch(), acks=1, timeout_ms=20_000)
    assert received_row(wire).error_code == ErrorCode.not_leader_or_follower
    assert broker.call(lambda: partition.log.end_offset) == 1


def test_acks_all_is_refused_below_min_insync_and_acks_1_is_not(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch
) -> None:
    with_a_follower(broker, ())
    send_produce(wire, make_batch(), acks=-1, timeout_ms=20_000)
    assert received_row(wire).error_code == ErrorCode.not_enough_replicas
    send_produce(wire, make_batch(), acks=1, timeout_ms=20_000)
    assert received_row(wire).error_code == ErrorCode.none


def test_a_client_that_leaves_while_its_produce_waits_costs_nothing(
    broker: RunningBroker, make_batch: MakeBatch
) -> None:
    partition = with_a_follower(broker, (FOLLOWER,))
    with broker.connect() as leaving:
        send_produce(leaving, make_batch(), acks=-1, timeout_ms=20_000)
        while broker.call(lambda: partition.log.end_offset) < 1:
            time.sleep(0.01)
    while broker.call(lambda: len(broker.server.connections)):
        time.sleep(0.01)
    fetch_as_follower(broker, partition, 1)
    assert broker.call(lambda: partition.log.high_watermark) == 1


def shrink_isr(broker: RunningBroker, partition: Partition) -> None:
    """The controller has taken the follower out of the in-sync set."""
    leadership = partition.leadership
    alone = leadership._replace(
        isr=(partition.node_id,), partition_epoch=leadership.partition_epoch + 1
    )
    broker.call(lambda: partition.lead(alone))


def test_a_write_that_waits_is_refused_when_too_few_replicas_are_in_sync(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch
) -> None:
    partition = with_a_follower(broker, (FOLLOWER,))
    send_produce(wire, make_batch(), acks=-1, timeout_ms=20_000)
    while broker.call(lambda: partition.log.end_offset) < 1:
        time.sleep(0.01)
    shrink_isr(broker, partition)
    row = received_row(wire)
    assert row.error_code == ErrorCode.not_enough_replicas_after_append
    send_produce(wire, make_batch(), acks=-1, timeout_ms=20_000)
    assert received_row(wire).error_code == ErrorCode.not_enough_replicas
    assert broker.call(lambda: partition.log.end_offset) == 1, "nothing more was appended"


def test_a_client_whose_write_was_refused_after_the_append_writes_it_once(
    broker: RunningBroker,
) -> None:
    partition = with_a_follower(broker, (FOLLOWER,))
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 0}
    )
    failed: list[object] = []
    producer.produce("t", b"once", on_delivery=lambda error, _: failed.append(error))
    producer.poll(0)
    while broker.call(lambda: partition.log.end_offset) < 1:
        producer.poll(0.01)
    shrink_isr(broker, partition)
    time.sleep(0.3)  # the client gets 20, then 19
    both = partition.leadership._replace(
        isr=(partition.node_id, FOLLOWER), partition_epoch=partition.leadership.partition_epoch + 1
    )
    broker.call(lambda: partition.lead(both))
    fetch_as_follower(broker, partition, 1)
    assert producer.flush(20) == 0
    assert failed == [None]
    assert broker.call(lambda: partition.log.end_offset) == 1


def send_delete(wire: Wire, offset: int, *, timeout_ms: int) -> None:
    rows = [{"partition_index": 0, "offset": offset}]
    wire.send(21, 2, topics=[{"name": "t", "partitions": rows}], timeout=timeout_ms)


def received_deletion(wire: Wire) -> Any:
    return wire.receive().topics[0].partitions[0]


def test_delete_records_waits_until_the_follower_has_deleted_them(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch
) -> None:
    partition = with_a_follower(broker, (FOLLOWER,))
    assert wire.produce("t", make_batch((b"k", b"v")), acks=1).base_offset == 0
    fetch_as_follower(broker, partition, 1)
    send_delete(wire, 1, timeout_ms=100)
    assert received_deletion(wire).error_code == ErrorCode.request_timed_out
    send_delete(wire, 1, timeout_ms=20_000)
    while broker.call(lambda: partition.log.start_offset) < 1:
        time.sleep(0.01)
    start_offset = Offset(1)
    broker.call(lambda: partition.on_replica_fetch(FOLLOWER, Offset(1), start_offset=start_offset))
    row = received_deletion(wire)
    assert (row.error_code, row.low_watermark) == (ErrorCode.none, 1)


def test_delete_records_does_not_wait_for_a_replica_that_is_not_in_sync(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch
) -> None:
    partition = with_a_follower(broker, (FOLLOWER,))
    assert wire.produce("t", make_batch((b"k", b"v")), acks=1).base_offset == 0
    fetch_as_follower(broker, partition, 1)
    send_delete(wire, 1, timeout_ms=20_000)
    shrink_isr(broker, partition)
    assert received_deletion(wire).low_watermark == 1


def test_delete_records_is_refused_below_min_insync(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch
) -> None:
    partition = with_a_follower(broker, (FOLLOWER,))
    assert wire.produce("t", make_batch((b"k", b"v")), acks=1).base_offset == 0
    fetch_as_follower(broker, partition, 1)
    shrink_isr(broker, partition)
    send_delete(wire, 1, timeout_ms=20_000)
    assert received_deletion(wire).error_code == ErrorCode.not_enough_replicas
    assert broker.call(lambda: partition.log.start_offset) == 0


def listed(wire: Wire, timestamp: int, version: int = 5) -> tuple[ErrorCode, int]:
    row = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
    topics = [{"name": "t", "partitions": [row]}]
    response = wire.call(2, version, replica_id=-1, isolation_level=0, topics=topics)
    found = response.topics[0].partitions[0]
    return ErrorCode(found.error_code), found.offset


def test_a_new_leader_lists_no_end_before_it_knows_what_is_committed(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch
) -> None:
    partition = with_a_follower(broker, (FOLLOWER,))
    assert wire.produce("t", make_batch(), acks=1).base_offset == 0
    again = partition.leadership._replace(leader_epoch=LeaderEpoch(1))
    broker.call(lambda: partition.lead(again))
    latest, earliest, time_ms = -1, -2, 1
    assert listed(wire, latest)[0] == ErrorCode.offset_not_available
    assert listed(wire, time_ms)[0] == ErrorCode.offset_not_available
    assert listed(wire, latest, version=4)[0] == ErrorCode.leader_not_available
    assert listed(wire, earliest) == (ErrorCode.none, 0)
    fetch_as_follower(broker, partition, 1)
    assert listed(wire, latest) == (ErrorCode.none, 1)


def test_metadata_of_a_partition_without_a_leader_says_so(
    broker: RunningBroker, wire: Wire
) -> None:
    broker.create_topic("t")
    image = broker.broker.cluster

    def lose_leader() -> None:
        topic = image.state.topics["t"]
        row = topic.partitions[0]
        lost = row._replace(leader=NodeId(-1), partition_epoch=row.partition_epoch + 1)
        image.apply([PartitionSet("t", topic.topic_id, 0, lost)])

    broker.call(lose_leader)
    response = wire.call(3, 9, topics=[{"name": "t"}], allow_auto_topic_creation=False)
    (found,) = response.topics[0].partitions
    assert (found.error_code, found.leader_id) == (ErrorCode.leader_not_available, -1)
    assert response.topics[0].error_code == ErrorCode.none
