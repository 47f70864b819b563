"""Produce: what is accepted, what is refused and how, and what a refusal does not affect."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import ErrorCode
from penstock.protocol.batch import CONTROL, read_header, seal
from penstock.protocol.compression import Codec
from penstock.protocol.records import Record, read_records

if TYPE_CHECKING:
    from tests.broker.conftest import RunningBroker, StartBroker
    from tests.support.wire import Wire

MakeBatch = Callable[..., bytearray]


@pytest.fixture
def topic(broker: RunningBroker) -> str:
    broker.create_topic("t")
    return "t"


@pytest.mark.parametrize("version", range(3, 13))
@pytest.mark.parametrize("acks", [1, -1])
def test_a_batch_gets_the_next_offset_in_every_version(
    wire: Wire, topic: str, make_batch: MakeBatch, version: int, acks: int
) -> None:
    first = wire.produce(topic, make_batch((b"a", b"1"), (b"b", b"2")), version=version, acks=acks)
    second = wire.produce(topic, make_batch(), version=version, acks=acks)
    assert (first.error_code, first.base_offset) == (ErrorCode.none, 0)
    assert (second.error_code, second.base_offset) == (ErrorCode.none, 2)


def test_version_13_names_the_topic_by_its_id(
    broker: RunningBroker, wire: Wire, topic: str, make_batch: MakeBatch
) -> None:
    from uuid import UUID

    def produce(topic_id: UUID) -> Any:
        return wire.call(
            0,
            13,
            acks=-1,
            timeout=1000,
            topic_data=[
                {
                    "topic_id": topic_id,
                    "partition_data": [{"index": 0, "records": bytes(make_batch())}],
                }
            ],
        ).responses[0]

    known = UUID(bytes=broker.topic_id(topic))
    response = produce(known)
    assert response.topic_id == known
    assert response.partition_responses[0].error_code == ErrorCode.none
    unknown = produce(UUID(int=4711))
    assert unknown.partition_responses[0].error_code == ErrorCode.unknown_topic_id


def test_acks_0_has_no_response_and_is_in_the_log(
    wire: Wire, topic: str, make_batch: MakeBatch
) -> None:
    assert wire.produce(topic, make_batch(), acks=0) is None
    assert wire.produce(topic, make_batch()).base_offset == 1


def test_an_error_with_acks_0_closes_the_connection(wire: Wire, make_batch: MakeBatch) -> None:
    wire.produce("nowhere", make_batch(), acks=0)
    assert wire.is_closed()


def test_other_acks_are_refused(wire: Wire, topic: str, make_batch: MakeBatch) -> None:
    response = wire.produce(topic, make_batch(), acks=2)
    assert response.error_code == ErrorCode.invalid_required_acks


def damaged(batch: bytearray) -> bytearray:
    batch[-1] ^= 1
    return batch


def control(batch: bytearray) -> bytearray:
    batch[22] |= CONTROL
    seal(batch)
    return batch


def old_magic(batch: bytearray) -> bytearray:
    batch[16] = 1
    return batch


def shifted(batch: bytearray) -> bytearray:
    batch[7] = 1
    return batch


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (damaged, ErrorCode.corrupt_message),
        (control, ErrorCode.invalid_record),
        (old_magic, ErrorCode.invalid_record),
        (shifted, ErrorCode.invalid_record),
        (lambda batch: batch + batch, ErrorCode.invalid_record),
        (lambda batch: batch[:-1], ErrorCode.invalid_record),
        (lambda batch: batch[:30], ErrorCode.invalid_record),
        (lambda batch: b"", ErrorCode.invalid_record),
        (lambda batch: None, ErrorCode.invalid_record),
    ],
)
def test_an_invalid_batch_is_refused_and_nothing_is_appended(
    wire: Wire, topic: str, make_batch: MakeBatch, change: Any, code: ErrorCode
) -> None:
    assert wire.produce(topic, change(make_batch())).error_code == code
    assert wire.produce(topic, make_batch()).base_offset == 0


def test_an_unknown_topic_and_an_unknown_partition_have_the_same_error(
    wire: Wire, topic: str, make_batch: MakeBatch
) -> None:
    unknown = ErrorCode.unknown_topic_or_partition
    assert wire.produce("nowhere", make_batch()).error_code == unknown
    assert wire.produce(topic, make_batch(), partition=7).error_code == unknown


def test_one_refusal_does_not_touch_the_other_partitions(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch
) -> None:
    broker.create_topic("many", 3)
    response = wire.call(
        0,
        9,
        acks=-1,
        timeout=1000,
        topic_data=[
            {
                "name": "many",
                "partition_data": [
                    {"index": 0, "records": bytes(make_batch())},
                    {"index": 1, "records": bytes(damaged(make_batch()))},
                    {"index": 2, "records": bytes(make_batch())},
                ],
            }
        ],
    )
    codes = [part.error_code for part in response.responses[0].partition_responses]
    assert codes == [ErrorCode.none, ErrorCode.corrupt_message, ErrorCode.none]


def test_a_batch_above_the_topics_limit_is_too_large(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch
) -> None:
    broker.create_topic("small", max_message_bytes="1000")
    assert wire.produce("small", make_batch((b"k", b"x" * 800))).error_code == ErrorCode.none
    response = wire.produce("small", make_batch((b"k", b"x" * 1000)))
    assert response.error_code == ErrorCode.message_too_large


def test_a_compacted_topic_names_the_records_without_a_key(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch
) -> None:
    broker.create_topic("compacted", cleanup_policy="compact")
    batch = make_batch((b"k", b"1"), (None, b"2"), (b"k", b"3"), (None, b"4"))
    response = wire.produce("compacted", batch)
    assert response.error_code == ErrorCode.invalid_record
    assert [error.batch_index for error in response.record_errors] == [1, 3]
    assert wire.produce("compacted", make_batch((b"k", b"1"))).base_offset == 0


def test_requests_behind_a_held_one_take_effect_after_it(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch
) -> None:
    """Opening records takes a thread; the requests behind must not overtake it."""
    broker.create_topic("compacted", cleanup_policy="compact")
    for number in range(20):
        wire.send(
            0,
            9,
            acks=-1,
            timeout=1000,
            topic_data=[
                {
                    "name": "compacted",
                    "partition_data": [
                        {"index": 0, "records": bytes(make_batch((b"k", b"%d" % number)))}
                    ],
                }
            ],
        )
    offsets = [wire.receive().responses[0].partition_responses[0].base_offset for _ in range(20)]
    assert offsets == list(range(20))


def test_a_record_from_the_future_is_refused_by_its_index(
    wire: Wire, topic: str, make_batch: MakeBatch
) -> None:
    now = int(time.time() * 1000)
    response = wire.produce(
        topic,
        make_batch(Record(timestamp=now, value=b""), Record(timestamp=now + 7_200_000, value=b"")),
    )
    assert response.error_code == ErrorCode.invalid_timestamp
    assert [error.batch_index for error in response.record_errors] == [1]


def test_a_record_older_than_the_topic_allows_is_refused(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch
) -> None:
    broker.create_topic("fresh", message_timestamp_before_max_ms="60000")
    old = int(time.time() * 1000) - 120_000
    response = wire.produce("fresh", make_batch(Record(timestamp=old, value=b"")))
    assert response.error_code == ErrorCode.invalid_timestamp
    assert wire.produce("fresh", make_batch()).error_code == ErrorCode.none


def test_log_append_time_is_stored_and_returned(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch
) -> None:
    broker.create_topic("stamped", message_timestamp_type="LogAppendTime")
    response = wire.produce("stamped", make_batch(timestamp=1000))
    assert response.log_append_time is not None
    stored = wire.fetch("stamped", 0).records
    header = read_header(stored)
    assert header.is_log_append_time
    assert header.max_timestamp == int(response.log_append_time.timestamp() * 1000)
    read_records(stored)  # the checksum was rewritten


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_a_topics_codec_replaces_the_producers(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch, compression: str
) -> None:
    broker.create_topic("coded", compression_type=compression)
    sent = make_batch((b"k", b"x" * 1000), (b"l", None), codec=Codec.GZIP)
    assert wire.produce("coded", sent).error_code == ErrorCode.none
    stored = wire.fetch("coded", 0).records
    expected = Codec.NONE if compression == "uncompressed" else Codec[compression.upper()]
    assert read_header(stored).codec == expected
    assert [record.key for record in read_records(stored)] == [b"k", b"l"]


# Idempotence.


def test_a_repeated_batch_gets_the_first_offset(
    wire: Wire, topic: str, make_batch: MakeBatch
) -> None:
    batches = [
        make_batch(producer_id=9, producer_epoch=0, base_sequence=number) for number in range(5)
    ]
    for number, batch in enumerate(batches):
        assert wire.produce(topic, batch).base_offset == number
    for number, batch in enumerate(batches):
        repeated = wire.produce(topic, batch)
        assert (repeated.error_code, repeated.base_offset) == (ErrorCode.none, number)
    assert wire.produce(topic, make_batch()).base_offset == 5


def test_a_gap_in_sequences_and_an_old_repeat_are_out_of_order(
    wire: Wire, topic: str, make_batch: MakeBatch
) -> None:
    for number in range(7):
        wire.produce(topic, make_batch(producer_id=9, producer_epoch=0, base_sequence=number))
    for number in (0, 9):
        response = wire.produce(
            topic, make_batch(producer_id=9, producer_epoch=0, base_sequence=number)
        )
        assert response.error_code == ErrorCode.out_of_order_sequence_number


def test_an_older_epoch_is_fenced_and_a_newer_one_starts_at_0(
    wire: Wire, topic: str, make_batch: MakeBatch
) -> None:
    def produce(epoch: int, sequence: int) -> ErrorCode:
        code: ErrorCode = wire.produce(
            topic, make_batch(producer_id=9, producer_epoch=epoch, base_sequence=sequence)
        ).error_code
        return code

    assert produce(3, 0) == ErrorCode.none
    assert produce(2, 1) == ErrorCode.invalid_producer_epoch
    assert produce(4, 5) == ErrorCode.out_of_order_sequence_number
    assert produce(4, 0) == ErrorCode.none


def test_sequences_continue_after_a_restart(
    start_broker: StartBroker, make_batch: MakeBatch
) -> None:
    first = start_broker()
    first.create_topic("t")
    with first.connect() as wire:
        wire.produce("t", make_batch(producer_id=9, producer_epoch=0, base_sequence=0))
    first.stop()
    second = start_broker()
    with second.connect() as wire:
        repeated = wire.produce("t", make_batch(producer_id=9, producer_epoch=0, base_sequence=0))
        assert (repeated.error_code, repeated.base_offset) == (ErrorCode.none, 0)
        gap = wire.produce("t", make_batch(producer_id=9, producer_epoch=0, base_sequence=5))
        assert gap.error_code == ErrorCode.out_of_order_sequence_number
        following = wire.produce("t", make_batch(producer_id=9, producer_epoch=0, base_sequence=1))
        assert following.base_offset == 1


# Flushing.


@pytest.mark.parametrize("acks", [1, -1])
def test_flush_messages_puts_a_batch_on_disk_before_it_is_acknowledged(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch, acks: int
) -> None:
    broker.create_topic("safe", flush_messages="1")
    for number in range(5):
        assert wire.produce("safe", make_batch(), acks=acks).base_offset == number
        log = broker.partitions.find("safe", 0).log  # type: ignore[union-attr]  # made above
        assert broker.call(lambda log=log: log.recovery_point) == number + 1  # type: ignore[misc]  # mypy infers no default


def test_flush_ms_syncs_in_the_background(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch
) -> None:
    broker.create_topic("soon", flush_ms="20")
    wire.produce("soon", make_batch())
    log = broker.partitions.find("soon", 0).log  # type: ignore[union-attr]  # made above
    give_up_at = time.monotonic() + 10
    while broker.call(lambda: log.recovery_point) == 0:
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("topic", "key_type"), [("__consumer_offsets", 0), ("__transaction_state", 1)]
)
def test_clients_cannot_write_to_internal_topics(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch, topic: str, key_type: int
) -> None:
    wire.call(10, 4, key_type=key_type, coordinator_keys=["any"])  # creates the topic
    give_up_at = time.monotonic() + 10
    while broker.call(lambda: broker.partitions.find(topic, 0)) is None:
        assert time.monotonic() < give_up_at
        time.sleep(0.01)
    response = wire.produce(topic, make_batch((b"key", b"value")))
    assert response.error_code == ErrorCode.invalid_topic_exception
