"""What becomes of batches: Apache Kafka and Penstock say the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from penstock.protocol.compression import Codec
from tests.support.wire import batch

if TYPE_CHECKING:
    from tests.interop.differential.conftest import AskBoth, Deliberate, Peer, Scenario

pytestmark = [pytest.mark.slow, pytest.mark.interop]

_LOOK_AGAIN: Final = "sending the same bytes again cannot help, and CORRUPT_MESSAGE is retried"
DELIBERATE: Final[dict[str, Deliberate]] = {
    "wrong_batches": {
        "trailing bytes": (
            (87, -1, None, []),
            "bytes after the batch are a client's mistake, not padding",
        ),
        "magic 3": ((87, -1, None, []), _LOOK_AGAIN),
        "length too small": ((87, -1, None, []), _LOOK_AGAIN),
    },
    "transactional_batches_out_of_place": {
        "no id, v9": ((48, -1, None, []), "it is a wrong state, not a missing right"),
    },
}


def patched(raw: bytearray, position: int, value: bytes) -> bytearray:
    raw[position : position + len(value)] = value
    return raw


def wrong_batches(peer: Peer) -> None:
    topic = peer.topic(max_message_bytes="2000")
    good = bytes(batch())
    peer.note("good", peer.produced(topic, good))
    peer.note("empty records", peer.produced(topic, b""))
    peer.note("two batches", peer.produced(topic, good + good))
    for cut in (1, 12, 30, 61, len(good) - 1):
        peer.note(f"first {cut} bytes", peer.produced(topic, good[:cut]))
    trailing = peer.produced(peer.topic("trailing"), good + b"\0\0\0")
    peer.note("trailing bytes", trailing)
    peer.note("magic 1", peer.produced(topic, patched(bytearray(good), 16, b"\1")))
    peer.note("magic 3", peer.produced(topic, patched(bytearray(good), 16, b"\3")))
    peer.note("bad crc", peer.produced(topic, patched(bytearray(good), 17, b"\1\2\3\4")))
    peer.note("length too large", peer.produced(topic, patched(bytearray(good), 8, b"\0\1\0\0")))
    peer.note("length too small", peer.produced(topic, patched(bytearray(good), 8, b"\0\0\0\5")))
    peer.note("base offset 7", peer.produced(topic, bytes(batch(base_offset=7))))
    peer.note("control", peer.produced(topic, bytes(batch(control=True))))
    peer.note("too large", peer.produced(topic, bytes(batch((b"k", b"v" * 4000)))))
    peer.note(
        "timestamp 2 h ahead", peer.produced(topic, bytes(batch(timestamp=peer.now + 7_200_000)))
    )
    peer.note("timestamp -1", peer.produced(topic, bytes(batch(timestamp=-1))))
    peer.note("partition 7", peer.produced(topic, good, partition=7))
    peer.note("unknown topic", peer.produced(peer.name("none"), good))
    for acks in (2, -2, 1):
        peer.note(f"acks {acks}", peer.produced(topic, good, acks=acks))
    for version in (3, 5, 7, 8, 11, 12):
        peer.note(f"v{version}", int(peer.wire.produce(topic, good, version=version).error_code))
    for codec in Codec:
        peer.note(codec.name, peer.produced(topic, bytes(batch(codec=codec))))


def produce_without_acks(peer: Peer) -> None:
    topic = peer.topic()
    peer.wire.produce(topic, bytes(batch()), acks=0)
    peer.note("good", peer.produced(topic, bytes(batch())))
    peer.wire.produce(peer.name("none"), bytes(batch()), acks=0)
    peer.note("an error closes", peer.wire.is_closed())


def compacted_topic(peer: Peer) -> None:
    topic = peer.topic(cleanup_policy="compact")
    peer.note("without key", peer.produced(topic, bytes(batch((None, b"v")))))
    second = bytes(batch((b"k", b"v"), (None, b"v"), (b"k", b"v"), (None, b"w")))
    peer.note("some without key", peer.produced(topic, second))
    peer.note("with key", peer.produced(topic, bytes(batch())))
    peer.note("delete records", peer.deleted(topic, 1))


def sequences(peer: Peer) -> None:
    topic = peer.topic()

    def send(sequence: int, *, producer: int = 900_000, epoch: int = 0, count: int = 1) -> object:
        return peer.produced(
            topic,
            bytes(
                batch(
                    *[(b"k", b"v")] * count,
                    producer_id=producer,
                    producer_epoch=epoch,
                    base_sequence=sequence,
                )
            ),
        )

    peer.note("first at 5", send(5))
    for sequence in range(6, 13):
        peer.note(f"next {sequence}", send(sequence))
    for sequence in (12, 11, 10, 9, 8, 7, 6, 5, 4):
        peer.note(f"again {sequence}", send(sequence))
    peer.note("gap", send(20))
    peer.note("overlap", send(12, count=2))
    peer.note("same last, other count", send(11, count=2))
    peer.note("raised epoch at 3", send(3, epoch=1))
    peer.note("raised epoch at 0", send(0, epoch=1))
    peer.note("old epoch", send(13, epoch=0))
    peer.note("old epoch repeat", send(12, epoch=0))
    peer.note("new producer at 0", send(0, producer=900_001))
    peer.note("wrap start", send(2**31 - 2, producer=900_002, count=1))
    peer.note("wrap over", send(2**31 - 1, producer=900_002, count=3))
    peer.note("wrap repeat", send(2**31 - 1, producer=900_002, count=3))
    peer.note("after wrap", send(2, producer=900_002))
    peer.note("no sequence", send(-1, producer=900_003))
    peer.note("no epoch", send(0, producer=900_004, epoch=-1))
    peer.note("many", send(0, producer=900_005, count=10))
    peer.note("many again", send(0, producer=900_005, count=10))
    producers = peer.wire.call(61, 0, topics=[{"name": topic, "partition_indexes": [0, 9]}])
    known, missing = producers.topics[0].partitions
    rows = [
        (p.producer_id, p.producer_epoch, p.last_sequence, p.coordinator_epoch,
         p.current_txn_start_offset)
        for p in known.active_producers
    ]  # fmt: skip
    peer.note("producers", sorted(rows))
    peer.note("producers of no partition", int(missing.error_code))
    nowhere = peer.wire.call(61, 0, topics=[{"name": peer.name("none"), "partition_indexes": [0]}])
    peer.note("producers of no topic", int(nowhere.topics[0].partitions[0].error_code))


def transactional_batches_out_of_place(peer: Peer) -> None:
    topic = peer.topic()
    producer = peer.transactional(peer.name("id"))
    raw = bytes(
        batch(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
    )
    named = {"transactional_id": peer.name("id")}
    peer.note("not added, v9", peer.produced(topic, raw, **named))
    peer.note("no id, v9", peer.produced(topic, raw))
    peer.note("not added, v11", peer.produced(topic, raw, version=11, **named))
    peer.note("other id, v9", peer.produced(topic, raw, transactional_id=peer.name("other")))
    peer.note("added by v12", peer.produced(topic, raw, version=12, **named))
    other = bytes(
        batch(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=1,
        )
    )
    peer.note("plain batch inside", peer.produced(topic, other))
    peer.note("committed", int(peer.end(peer.name("id"), producer, committed=True).error_code))


def log_append_time(peer: Peer) -> None:
    topic = peer.topic(message_timestamp_type="LogAppendTime")
    row = peer.wire.produce(topic, bytes(batch(timestamp=1000)))
    peer.note("answered", (int(row.error_code), row.log_append_time is not None))
    peer.note("far ahead", peer.produced(topic, bytes(batch(timestamp=peer.now + 10**9))))


@pytest.mark.parametrize(
    "scenario",
    [
        wrong_batches,
        produce_without_acks,
        compacted_topic,
        sequences,
        transactional_batches_out_of_place,
        log_append_time,
    ],
)
def test_both_take_and_refuse_the_same_batches(ask_both: AskBoth, scenario: Scenario) -> None:
    ask_both(scenario, DELIBERATE.get(scenario.__name__, {}))
