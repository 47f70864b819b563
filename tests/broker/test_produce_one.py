"""One batch for one partition: the short way takes what it should and says what the long one says.

A request of two partitions always goes the long way, so the same batch in either request must have
the same fate.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from penstock.broker.partitions import Partition
from penstock.broker.quotas import QuotaEntity, Rates
from penstock.errors import ErrorCode
from penstock.log.files import OpenFiles
from penstock.protocol.batch import CONTROL, TRANSACTIONAL, read_header, seal, write_header

if TYPE_CHECKING:
    from penstock.testing.wire import Wire
    from tests.broker.conftest import RunningBroker

MakeBatch = Callable[..., bytearray]


@pytest.fixture
def shortly(monkeypatch: pytest.MonkeyPatch) -> list[Partition]:
    """The partitions that were appended to on the short way, in order."""
    taken: list[Partition] = []
    append_one = Partition.append_one

    def noted(partition: Partition, *arguments: Any, **named: Any) -> Any:
        taken.append(partition)
        return append_one(partition, *arguments, **named)

    monkeypatch.setattr(Partition, "append_one", noted)
    return taken


def both_ways(wire: Wire, batch: bytes | bytearray) -> tuple[Any, Any]:
    """The answer to the batch alone for partition 0, and among others for partition 1."""
    alone = wire.produce("t", batch)
    partitions = [{"index": index, "records": bytes(batch)} for index in (1, 2)]
    among = wire.ask(
        0,
        9,
        acks=-1,
        timeout=1000,
        topic_data=[{"name": "t", "partition_data": partitions}],
    )
    return alone, among.responses[0].partition_responses[0]


def changed(batch: bytearray, **fields: int) -> bytearray:
    """With other numbers in its header, and a true checksum."""
    write_header(batch, 0, read_header(batch)._replace(**fields))
    seal(batch)
    return batch


def rotten(batch: bytearray) -> bytearray:
    batch[-1] ^= 1
    return batch


def now_ms() -> int:
    return int(time.time() * 1000)


ODD: dict[str, Callable[[MakeBatch], bytes | bytearray]] = {
    "nothing": lambda make: b"",
    "half a header": lambda make: make()[:30],
    "cut short": lambda make: make()[:-1],
    "two batches": lambda make: make() + make(),
    "a wrong checksum": lambda make: rotten(make()),
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
def test_what_is_odd_is_refused_alike_both_ways(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch, what: str, shortly: list[Partition]
) -> None:
    broker.create_topic("t", 3)
    alone, among = both_ways(wire, ODD[what](make_batch))
    assert alone.error_code == among.error_code != ErrorCode.none
    assert alone.error_message == among.error_message
    assert alone.record_errors == among.record_errors
    assert shortly == []
    assert wire.produce("t", make_batch()).base_offset == 0


@pytest.mark.parametrize("sequence", [0, 3])
def test_idempotent_batches_have_the_same_fate_both_ways(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch, sequence: int
) -> None:
    broker.create_topic("t", 3)
    for base_sequence in (0, 1, sequence):  # a repeat, and one that leaves a gap
        batch = make_batch(producer_id=7, producer_epoch=0, base_sequence=base_sequence)
        alone, among = both_ways(wire, batch)
        assert (alone.error_code, alone.base_offset) == (among.error_code, among.base_offset)


def test_a_plain_batch_is_appended_on_the_short_way(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch, shortly: list[Partition]
) -> None:
    broker.create_topic("t", 3)
    alone, among = both_ways(wire, make_batch())
    assert alone == dataclasses.replace(among, index=0)
    assert [partition.topic_partition.partition for partition in shortly] == [0]
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
def test_a_topic_that_asks_for_more_is_served_the_long_way(
    broker: RunningBroker,
    wire: Wire,
    make_batch: MakeBatch,
    shortly: list[Partition],
    config: dict[str, str],
) -> None:
    broker.create_topic("t", 1, **config)
    assert wire.produce("t", make_batch()).error_code == ErrorCode.none
    assert shortly == []


def test_a_quota_is_charged_whichever_way_is_taken(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch, shortly: list[Partition]
) -> None:
    broker.create_topic("t")
    broker.replace_quotas({QuotaEntity(None, "wire"): Rates(produce_bytes=1 << 30)})
    assert wire.produce("t", make_batch()).error_code == ErrorCode.none
    broker.replace_quotas({})
    assert wire.produce("t", make_batch()).error_code == ErrorCode.none
    assert len(shortly) == 1


def test_a_disk_that_fails_is_told_as_on_the_long_way(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("t")

    def fail(*_: object) -> int:
        raise OSError(28, "No space left on device")

    assert wire.produce("t", make_batch()).base_offset == 0
    with monkeypatch.context() as failing:
        failing.setattr(OpenFiles, "write", staticmethod(fail))
        answer = wire.produce("t", make_batch())
    assert (answer.error_code, answer.base_offset) == (ErrorCode.kafka_storage_error, -1)
    assert answer.error_message == "the log: No space left on device"
    assert wire.produce("t", make_batch()).base_offset == 1


def test_who_waits_for_records_is_woken_by_the_short_way(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch, shortly: list[Partition]
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
        found = wire.receive().responses[0].partitions[0]
    assert read_header(found.records).record_count == 1
    assert len(shortly) == 1
